"""The whole actor against a server in memory, on a clock that jumps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.lib.kube.client import Json
from actors.lib.kube.errors import ApiError, error_for
from actors.status_writer import actor
from actors.status_writer.node_status import path_of
from config.api import API_VERSION, INDEX_ANNOTATION, PLURALS, ApiAccess, ApiObject, ApiReach, ApiSnapshot
from config.desired import DesiredState, Secret
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.message_catalog import explained

from .examples import CREDENTIALS, NAMESPACE, NODE, cr, health, refused, state
from .server import FakeServer, forbidden

RED = cr("red")
NODE_PATH = f"/api/v1/nodes/{NODE.name}"


def path(one: ApiObject) -> str:
    return f"/apis/{API_VERSION}/namespaces/{one.namespace}/{PLURALS[one.kind]}/{one.name}"


@dataclass
class Bench:
    """The actor, its channels, and a watch that shows the server's objects when it is asked to."""

    server: FakeServer = field(default_factory=FakeServer)
    ctx: ActorContext = field(default_factory=lambda: ActorContext("announce"))
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    health: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))

    async def run(self) -> None:
        await actor.run(
            self.ctx,
            settings=Settings(namespace=NAMESPACE),
            access=self.access.reader(),
            api=self.api.reader(),
            desired=self.desired.reader(),
            frr=self.frr.reader(),
            kernel=self.kernel.reader(),
            health=self.health.reader(),
            connect=self.server.connect,
            wall=lambda: 1.8e9 + trio.current_time(),
            chance=lambda: 0.5,
        )

    def has(self, *objects: ApiObject) -> None:
        """Put the Node and some objects on the server, unless they are there."""
        node = {"name": NODE.name, "uid": NODE.uid, "resourceVersion": "1"}
        self.server.objects.setdefault(NODE_PATH, {"metadata": node})
        for one in objects:
            metadata = {"name": one.name, "namespace": one.namespace, "uid": one.uid, "resourceVersion": "1"}
            self.server.objects.setdefault(path(one), {"metadata": metadata})

    def watch(self, *objects: ApiObject, live: bool = True) -> None:
        """Show what the server has."""
        annotations = self.server.objects[NODE_PATH]["metadata"].get("annotations", {})
        shown = tuple(self._shown(one) for one in objects)
        status = self.server.objects.get(path_of(NAMESPACE, NODE.name))
        self.api.set(ApiSnapshot(replace(NODE, annotations=annotations), shown, node_status=status, live=live))

    def _shown(self, one: ApiObject) -> ApiObject:
        stored = self.server.objects[path(one)]
        conditions = tuple(stored.get("status", {}).get("conditions", ()))
        return replace(one, resource_version=stored["metadata"]["resourceVersion"], conditions=conditions)

    def settle(self, desired: DesiredState) -> None:
        """Put a state in force."""
        self.desired.set(desired)
        self.frr.set(FrrOutcome(desired, applied=True))
        self.kernel.set(KernelOutcome(desired, applied=True))
        self.health.set(health(desired))

    def connected(self) -> None:
        self.access.set(ApiAccess(ApiReach.REACHABLE, CREDENTIALS))


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        yield bench
        nursery.cancel_scope.cancel()


@pytest.fixture
async def bench(autojump_clock: trio.testing.MockClock) -> AsyncIterator[Bench]:
    async with running(Bench()) as bench:
        await trio.sleep(1)
        yield bench


async def told(bench: Bench, *objects: ApiObject, desired: DesiredState | None = None) -> None:
    """Let everything there is be told, with a watch that follows."""
    bench.has(*objects)
    bench.connected()
    bench.settle(desired or state(*objects))
    bench.watch(*objects)
    for _ in range(60):
        await trio.sleep(1)
        bench.watch(*objects)


def conditions(bench: Bench, one: ApiObject) -> dict[str, Json]:
    found = bench.server.objects[path(one)].get("status", {}).get("conditions", [])
    return {each["type"]: each for each in found}


async def test_it_says_what_it_waits_for(autojump_clock: MockClock, bench: Bench) -> None:
    assert bench.ctx.facts["waiting"] == "for credentials of an API server"
    bench.access.set(ApiAccess(ApiReach.UNCONFIGURED))
    await trio.sleep(1)
    assert bench.ctx.facts["waiting"] == "for credentials of an API server"
    bench.connected()
    await trio.sleep(1)
    assert bench.ctx.facts["waiting"] == "for the API's state"
    bench.has(RED)
    bench.watch(RED, live=False)
    await trio.sleep(1)
    assert bench.ctx.facts["waiting"] == "for the API's state"
    bench.api.set(ApiSnapshot(None, live=True))
    await trio.sleep(1)
    assert bench.ctx.facts["waiting"] == "for this node's Node object"
    bench.watch(RED)
    await trio.sleep(1)
    assert bench.ctx.facts["waiting"] == "for a configuration"
    assert bench.server.requests == []
    assert bench.ctx.mode == "idle"
    bench.settle(state(RED))
    await trio.sleep(30)
    assert "waiting" not in bench.ctx.facts
    assert bench.server.requests


