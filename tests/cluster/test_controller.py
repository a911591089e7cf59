"""``openperouter controller`` on a real API server, with the rights that are shipped.

Nodes report as the real daemon does (:mod:`tests.cluster.status_writing`); where there are many, an administrator
writes what they would.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from actors.controller import index_writer
from actors.controller.cluster_state import ClusterNode, ClusterState
from actors.controller.election import NAME as LEASE
from actors.controller.index_writer import DuplicateReporter
from actors.controller.node_indices import IndexedNode
from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import ForbiddenError, InvalidError, NotFoundError
from config.api import API_VERSION, INDEX_ANNOTATION, NODE_STATUS_PLURAL, PLURALS, ApiCredentials
from config.problems import Kind
from config.settings import Settings
from supervisor.operations.cluster.controller import Controller
from tests.actors.controller.test_aggregation import report
from tests.cluster.corpus import GOOD
from tests.cluster.harness import (
    MANAGER,
    PATIENCE,
    ROOT,
    ClusterServer,
    Json,
    both_versions,
    delete_nodes,
    kube,
    make_node,
    service_account,
)
from tests.cluster.permissions import documents, path_of
from tests.cluster.test_rbac import PromptNode

BASE: Final = ROOT / "packaging/kubernetes/controller"
SYSTEM: Final = "openperouter-system"
ACCOUNT: Final = "cluster-controller"
USER: Final = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"
LEASE_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{LEASE}"
STATUSES: Final = f"/apis/{API_VERSION}/namespaces/{SYSTEM}/{NODE_STATUS_PLURAL}"


@dataclass
class Cluster:
    """A server on which the controller's manifests are applied, without Nodes, and the controller's credentials."""

    server: ClusterServer
    admin: KubeClient
    account: ApiCredentials
    users: str
    #: What was asked before the test began.
    began: int = 0

    def requests(self, *, since: int = 0) -> list[tuple[str, str]]:
        """Return what the controllers have asked in this test, but what concerns the lease and connections."""
        asked = self.server.requests(USER)[self.began :]
        return [(one.verb, one.resource) for one in asked if one.resource not in ("leases", "")][since:]

    @property
    def vnis(self) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.users}/l3vnis"

    async def vni(self, name: str, vni: int) -> int:
        """Write an L3VNI; return its generation."""
        head = {"apiVersion": API_VERSION, "kind": "L3VNI", "metadata": {"name": name}}
        body = {**head, "spec": {"vrf": name, "vni": vni}}
        stored = await self.admin.apply(f"{self.vnis}/{name}", body, manager=MANAGER)
        return int(stored["metadata"]["generation"])

    async def message(self, name: str) -> str:
        """Return what is said about Ready, with the generation and the word."""
        one = await self.admin.get(f"{self.vnis}/{name}")
        conditions = one.get("status", {}).get("conditions", ())
        found = [each for each in conditions if each["type"] == "Ready"]
        return "".join(f"{each['observedGeneration']} {each['status']} {each['message']}" for each in found)

    async def index(self, name: str) -> str | None:
        """Return the index on a Node."""
        annotations = (await self.admin.get(f"/api/v1/nodes/{name}"))["metadata"].get("annotations", {})
        found: str | None = annotations.get(INDEX_ANNOTATION)
        return found

    async def holder(self) -> str:
        """Return who has the lease."""
        with suppress(NotFoundError):
            return (await self.admin.get(LEASE_PATH))["spec"].get("holderIdentity") or ""
        return ""

    async def report(self, node: str, seen: dict[str, tuple[int, bool]]) -> None:
        """Write a node's status object."""
        head = {"apiVersion": API_VERSION, "kind": "RouterNodeConfigurationStatus", "metadata": {"name": node}}
        status = report(node, seen)["status"]
        for one in status["resources"]:
            one["namespace"] = self.users
        await self.admin.apply(f"{STATUSES}/{node}", head, manager=MANAGER)
        await self.admin.apply(f"{STATUSES}/{node}/status", {**head, "status": status}, manager=MANAGER)


