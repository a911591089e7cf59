"""Controllers on a server in memory, with nodes whose daemons are a line of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from config.api import NODE_STATUS_PLURAL
from supervisor.operations.cluster.controller import Controller
from tests.actors.controller.test_aggregation import report
from tests.fakes.api_server import FakeApiServer, path_of

SYSTEM: Final = "openperouter-system"
LEASE: Final = path_of("leases", "openperouter-controller", SYSTEM)
READS: Final = ("get", "list", "count", "watch")


@dataclass
class Bench:
    """A server, and the controllers that were started on it, by their identity."""

    server: FakeApiServer = field(default_factory=FakeApiServer)
    controllers: dict[str, Controller] = field(default_factory=dict)
    scopes: dict[str, trio.CancelScope] = field(default_factory=dict)

    async def start(self, nursery: trio.Nursery, identity: str = "one") -> Controller:
        """Start a controller that uses the server under its identity."""
        credentials = self.server.credentials(identity)
        controller = Controller(lambda: credentials, SYSTEM, identity=identity, connect=self.server.connect)
        scope = self.scopes[identity] = trio.CancelScope()
        self.controllers[identity] = controller

        async def run() -> None:
            with scope:
                await controller.supervisor.run()

        nursery.start_soon(run)
        await trio.lowlevel.checkpoint()
        return controller

    @property
    def holder(self) -> str:
        """Who has the lease."""
        lease = self.server.objects.get(LEASE)
        return str(lease["spec"]["holderIdentity"]) if lease else ""

    def node(self, name: str, index: str | None = None, **metadata: Any) -> None:
        """Put a Node, old enough to get an index."""
        annotations = {"annotations": {"openpe.io/nodeindex": index}} if index is not None else {}
        created = {"creationTimestamp": "2020-01-01T00:00:00Z"}
        labels = {"kubernetes.io/hostname": name}
        self.server.store(
            path_of("nodes", name), {"metadata": {"labels": labels, **created, **annotations, **metadata}}
        )

    def index(self, name: str) -> str | None:
        """Return the index on a Node."""
        annotations = self.server.objects[path_of("nodes", name)]["metadata"].get("annotations", {})
        found: str | None = annotations.get("openpe.io/nodeindex")
        return found

    def report(self, name: str, seen: dict[str, tuple[int, bool]], failed: dict[str, str] | None = None) -> None:
        """Put a node's status object."""
        self.server.store(path_of(NODE_STATUS_PLURAL, name, SYSTEM), report(name, seen, failed))

    def vni(self, name: str = "red", **spec: Any) -> int:
        """Put an L3VNI; return its generation."""
        stored = self.server.put("l3vnis", name, {"vrf": name, "vni": 100, **spec}, namespace="demo")
        return int(stored["metadata"]["generation"])

    def conditions(self, name: str = "red") -> dict[str, dict[str, Any]]:
        """Return an L3VNI's conditions by type."""
        one = self.server.objects[path_of("l3vnis", name, "demo")]
        return {each["type"]: each for each in one.get("status", {}).get("conditions", ())}

    def message(self, name: str = "red") -> str:
        """Return what is said about Ready."""
        return str(self.conditions(name).get("Ready", {}).get("message", ""))

    def writes(self) -> list[tuple[str, str]]:
        """Return what was written but the lease."""
        return [(verb, path) for verb, path in self.server.requests if verb not in READS and path != LEASE]

    async def until(self, check: Callable[[], bool], seconds: float = 120.0) -> None:
        """Wait for something on the server."""
        with trio.fail_after(seconds):
            while not check():  # noqa: ASYNC110
                await trio.sleep(0.05)


@asynccontextmanager
async def running(bench: Bench, *identities: str) -> AsyncIterator[trio.Nursery]:
    """Run controllers until the end of the block."""
    async with trio.open_nursery() as nursery:
        for identity in identities or ("one",):
            await bench.start(nursery, identity)
        yield nursery
        nursery.cancel_scope.cancel()
