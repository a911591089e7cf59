"""The whole actor against a server in memory, on a clock that jumps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
import trio
from trio.testing import MockClock

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import error_for
from actors.status_writer import actor
from actors.status_writer.node_status import path_of
from config.api import INDEX_ANNOTATION, ApiAccess, ApiCredentials, ApiObject, ApiReach, ApiSnapshot
from config.desired import DesiredState, Secret
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.message_catalog import explained
from tests.fakes.api_server import FakeApiServer, forbidden, no_trouble

from .examples import CREDENTIALS, NAMESPACE, NODE, cr, health, refused, state

RED = cr("red")
NODE_PATH = f"/api/v1/nodes/{NODE.name}"
STATUS_PATH = path_of(NAMESPACE, NODE.name)
EVENTS_PATH = "/apis/events.k8s.io/v1/namespaces/default/events"


@dataclass
class Bench:
    """The actor, its channels, and a watch that shows the server's objects on demand."""

    server: FakeApiServer = field(default_factory=FakeApiServer)
    ctx: ActorContext = field(default_factory=lambda: ActorContext("status_writer"))
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    health: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))
    connect: Callable[[ApiCredentials], KubeClient] | None = None

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
            connect=self.connect or self.server.connect,
            wall=lambda: 1.8e9 + trio.current_time(),
            chance=lambda: 0.5,
        )

    def has_node(self) -> None:
        """Put the Node on the server, unless it is there."""
        node = {"name": NODE.name, "uid": NODE.uid, "resourceVersion": "1"}
        self.server.objects.setdefault(NODE_PATH, {"metadata": node})

    def watch(self, *objects: ApiObject, live: bool = True) -> None:
        """Show these objects, and what the server has of the node."""
        annotations = self.server.objects[NODE_PATH]["metadata"].get("annotations", {})
        status = self.server.objects.get(STATUS_PATH)
        self.api.set(ApiSnapshot(replace(NODE, annotations=annotations), objects, node_status=status, live=live))

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


async def reported(bench: Bench, *objects: ApiObject, desired: DesiredState | None = None) -> None:
    """Let the actor report everything, with a watch that follows."""
    bench.has_node()
    bench.connected()
    bench.settle(desired or state(*objects))
    bench.watch(*objects)
    for _ in range(60):
        await trio.sleep(1)
        bench.watch(*objects)


async def test_it_shows_what_it_waits_for(autojump_clock: MockClock, bench: Bench) -> None:
    assert bench.ctx.facts["waiting"] == "for credentials of an API server"
    bench.access.set(ApiAccess(ApiReach.UNCONFIGURED))
    await trio.sleep(1)
    assert bench.ctx.facts["waiting"] == "for credentials of an API server"
    bench.connected()
    await trio.sleep(1)
    assert bench.ctx.facts["waiting"] == "for the API's state"
    bench.has_node()
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


async def test_status_event_and_index_are_written_and_nothing_else(autojump_clock: MockClock, bench: Bench) -> None:
    blue = cr("blue")
    await reported(bench, RED, blue, desired=state(RED, problems=(refused(blue),)))
    [status] = bench.server.find("/routernodeconfigurationstatuses/")
    assert [one["inForce"] for one in status["status"]["resources"]] == [False, True]
    [event] = bench.server.find("/events/")
    assert event["regarding"]["kind"] == "Node"
    assert event["note"] == "objects of the API: L3VNI tenants/blue: spec.vni: vni 100 is taken"
    assert bench.server.objects[NODE_PATH]["metadata"]["annotations"] == {INDEX_ANNOTATION: "3"}
    assert set(bench.ctx.facts) == {"status_writes"}
    places = {path.removesuffix("/status") for _, path in bench.server.writes()}
    assert places == {STATUS_PATH, f"{EVENTS_PATH}/{event['metadata']['name']}", NODE_PATH}


async def test_when_everything_is_reported_nothing_is_sent(autojump_clock: MockClock, bench: Bench) -> None:
    await reported(bench, RED)
    requests, connections = len(bench.server.requests), len(bench.server.clients)
    for _ in range(240):
        await trio.sleep(15)
        bench.health.set(health(state(RED)))
        bench.watch(RED)
    # It polls how many nodes there are, ever more rarely.
    sent = bench.server.requests[requests:]
    assert {verb for verb, _ in sent} <= {"count"}
    assert len(sent) <= 3
    assert len(bench.server.clients) <= connections + 3


async def test_while_the_server_is_unreachable_nothing_is_sent(autojump_clock: MockClock, bench: Bench) -> None:
    await reported(bench, RED)
    requests = len(bench.server.requests)
    bench.watch(RED, live=False)
    bench.settle(state(RED, generation=9, problems=(refused(cr("x")),)))
    await trio.sleep(3600)
    assert len(bench.server.requests) == requests
    bench.watch(RED)
    await trio.sleep(30)
    assert len(bench.server.requests) > requests


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 10), (10, 10), (300, 15)])
async def test_a_hundred_objects_are_in_the_status_soon(
    autojump_clock: MockClock, bench: Bench, nodes: int, seconds: float
) -> None:
    for number in range(1, nodes):
        bench.server.objects[path_of(NAMESPACE, f"node-{number}")] = {"metadata": {}}
    objects = [cr(f"net-{number}") for number in range(100)]
    bench.has_node()
    bench.connected()
    bench.settle(state(*objects))
    bench.watch(*objects)
    await trio.sleep(seconds)
    resources = bench.server.objects[STATUS_PATH]["status"]["resources"]
    assert len([one for one in resources if one["inForce"]]) == 100


