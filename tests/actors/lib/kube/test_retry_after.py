"""What a reflector does after each error."""

from __future__ import annotations

import pytest

from actors.lib.kube.errors import ApiError, UnreachableError, error_for
from actors.lib.kube.reflector import retry_after
from config.api import WatchFailure


def error(code: int, retry_after: float | None = None) -> ApiError:
    return error_for(code, "", "", retry_after) if code else UnreachableError("")


@pytest.mark.parametrize(
    ("code", "failure", "relist", "lost"),
    [
        (0, None, False, True),
        (401, None, False, True),
        (403, WatchFailure.REFUSED, False, False),
        (404, WatchFailure.MISSING, True, False),
        (410, None, True, False),
        (409, WatchFailure.FAILING, False, False),
        (422, WatchFailure.FAILING, False, False),
        (429, WatchFailure.FAILING, False, False),
        (500, WatchFailure.FAILING, False, False),
        (503, WatchFailure.FAILING, False, False),
    ],
)
def test_each_error_has_its_reaction(code: int, failure: WatchFailure | None, *, relist: bool, lost: bool) -> None:
    retry = retry_after(error(code), 1, 0.5)
    assert (retry.failure, retry.relist, retry.lost) == (failure, relist, lost)


def test_a_lost_watch_is_opened_again_as_soon_as_the_server_is_available() -> None:
    assert retry_after(error(0), 1, 0.99).seconds == 0
    assert retry_after(error(0), 2, 0.5).seconds == 2
    assert retry_after(error(0), 60, 1.0).seconds == 10


@pytest.mark.parametrize("code", [0, 401, 403, 404, 410, 422, 429, 500])
def test_waits_grow_to_a_bound(code: int) -> None:
    waits = [retry_after(error(code), failures, 0.5).seconds for failures in range(1, 2000)]
    assert waits == sorted(waits)
    assert waits[0] <= 3
    assert waits[-1] <= 60


@pytest.mark.parametrize("code", [0, 401, 403, 404, 410, 422, 429, 500])
def test_waits_are_spread(code: int) -> None:
    assert retry_after(error(code), 5, 0.9).seconds > 1.5 * retry_after(error(code), 5, 0.1).seconds


@pytest.mark.parametrize("code", [429, 503])
def test_the_servers_retry_after_is_kept_and_spread(code: int) -> None:
    assert retry_after(error(code, 20), 1, 0.0).seconds == 20
    assert retry_after(error(code, 20), 1, 1.0).seconds == 30


@pytest.mark.parametrize("code", [429, 503])
def test_a_server_that_keeps_asking_for_the_same_wait_gets_longer_ones(code: int) -> None:
    waits = [retry_after(error(code, 1), failures, 0.5).seconds for failures in range(1, 20)]
    assert waits == sorted(waits)
    assert waits[0] <= 2
    assert waits[-1] == 60
    assert not any(retry_after(error(code, wait), failures, 0.5).relist for failures in (1, 3, 9) for wait in (0, 1))


def test_errors_that_do_not_pass_are_answered_with_a_list() -> None:
    assert [retry_after(error(500), failures, 0.5).relist for failures in (1, 2, 3)] == [False, False, True]
