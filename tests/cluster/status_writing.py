"""Nodes that tell the real API server about themselves: the real watch before the actor, a stand-in for the router.

Each node asks with a service account that may do what the actor's docstring lists, and nothing else. The stand-in puts
every object of its namespace that the watch shows in force at once, but for those that a test names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from actors.crd_watch import actor as crd_watch
from actors.lib.kube.client import KubeClient
from actors.status_writer import actor
from actors.status_writer.node_status import path_of
from config.api import (
    API_VERSION,
    GROUP,
    NODE_STATUS_PLURAL,
    PLURALS,
    ApiAccess,
    ApiCredentials,
    ApiObject,
    ApiReach,
    ApiSnapshot,
)
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, NodeIdentity, StaticSnapshot
from config.problems import Kind, Problem
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.status_writer.examples import health, state
from tests.cluster.harness import Json, make, make_node, service_account

Rules = list[dict[str, Any]]
T = TypeVar("T")
_WAIT_SECONDS: Final = 40.0

#: What the actor's docstring lists; the key is the duty that needs it.
RULES: Final[dict[str, Rules]] = {
    "node status": [
        {"apiGroups": [GROUP], "resources": [NODE_STATUS_PLURAL], "verbs": ["patch", "create"]},
        {"apiGroups": [GROUP], "resources": [f"{NODE_STATUS_PLURAL}/status"], "verbs": ["patch"]},
    ],
    "checks": [{"apiGroups": [GROUP], "resources": [NODE_STATUS_PLURAL], "verbs": ["get"]}],
    "number of nodes": [{"apiGroups": [GROUP], "resources": [NODE_STATUS_PLURAL], "verbs": ["list"]}],
    "conditions": [
        {"apiGroups": [GROUP], "resources": [f"{plural}/status" for plural in PLURALS.values()], "verbs": ["patch"]}
    ],
    "events": [{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "get"]}],
    "node index": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}],
}
#: What the watch needs.
WATCHING: Final[Rules] = [
    {"apiGroups": [GROUP], "resources": [*PLURALS.values(), NODE_STATUS_PLURAL], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes", "secrets"], "verbs": ["get", "list", "watch"]},
]


async def account(admin: KubeClient, namespace: str, name: str, rules: Iterable[dict[str, Any]]) -> ApiCredentials:
    """Return credentials of a service account with these rules in the whole cluster."""
    full = f"{namespace}-{name}"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    who = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": full}
    credentials = await service_account(admin, namespace, name)
    role = {"metadata": {"name": full}, "rules": list(rules)}
    await admin.apply(
        f"{rbac}/clusterroles/{full}",
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", **role},
        manager="openperouter-tests",
    )
    binding = {"metadata": {"name": full}, "roleRef": reference, "subjects": [who]}
    await make(admin, f"{rbac}/clusterrolebindings", binding)
    return credentials


@dataclass
class AnnouncingNode:
    """One node. ``bad`` are names of objects that it refuses; ``reading`` and ``telling`` are who it asks as."""

    name: str
    namespace: str
    settings: Settings
    reading: ApiCredentials
    telling: ApiCredentials
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    bad: dict[str, str] = field(default_factory=dict)
    index: int = 3
    ctx: ActorContext = field(default_factory=lambda: ActorContext("announce"))
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    health: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))
    session: str = "Established"
    _generation: int = 0

    async def run(self) -> None:
        """Follow the server, stand in for the router, and announce."""
        own: Latest[ApiAccess] = Latest("own access")
        self.access.set(ApiAccess(ApiReach.REACHABLE, self.telling))
        own.set(ApiAccess(ApiReach.REACHABLE, self.reading))
        self.static.set(StaticSnapshot(NodeIdentity(self.name, self.index), ()))
        with self.scope:
            await self._run(own)

    async def _run(self, own: Latest[ApiAccess]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, own)
            nursery.start_soon(self._route)
            nursery.start_soon(self._announce)

    async def _watch(self, access: Latest[ApiAccess]) -> None:
        await crd_watch.run(
            ActorContext("crd_watch"),
            settings=self.settings,
            access=access.reader(),
            snapshots=self.static.reader(),
            out=self.api,
        )

    async def _announce(self) -> None:
        await actor.run(
            self.ctx,
            settings=self.settings,
            access=self.access.reader(),
            api=self.api.reader(),
            desired=self.desired.reader(),
            frr=self.frr.reader(),
            kernel=self.kernel.reader(),
            health=self.health.reader(),
        )

    async def _route(self) -> None:
        snapshots = self.api.reader()
        while True:
            await snapshots.receive()
            self.route()

    def route(self) -> None:
        """Put in force what the watch shows, but for what is bad."""
        snapshot = self.api.peek()
        shown = snapshot.objects if snapshot else ()
        # Objects of all namespaces select all nodes: those that other tests left are not in force here.
        objects = [one for one in shown if one.kind is Kind.L3VNI and one.namespace == self.namespace]
        good = [one for one in objects if one.name not in self.bad]
        problems = tuple(self._problem(one) for one in objects if one.name in self.bad)
        desired = replace(state(*good, problems=problems), node_name=self.name, node_index=self.index)
        before = self.desired.peek()
        if before is None or (before.content(), before.origins(), before.problems) != (
            desired.content(),
            desired.origins(),
            desired.problems,
        ):
            self._generation += 1
            self.settle(replace(desired, generation=self._generation))

    def settle(self, desired: DesiredState) -> None:
        """Publish a state and that it is in force."""
        self.desired.set(desired)
        self.frr.set(FrrOutcome(desired, applied=True))
        self.kernel.set(KernelOutcome(desired, applied=True))
        report = health(desired)
        self.health.set(replace(report, sessions=tuple(replace(one, state=self.session) for one in report.sessions)))

    def _problem(self, one: ApiObject) -> Problem:
        return Problem(self.bad[one.name], one.origin, "vni", resource=one.id)


@dataclass
class Cluster:
    """The nodes, and an administrator who looks and meddles."""

    admin: KubeClient
    namespace: str
    nodes: dict[str, AnnouncingNode]

    async def status(self, node: str) -> Json:
        """Return a node's status object."""
        return await self.admin.get(path_of(self.namespace, node))

    async def create(self, name: str, vni: int) -> Json:
        """Create an L3VNI that selects all nodes."""
        body = {
            "apiVersion": API_VERSION,
            "kind": "L3VNI",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"vrf": name, "vni": vni},
        }
        return await self.admin.create(self.collection, body)

    @property
    def collection(self) -> str:
        """Return where the L3VNIs are."""
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/l3vnis"

    async def conditions(self, name: str) -> dict[str, Json]:
        """Return the conditions of an L3VNI by type."""
        found = await self.admin.get(f"{self.collection}/{name}")
        return {one["type"]: one for one in found.get("status", {}).get("conditions", ())}

    async def events(self, namespace: str, **regarding: str) -> list[Json]:
        """Return the Events of a namespace that are ours, of an object with these fields."""
        listed = await self.admin.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        ours = (one for one in listed["items"] if one.get("reportingController") == "openperouter")
        return [one for one in ours if all(one["regarding"].get(key) == value for key, value in regarding.items())]


