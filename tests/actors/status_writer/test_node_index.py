"""The index on the Node: what the node's own configuration says, without a fight."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from actors.lib.kube.cluster_size import RATE, Crowd
from actors.status_writer.node_events import Occurrence
from actors.status_writer.node_index import NodeIndexDuty
from actors.status_writer.writer import Scene
from config.api import INDEX_ANNOTATION

from .examples import CREDENTIALS, NAMESPACE, NODE, basis
from .server import FakeServer

PATH = "/api/v1/nodes/node-a"


@dataclass
class Bench:
    """A duty, and a server with the Node."""

    server: FakeServer = field(default_factory=FakeServer)
    told: list[Occurrence] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server.objects[PATH] = {"metadata": {"name": "node-a", "uid": NODE.uid, "annotations": {"a": "b"}}}
        self.duty = NodeIndexDuty(self.told.append, Crowd(1), lambda: 0.0)

    def shows(self, now: float) -> None:
        node = replace(NODE, annotations=dict(self.annotations))
        self.duty.see(Scene(replace(basis(), node=node), {}, NAMESPACE), now)

    async def acts(self, now: float) -> None:
        async with self.server.connect(CREDENTIALS) as client:
            await self.duty.act(client, now)

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.server.objects[PATH]["metadata"]["annotations"]
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_missing_index_is_written_beside_what_is_there(bench: Bench) -> None:
    bench.shows(0.0)
    await bench.acts(bench.duty.due(0.0))
    assert bench.annotations == {"a": "b", INDEX_ANNOTATION: "3"}
    assert bench.told == []


async def test_a_right_index_is_left_alone(bench: Bench) -> None:
    bench.annotations[INDEX_ANNOTATION] = "3"
    bench.shows(0.0)
    assert bench.duty.due(0.0) == float("inf")
    await bench.acts(0.0)
    assert bench.server.requests == []


async def test_another_index_is_replaced_and_told(bench: Bench) -> None:
    bench.annotations[INDEX_ANNOTATION] = "7"
    bench.shows(0.0)
    await bench.acts(0.0)
    assert bench.annotations[INDEX_ANNOTATION] == "3"
    [told] = bench.told
    assert told.reason == "NodeIndexReplaced"


async def test_a_lagging_watch_does_not_repeat_the_write(bench: Bench) -> None:
    bench.shows(0.0)
    await bench.acts(0.0)
    bench.duty.see(Scene(basis(), {}, NAMESPACE), 1.0)
    await bench.acts(5.0)
    assert len(bench.server.requests) == 1


async def test_who_insists_is_answered_ever_more_rarely(bench: Bench) -> None:
    now = 0.0
    while now < 7200:
        bench.annotations[INDEX_ANNOTATION] = "7"
        bench.shows(now)
        await bench.acts(now)
        now += 1.0
    assert 3 <= len(bench.server.requests) <= 12
    bench.annotations[INDEX_ANNOTATION] = "3"
    bench.shows(now + 7300)
    bench.annotations[INDEX_ANNOTATION] = "7"
    bench.shows(now + 14600)
    await bench.acts(now + 14600)
    assert bench.duty.due(now + 14600) < now + 14620


def test_thousands_of_nodes_write_one_after_the_other() -> None:
    told: list[Occurrence] = []
    duty = NodeIndexDuty(told.append, Crowd(5000), lambda: 0.5)
    duty.see(Scene(basis(), {}, NAMESPACE), 100.0)
    assert duty.due(100.0) == 100.0 + 0.5 * 4999 / RATE
