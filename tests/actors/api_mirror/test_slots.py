"""A change that comes to thousands of nodes at once, and to three."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from trio.testing import MockClock

from actors.api_mirror.planning import Change, MirrorPlan, mirrors
from actors.api_mirror.schedule import MirrorSchedule
from actors.lib.kube.cluster_size import FIRST_POLL_SECONDS, ClusterSize
from actors.lib.kube.errors import UnreachableError, error_for
from tests.fakes.api_server import no_trouble

from .bench import L3VNIS, NAME, Bench
from .examples import NODE, blue, files, prove, red

FIVE = [replace(blue(number), name=f"static-node-{number}") for number in range(1, 6)]
CHANGES = [Change(None, mirror) for mirror in mirrors(files(*FIVE), NODE, prove).values()]


def test_thousands_of_nodes_write_one_after_the_other() -> None:
    dice, seconds = random.Random(1), Counter[int]()  # noqa: S311 - simulated
    for _ in range(5000):
        schedule = MirrorSchedule(ClusterSize(5000, dice.random))
        left = list(CHANGES)
        while left:
            # Each pass sends what is due, and the next has fewer changes.
            schedule.begin(MirrorPlan(tuple(left)), 0.0)
            first = min(left, key=schedule.due_at)
            seconds[int(schedule.due_at(first)) // 10] += 1
            left.remove(first)
    assert seconds.total() == 25_000
    assert max(seconds.values()) < 10 * 20 * 1.3
    assert max(seconds) * 10 <= 1250


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 0.0), (3, 0.1), (100, 5.0), (1000, 50.0)])
def test_the_smaller_the_cluster_the_less_it_takes(nodes: int, seconds: float) -> None:
    schedule = MirrorSchedule(ClusterSize(nodes, lambda: 0.999))
    schedule.begin(MirrorPlan(tuple(CHANGES)), 100.0)
    assert max(schedule.due_at(change) for change in CHANGES) <= 100.0 + seconds


def test_a_change_whose_slot_has_passed_gets_no_other_one() -> None:
    schedule = MirrorSchedule(ClusterSize(5000, lambda: 0.5))
    schedule.begin(MirrorPlan(tuple(CHANGES[:1])), 100.0)
    due = schedule.due_at(CHANGES[0])
    newer = Change(None, replace(CHANGES[0].wanted, spec={})) if CHANGES[0].wanted else CHANGES[0]
    schedule.begin(MirrorPlan((newer, *CHANGES[1:])), due + 50.0)
    assert schedule.due_at(newer) == due
    schedule.begin(MirrorPlan(), due + 60.0)
    schedule.begin(MirrorPlan(tuple(CHANGES[:1])), due + 70.0)
    assert schedule.due_at(CHANGES[0]) > due + 70.0


def test_the_nodes_are_counted_only_while_something_waits() -> None:
    schedule, now = MirrorSchedule(ClusterSize(chance=lambda: 0.5)), 100.0
    assert schedule.poll_at([], now) == math.inf
    schedule.begin(MirrorPlan(tuple(CHANGES)), now)
    assert schedule.poll_at(CHANGES, now) <= now + FIRST_POLL_SECONDS
    schedule.size.learn(1)
    assert schedule.poll_at(CHANGES, now) == math.inf


async def test_a_small_cluster_does_not_notice(bench: Bench, mock_clock: MockClock) -> None:
    bench.chance = 0.999
    bench.report(5)
    await bench.files(*FIVE)
    await bench.later(FIRST_POLL_SECONDS)
    await bench.later(0.5)
    assert len(bench.names()) == 5
    assert [verb for verb, _ in bench.server.requests] == ["count"] + 5 * ["create"]
    # Its size is known now.
    await bench.edit("static-node-1", vni=7)
    await bench.later(0.5)
    assert bench.server.requests[6:] == [("patch", f"{L3VNIS}/static-node-1")]


async def test_in_a_large_one_a_node_waits_for_its_slot(bench: Bench, mock_clock: MockClock) -> None:
    bench.chance = 0.5
    bench.report(5000)
    await bench.files(red())
    for _ in range(12):
        await bench.later(10)
    assert bench.names() == []
    await bench.later(10)
    assert bench.names() == [NAME]
    assert len(bench.server.writes()) == 1


async def test_a_node_with_nothing_to_write_does_not_count_the_nodes(bench: Bench, mock_clock: MockClock) -> None:
    await bench.files(red())
    bench.chance = 0.5
    await bench.files(red())
    await bench.later(3600)
    assert len(bench.server.requests) == 1


async def test_a_node_that_may_not_count_the_nodes_waits_as_in_a_large_cluster(
    bench: Bench, mock_clock: MockClock
) -> None:
    refused = error_for(403, "Forbidden", "no")
    bench.server.trouble = lambda verb, path: refused if verb == "count" else None
    bench.chance = 0.5
    await bench.files(red())
    for _ in range(12):
        await bench.later(10)
    assert bench.names() == []
    await bench.later(10)
    assert bench.names() == [NAME]


async def test_a_server_that_does_not_answer_is_tried_again_soon(bench: Bench, mock_clock: MockClock) -> None:
    bench.server.trouble = lambda verb, path: UnreachableError("no")
    bench.chance = 0.999
    await bench.files(red())
    await bench.later(FIRST_POLL_SECONDS)
    assert [verb for verb, _ in bench.server.requests] == ["count"]
    bench.server.trouble = no_trouble
    await bench.later(5)
    assert bench.names() == [NAME]