@asynccontextmanager
async def cluster(
    admin: KubeClient,
    namespace: str,
    directory: Path,
    names: Sequence[str] = ("node-a",),
    *,
    without: Sequence[str] = (),
    bad: dict[str, dict[str, str]] | None = None,
) -> AsyncIterator[Cluster]:
    """Run nodes; ``without`` are the duties that RBAC forbids, ``bad`` what each node refuses, by object."""
    reading = await account(admin, namespace, "watch", WATCHING)
    rules = [rule for duty, needed in RULES.items() if duty not in without for rule in needed]
    telling = await account(admin, namespace, "announce", rules)
    nodes = {}
    for name in names:
        await make_node(admin, name)
        settings = Settings(namespace=namespace, state_dir=directory / name, run_dir=directory / name)
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        refused = (bad or {}).get(name, {})
        nodes[name] = AnnouncingNode(name, namespace, settings, reading, telling, bad=refused)
    async with trio.open_nursery() as nursery:
        for node in nodes.values():
            nursery.start_soon(node.run)
        yield Cluster(admin, namespace, nodes)
        nursery.cancel_scope.cancel()


async def until(what: str, check: Callable[[], Awaitable[T]], seconds: float = _WAIT_SECONDS) -> T:
    """Wait until a question to the server has an answer that is true, and return that."""
    with trio.move_on_after(seconds):
        while True:
            if found := await check():
                return found
            await trio.sleep(0.1)
    raise AssertionError(f"not within {seconds:g} s: {what}")
