"""What tests of the tree share: bodies of children, a diary of what happened, and a tree that is stopped at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from supervisor.runtime.actor import ActorContext
from supervisor.runtime.child import ChildSpec, ChildState, ChildStatus
from supervisor.runtime.tree import Ending, Supervisor

Body = Callable[[ActorContext], Awaitable[None]]


@dataclass
class Diary:
    """Events of a test: ``(seconds since the start, child, event)``."""

    entries: list[tuple[float, str, str]] = field(default_factory=list)

    def note(self, name: str, event: str) -> None:
        self.entries.append((round(trio.current_time(), 3), name, event))

    def of(self, name: str, event: str = "start") -> list[float]:
        return [moment for moment, who, what in self.entries if (who, what) == (name, event)]

    def events(self) -> list[str]:
        return [f"{event} {name}" for _, name, event in self.entries]


def healthy(diary: Diary) -> Body:
    """A body that starts and waits for input indefinitely."""

    async def run(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        try:
            with ctx.idle():
                await trio.sleep_forever()
        finally:
            diary.note(ctx.name, "end")

    return run


def failing(diary: Diary, error: BaseException, *, times: int = 10**9, after: float = 0.0) -> Body:
    """A body that starts, and fails in its first so many runs."""

    async def run(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        with ctx.idle():
            await trio.sleep(after)
            if ctx.incarnation <= times:
                raise error
            await trio.sleep_forever()

    return run


def spec(name: str, run: Body, **rest: object) -> ChildSpec:
    return ChildSpec(name, lambda _ports: run, **rest)  # type: ignore[arg-type]  # checked where it is defined


@dataclass
class Running:
    supervisor: Supervisor
    abandoned: list[int]
    endings: list[Ending] = field(default_factory=list)

    def __getitem__(self, name: str) -> ChildStatus:
        return next(status for status in self.supervisor.snapshot() if status.name == name)

    async def started(self) -> None:
        """Wait until every child runs."""
        statuses = self.supervisor.statuses.reader()
        while any(status.state is not ChildState.RUNNING for status in self.supervisor.snapshot()):
            await statuses.receive()

    async def end(self) -> Ending:
        while not self.endings:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.01)
        return self.endings[0]


@asynccontextmanager
async def running(*specs: ChildSpec) -> AsyncIterator[Running]:
    """Run a tree without jitter, so that times can be stated, and stop it at the end of the test."""
    abandoned: list[int] = []
    run = Running(Supervisor(specs, chance=lambda: 0.5, abandon=abandoned.append), abandoned)

    async def keep() -> None:
        run.endings.append(await run.supervisor.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        yield run
        run.supervisor.stop()
        with trio.move_on_after(1000):
            await run.end()
        nursery.cancel_scope.cancel()


def toiling(diary: Diary, seconds: float) -> Body:
    """A body that works for so long without a pause, then waits for input."""

    async def run(ctx: ActorContext) -> None:
        ctx.started()
        try:
            await trio.sleep(seconds)
            diary.note(ctx.name, "done")
            with ctx.idle():
                await trio.sleep_forever()
        finally:
            diary.note(ctx.name, "end")

    return run