async def until(what: str, check: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
    """Wait for something on the server."""
    with trio.move_on_after(seconds):
        while not await check():  # noqa: ASYNC110
            await trio.sleep(0.1)
        return
    raise AssertionError(f"not within {seconds:g} s: {what}")


def writes(requests: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the requests that change something."""
    return [one for one in requests if one[0] not in ("get", "list", "watch")]


def manifests(*names: str) -> list[Json]:
    return [one for name in names for one in documents(BASE / name)]


@pytest.fixture
async def cluster(server: ClusterServer, system: str, namespace: str) -> AsyncIterator[Cluster]:
    """Yield a cluster without Nodes and leases, with the controller's rights."""
    async with kube(server.admin) as admin:
        await clear(admin)
        for one in manifests("role.yaml", "policy.yaml"):
            await admin.apply(path_of(one), one, manager=MANAGER)
        account = await service_account(admin, SYSTEM, ACCOUNT)
        await until("the role is in force", lambda: may_list(account))
        yield Cluster(server, admin, account, namespace, len(server.requests(USER)))
        await clear(admin)


async def clear(admin: KubeClient) -> None:
    await delete_nodes(admin)
    with suppress(NotFoundError):
        await admin.delete(LEASE_PATH)
    for page in [page async for page in admin.pages(index_writer.EVENTS)]:
        for one in page["items"]:
            await admin.delete(f"{index_writer.EVENTS}/{one['metadata']['name']}")


async def may_list(account: ApiCredentials) -> bool:
    async with kube(account) as client:
        try:
            for path in ("/api/v1/nodes", STATUSES):
                await client.get(path, {"limit": 1})
        except ForbiddenError:
            return False
        return True


@asynccontextmanager
async def running(cluster: Cluster, identity: str = "one") -> AsyncIterator[Controller]:
    """Run a controller with the shipped account."""
    controller = Controller(lambda: cluster.account, SYSTEM, identity=identity)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.supervisor.run)
        yield controller
        controller.supervisor.stop()


@both_versions
async def test_the_manifests_are_accepted(server: ClusterServer, system: str) -> None:
    async with kube(server.admin) as client:
        for one in manifests("role.yaml", "policy.yaml", "deployment.yaml"):
            path = path_of(one)
            with suppress(NotFoundError):
                await client.delete(path)
            answer = await client.create(path.rpartition("/")[0], one, {"dryRun": "All", "fieldValidation": "Strict"})
            assert answer["metadata"]["name"] == one["metadata"]["name"]


@both_versions
async def test_conditions_and_indices_over_nodes_that_report(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three real reporters, two of them with one index; two Nodes without a daemon."""
    monkeypatch.setattr(index_writer, "GRACE_SECONDS", 0.0)
    # Where the stand-ins look for objects.
    cluster = replace(cluster, users=SYSTEM)
    generation = await cluster.vni("red", 100)
    server = cluster.server
    for name in ("node-a", "node-b", "node-c", "bare"):
        await make_node(cluster.admin, name)
    await make_node(cluster.admin, "repaired")
    claim = {"metadata": {"annotations": {INDEX_ANNOTATION: "3"}}}
    await cluster.admin.merge_patch("/api/v1/nodes/repaired", claim, manager="kubectl-annotate")
    async with trio.open_nursery() as nursery:
        nodes = {}
        for name, index in (("node-a", 3), ("node-b", 3), ("node-c", 0)):
            directory = tmp_path / name
            directory.mkdir()
            settings = Settings(state_dir=directory, run_dir=directory, configs_dir=directory, namespace=SYSTEM)
            nodes[name] = PromptNode(name, SYSTEM, settings, server.admin, server.admin, index=index)
            nursery.start_soon(nodes[name].run)
        await until("the nodes show their index", lambda: shown(cluster, "node-a", "3"))
        async with running(cluster):
            await until("all nodes are counted", lambda: says(cluster, f"{generation} True 3/3 nodes"))
            nodes["node-b"].bad["red"] = "the VNI is used twice"
            generation = await cluster.vni("red", 101)
            text = "2/3 nodes; failing on node-b (vni: the VNI is used twice)"
            await until("the failure is named", lambda: says(cluster, f"{generation} False {text}"))
            await until("the Node without a daemon has an index", lambda: shown(cluster, "bare", "1"))
            await until("a claimed index is replaced", lambda: shown(cluster, "repaired", "2"))
            await until("both nodes of one index have an Event", lambda: events(cluster, {"node-a", "node-b"}))
            assert [await cluster.index(name) for name in nodes] == ["3", "3", "0"]
            # Nothing more to do.
            before = len(cluster.requests())
            await trio.sleep(6)
            assert writes(cluster.requests(since=before)) == []
        nursery.cancel_scope.cancel()
    assert {one.code for one in server.requests(USER)[cluster.began :]} & {403, 422} == set()


async def says(cluster: Cluster, text: str) -> bool:
    return await cluster.message("red") == text


async def shown(cluster: Cluster, node: str, index: str) -> bool:
    return await cluster.index(node) == index


async def events(cluster: Cluster, nodes: set[str]) -> bool:
    found = (await cluster.admin.get(index_writer.EVENTS))["items"]
    return {one["regarding"]["name"] for one in found if one["reason"] == "DuplicateNodeIndex"} == nodes


@both_versions
async def test_what_is_granted_is_what_is_used(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb that is shipped is asked for by the controller's work, and nothing else."""
    monkeypatch.setattr(index_writer, "GRACE_SECONDS", 0.0)
    for kind in Kind:
        await put(cluster, kind)
    for name in ("node-a", "node-b"):
        await make_node(cluster.admin, name)
    await cluster.report("node-a", {})
    async with running(cluster) as controller:
        await until("an index is assigned", lambda: shown(cluster, "node-b", "0"))
        asked = {(verb, resource) for verb, resource in granted() if resource.endswith("/status")}
        await until("all conditions are written", lambda: used(cluster, asked))
        term = controller.channels.term.peek()
        assert term is not None
    for later in (0.0, 5000.0):
        await report_duplicate(cluster, later)
        await report_duplicate(cluster, later)
    answered = cluster.server.requests(USER)[cluster.began :]
    assert [one for one in answered if one.code in (401, 403)] == []
    assert {(one.verb, one.resource) for one in answered if one.resource} == granted()


async def used(cluster: Cluster, wanted: set[tuple[str, str]]) -> bool:
    await trio.lowlevel.checkpoint()
    return wanted <= set(cluster.requests())


def granted() -> set[tuple[str, str]]:
    """Return verb and resource of each permission in the shipped roles."""
    return {
        (verb, resource)
        for role in manifests("role.yaml")
        for rule in role.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def put(cluster: Cluster, kind: Kind) -> None:
    """Write one object of a kind."""
    spec = GOOD[kind][0]
    head = {"apiVersion": API_VERSION, "kind": kind.value, "metadata": {"name": f"one-{kind.value.lower()}"}}
    path = f"/apis/{API_VERSION}/namespaces/{SYSTEM}/{PLURALS[kind]}"
    await cluster.admin.create(path, {**head, "spec": spec})


async def report_duplicate(cluster: Cluster, later: float) -> None:
    """Send the Event of a duplicate at some time, as a leader that was just elected does."""
    raw = await cluster.admin.get("/api/v1/nodes/node-a")
    node = ClusterNode("node-a", raw["metadata"]["uid"], {})
    reporter = DuplicateReporter(lambda: time.time() + later)
    claims = [IndexedNode(name, "3", own=True) for name in ("node-a", "node-z")]
    reporter.update(ClusterState({"node-a": node}), claims, 0.0)
    async with kube(cluster.account) as client:
        await reporter.write(client, index_writer.STEADY_SECONDS)


@both_versions
async def test_of_a_node_the_controller_may_change_the_index_only(cluster: Cluster) -> None:
    await make_node(cluster.admin, "node-a")
    path = "/api/v1/nodes/node-a"
    async with kube(cluster.account) as client:

        async def refused(change: Json) -> bool:
            try:
                await client.merge_patch(path, change, manager=MANAGER)
            except InvalidError as error:
                return "openpe.io/nodeindex" in str(error)
            return False

        numbers = iter(range(10_000))
        await until("the policy is in force", lambda: refused({"metadata": {"labels": {"probe": str(next(numbers))}}}))
        assert await refused({"spec": {"unschedulable": True}})
        assert await refused({"metadata": {"annotations": {"a": "b"}}})
        assert not await refused({"metadata": {"annotations": {INDEX_ANNOTATION: "5"}}})
        with pytest.raises(ForbiddenError):
            await client.delete(path)


@both_versions
async def test_two_processes_hand_over(cluster: Cluster, tmp_path: Path) -> None:
    """One is stopped and the other leads within seconds; that one is killed, and a third leads when its lease ends."""
    assert cluster.account.token is not None
    (tmp_path / "token").write_text(cluster.account.token.reveal())
    (tmp_path / "ca.crt").write_text(cluster.server.ca)
    generation = await cluster.vni("red", 100)
    await make_node(cluster.admin, "node-a")
    await cluster.report("node-a", {"red": (generation, True)})
    with process(cluster, tmp_path) as first:
        await until("one leads", lambda: leads(cluster, ""))
        one = await cluster.holder()
        with process(cluster, tmp_path) as second:
            await until("the conditions are written", lambda: says(cluster, f"{generation} True 1/1 nodes"))
            first.send_signal(signal.SIGTERM)
            await until("the lease is handed over", lambda: leads(cluster, one))
            assert await trio.to_thread.run_sync(first.wait) == 0
            two = await cluster.holder()
            generation = await cluster.vni("red", 101)
            text = f"{generation} False 0/1 nodes; waiting for node-a"
            await until("the second one writes", lambda: says(cluster, text))
            with process(cluster, tmp_path):
                second.kill()
                await cluster.report("node-a", {"red": (generation, True)})
                await until("a third one takes over", lambda: leads(cluster, two))
                await until("the third one writes", lambda: says(cluster, f"{generation} True 1/1 nodes"))


async def leads(cluster: Cluster, other_than: str) -> bool:
    return await cluster.holder() not in ("", other_than)


def process(cluster: Cluster, account: Path) -> subprocess.Popen[bytes]:
    """Start the program itself."""
    return Stopped(
        [
            *(sys.executable, "-m", "supervisor", "controller", "--namespace", SYSTEM),
            *("--account", str(account), "--api-server", cluster.server.url),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


class Stopped(subprocess.Popen[bytes]):
    """A process that ends with its block."""

    def __exit__(self, *error: Any) -> None:
        self.kill()
        super().__exit__(*error)


NODES: Final = 150
OBJECTS: Final = 60


@both_versions
async def test_the_change_of_one_of_many_objects_costs_a_handful_of_requests(cluster: Cluster) -> None:
    names = [f"node-{number:03}" for number in range(NODES)]
    objects = [f"vrf{number}" for number in range(OBJECTS)]
    seen = {name: (await cluster.vni(name, 100 + number), True) for number, name in enumerate(objects)}
    await at_once(names, lambda name: make_node_with_report(cluster, name, seen))
    async with running(cluster):

        async def ready() -> bool:
            page = await cluster.admin.get(cluster.vnis)
            all_ = [one.get("status", {}).get("conditions", [{}])[0].get("message") for one in page["items"]]
            return all_ == [f"{NODES}/{NODES} nodes"] * OBJECTS

        await until("all objects are ready", ready, 300)
        assert writes(cluster.requests()) == [("patch", "l3vnis/status")] * OBJECTS
        before = len(cluster.requests())
        generation = await cluster.vni("vrf7", 4000)
        seen = {**seen, "vrf7": (generation, True)}
        await at_once(names, lambda name: cluster.report(name, seen))
        wanted = f"{generation} True {NODES}/{NODES} nodes"

        async def again() -> bool:
            return await cluster.message("vrf7") == wanted

        await until("the change is in force everywhere", again, 300)
        asked = writes(cluster.requests(since=before))
        assert set(asked) == {("patch", "l3vnis/status")}
        # Six, or a few more where the nodes take minutes to report.
        assert len(asked) <= 20


async def make_node_with_report(cluster: Cluster, name: str, seen: dict[str, tuple[int, bool]]) -> None:
    await make_node(cluster.admin, name)
    await cluster.report(name, seen)


async def at_once(names: list[str], work: Callable[[str], Awaitable[None]]) -> None:
    """Do something for each node, a few of them at a time."""
    limit = trio.CapacityLimiter(8)

    async def one(name: str) -> None:
        async with limit:
            await work(name)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
