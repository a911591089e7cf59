"""How many nodes there are, and over how long a window their requests are spread."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from actors.lib.kube.client import Json, KubeClient, Params
from actors.lib.kube.cluster_size import FIRST_POLL_SECONDS, LARGE, RATE, ClusterSize
from actors.lib.kube.errors import ApiError, UnreachableError, error_for
from config.api import ApiCredentials


class StatusObjects(KubeClient):
    """A client of a server that has so many status objects."""

    def __init__(self, nodes: int = 0) -> None:
        super().__init__(ApiCredentials("https://fake"))
        self.nodes = nodes
        self.polls = 0
        self.fault: ApiError | None = None

    async def get(self, path: str, params: Params | None = None) -> Json:
        await trio.lowlevel.checkpoint()
        assert path == "/apis/network.openperouter.io/v1alpha1/namespaces/system/routernodeconfigurationstatuses"
        assert params == {"limit": 1}
        self.polls += 1
        if self.fault:
            raise self.fault
        return {"items": [{}][: self.nodes], "metadata": {"remainingItemCount": self.nodes - 1} if self.nodes else {}}


def middling(nodes: int = LARGE) -> ClusterSize:
    return ClusterSize(nodes, lambda: 0.5)


def test_a_writer_assumes_a_large_cluster() -> None:
    assert ClusterSize().nodes == LARGE


def test_a_row_is_as_long_as_keeps_all_nodes_below_the_rate() -> None:
    assert [middling(nodes).window() for nodes in (1, 301, 5001)] == [0.0, 300 / RATE, 50.0]
    assert [middling(nodes).window(3.0) for nodes in (1, 301, 501)] == [3.0, 3.0, 5.0]


def test_writes_that_go_to_all_nodes_are_slower_in_a_large_cluster() -> None:
    """A hundred thousand events a second, of all nodes together."""
    assert [middling(nodes).watched_window(5) for nodes in (1, 301, 1001, 5001)] == [
        0.0,
        pytest.approx(15.0),
        pytest.approx(50.0, rel=0.01),
        pytest.approx(1250.0, rel=0.01),
    ]


def test_each_node_has_its_own_place() -> None:
    assert ClusterSize(chance=lambda: 0.25).jitter == 0.25
    assert 0.0 <= ClusterSize().jitter < 1.0


async def test_nodes_that_all_start_at_once_are_counted_again() -> None:
    client, size, now = StatusObjects(), middling(), 100.0
    assert size.poll_at == math.inf
    size.poll_soon(now)
    counts, gaps = [], []
    for there in (0, 40, 44, 44, 44, 44):
        client.nodes = there
        gaps.append(size.poll_at - now)
        now = size.poll_at
        await size.poll(client, "system", now)
        size.poll_soon(now)
        counts.append(size.nodes)
    assert counts == [1, 40, 40, 40, 40, 40]
    assert gaps == sorted(gaps)
    assert gaps[0] <= FIRST_POLL_SECONDS
    assert gaps[1] <= 90
    assert gaps[-1] >= 3 * 3600


@pytest.mark.parametrize(("error", "later"), [(error_for(403, "", "no"), True), (UnreachableError("no"), False)])
async def test_a_refused_poll_is_repeated_later_and_one_without_an_answer_stays_due(
    error: ApiError, later: bool
) -> None:
    client, size = StatusObjects(7), middling()
    size.poll_soon(100.0)
    client.fault, due = error, size.poll_at
    with pytest.raises(type(error)):
        await size.poll(client, "system", due)
    assert size.poll_at == (due + 60.0 if later else due)
    assert size.nodes == LARGE


@pytest.mark.parametrize("fault", [None, error_for(403, "", "no"), UnreachableError("no")])
async def test_polling_continues_whatever_the_answer(autojump_clock: MockClock, fault: ApiError | None) -> None:
    client, size = StatusObjects(7), middling(1)
    client.fault = fault
    with trio.move_on_after(24 * 3600):
        await size.keep_polling(client, "system", trio.lowlevel.checkpoint)
    assert 5 <= client.polls <= 8
    assert size.nodes == (1 if fault else 7)


async def test_polling_waits_for_the_server_and_continues_its_schedule(autojump_clock: MockClock) -> None:
    client, size, ready = StatusObjects(7), middling(1), trio.Event()
    for _ in range(10):
        with trio.move_on_after(50):
            await size.keep_polling(client, "system", ready.wait)
    assert client.polls == 0
    ready.set()
    with trio.move_on_after(50):
        await size.keep_polling(client, "system", ready.wait)
    assert client.polls == 1
