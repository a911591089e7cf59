"""Decisions about restarts, for every combination."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.runtime.faults import AlreadyRunningFault, ConfigFault, DependencyFault, KernelFault
from supervisor.runtime.restart_policy import Backoff, Cause, Intensity, Restart, Verdict, cause_of, decide, may_retry

FAILURES = [Cause.FAULT, Cause.BUG, Cause.FROZEN, Cause.START_TIMEOUT]
ERRORS = st.sampled_from(
    [None, KernelFault(), ConfigFault(), ValueError(), ExceptionGroup("", [ValueError(), ConfigFault()])]
)
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
    assert backoff.reset_after == 60


@pytest.mark.parametrize(
    "nonsense", [{"first": 0}, {"first": 31}, {"factor": 0.5}, {"jitter": 1}, {"jitter": -0.1}, {"reset_after": 0}]
)
def test_a_nonsensical_backoff_is_refused(nonsense: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="nonsense"):
        Backoff(**nonsense)


def test_intensity_counts_only_within_its_period() -> None:
    intensity = Intensity(restarts=2, period=60)
    assert not intensity.exceeded([0, 10], 1, now=10)
    assert intensity.exceeded([0, 10, 59], 1, now=59)
    assert not intensity.exceeded([0, 10, 60], 1, now=60)


def test_intensity_counts_failures_in_a_row_however_slow() -> None:
    assert Intensity(restarts=2, period=60).exceeded([0, 1000, 2000], 3, now=2000)
    assert not Intensity(restarts=2, period=60).exceeded([0, 1000, 2000], 2, now=2000)


@given(st.sampled_from(FAILURES), ERRORS, st.booleans())
def test_a_permanent_child_that_is_not_critical_is_always_restarted(
    cause: Cause, error: BaseException | None, exceeded: bool
) -> None:
    assert decide(Restart.PERMANENT, cause, critical=False, exceeded=exceeded, error=error) is Verdict.RESTART


@given(st.sampled_from([Restart.PERMANENT, Restart.TRANSIENT]), st.sampled_from(FAILURES))
def test_a_critical_child_is_restarted_until_its_intensity_is_exceeded(restart: Restart, cause: Cause) -> None:
    assert decide(restart, cause, critical=True) is Verdict.RESTART
    assert decide(restart, cause, critical=True, exceeded=True) is Verdict.ESCALATE


@given(st.sampled_from(list(Restart)))
def test_a_fault_that_retrying_cannot_help_ends_the_tree_if_the_child_is_critical(restart: Restart) -> None:
    error = ExceptionGroup("", [KernelFault(), ConfigFault()])
    assert decide(restart, Cause.FAULT, critical=True, error=error) is Verdict.ESCALATE


@given(st.booleans(), st.booleans())
def test_returning_is_a_failure_for_a_permanent_child_only(critical: bool, exceeded: bool) -> None:
    for restart in (Restart.TRANSIENT, Restart.TEMPORARY):
        assert decide(restart, Cause.RETURNED, critical=critical, exceeded=exceeded) is Verdict.FINISH
    assert decide(Restart.PERMANENT, Cause.RETURNED, critical=False) is Verdict.RESTART
    assert decide(Restart.PERMANENT, Cause.RETURNED, critical=True, exceeded=True) is Verdict.ESCALATE


@given(st.sampled_from([*FAILURES, Cause.RETURNED]), ERRORS, st.booleans(), st.booleans())
def test_a_temporary_child_is_never_restarted(
    cause: Cause, error: BaseException | None, critical: bool, exceeded: bool
) -> None:
    verdict = decide(Restart.TEMPORARY, cause, critical=critical, exceeded=exceeded, error=error)
    assert verdict is not Verdict.RESTART
    assert verdict is not Verdict.ESCALATE or critical


@pytest.mark.parametrize(
    ("error", "cause", "retry"),
    [
        (None, Cause.RETURNED, True),
        (DependencyFault(), Cause.FAULT, True),
        (AlreadyRunningFault(), Cause.FAULT, False),
        (ConfigFault(), Cause.FAULT, False),
        (ZeroDivisionError(), Cause.BUG, True),
        (ExceptionGroup("", [KernelFault(), ValueError()]), Cause.BUG, True),
        (ExceptionGroup("", [KernelFault(), ExceptionGroup("", [ConfigFault()])]), Cause.FAULT, False),
    ],
    ids=repr,
)
def test_an_error_is_classified_by_all_its_parts(error: BaseException | None, cause: Cause, retry: bool) -> None:
    assert cause_of(error) is cause
    assert may_retry(error) is retry