async def test_everything_is_told(autojump_clock: MockClock, bench: Bench) -> None:
    blue = cr("blue")
    await told(bench, RED, blue, desired=state(RED, problems=(refused(blue),)))
    [status] = bench.server.find("/routernodeconfigurationstatuses/")
    assert [one["inForce"] for one in status["status"]["resources"]] == [False, True]
    assert conditions(bench, RED)["Ready"]["status"] == "True"
    assert conditions(bench, blue)["Degraded"]["message"] == "node node-a: spec.vni: vni 100 is taken"
    [event] = bench.server.find("/events/")
    assert event["regarding"]["name"] == "blue"
    assert bench.server.objects[NODE_PATH]["metadata"]["annotations"] == {INDEX_ANNOTATION: "3"}
    assert bench.ctx.facts == {"status_writes": bench.ctx.facts["status_writes"], "condition_writes": 2}


async def test_when_all_is_told_nothing_is_sent(autojump_clock: MockClock, bench: Bench) -> None:
    await told(bench, RED)
    requests, connections = len(bench.server.requests), bench.server.connections
    for _ in range(240):
        await trio.sleep(15)
        bench.health.set(health(state(RED)))
        bench.watch(RED)
    # It asks how many nodes there are, ever more rarely.
    asked = bench.server.requests[requests:]
    assert {verb for verb, _ in asked} <= {"list"}
    assert len(asked) <= 3
    assert bench.server.connections <= connections + 3


async def test_while_the_server_is_away_nothing_is_sent(autojump_clock: MockClock, bench: Bench) -> None:
    await told(bench, RED)
    requests = len(bench.server.requests)
    bench.watch(RED, live=False)
    bench.settle(state(RED, generation=9, problems=(refused(cr("x")),)))
    await trio.sleep(3600)
    assert len(bench.server.requests) == requests
    bench.watch(RED)
    await trio.sleep(30)
    assert len(bench.server.requests) > requests


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 10), (10, 20)])
async def test_a_hundred_objects_are_ready_soon_in_a_small_cluster(
    autojump_clock: MockClock, bench: Bench, nodes: int, seconds: float
) -> None:
    """Nobody waits longer than ``kubectl wait`` does, half a minute, though this node alone speaks of all of them."""
    for number in range(1, nodes):
        bench.server.objects[path_of(NAMESPACE, f"node-{number}")] = {"metadata": {}}
    objects = [cr(f"net-{number}") for number in range(100)]
    bench.has(*objects)
    bench.connected()
    bench.settle(state(*objects))
    bench.watch(*objects)
    await trio.sleep(seconds)
    assert sum(bool(conditions(bench, one)) for one in objects) == 100


async def test_in_a_large_cluster_a_node_writes_slowly(autojump_clock: MockClock, bench: Bench) -> None:
    for number in range(300):
        bench.server.objects[path_of(NAMESPACE, f"node-{number}")] = {"metadata": {}}
    objects = [cr(f"net-{number}") for number in range(100)]
    bench.has(*objects)
    bench.connected()
    bench.settle(state(*objects))
    bench.watch(*objects)
    await trio.sleep(60)
    assert 20 < sum(bool(conditions(bench, one)) for one in objects) <= 20 + 60 / 2


async def test_a_failure_that_is_over_is_taken_back_and_told(autojump_clock: MockClock, bench: Bench) -> None:
    await told(bench, RED, desired=state(problems=(refused(RED),)))
    assert conditions(bench, RED)["Ready"]["status"] == "False"
    await told(bench, RED)
    assert conditions(bench, RED)["Ready"]["status"] == "True"
    assert [event["type"] for event in bench.server.find("/events/")] == ["Warning", "Normal"]


DUTIES: dict[str, Callable[[str], bool]] = {
    "node status": lambda path: "/routernodeconfigurationstatuses/" in path,
    "conditions": lambda path: "/l3vnis/" in path,
    "events": lambda path: "/events" in path,
    "node index": lambda path: path == NODE_PATH,
    "number of nodes": lambda path: path.endswith("/routernodeconfigurationstatuses"),
}


@pytest.mark.parametrize("forbids", DUTIES)
async def test_what_rbac_forbids_does_not_stop_the_rest(
    autojump_clock: MockClock, bench: Bench, forbids: str, caplog: Any
) -> None:
    def trouble(verb: str, path: str) -> ApiError | None:
        return forbidden(verb, path) if DUTIES[forbids](path) else None

    bench.server.trouble = trouble
    await told(bench, RED, desired=state(problems=(refused(RED),)))
    bench.server.trouble = lambda verb, path: None
    tried = {duty: any(meant(path) for _, path in bench.server.requests) for duty, meant in DUTIES.items()}
    assert all(tried.values())
    done = {
        "node status": bool(bench.server.find("/routernodeconfigurationstatuses/")),
        "conditions": bool(conditions(bench, RED)),
        "events": bool(bench.server.find("/events/")),
        "node index": "annotations" in bench.server.objects[NODE_PATH]["metadata"],
        "number of nodes": True,
    }
    assert [duty for duty, is_done in done.items() if not is_done] == ([forbids] if forbids in list(done)[:4] else [])
    assert "Forbidden" in str(bench.ctx.facts["failing"])
    lines = [record for record in caplog.records if "cannot tell the cluster" in record.getMessage()]
    assert explained(lines) == ["API_FORBIDDEN"]
    await trio.sleep(1000)
    bench.watch(RED)
    await trio.sleep(60)
    if forbids != "number of nodes":
        assert "failing" not in bench.ctx.facts


