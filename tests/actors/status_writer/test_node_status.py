"""When the node's status is written: for news, once, and against whoever changes it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from actors.lib.kube.client import Json
from actors.lib.kube.cluster_size import RATE, Crowd
from actors.lib.kube.errors import ApiError
from actors.status_writer.inputs import Basis
from actors.status_writer.node_status import LAG, LONGEST, QUIET, NodeStatusDuty, path_of
from actors.status_writer.object_status import Judge
from actors.status_writer.writer import Scene
from config.api import ApiObject
from config.outcomes import SessionHealth

from .examples import CREDENTIALS, NAMESPACE, NODE, basis, cr, health, snapshot, state
from .server import FakeServer, forbidden

RED = cr("red")
BLUE = cr("blue")
PATH = path_of(NAMESPACE, NODE.name)


@dataclass
class Bench:
    """A duty, a server, and a clock that the test sets."""

    server: FakeServer = field(default_factory=FakeServer)
    now: float = 1000.0
    shown: Json | None = None

    def __post_init__(self) -> None:
        self.crowd = Crowd(1)
        self.chance = 0.0
        self.duty = NodeStatusDuty(lambda: 1.8e9 + self.now, self.crowd, lambda: self.chance)
        self.basis = basis(RED)
        self.judge = Judge(NAMESPACE)

    def news(self, of: Basis | None = None) -> None:
        """Show the duty something, with the status object as the watch shows it."""
        self.basis = of or self.basis
        api = replace(self.basis.api, node_status=copy.deepcopy(self.shown))
        self.basis = replace(self.basis, api=api)
        self.scene = Scene(self.basis, self.judge.judge(self.basis, self.now), NAMESPACE)
        self.duty.see(self.scene, self.now)

    async def goes_on(self, seconds: float) -> None:
        """Let time pass, as the actor would: look and act whenever something is due."""
        end = self.now + seconds
        async with self.server.connect(CREDENTIALS) as client:
            for _ in range(1000):
                due = self.duty.due(self.now)
                if due > end:
                    break
                self.now = max(self.now, due)
                self.duty.see(self.scene, self.now)
                if self.duty.due(self.now) <= self.now:
                    await self.duty.act(client, self.now)
            else:
                raise AssertionError("never idle")
        self.now = end

    def watch(self) -> None:
        """Let the watch show what the server has."""
        self.shown = self.server.objects.get(PATH)
        self.news()

    @property
    def stored(self) -> Json:
        return self.server.objects[PATH]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def settled(bench: Bench) -> int:
    """Write a first status and return the number of requests."""
    bench.news()
    await bench.goes_on(10)
    bench.watch()
    await bench.goes_on(10)
    return len(bench.server.requests)


async def test_a_first_status_is_made_and_owned_by_the_node(bench: Bench) -> None:
    bench.news()
    await bench.goes_on(QUIET)
    assert bench.server.requests == [("apply", PATH), ("apply", f"{PATH}/status")]
    assert bench.stored["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": NODE.uid}
    ]
    assert bench.stored["status"]["conditions"][0]["status"] == "True"


async def test_nothing_new_writes_nothing(bench: Bench) -> None:
    before = await settled(bench)
    for _ in range(20):
        bench.news(basis(RED))
        await bench.goes_on(15)
    assert len(bench.server.requests) == before


async def test_what_comes_together_is_written_once(bench: Bench) -> None:
    await settled(bench)
    writes = bench.duty.writes
    for number in range(4):
        objects = [cr(f"net-{one}") for one in range(number + 1)]
        bench.news(basis(*objects, desired=state(*objects, generation=6 + number)))
        await bench.goes_on(QUIET / 2)
    await bench.goes_on(10)
    assert bench.duty.writes == writes + 1
    assert len(bench.stored["status"]["resources"]) == 4


async def test_news_that_never_ends_is_written_at_intervals(bench: Bench) -> None:
    await settled(bench)
    writes = bench.duty.writes
    for number in range(40):
        objects = [cr(f"net-{one}") for one in range(number + 1)]
        bench.news(basis(*objects, desired=state(*objects, generation=6 + number)))
        await bench.goes_on(QUIET / 2)
    assert 2 <= bench.duty.writes - writes <= 20 / LONGEST + 1


def unverified(*objects: ApiObject) -> Basis:
    desired = state(*objects, generation=6)
    return basis(*objects, desired=desired, health=health(state(RED)))


async def test_a_change_that_arrives_soon_is_never_said_to_be_pending(bench: Bench) -> None:
    await settled(bench)
    writes = bench.duty.writes
    bench.news(unverified(RED, BLUE))
    await bench.goes_on(3)
    desired = state(RED, BLUE, generation=6)
    bench.news(basis(RED, BLUE, desired=desired))
    await bench.goes_on(LAG / 2)
    bench.watch()
    await bench.goes_on(30)
    assert bench.duty.writes == writes + 1


async def test_a_change_that_does_not_arrive_is_not_ready(bench: Bench) -> None:
    await settled(bench)
    bench.news(unverified(RED, BLUE))
    await bench.goes_on(LONGEST)
    assert [one["reason"] for one in bench.stored["status"]["conditions"]] == ["ConfigurationPending"] * 2


async def test_thousands_of_nodes_write_one_after_the_other(bench: Bench) -> None:
    await settled(bench)
    await bench.goes_on(60)
    bench.crowd.learn(5000)
    bench.chance = 0.5
    writes = bench.duty.writes
    for number in range(5):
        objects = [cr(f"net-{one}") for one in range(number + 1)]
        bench.news(basis(*objects, desired=state(*objects, generation=6 + number)))
        await bench.goes_on(4)
    assert bench.duty.writes == writes
    await bench.goes_on(0.5 * 5000 / RATE + 1 - 16)
    bench.watch()
    assert bench.duty.writes == writes + 1
    await bench.goes_on(100)
    assert bench.duty.writes == writes + 1
    assert len(bench.stored["status"]["resources"]) == 5


async def test_changes_that_never_end_cost_each_of_thousands_a_write_a_round(bench: Bench) -> None:
    await settled(bench)
    bench.crowd.learn(5000)
    writes = bench.duty.writes
    for number in range(100):
        bench.news(basis(cr(f"net-{number}"), desired=state(cr(f"net-{number}"), generation=6 + number)))
        await bench.goes_on(4)
        bench.watch()
    assert 5 <= bench.duty.writes - writes <= 400 / (5000 / RATE) + 1


async def test_news_that_takes_itself_back_is_not_written(bench: Bench) -> None:
    before = await settled(bench)
    bench.crowd.learn(5000)
    bench.chance = 0.5
    bench.news(basis(RED, BLUE, desired=state(RED, BLUE)))
    await bench.goes_on(10)
    bench.news(basis(RED))
    await bench.goes_on(100)
    assert len(bench.server.requests) == before


async def test_flapping_sessions_are_written_a_few_times_and_then_rarely(bench: Bench) -> None:
    await settled(bench)
    writes = bench.duty.writes
    for step in range(1200):
        word = "Established" if step % 2 else "Active"
        session = SessionHealth("192.0.2.1", "default", 64512, word)
        bench.news(basis(RED, health=health(state(RED), sessions=(session,))))
        await bench.goes_on(3)
    assert bench.duty.writes - writes <= 10 + 3600 / 30 + 1


async def test_a_lagging_watch_does_not_repeat_a_write(bench: Bench) -> None:
    bench.news()
    await bench.goes_on(2)
    requests = len(bench.server.requests)
    bench.news()
    await bench.goes_on(LAG / 2)
    assert len(bench.server.requests) == requests


async def test_a_deleted_status_comes_back(bench: Bench) -> None:
    await settled(bench)
    del bench.server.objects[PATH]
    bench.watch()
    await bench.goes_on(10)
    assert bench.stored["status"]["conditions"]


async def test_a_status_that_is_deleted_as_soon_as_the_watch_shows_it_comes_back_soon(bench: Bench) -> None:
    bench.news()
    await bench.goes_on(2)
    bench.watch()
    del bench.server.objects[PATH]
    bench.watch()
    await bench.goes_on(LONGEST)
    assert bench.stored["status"]["conditions"]


async def test_a_status_that_was_deleted_before_the_watch_saw_it_comes_back(bench: Bench) -> None:
    bench.news()
    await bench.goes_on(2)
    del bench.server.objects[PATH]
    await bench.goes_on(LAG + 10)
    assert bench.stored["status"]["conditions"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("conditions", []),
        ("vnis", []),
        ("failedResources", [{"kind": "L3VNI", "name": "x", "reason": "ValidationFailed", "message": "made up"}]),
        ("omitted", 7),
    ],
)
async def test_an_edited_status_is_repaired(bench: Bench, key: str, value: Any) -> None:
    await settled(bench)
    good = copy.deepcopy(bench.stored["status"])
    bench.stored["status"][key] = value
    bench.stored["metadata"]["resourceVersion"] = "5000"
    bench.watch()
    await bench.goes_on(10)
    assert bench.stored["status"] == good


async def test_a_removed_owner_is_repaired_and_a_new_node_of_that_name_becomes_it(bench: Bench) -> None:
    await settled(bench)
    bench.stored["metadata"]["ownerReferences"] = [{"kind": "Node", "name": "node-a", "uid": "an older node's"}]
    bench.stored["metadata"]["resourceVersion"] = "5000"
    bench.watch()
    await bench.goes_on(10)
    [owner] = bench.stored["metadata"]["ownerReferences"]
    assert owner["uid"] == NODE.uid


async def test_conditions_of_others_are_theirs(bench: Bench) -> None:
    before = await settled(bench)
    bench.stored["status"]["conditions"].append({"type": "Audited", "status": "True"})
    bench.stored["metadata"]["resourceVersion"] = "5000"
    bench.watch()
    await bench.goes_on(60)
    assert len(bench.server.requests) == before


async def test_a_server_that_knows_fewer_fields_is_not_argued_with(bench: Bench) -> None:
    store = bench.server.store

    def pruning(path: str, one: Json) -> Json:
        one.get("status", {}).pop("vnis", None)
        return store(path, one)

    bench.server.store = pruning  # type: ignore[method-assign]
    before = await settled(bench)
    for _ in range(5):
        bench.watch()
        await bench.goes_on(60)
    assert len(bench.server.requests) == before


async def test_an_error_is_the_callers_and_the_write_is_tried_again(bench: Bench) -> None:
    bench.server.trouble = forbidden
    bench.news()
    with pytest.raises(ApiError):
        await bench.goes_on(2)
    bench.server.trouble = lambda verb, path: None
    await bench.goes_on(2 * LONGEST)
    assert bench.stored["status"]


async def test_what_vanishes_between_two_requests_is_made_anew(bench: Bench) -> None:
    gone: list[Sequence[str]] = []

    def vanish(verb: str, path: str) -> None:
        if path.endswith("/status") and not gone:
            gone.append((verb, path))
            bench.server.objects.clear()

    bench.server.trouble = vanish
    bench.news()
    await bench.goes_on(2)
    assert bench.stored["status"]


def test_the_snapshot_of_the_examples_has_no_status() -> None:
    assert snapshot(RED).node_status is None
