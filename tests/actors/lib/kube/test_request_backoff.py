"""How long failures in a row make a request wait."""

from __future__ import annotations

import pytest

from actors.lib.kube.errors import ApiError, error_for
from actors.lib.kube.request_backoff import PASSING, REFUSED, RequestBackoff
from supervisor.runtime.restart_policy import Backoff

CASES = [(500, PASSING), (409, PASSING), (403, REFUSED), (404, REFUSED), (422, REFUSED)]


@pytest.mark.parametrize(("code", "policy"), CASES)
def test_failures_in_a_row_wait_longer_each_time(code: int, policy: Backoff) -> None:
    backoff, waits = RequestBackoff(lambda: 0.5), []
    for _ in range(12):
        backoff.failed(error_for(code, "", "no"), 1000.0)
        waits.append(backoff.until - 1000.0)
    assert waits[0] == policy.first
    assert waits == sorted(waits)
    assert waits[-1] == policy.longest
    backoff.reset()
    assert backoff.until < 0
    backoff.failed(error_for(code, "", "no"), 1000.0)
    assert backoff.until == 1000.0 + policy.first


def test_nodes_wait_differently() -> None:
    first, second = RequestBackoff(lambda: 0.0), RequestBackoff(lambda: 0.9)
    for backoff in (first, second):
        backoff.failed(error_for(500, "", "no"), 0.0)
    assert first.until < second.until


def test_retry_after_is_respected() -> None:
    backoff = RequestBackoff(lambda: 0.5)
    backoff.failed(ApiError("slowly", retry_after=77.0), 10.0)
    assert backoff.until == 87.0
