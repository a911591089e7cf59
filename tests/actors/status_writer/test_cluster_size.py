"""How many nodes there are: asked in time, and again while they are still coming."""

from __future__ import annotations

import pytest

from actors.lib.kube.cluster_size import MANY, RATE, Crowd
from actors.status_writer.cluster_size import CrowdDuty
from actors.status_writer.node_status import path_of
from actors.status_writer.writer import Scene

from .examples import CREDENTIALS, NAMESPACE, basis
from .server import FakeServer


def with_nodes(count: int) -> FakeServer:
    return FakeServer({path_of(NAMESPACE, f"node-{number}"): {"metadata": {}} for number in range(count)})


async def test_nodes_that_all_start_at_once_are_counted_again() -> None:
    server, crowd, now = with_nodes(0), Crowd(), 100.0
    duty = CrowdDuty(crowd, lambda: 0.5)
    assert duty.due(now) > 1e9
    duty.see(Scene(basis(), {}, NAMESPACE), now)
    counts, gaps = [], []
    async with server.connect(CREDENTIALS) as client:
        for there in (0, 40, 44, 44, 44, 44):
            server.objects = with_nodes(there).objects
            gaps.append(duty.due(now) - now)
            now = duty.due(now)
            await duty.act(client, now)
            counts.append(crowd.nodes)
    assert counts == [1, 40, 40, 40, 40, 40]
    assert gaps == sorted(gaps)
    assert gaps[0] <= 2
    assert gaps[1] <= 90
    assert gaps[-1] >= 3 * 3600


def test_nobody_knows_better_than_many() -> None:
    assert Crowd().nodes == MANY


def test_everybody_has_a_place_in_the_row() -> None:
    crowd = Crowd(5000)
    assert crowd.spread(0.0) == 0.0
    assert 49 < crowd.spread(0.999999) < 50
    assert Crowd(1).spread(0.9) == 0.0
    assert Crowd(301).spread(0.5) == 150 / RATE


def test_what_all_nodes_hear_of_is_written_more_slowly_by_thousands() -> None:
    """A hundred thousand events a second, of all nodes together."""
    assert [Crowd(nodes).spread_watched(1.0, 5) for nodes in (1, 301, 1001, 5001)] == [
        0.0,
        pytest.approx(15.0),
        pytest.approx(50.0, rel=0.01),
        pytest.approx(1250.0, rel=0.01),
    ]


def test_a_node_writes_as_often_as_all_of_them_may() -> None:
    assert [Crowd(nodes).pace(2.0) for nodes in (1, 10, 100, 200, 5000)] == [0.01, 0.1, 1.0, 2.0, 2.0]
