"""Two nodes with one index on a real API server, with the shipped roles, policies and node-bound tokens.

Each node follows the server, decides, and reports; a stand-in for the router puts in force what is decided.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from actors.crd_watch import actor as crd_watch
from actors.desired import actor as desired
from actors.lib.kube.client import KubeClient
from actors.status_writer import actor as status_writer
from config.api import API_VERSION, INDEX_LABEL, NODE_STATUS_PLURAL, ApiAccess, ApiCredentials, ApiReach, ApiSnapshot
from config.desired import DesiredState, RouterAddresses
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, NodeIdentity, StaticSnapshot
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.status_writer.examples import health

from .harness import ClusterServer, Json, both_versions, kube, make, make_node, of_node, service_account
from .permissions import ACCOUNT, NAMESPACE, install
from .rbac_scenarios import collection
from .status_writing import until
from .test_desired import UNDERLAY, nothing_runs

STATUSES = collection(NAMESPACE, NODE_STATUS_PLURAL)


@dataclass
class Node:
    """A node. ``credentials`` are its own, bound to it."""

    name: str
    settings: Settings
    credentials: ApiCredentials
    index: int = 5
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    health: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))

    @property
    def in_force(self) -> RouterAddresses | None:
        state = self.desired.peek()
        return state.addresses if state else None

    def begin(self, nursery: trio.Nursery, *, index: int = 5) -> None:
        self.set_index(index)
        self.access.set(ApiAccess(ApiReach.REACHABLE, self.credentials))
        for part in (self._follow, self._decide, self._route, self._report):
            nursery.start_soon(part)

    def set_index(self, index: int) -> None:
        self.static.set(StaticSnapshot(NodeIdentity(self.name, index, "info", "v2"), ()))

    async def _follow(self) -> None:
        await crd_watch.run(
            ActorContext("crd_watch"),
            settings=self.settings,
            access=self.access.reader(),
            snapshots=self.static.reader(),
            out=self.api,
        )

    async def _decide(self) -> None:
        await desired.run(
            ActorContext("desired"),
            settings=self.settings,
            snapshots=self.static.reader(),
            api=self.api.reader(),
            forget_api=Latest[int]("forget_api").reader(),
            out=self.desired,
            removes=nothing_runs,
        )

    async def _route(self) -> None:
        states = self.desired.reader()
        while True:
            state = await states.receive()
            self.frr.set(FrrOutcome(state, applied=True))
            self.kernel.set(KernelOutcome(state, applied=True))
            self.health.set(replace(health(state), sessions=()))

    async def _report(self) -> None:
        await status_writer.run(
            ActorContext("status_writer"),
            settings=self.settings,
            access=self.access.reader(),
            api=self.api.reader(),
            desired=self.desired.reader(),
            frr=self.frr.reader(),
            kernel=self.kernel.reader(),
            health=self.health.reader(),
        )


async def object_of(admin: KubeClient, node: Node) -> Json:
    """Return a node's status object, empty as long as there is none."""
    found = [one for one in (await admin.get(STATUSES))["items"] if one["metadata"]["name"] == node.name]
    return found[0] if found else {}


async def condition_of(admin: KubeClient, node: Node, type_: str) -> tuple[str, str]:
    conditions = (await object_of(admin, node)).get("status", {}).get("conditions", ())
    return next(((one["status"], one["message"]) for one in conditions if one["type"] == type_), ("", ""))


async def reports(admin: KubeClient, node: Node, status: str, text: str = "") -> None:
    """Wait for the condition DuplicateIndex."""

    async def shown() -> bool:
        found, message = await condition_of(admin, node, "DuplicateIndex")
        return found == status and text in message

    await until(f"{node.name} says {status} of {text!r}", shown)


async def events_of(admin: KubeClient, node: Node) -> list[str]:
    found = await admin.get("/apis/events.k8s.io/v1/namespaces/default/events")
    about = [one for one in found["items"] if one["regarding"]["name"] == node.name]
    return [one["note"] for one in about if one["reason"] == "DuplicateIndex"]


@asynccontextmanager
async def two_nodes(
    server: ClusterServer, namespace: str, directory: Path
) -> AsyncIterator[tuple[KubeClient, Node, Node]]:
    """Yield an administrator, and two nodes of a cluster with an underlay for both of them."""
    async with kube(server.admin) as admin:
        await install(admin)
        unbound = await service_account(admin, NAMESPACE, ACCOUNT)
        nodes = []
        for suffix in "ab":
            name = f"{namespace}-{suffix}"
            await make_node(admin, name, {"zone": namespace})
            token = (await service_account(admin, NAMESPACE, ACCOUNT, bound=of_node(name))).token
            state_dir = directory / name
            state_dir.mkdir()
            settings = Settings(state_dir=state_dir, run_dir=state_dir / "run")
            nodes.append(Node(name, settings, replace(unbound, token=token)))
        selector = {"nodeSelector": {"matchLabels": {"zone": namespace}}}
        body = {
            "apiVersion": API_VERSION,
            "kind": "Underlay",
            "metadata": {"name": "fabric"},
            "spec": UNDERLAY | selector,
        }
        await make(admin, collection(NAMESPACE, "underlays"), body)
        first, second = nodes
        yield admin, first, second


@both_versions
async def test_the_second_node_waits_for_the_first_and_both_report_it(
    server: ClusterServer, system: str, namespace: str, tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with two_nodes(server, namespace, tmp_path) as (admin, first, second):
        first.begin(nursery)

        async def shows_its_index() -> bool:
            found = await object_of(admin, first)
            return found.get("metadata", {}).get("labels") == {INDEX_LABEL: "5"} and "router" in found.get("status", {})

        await until("the first node shows its index", shows_its_index)
        second.begin(nursery)
        for one, other in ((first, second), (second, first)):
            await reports(admin, one, "True", f"node {other.name} (index 5")

            async def events(node: Node = one) -> list[str]:
                return await events_of(admin, node)

            await until(f"{one.name} has an Event", events)
        assert first.in_force == RouterAddresses(5, "10.0.0.5", ("100.65.0.5",))
        assert second.in_force is None
        assert (await object_of(admin, second))["status"]["router"]["inForce"] is False
        assert (await condition_of(admin, first, "Ready"))[0] == "True"
        assert (await condition_of(admin, second, "Ready"))[0] == "False"
        # Another index ends it, on both.
        second.set_index(6)
        for one in (first, second):
            await reports(admin, one, "False")
        assert second.in_force == RouterAddresses(6, "10.0.0.6", ("100.65.0.6",))
        assert first.in_force == RouterAddresses(5, "10.0.0.5", ("100.65.0.5",))


@both_versions
async def test_a_node_that_waits_comes_up_when_the_other_s_is_deleted(
    server: ClusterServer, system: str, namespace: str, tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with two_nodes(server, namespace, tmp_path) as (admin, first, second):
        async with trio.open_nursery() as life:
            first.begin(life)

            async def shows_its_index() -> bool:
                return "router" in (await object_of(admin, first)).get("status", {})

            await until("the first node shows its index", shows_its_index)
            life.cancel_scope.cancel()
        # It no longer runs, but its packets may still be forwarded: its object stays as long as its Node.
        second.begin(nursery)
        await reports(admin, second, "True", first.name)
        assert second.in_force is None
        # The garbage collector's work, which does not run here.
        await admin.delete(f"{STATUSES}/{first.name}")
        await reports(admin, second, "False")
        assert second.in_force == RouterAddresses(5, "10.0.0.5", ("100.65.0.5",))
