"""When the node's status is written: once for news, and again after another client changed it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from actors.lib.kube.client import Json
from actors.lib.kube.cluster_size import RATE, ClusterSize
from actors.lib.kube.errors import ApiError
from actors.status_writer.node_state import NodeState
from actors.status_writer.node_status import LAG, LONGEST, QUIET, NodeStatusWriter, path_of
from config.api import INDEX_LABEL, ApiObject
from config.outcomes import SessionHealth
from tests.fakes.api_server import FakeApiServer, forbidden, no_trouble

from .examples import NAMESPACE, NODE, cr, health, node_state, run_writer, state

RED = cr("red")
BLUE = cr("blue")
PATH = path_of(NAMESPACE, NODE.name)


@dataclass
class Bench:
    """A writer, a server, and a clock that the test sets."""

    server: FakeApiServer = field(default_factory=FakeApiServer)
    now: float = 1000.0
    shown: Json | None = None

    def __post_init__(self) -> None:
        self.chance = 0.0
        self.size = ClusterSize(1, lambda: self.chance)
        self.writer = NodeStatusWriter(lambda: 1.8e9 + self.now, self.size)
        self.state = node_state(RED)

    def news(self, of: NodeState | None = None) -> None:
        """Give the writer a state, with the status object as the watch shows it."""
        of = of or self.state
        self.state = replace(of, api=replace(of.api, node_status=copy.deepcopy(self.shown)))
        self.writer.update(self.state, self.now)

    async def passes(self, seconds: float) -> None:
        await run_writer(self, seconds)

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
    await bench.passes(10)
    bench.watch()
    await bench.passes(10)
    return len(bench.server.requests)


async def test_a_first_status_is_created_and_owned_by_the_node(bench: Bench) -> None:
    bench.news()
    await bench.passes(QUIET)
    assert bench.server.requests == [("apply", PATH), ("apply", f"{PATH}/status")]
    assert bench.stored["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": NODE.uid}
    ]
    assert bench.stored["status"]["conditions"][0]["status"] == "True"


async def test_nothing_new_writes_nothing(bench: Bench) -> None:
    before = await settled(bench)
    for _ in range(20):
        bench.news(node_state(RED))
        await bench.passes(15)
    assert len(bench.server.requests) == before


async def test_news_that_comes_together_is_written_once(bench: Bench) -> None:
    await settled(bench)
    writes = bench.writer.writes
    for number in range(4):
        objects = [cr(f"net-{one}") for one in range(number + 1)]
        bench.news(node_state(*objects, desired=state(*objects, generation=6 + number)))
        await bench.passes(QUIET / 2)
    await bench.passes(10)
    assert bench.writer.writes == writes + 1
    assert len(bench.stored["status"]["resources"]) == 4


async def test_continuous_news_is_written_at_intervals(bench: Bench) -> None:
    await settled(bench)
    writes = bench.writer.writes
    for number in range(40):
        objects = [cr(f"net-{one}") for one in range(number + 1)]
        bench.news(node_state(*objects, desired=state(*objects, generation=6 + number)))
        await bench.passes(QUIET / 2)
    assert 2 <= bench.writer.writes - writes <= 20 / LONGEST + 1


def unverified(*objects: ApiObject) -> NodeState:
    desired = state(*objects, generation=6)
    return node_state(*objects, desired=desired, health=health(state(RED)))


async def test_a_change_that_is_verified_soon_is_never_reported_as_pending(bench: Bench) -> None:
    await settled(bench)
    writes = bench.writer.writes
    bench.news(unverified(RED, BLUE))
    await bench.passes(3)
    desired = state(RED, BLUE, generation=6)
    bench.news(node_state(RED, BLUE, desired=desired))
    await bench.passes(LAG / 2)
    bench.watch()
    await bench.passes(30)
    assert bench.writer.writes == writes + 1


async def test_a_change_that_is_not_verified_is_not_ready(bench: Bench) -> None:
    await settled(bench)
    bench.news(unverified(RED, BLUE))
    await bench.passes(LONGEST)
    assert [one["reason"] for one in bench.stored["status"]["conditions"]] == ["ConfigurationPending"] * 2


async def test_thousands_of_nodes_write_one_after_the_other(bench: Bench) -> None:
    await settled(bench)
    await bench.passes(60)
    bench.size.learn(5000)
    bench.chance = 0.5
    writes = bench.writer.writes
    for number in range(5):
        objects = [cr(f"net-{one}") for one in range(number + 1)]
        bench.news(node_state(*objects, desired=state(*objects, generation=6 + number)))
        await bench.passes(4)
    assert bench.writer.writes == writes
    await bench.passes(0.5 * 5000 / RATE + 1 - 16)
    bench.watch()
    assert bench.writer.writes == writes + 1
    await bench.passes(100)
    assert bench.writer.writes == writes + 1
    assert len(bench.stored["status"]["resources"]) == 5


async def test_continuous_changes_cost_each_of_thousands_of_nodes_a_write_a_row(bench: Bench) -> None:
    await settled(bench)
    bench.size.learn(5000)
    writes = bench.writer.writes
    for number in range(100):
        bench.news(node_state(cr(f"net-{number}"), desired=state(cr(f"net-{number}"), generation=6 + number)))
        await bench.passes(4)
        bench.watch()
    assert 5 <= bench.writer.writes - writes <= 400 / (5000 / RATE) + 1


async def test_a_change_that_is_reverted_while_the_node_waits_is_not_written(bench: Bench) -> None:
    before = await settled(bench)
    bench.size.learn(5000)
    bench.chance = 0.5
    bench.news(node_state(RED, BLUE, desired=state(RED, BLUE)))
    await bench.passes(10)
    bench.news(node_state(RED))
    await bench.passes(100)
    assert len(bench.server.requests) == before


async def test_flapping_sessions_are_written_a_few_times_and_then_rarely(bench: Bench) -> None:
    await settled(bench)
    writes = bench.writer.writes
    for step in range(1200):
        session = SessionHealth("192.0.2.1", "default", 64512, "Established" if step % 2 else "Active")
        bench.news(node_state(RED, health=health(state(RED), sessions=(session,))))
        await bench.passes(3)
    assert bench.writer.writes - writes <= 10 + 3600 / 30 + 1


async def test_a_lagging_watch_does_not_repeat_a_write(bench: Bench) -> None:
    bench.news()
    await bench.passes(2)
    requests = len(bench.server.requests)
    bench.news()
    await bench.passes(LAG / 2)
    assert len(bench.server.requests) == requests


async def test_a_deleted_status_comes_back(bench: Bench) -> None:
    await settled(bench)
    del bench.server.objects[PATH]
    bench.watch()
    await bench.passes(10)
    assert bench.stored["status"]["conditions"]


async def test_a_status_that_is_deleted_as_soon_as_the_watch_shows_it_comes_back_soon(bench: Bench) -> None:
    bench.news()
    await bench.passes(2)
    bench.watch()
    del bench.server.objects[PATH]
    bench.watch()
    await bench.passes(LONGEST)
    assert bench.stored["status"]["conditions"]


async def test_a_status_that_was_deleted_before_the_watch_saw_it_comes_back(bench: Bench) -> None:
    bench.news()
    await bench.passes(2)
    del bench.server.objects[PATH]
    await bench.passes(LAG + 10)
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
    await bench.passes(10)
    assert bench.stored["status"] == good


async def test_a_removed_owner_is_repaired_and_a_new_node_of_that_name_becomes_it(bench: Bench) -> None:
    await settled(bench)
    bench.stored["metadata"]["ownerReferences"] = [{"kind": "Node", "name": "node-a", "uid": "an older node's"}]
    bench.stored["metadata"]["resourceVersion"] = "5000"
    bench.watch()
    await bench.passes(10)
    [owner] = bench.stored["metadata"]["ownerReferences"]
    assert owner["uid"] == NODE.uid


async def test_the_label_has_the_index_of_the_router_and_follows_it(bench: Bench) -> None:
    await settled(bench)
    assert bench.stored["metadata"]["labels"] == {INDEX_LABEL: "3"}
    bench.stored["metadata"]["labels"] = {INDEX_LABEL: "7", "audited": "yes"}
    bench.stored["metadata"]["resourceVersion"] = "5000"
    bench.watch()
    await bench.passes(10)
    assert bench.stored["metadata"]["labels"] == {INDEX_LABEL: "3", "audited": "yes"}
    bench.news(node_state(RED, desired=state(RED, node_index=4)))
    await bench.passes(60)
    assert bench.stored["metadata"]["labels"] == {INDEX_LABEL: "4", "audited": "yes"}
    bench.watch()
    bench.news(node_state(desired=state(underlay=None)))
    await bench.passes(60)
    assert bench.stored["metadata"]["labels"] == {"audited": "yes"}
    before = len(bench.server.requests)
    bench.watch()
    await bench.passes(60)
    assert len(bench.server.requests) == before


async def test_a_policy_of_an_earlier_version_that_forbids_the_label_costs_no_report(bench: Bench) -> None:
    refusals = [forbidden("patch", PATH)]
    bench.server.trouble = lambda _verb, path: refusals.pop() if path == PATH and refusals else None
    before = await settled(bench)
    assert bench.server.requests == [("apply", PATH), ("apply", PATH), ("apply", f"{PATH}/status")]
    assert "labels" not in bench.stored["metadata"]
    bench.news()
    await bench.passes(60)
    assert len(bench.server.requests) == before


async def test_conditions_of_other_clients_are_left_alone(bench: Bench) -> None:
    before = await settled(bench)
    bench.stored["status"]["conditions"].append({"type": "Audited", "status": "True"})
    bench.stored["metadata"]["resourceVersion"] = "5000"
    bench.watch()
    await bench.passes(60)
    assert len(bench.server.requests) == before


async def test_a_server_that_drops_a_field_is_not_written_to_again(bench: Bench) -> None:
    bench.server.prune = lambda one: one.get("status", {}).pop("vnis", None)
    before = await settled(bench)
    for _ in range(5):
        bench.watch()
        await bench.passes(60)
    assert len(bench.server.requests) == before


async def test_an_error_is_raised_and_the_write_is_retried(bench: Bench) -> None:
    bench.server.trouble = forbidden
    bench.news()
    with pytest.raises(ApiError):
        await bench.passes(2)
    bench.server.trouble = no_trouble
    await bench.passes(2 * LONGEST)
    assert bench.stored["status"]


async def test_an_object_that_is_deleted_between_two_requests_is_created_again(bench: Bench) -> None:
    gone: list[Sequence[str]] = []

    def vanish(verb: str, path: str) -> None:
        if path.endswith("/status") and not gone:
            gone.append((verb, path))
            bench.server.objects.clear()

    bench.server.trouble = vanish
    bench.news()
    await bench.passes(2)
    assert bench.stored["status"]
