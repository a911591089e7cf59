"""Waits of many: few are short, whatever the number of nodes."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.lib.kube.cluster_size import MANY
from actors.status_writer.timers import window_for


@given(st.integers(0, 10**7), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_within_its_window(nodes: int, chance: float) -> None:
    window = window_for(nodes)
    assert 0 <= window.draw(chance) <= window.seconds


def test_small_clusters_wait_little_and_large_ones_not_much_longer() -> None:
    assert window_for(1).seconds == 2
    assert window_for(MANY).seconds < 11


def test_later_chances_are_longer_waits() -> None:
    window = window_for(100)
    draws = [window.draw(step / 100) for step in range(100)]
    assert draws == sorted(draws)
    assert draws[0] == 0


@pytest.mark.parametrize("nodes", [10, 100, 1000, 5000])
def test_few_speak_before_they_can_have_heard_the_first(nodes: int) -> None:
    """The paper's estimate is exp(steepness * delay / window); here the delay is a second."""
    window, chance = window_for(nodes), random.Random(nodes)  # noqa: S311 - simulated
    runs = [sorted(window.draw(chance.random()) for _ in range(nodes)) for _ in range(20)]
    early = [sum(draw <= draws[0] + 1.0 for draw in draws) for draws in runs]
    assert sum(early) / len(early) <= 2 * math.exp(window.steepness / window.seconds)
    assert max(early) <= 20
