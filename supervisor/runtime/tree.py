"""The supervisor: a list of children, started in order, kept running one by one, and stopped in reverse order.

Each child has a loop of its own (``restarts``), which starts once the child before it in the list has. An error of one
child never reaches another. The tree ends on request, or when a critical child cannot live; the exit code then
says why. Stopping leaves whatever the children configured in place.

Every change of a child's state is written to ``statuses``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from ..logs import message_ids
from .channel import Latest
from .child import ChildSpec, ChildStatus
from .faults import EXIT_BUG, EXIT_OK, exit_code_of
from .restarts import Child, log


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the tree ended: exit code 0 for a request, else that of the last error of the child that ``reason`` names."""

    exit_code: int
    reason: str


class Supervisor:
    """Runs children. One object, one run.

    ``chance`` gives random numbers in [0, 1) for jitter. ``abandon`` is called with the exit code when a child could
    not be stopped in time: it must end the process, which such a child (a thread in the kernel, say) would hold up.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        chance: Callable[[], float] = random.random,
        abandon: Callable[[int], object] = os._exit,
    ) -> None:
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            raise ValueError(f"children's names are not unique: {', '.join(names)}")
        self._children = [
            Child(spec, chance=chance, publish=partial(self._publish, number), escalate=self._escalate)
            for number, spec in enumerate(specs)
        ]
        self._abandon = abandon
        self._ending: Ending | None = None
        self._ending_known = trio.Event()
        self._hurry = False
        #: Rewritten at each change of a child's state; a child's age and facts in it are those of its last change.
        self.statuses: Latest[tuple[ChildStatus, ...]] = Latest("children")
        self._published = [child.status(0.0) for child in self._children]

    @property
    def stopping(self) -> bool:
        """Whether the tree is ending."""
        return self._ending is not None

    def stop(self) -> None:
        """Ask for an orderly end. Asked again, units of work in hand are no longer waited for."""
        self._hurry = self.stopping
        self._end(Ending(EXIT_OK, "stop requested"))
        for child in self._children:
            child.changed.notify()

    def snapshot(self) -> tuple[ChildStatus, ...]:
        """Return every child's status now, in start order."""
        now = trio.current_time()
        return tuple(child.status(now) for child in self._children)

    async def run(self) -> Ending:
        """Keep the children running until the end; return why it came. Cancelling this cancels all children at once."""
        async with trio.open_nursery() as runs:
            ending = self._ending or await self._keep_running(runs)
            stuck = [child.spec.name for child in reversed(self._children) if not await child.stop(lambda: self._hurry)]
            if stuck:
                names = ", ".join(stuck)
                log.error("children abandoned: they do not end", message_id=message_ids.CHILD_HANGS, children=names)
                self._abandon(ending.exit_code)
        return ending

    async def _keep_running(self, runs: trio.Nursery) -> Ending:
        async with trio.open_nursery() as loops:
            loops.start_soon(self._start_in_order, loops, runs)
            await self._ending_known.wait()
            loops.cancel_scope.cancel()
        return self._ending or Ending(EXIT_BUG, "unknown")

    async def _start_in_order(self, loops: trio.Nursery, runs: trio.Nursery) -> None:
        for child in self._children:
            loops.start_soon(child.keep_running, runs)
            await child.settled.wait()

    def _publish(self, number: int) -> None:
        self._published[number] = self._children[number].status(trio.current_time())
        self.statuses.set(tuple(self._published))

    def _escalate(self, name: str, error: BaseException | None, text: str) -> None:
        self._end(Ending(exit_code_of(error) if error else EXIT_BUG, f"{name} failed for good: {text}"))
        self._publish(next(number for number, child in enumerate(self._children) if child.spec.name == name))

    def _end(self, ending: Ending) -> None:
        self._ending = self._ending or ending
        self._ending_known.set()
