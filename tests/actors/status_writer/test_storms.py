"""Five thousand nodes and one object: however they agree or not, only a handful writes.

The estimate and the simulation are explained in docs/cluster.md. A scenario's writes are counted for one generation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actors.status_writer.object_status import Verdict

from .cluster import BAD, GOOD, Cluster

FEW = 20
SIZES = [1, 3, 100, 5000]


def all_fine(cluster: Cluster) -> None:
    for name in cluster.nodes:
        cluster.thinks(name, GOOD, cluster.random.uniform(1, 5))


def all_fail(cluster: Cluster) -> None:
    for name in cluster.nodes:
        cluster.thinks(name, BAD, cluster.random.uniform(0.2, 1))


def one_fails(cluster: Cluster) -> None:
    for name in list(cluster.nodes)[1:]:
        cluster.thinks(name, GOOD, cluster.random.uniform(1, 5))
    cluster.thinks("node-0", BAD, 3.0)


def half_fail(cluster: Cluster) -> None:
    for number, name in enumerate(cluster.nodes):
        cluster.thinks(name, BAD if number % 2 else GOOD, cluster.random.uniform(1, 5))


def all_fail_then_recover(cluster: Cluster) -> None:
    all_fail(cluster)
    for name in cluster.nodes:
        cluster.thinks(name, GOOD, cluster.random.uniform(60, 120))


def simulated(scenario: Callable[[Cluster], None], size: int, until: float, **settings: Any) -> Cluster:
    cluster = Cluster(size, **settings)
    scenario(cluster)
    cluster.run(until)
    assert len(cluster.writes) <= FEW
    assert cluster.refused <= FEW
    return cluster


@pytest.mark.parametrize("size", SIZES)
def test_all_fine(size: int) -> None:
    cluster = simulated(all_fine, size, 120)
    [(moment, claim)] = cluster.writes
    assert not claim.failing
    assert moment < 30


@pytest.mark.parametrize("size", SIZES)
def test_all_fail(size: int) -> None:
    cluster = simulated(all_fail, size, 120)
    [(moment, claim)] = cluster.writes
    assert claim.failing
    assert moment < 15


@pytest.mark.parametrize("size", SIZES)
def test_one_fails(size: int) -> None:
    cluster = simulated(one_fails, size, 120)
    assert cluster.writes[-1][1].node == "node-0"
    assert cluster.writes[-1][1].failing
    assert len(cluster.writes) <= 2


@pytest.mark.parametrize("size", [100, 1000])
def test_half_of_them_fail(size: int) -> None:
    cluster = simulated(half_fail, size, 120)
    assert cluster.writes[-1][1].failing
    assert len(cluster.writes) <= 3


@pytest.mark.parametrize("size", SIZES)
def test_all_fail_and_recover_one_after_the_other(size: int) -> None:
    cluster = simulated(all_fail_then_recover, size, 900)
    assert not cluster.writes[-1][1].failing
    assert cluster.writes[-1][0] < 300


def test_a_slow_watch_costs_some_attempts() -> None:
    """Attempts that come too late are refused by the version that they name; they change nothing."""
    cluster = simulated(all_fail, 5000, 120, delays=(0.5, 3.0))
    assert len(cluster.writes) <= 3


def test_a_cluster_that_does_not_know_its_size_only_waits_longer() -> None:
    cluster = simulated(all_fine, 3, 120, known_size=5000)
    [(moment, _)] = cluster.writes
    assert moment < 30


def test_a_cluster_that_grew_a_hundredfold_unnoticed_still_writes_little() -> None:
    """The version guard is what keeps this small; the waits keep the refused attempts few."""
    cluster = Cluster(5000, known_size=50)
    all_fail(cluster)
    cluster.run(120)
    assert len(cluster.writes) <= 3
    assert cluster.refused <= 200


def test_who_claimed_a_failure_and_left_is_found_out() -> None:
    cluster = Cluster(300)
    one_fails(cluster)
    cluster.leaves("node-0", 60.0)
    cluster.run(600.0)
    assert cluster.writes[-1][1].failing
    cluster.run(1500.0)
    assert not cluster.writes[-1][1].failing
    assert cluster.looks <= 5


def test_a_lasting_failure_is_confirmed_ever_more_rarely() -> None:
    cluster = Cluster(300)
    one_fails(cluster)
    cluster.run(24 * 3600.0)
    assert cluster.writes[-1][1].failing
    assert cluster.writes[-1][1].confirmed
    assert len(cluster.writes) <= 40
    assert cluster.looks <= 2 * len(cluster.writes)


def test_what_flaps_is_written_ever_more_slowly() -> None:
    cluster = Cluster(100)
    all_fine(cluster)
    for step in range(6 * 60):
        cluster.thinks("node-0", GOOD if step % 2 else BAD, 60.0 + 60.0 * step)
    cluster.run(6 * 3600.0)
    first_hour = sum(moment < 3600 for moment, _ in cluster.writes)
    last_hour = sum(moment >= 5 * 3600 for moment, _ in cluster.writes)
    assert first_hour <= FEW
    assert last_hour <= 4


def test_a_new_generation_is_a_new_question() -> None:
    cluster = Cluster(100)
    all_fine(cluster)
    cluster.new_generation(60.0)
    for name in cluster.nodes:
        cluster.thinks(name, Verdict(2, good=True), 62.0)
    cluster.run(120.0)
    assert len(cluster.writes) == 2
    assert {one["observedGeneration"] for one in cluster.stored.conditions} == {2}
