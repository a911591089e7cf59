"""Nodes that report to the real API server: the real watch before the actor, a stand-in for the router.

Each node uses a service account that may do what the actor's docstring lists, and nothing else. The stand-in puts
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
from tests.cluster.harness import PATIENCE, Json, make, make_node, service_account

Rules = list[dict[str, Any]]
T = TypeVar("T")

#: What the actor's docstring lists; the key is the writer that needs it.
RULES: Final[dict[str, Rules]] = {
    "node status": [
        {"apiGroups": [GROUP], "resources": [NODE_STATUS_PLURAL], "verbs": ["patch", "create"]},
        {"apiGroups": [GROUP], "resources": [f"{NODE_STATUS_PLURAL}/status"], "verbs": ["patch"]},
    ],
    "number of nodes": [{"apiGroups": [GROUP], "resources": [NODE_STATUS_PLURAL], "verbs": ["list"]}],
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
class ReportingNode:
    """One node. ``bad`` are names of objects that it refuses; ``reading`` and ``writing`` are its credentials."""

    name: str
    namespace: str
    settings: Settings
    reading: ApiCredentials
    writing: ApiCredentials
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    bad: dict[str, str] = field(default_factory=dict)
    index: int = 3
    ctx: ActorContext = field(default_factory=lambda: ActorContext("status_writer"))
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
        """Follow the server, stand in for the router, and report."""
        own: Latest[ApiAccess] = Latest("own access")
        self.access.set(ApiAccess(ApiReach.REACHABLE, self.writing))
        own.set(ApiAccess(ApiReach.REACHABLE, self.reading))
        self.static.set(StaticSnapshot(NodeIdentity(self.name, self.index), ()))
        with self.scope:
            await self._run(own)

    async def _run(self, own: Latest[ApiAccess]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, own)
            nursery.start_soon(self._route)
            nursery.start_soon(self._report)

    async def _watch(self, access: Latest[ApiAccess]) -> None:
        await crd_watch.run(
            ActorContext("crd_watch"),
            settings=self.settings,
            access=access.reader(),
            snapshots=self.static.reader(),
            out=self.api,
        )

    async def _report(self) -> None:
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
        # Objects of all namespaces select all nodes: what other tests left is not in force here.
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
    """The nodes, and an administrator who reads and edits."""

    admin: KubeClient
    namespace: str
    nodes: dict[str, ReportingNode]

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

    async def events(self, node: str) -> list[Json]:
        """Return the Events that ``kubectl describe`` shows of a Node: it uses the old group and these fields."""
        uid = (await self.admin.get(f"/api/v1/nodes/{node}"))["metadata"]["uid"]
        fields = {"name": node, "namespace": "", "kind": "Node", "uid": uid}
        selector = ",".join(f"involvedObject.{key}={value}" for key, value in fields.items())
        found = await self.admin.get("/api/v1/events", {"fieldSelector": selector})
        return list(found["items"])


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
    """Run nodes; ``without`` are the writers that RBAC forbids, ``bad`` what each node refuses, by object."""
    reading = await account(admin, namespace, "watch", WATCHING)
    rules = [rule for writer, needed in RULES.items() if writer not in without for rule in needed]
    writing = await account(admin, namespace, "status-writer", rules)
    nodes = {}
    for name in names:
        await make_node(admin, name)
        settings = Settings(namespace=namespace, state_dir=directory / name, run_dir=directory / name)
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        refused = (bad or {}).get(name, {})
        nodes[name] = ReportingNode(name, namespace, settings, reading, writing, bad=refused)
    async with trio.open_nursery() as nursery:
        for node in nodes.values():
            nursery.start_soon(node.run)
        yield Cluster(admin, namespace, nodes)
        nursery.cancel_scope.cancel()


async def until(what: str, check: Callable[[], Awaitable[T]], seconds: float = PATIENCE) -> T:
    """Wait until a check returns something true, and return that."""
    with trio.move_on_after(seconds):
        while True:
            if found := await check():
                return found
            await trio.sleep(0.1)
    raise AssertionError(f"not within {seconds:g} s: {what}")
