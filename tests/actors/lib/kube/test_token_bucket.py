"""How often something may be sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.lib.kube.request_backoff import TokenBucket


def test_a_burst_passes_at_once_and_the_rest_one_by_one() -> None:
    bucket, moments, now = TokenBucket(3, 10.0), [], 100.0
    for _ in range(6):
        now = bucket.due(now)
        moments.append(now)
        bucket.take(now)
    assert moments == [100.0, 100.0, 100.0, 110.0, 120.0, 130.0]


def test_an_idle_bucket_fills_up_to_the_burst() -> None:
    bucket = TokenBucket(2, 10.0)
    for now in (0.0, 0.0, 10.0):
        bucket.take(now)
    for _ in range(2):
        assert bucket.due(1000.0) == 1000.0
        bucket.take(1000.0)
    assert bucket.due(1000.0) == 1010.0


@given(st.lists(st.floats(0, 50), max_size=60))
def test_no_window_of_time_has_more_than_the_rate(gaps: list[float]) -> None:
    bucket, now, taken = TokenBucket(5, 7.0), 0.0, []
    for gap in gaps:
        now = bucket.due(now + gap)
        bucket.take(now)
        taken.append(now)
    for start in taken:
        assert sum(start <= moment < start + 70.0 for moment in taken) <= 5 + 11
