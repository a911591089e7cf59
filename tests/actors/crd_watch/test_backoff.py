"""Each error and what it asks of a stream."""

from __future__ import annotations

import pytest

from actors.crd_watch.backoff import Condition, react
from actors.lib.kube.errors import ApiError, UnreachableError, error_for


def error(code: int, retry_after: float | None = None) -> ApiError:
    return error_for(code, "", "", retry_after) if code else UnreachableError("")


@pytest.mark.parametrize(
    ("code", "condition", "relist", "gate"),
    [
        (0, Condition.LOST, False, True),
        (401, Condition.LOST, False, True),
        (403, Condition.REFUSED, False, False),
        (404, Condition.MISSING, True, False),
        (410, Condition.LISTING, True, False),
        (409, Condition.FAILING, False, False),
        (422, Condition.FAILING, False, False),
        (429, Condition.FAILING, False, False),
        (500, Condition.FAILING, False, False),
        (503, Condition.FAILING, False, False),
    ],
)
def test_each_error_has_its_reaction(code: int, condition: Condition, *, relist: bool, gate: bool) -> None:
    reaction = react(error(code), 1, 0.5)
    assert (reaction.condition, reaction.relist, reaction.closes_gate) == (condition, relist, gate)


def test_a_lost_stream_goes_on_as_soon_as_the_gate_lets_it() -> None:
    assert react(error(0), 1, 0.99).seconds == 0
    assert react(error(0), 2, 0.5).seconds == 2
    assert react(error(0), 60, 1.0).seconds == 10


@pytest.mark.parametrize("code", [0, 401, 403, 404, 410, 422, 429, 500])
def test_waits_grow_to_a_bound(code: int) -> None:
    waits = [react(error(code), failures, 0.5).seconds for failures in range(1, 2000)]
    assert waits == sorted(waits)
    assert waits[0] <= 3
    assert waits[-1] <= 60


@pytest.mark.parametrize("code", [0, 401, 403, 404, 410, 422, 429, 500])
def test_waits_are_spread(code: int) -> None:
    assert react(error(code), 5, 0.9).seconds > 1.5 * react(error(code), 5, 0.1).seconds


@pytest.mark.parametrize("code", [429, 503])
def test_the_server_s_own_wait_is_kept_and_spread(code: int) -> None:
    assert react(error(code, 20), 1, 0.0).seconds == 20
    assert react(error(code, 20), 1, 1.0).seconds == 30


@pytest.mark.parametrize("code", [429, 503])
def test_a_server_that_asks_for_the_same_wait_for_ever_is_left_alone_for_longer(code: int) -> None:
    waits = [react(error(code, 1), failures, 0.5).seconds for failures in range(1, 20)]
    assert waits == sorted(waits)
    assert waits[0] <= 2
    assert waits[-1] == 60
    assert not any(react(error(code, wait), failures, 0.5).relist for failures in (1, 3, 9) for wait in (0, 1))


def test_errors_that_do_not_pass_are_answered_with_a_list() -> None:
    assert [react(error(500), failures, 0.5).relist for failures in (1, 2, 3)] == [False, False, True]
