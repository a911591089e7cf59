"""A running crd_watch actor with its channels, against a server in memory, for tests on a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from actors.crd_watch import actor
from actors.lib.kube.errors import ApiError
from config.api import NODE_STATUS_PLURAL, PLURALS, ApiAccess, ApiCredentials, ApiReach, ApiSnapshot
from config.outcomes import NodeIdentity, StaticSnapshot
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.fakes.api_server import FakeApiServer, Trouble, place_of

SYSTEM = "openperouter-system"
#: The node's own status object, and those of nodes with about its index.
OF_STATUSES = (NODE_STATUS_PLURAL, NODE_STATUS_PLURAL)


class Recorded(Latest[ApiSnapshot]):
    """A cell that remembers every value, with the time of the virtual clock."""

    def __init__(self) -> None:
        super().__init__("api")
        self.values: list[tuple[float, ApiSnapshot]] = []

    def set(self, value: ApiSnapshot) -> None:
        self.values.append((trio.current_time(), value))
        super().set(value)


@dataclass
class Bench:
    """An actor, its channels and its server."""

    settings: Settings
    server: FakeApiServer = field(default_factory=FakeApiServer)
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    out: Recorded = field(default_factory=Recorded)
    ctx: ActorContext = field(default_factory=lambda: ActorContext("crd_watch"))

    @property
    def published(self) -> list[ApiSnapshot]:
        """Every snapshot so far."""
        return [snapshot for _, snapshot in self.out.values]

    async def run(self) -> None:
        await actor.run(
            self.ctx,
            settings=self.settings,
            access=self.access.reader(),
            snapshots=self.static.reader(),
            out=self.out,
            connect=self.server.connect,
        )

    def say_name(self, name: str = "node") -> None:
        self.static.set(StaticSnapshot(NodeIdentity(name, 0), ()))

    def say_access(self, credentials: ApiCredentials | None) -> None:
        self.access.set(ApiAccess(ApiReach.REACHABLE if credentials else ApiReach.UNCONFIGURED, credentials))

    def begin(self) -> None:
        """Say everything that the actor waits for."""
        self.say_name()
        self.say_access(self.server.credentials())

    async def until(self, holds: Callable[[ApiSnapshot], bool], seconds: float = 60) -> ApiSnapshot:
        """Wait for a snapshot."""
        reader = self.out.reader()
        with trio.fail_after(seconds):
            while not holds(snapshot := await reader.receive()):
                pass
        return snapshot

    async def live(self, seconds: float = 60) -> ApiSnapshot:
        return await self.until(lambda snapshot: snapshot.live, seconds)

    async def names(self, *names: str, seconds: float = 60) -> ApiSnapshot:
        """Wait until exactly these objects are published."""
        return await self.until(lambda snapshot: {one.name for one in snapshot.objects} == set(names), seconds)


@asynccontextmanager
async def running(tmp_path: Path, server: FakeApiServer | None = None) -> AsyncIterator[Bench]:
    """Yield an actor that runs and knows nothing yet."""
    bench = Bench(Settings(state_dir=tmp_path, namespace=SYSTEM), server or FakeApiServer())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        yield bench
        nursery.cancel_scope.cancel()


def failing(error: ApiError, verb: str = "", *resources: str) -> Trouble:
    """Return the trouble that certain requests end with an error."""

    def trouble(sent: str, path: str) -> ApiError | None:
        return error if verb in ("", sent) and (not resources or place_of(path).resource in resources) else None

    return trouble


async def followed(bench: Bench) -> None:
    """Begin, and wait until all is quiet."""
    bench.begin()
    await bench.live()
    await trio.sleep(10)
    bench.server.requests.clear()


def every_kind() -> list[str]:
    """Return the resources whose CRDs are ours, each as often as there are collections of it."""
    return [*PLURALS.values(), *OF_STATUSES]
