"""How often something may go, and how long a failure waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.lib.kube.errors import ApiError, error_for
from actors.status_writer.rate_limit import PASSING, REFUSED, Pause, TokenBucket


def test_a_burst_goes_at_once_and_the_rest_one_by_one() -> None:
    bucket, moments, now = TokenBucket(3, 10.0), [], 100.0
    for _ in range(6):
        now = bucket.due(now)
        moments.append(now)
        bucket.take(now)
    assert moments == [100.0, 100.0, 100.0, 110.0, 120.0, 130.0]


def test_a_rested_bucket_is_full_again_and_not_more() -> None:
    bucket = TokenBucket(2, 10.0)
    for now in (0.0, 0.0, 10.0):
        bucket.take(now)
    for _ in range(2):
        assert bucket.due(1000.0) == 1000.0
        bucket.take(1000.0)
    assert bucket.due(1000.0) == 1010.0


def test_another_pace_leaves_the_burst_as_it_is() -> None:
    bucket = TokenBucket(3, 10.0)
    for _ in range(4):
        bucket.take(100.0)
    assert bucket.due(100.0) == 120.0
    bucket.pace(0.1, 100.0)
    assert bucket.due(100.0) == pytest.approx(100.2)
    bucket.pace(10.0, 100.0)
    assert bucket.due(100.0) == pytest.approx(120.0)
    bucket.pace(5.0, 1000.0)
    assert bucket.due(1000.0) == 1000.0


@given(st.lists(st.floats(0, 50), max_size=60))
def test_no_window_of_time_sees_more_than_it_may(gaps: list[float]) -> None:
    bucket, now, taken = TokenBucket(5, 7.0), 0.0, []
    for gap in gaps:
        now = bucket.due(now + gap)
        bucket.take(now)
        taken.append(now)
    for start in taken:
        assert sum(start <= moment < start + 70.0 for moment in taken) <= 5 + 11


@pytest.mark.parametrize(("code", "first"), [(500, PASSING.first), (403, REFUSED.first), (404, REFUSED.first)])
def test_a_failure_waits_longer_each_time(code: int, first: float) -> None:
    pause, waits = Pause(lambda: 0.5), []
    for _ in range(12):
        pause.failed(error_for(code, "", "no"), 1000.0)
        waits.append(pause.until - 1000.0)
    assert waits[0] == first
    assert waits == sorted(waits)
    assert waits[-1] == (PASSING if code == 500 else REFUSED).longest
    pause.over()
    assert pause.until < 0


def test_what_the_server_asks_for_is_respected() -> None:
    pause = Pause(lambda: 0.5)
    pause.failed(ApiError("slowly", retry_after=77.0), 10.0)
    assert pause.until == 87.0
