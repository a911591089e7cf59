"""Decisions about restarts, for every combination."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.runtime.faults import ConfigFault, DependencyFault, KernelFault
from supervisor.runtime.restart_policy import Backoff, Cause, cause_of, must_end

CHANCE = st.floats(0, 1, exclude_max=True)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    first = draw(st.floats(0.01, 10))
    return Backoff(
        first=first,
        factor=draw(st.floats(1, 10)),
        longest=draw(st.floats(first, 1000)),
        jitter=draw(st.floats(0, 0.9)),
    )


@given(backoffs(), st.integers(1, 10_000), CHANCE)
def test_a_delay_is_always_within_its_bounds(backoff: Backoff, failures: int, chance: float) -> None:
    delay = backoff.delay(failures, chance)
    assert 0 < backoff.first * (1 - backoff.jitter) <= delay * 1.000001
    assert delay <= backoff.longest * (1 + backoff.jitter) * 1.000001


@given(backoffs(), st.integers(1, 1000), CHANCE)
def test_delays_never_shrink_with_more_failures(backoff: Backoff, failures: int, chance: float) -> None:
    assert backoff.delay(failures + 1, chance) >= backoff.delay(failures, chance)


@given(backoffs(), st.integers(1, 100), CHANCE)
def test_jitter_is_at_most_its_share_of_the_plain_delay(backoff: Backoff, failures: int, chance: float) -> None:
    plain = backoff.delay(failures, 0.5)
    assert abs(backoff.delay(failures, chance) - plain) <= plain * (backoff.jitter + 1e-9)


def test_the_default_delays_are_half_a_second_doubled_up_to_thirty_plus_or_minus_a_fifth() -> None:
    backoff = Backoff()
    assert [backoff.delay(n, 0.5) for n in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.delay(1, 0) == 0.4
    assert backoff.delay(100, 0.999_999) == pytest.approx(36, abs=0.001)


@pytest.mark.parametrize("wrong", [{"first": 0}, {"first": 31}, {"factor": 0.5}, {"jitter": 1}, {"jitter": -0.1}])
def test_an_impossible_backoff_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="invalid"):
        Backoff(**wrong)


@given(st.integers(1, 10_000))
def test_a_child_that_is_not_critical_never_ends_the_tree(in_a_row: int) -> None:
    assert not must_end(critical=False, in_a_row=in_a_row)


def test_a_critical_child_may_need_five_restarts_in_a_row_and_no_more() -> None:
    assert [must_end(critical=True, in_a_row=n) for n in range(1, 8)] == [False] * 5 + [True] * 2


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (None, Cause.RETURNED),
        (DependencyFault(), Cause.FAULT),
        (ConfigFault(), Cause.FAULT),
        (ZeroDivisionError(), Cause.BUG),
        (ExceptionGroup("", [KernelFault(), ValueError()]), Cause.BUG),
        (ExceptionGroup("", [KernelFault(), ExceptionGroup("", [ConfigFault()])]), Cause.FAULT),
    ],
    ids=repr,
)
def test_an_error_is_classified_by_all_its_parts(error: BaseException | None, cause: Cause) -> None:
    assert cause_of(error) is cause