async def test_the_end_of_a_failure_is_reported(autojump_clock: MockClock, bench: Bench) -> None:
    await reported(bench, RED, desired=state(problems=(refused(RED),)))
    await reported(bench, RED)
    [status] = bench.server.find("/routernodeconfigurationstatuses/")
    assert [one["status"] for one in status["status"]["conditions"]] == ["True", "False"]
    assert [event["type"] for event in bench.server.find("/events/")] == ["Warning", "Normal"]


WRITERS: dict[str, Callable[[str], bool]] = {
    "node status": lambda path: path.startswith(STATUS_PATH),
    "events": lambda path: path.startswith(EVENTS_PATH),
    "node index": lambda path: path == NODE_PATH,
    "number of nodes": lambda path: path.endswith("/routernodeconfigurationstatuses"),
}


@pytest.mark.parametrize("forbids", WRITERS)
async def test_what_rbac_forbids_does_not_stop_the_rest(
    autojump_clock: MockClock, bench: Bench, forbids: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bench.server.trouble = lambda verb, path: forbidden(verb, path) if WRITERS[forbids](path) else None
    await reported(bench, RED, desired=state(problems=(refused(RED),)))
    bench.server.trouble = no_trouble
    assert all(any(belongs(path) for _, path in bench.server.requests) for belongs in WRITERS.values())
    written = {
        "node status": bool(bench.server.find("/routernodeconfigurationstatuses/")),
        "events": bool(bench.server.find("/events/")),
        "node index": "annotations" in bench.server.objects[NODE_PATH]["metadata"],
        "number of nodes": forbids != "number of nodes",
    }
    assert [name for name, is_written in written.items() if not is_written] == [forbids]
    assert bench.ctx.facts["failing"] == f"{forbids}: Forbidden"
    assert explained(caplog.records) == ["API_FORBIDDEN"]
    await trio.sleep(1000)
    bench.watch(RED)
    await trio.sleep(60)
    assert "failing" not in bench.ctx.facts
    assert explained(caplog.records) == ["API_FORBIDDEN", "REPORTING_WORKS"]


async def test_a_server_that_refuses_everything_is_tried_with_increasing_back_off(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bench.server.trouble = lambda verb, path: error_for(401, "Unauthorized", "who are you")
    await reported(bench, RED)
    await trio.sleep(3600)
    assert len(bench.server.requests) <= 60
    assert bench.ctx.facts["failing"] == "the API server: Unauthorized"
    # Other credentials are worth an attempt at once.
    bench.server.trouble = no_trouble
    bench.access.set(ApiAccess(ApiReach.REACHABLE, replace(CREDENTIALS, token=Secret("fresh"))))
    await trio.sleep(6)
    assert bench.server.find("/routernodeconfigurationstatuses/")
    events = explained(caplog.records)
    assert (set(events[:-1]), events[-1]) == ({"REPORTING_FAILS"}, "REPORTING_WORKS")


async def test_credentials_that_no_connection_can_use_are_a_failure_of_the_server(
    autojump_clock: MockClock, bench: Bench
) -> None:
    def unusable(credentials: ApiCredentials) -> KubeClient:
        return KubeClient(replace(credentials, server="nonsense"))

    async with running(replace(bench, ctx=ActorContext("status_writer"), connect=unusable)) as second:
        await reported(second, RED)
        assert "must be https://" in str(second.ctx.facts["failing"])


async def test_retry_after_is_respected(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.trouble = lambda verb, path: error_for(429, "TooManyRequests", "slowly", 300.0)
    await reported(bench, RED)
    assert len(bench.server.requests) == 1


async def test_a_restarted_actor_repeats_nothing(autojump_clock: MockClock, bench: Bench) -> None:
    blue = cr("blue")
    await reported(bench, RED, blue, desired=state(RED, problems=(refused(blue),)))
    before = len(bench.server.writes())
    async with running(replace(bench, ctx=ActorContext("status_writer"))) as restarted:
        await trio.sleep(120)
        repeated = restarted.server.writes()[before:]
    # The Event that is there already is refused, and then it is known.
    [event] = bench.server.find("/events/")
    assert repeated == [("create", f"{EVENTS_PATH}/{event['metadata']['name']}")]


async def test_a_node_that_was_created_again_owns_its_status(autojump_clock: MockClock, bench: Bench) -> None:
    await reported(bench, RED)
    snapshot = bench.api.peek()
    assert snapshot is not None
    bench.api.set(replace(snapshot, node=replace(NODE, uid="another")))
    await trio.sleep(60)
    [status] = bench.server.find("/routernodeconfigurationstatuses/")
    assert [owner["uid"] for owner in status["metadata"]["ownerReferences"]] == ["another"]


async def test_the_index_of_a_node_that_was_created_again_does_not_wait_for_the_refusal_of_the_old_one(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.has_node()
    bench.server.objects[NODE_PATH]["metadata"]["uid"] = "another"
    bench.connected()
    bench.settle(state())
    # The watch still shows the Node that was deleted, so the server refuses the write: 422, not a conflict.
    bench.watch()
    await trio.sleep(20)
    assert INDEX_ANNOTATION not in bench.server.objects[NODE_PATH]["metadata"].get("annotations", {})
    assert "node index" in str(bench.ctx.facts["failing"])
    bench.api.set(ApiSnapshot(replace(NODE, uid="another"), live=True))
    await trio.sleep(2)
    assert bench.server.objects[NODE_PATH]["metadata"]["annotations"][INDEX_ANNOTATION] == "3"
