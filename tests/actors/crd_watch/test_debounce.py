"""When changes are published: soon, in few steps, and never later than promised."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from actors.crd_watch.debounce import (
    FIRST_CEILING_SECONDS,
    LONE_SECONDS,
    MOST_ROUNDS,
    QUIET_SECONDS,
    Debounce,
)


def published(times: list[float]) -> list[float]:
    """Return when changes at these times are published by a caller that checks at every due moment."""
    debounce, moments = Debounce(), []
    for time in times:
        while (due := debounce.due(calm=True)) <= time:
            debounce.published(due)
            moments.append(due)
        debounce.saw(time, 1)
    moments.append(debounce.due(calm=True))
    return moments


def test_nothing_is_due_when_nothing_has_changed() -> None:
    debounce = Debounce()
    debounce.saw(5.0, 0)
    assert debounce.due(calm=True) == debounce.due(calm=False) == math.inf


def test_a_lone_change_waits_a_moment() -> None:
    assert published([10.0]) == [10 + LONE_SECONDS]


def test_a_handful_is_one() -> None:
    assert published([0.0, 0.1, 0.2]) == [0.2 + QUIET_SECONDS]


def test_a_hundred_objects_of_one_apply_are_at_most_three() -> None:
    for per_second in (50, 20, 10):
        assert len(published([number / per_second for number in range(100)])) <= 3


def test_what_never_ends_is_published_at_growing_distances() -> None:
    moments = published([number / 10 for number in range(1000)])
    distances = [later - earlier for earlier, later in zip([0.0, *moments], moments, strict=False)]
    assert 5 <= distances[0] < 5.2
    assert 10 <= distances[1] < 10.2
    assert all(distance < 20.2 for distance in distances)
    assert len(moments) <= 8
    assert published([number * 0.4 for number in range(100_000)])[-1] < 40_001


def test_after_a_pause_it_is_quick_again() -> None:
    burst = [number / 10 for number in range(200)]
    assert published([*burst, 100.0])[-1] == 100 + LONE_SECONDS


def test_while_watches_are_opened_again_only_the_ceiling_counts() -> None:
    debounce = Debounce()
    debounce.saw(1.0, 3)
    assert debounce.due(calm=False) == 1 + FIRST_CEILING_SECONDS
    assert debounce.due(calm=True) == 1 + QUIET_SECONDS


@given(st.lists(st.floats(0.001, 30), max_size=60))
def test_every_change_is_published_within_the_longest_ceiling(gaps: list[float]) -> None:
    times = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    moments, longest = published(times), FIRST_CEILING_SECONDS * 2**MOST_ROUNDS
    for time in times:
        assert min(moment for moment in moments if moment >= time) - time <= longest + 1e-6
