"""The index on the Node: that of the node's own configuration, without a fight."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from actors.lib.kube.cluster_size import RATE, ClusterSize
from actors.status_writer.node_events import NodeEvent
from actors.status_writer.node_index import NodeIndexWriter
from config.api import INDEX_ANNOTATION
from tests.fakes.api_server import FakeApiServer

from .examples import CREDENTIALS, NODE, node_state

PATH = "/api/v1/nodes/node-a"


@dataclass
class Bench:
    """A writer, and a server with the Node."""

    server: FakeApiServer = field(default_factory=FakeApiServer)
    reported: list[NodeEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server.objects[PATH] = {"metadata": {"name": "node-a", "uid": NODE.uid, "annotations": {"a": "b"}}}
        self.writer = NodeIndexWriter(self.reported.append, ClusterSize(1, lambda: 0.0))

    def shows(self, now: float) -> None:
        node = replace(NODE, annotations=dict(self.annotations))
        self.writer.update(replace(node_state(), node=node), now)

    async def writes(self, now: float) -> None:
        async with self.server.connect(CREDENTIALS) as client:
            await self.writer.write(client, now)

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.server.objects[PATH]["metadata"]["annotations"]
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_missing_index_is_written_beside_what_is_there(bench: Bench) -> None:
    bench.shows(0.0)
    await bench.writes(bench.writer.due(0.0))
    assert bench.annotations == {"a": "b", INDEX_ANNOTATION: "3"}
    assert bench.reported == []


async def test_a_right_index_is_left_alone(bench: Bench) -> None:
    bench.annotations[INDEX_ANNOTATION] = "3"
    bench.shows(0.0)
    assert bench.writer.due(0.0) == float("inf")
    await bench.writes(0.0)
    assert bench.server.requests == []


async def test_another_index_is_replaced_and_reported(bench: Bench) -> None:
    bench.annotations[INDEX_ANNOTATION] = "7"
    bench.shows(0.0)
    await bench.writes(0.0)
    assert bench.annotations[INDEX_ANNOTATION] == "3"
    [event] = bench.reported
    assert event.reason == "NodeIndexReplaced"
    assert "'7'" in event.note
    assert "is 3" in event.note


async def test_a_lagging_watch_does_not_repeat_the_write(bench: Bench) -> None:
    bench.shows(0.0)
    await bench.writes(0.0)
    bench.writer.update(node_state(), 1.0)
    await bench.writes(5.0)
    assert len(bench.server.requests) == 1


async def test_a_client_that_keeps_writing_another_index_is_answered_with_increasing_back_off(bench: Bench) -> None:
    now = 0.0
    while now < 7200:
        bench.annotations[INDEX_ANNOTATION] = "7"
        bench.shows(now)
        await bench.writes(now)
        now += 1.0
    assert 3 <= len(bench.server.requests) <= 12
    bench.annotations[INDEX_ANNOTATION] = "3"
    bench.shows(now + 7300)
    bench.annotations[INDEX_ANNOTATION] = "7"
    bench.shows(now + 14600)
    await bench.writes(now + 14600)
    assert bench.writer.due(now + 14600) < now + 14620


def test_thousands_of_nodes_write_one_after_the_other() -> None:
    writer = NodeIndexWriter(lambda _: None, ClusterSize(5000, lambda: 0.5))
    writer.update(node_state(), 100.0)
    assert writer.due(100.0) == 100.0 + 0.5 * 4999 / RATE