async def test_a_server_that_refuses_everything_is_asked_ever_more_rarely(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bench.server.trouble = lambda verb, path: error_for(401, "Unauthorized", "who are you")
    await told(bench, RED)
    await trio.sleep(3600)
    assert len(bench.server.requests) <= 60
    assert bench.ctx.facts["failing"] == "the API server: Unauthorized"
    # Other credentials are worth an attempt at once.
    bench.server.trouble = lambda verb, path: None
    bench.access.set(ApiAccess(ApiReach.REACHABLE, replace(CREDENTIALS, token=Secret("fresh"))))
    await trio.sleep(6)
    assert bench.server.find("/routernodeconfigurationstatuses/")
    told_of = explained(caplog.records)
    assert (set(told_of[:-1]), told_of[-1]) == ({"CLUSTER_NOT_TOLD"}, "CLUSTER_TOLD")


async def test_a_throttling_server_is_left_alone_for_as_long_as_it_asks(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.server.trouble = lambda verb, path: error_for(429, "TooManyRequests", "slowly", 300.0)
    await told(bench, RED)
    assert len(bench.server.requests) == 1


@pytest.mark.parametrize("code", [422, 500])
async def test_an_object_that_cannot_be_written_does_not_stop_the_others(
    autojump_clock: MockClock, bench: Bench, code: int
) -> None:
    blue = cr("blue")

    def trouble(verb: str, where: str) -> ApiError | None:
        return error_for(code, "Invalid", "its spec is invalid by now") if where.startswith(path(blue)) else None

    bench.server.trouble = trouble
    await told(bench, blue, RED)
    assert conditions(bench, RED)["Ready"]["status"] == "True"
    attempts = sum(where.startswith(path(blue)) for _, where in bench.server.requests)
    assert attempts == 1
    assert "conditions of L3VNI tenants/blue" in str(bench.ctx.facts["failing"])
    bench.watch(RED)
    await trio.sleep(700)
    assert "failing" not in bench.ctx.facts


async def test_a_schema_without_conditions_is_not_argued_with(autojump_clock: MockClock, bench: Bench) -> None:
    store, its_path = bench.server.store, path(RED)

    def pruning(path: str, one: Json) -> Json:
        if path == its_path:
            one["status"] = {}
        return store(path, one)

    bench.server.store = pruning  # type: ignore[method-assign]
    await told(bench, RED, desired=state(problems=(refused(RED),)))
    assert "its CRD has no conditions" in str(bench.ctx.facts["failing"])
    assert len([where for _, where in bench.server.requests if where.startswith(path(RED))]) <= 2
    assert bench.server.find("/events/")


@pytest.mark.parametrize("node", ["\x7f", "../../../../../../version", "?watch=true"])
async def test_a_claim_that_names_no_node_is_replaced_and_leads_nowhere(
    autojump_clock: MockClock, bench: Bench, node: str
) -> None:
    bench.has(RED)
    times = {"lastTransitionTime": "2027-01-15T08:00:00Z", "observedGeneration": 1}
    forged = {**times, "reason": "ValidationFailed", "message": f"node {node}: broken"}
    words = {"Ready": "False", "Degraded": "True"}
    bench.server.objects[path(RED)]["status"] = {
        "conditions": [{"type": name, "status": status, **forged} for name, status in words.items()]
    }
    await told(bench, RED)
    assert conditions(bench, RED)["Ready"]["status"] == "True"
    await trio.sleep(7200)
    assert not [where for verb, where in bench.server.requests if verb == "get"]


async def test_a_restarted_actor_repeats_nothing(autojump_clock: MockClock, bench: Bench) -> None:
    blue = cr("blue")
    desired = state(RED, problems=(refused(blue),))
    await told(bench, RED, blue, desired=desired)
    writes = len(bench.server.writes())
    async with running(replace(bench, ctx=ActorContext("announce"))) as again:
        await trio.sleep(120)
        assert len(again.server.writes()) == writes


async def test_a_node_made_anew_owns_its_status(autojump_clock: MockClock, bench: Bench) -> None:
    await told(bench, RED)
    snapshot = bench.api.peek()
    assert snapshot is not None
    bench.api.set(replace(snapshot, node=replace(NODE, uid="another")))
    await trio.sleep(60)
    [status] = bench.server.find("/routernodeconfigurationstatuses/")
    assert [owner["uid"] for owner in status["metadata"]["ownerReferences"]] == ["another"]
