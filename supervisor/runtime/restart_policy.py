"""When to try again, how long to wait, and when to give up: pure decisions, without a clock or a task.

The contract is OTP's with two lessons from the field: a child that nobody depends on never gives up but slows down, and
a critical one that cannot live ends the process, so that systemd and the administrator hear of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .faults import Fault, leaves


class Restart(StrEnum):
    """Whether a child is restarted: always, only after a failure, or never."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


class Cause(StrEnum):
    """How an incarnation ended. All but ``RETURNED`` (of a child that may) and ``STOPPED`` are failures."""

    RETURNED = "returned"
    FAULT = "fault"
    BUG = "bug"
    FROZEN = "frozen"
    START_TIMEOUT = "start_timeout"
    STOPPED = "stopped"


class Verdict(StrEnum):
    """What to do about an ended child: start it again, be content, leave it dead, or end the whole tree."""

    RESTART = "restart"
    FINISH = "finish"
    GIVE_UP = "give_up"
    ESCALATE = "escalate"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff in seconds: ``first`` times ``factor`` per failure up to ``longest``, then a jitter.

    ``jitter`` is the largest share that is added or taken away, at the longest delay too. ``reset_after`` is how long
    an incarnation must run for its predecessors' failures to be forgotten.
    """

    first: float = 0.5
    factor: float = 2.0
    longest: float = 30.0
    jitter: float = 0.2
    reset_after: float = 60.0

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.longest and self.factor >= 1 and 0 <= self.jitter < 1 and self.reset_after > 0):
            raise ValueError(f"nonsense backoff {self}")

    def delay(self, failures: int, chance: float) -> float:
        """Return the wait before the restart that follows ``failures`` failures in a row (1 or more).

        ``chance`` is a random number in [0, 1): 0.5 gives no jitter.
        """
        delay = self.first
        for _ in range(failures - 1):
            if delay >= self.longest or self.factor == 1:
                break
            delay *= self.factor
        return min(delay, self.longest) * (1 + self.jitter * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class Intensity:
    """How many restarts a critical child may need before the tree ends.

    At most ``restarts`` within ``period`` seconds, and at most that many in a row without one healthy run: the second
    half catches a loop that is slower than the period.
    """

    restarts: int = 5
    period: float = 60.0

    def exceeded(self, failures: Sequence[float], in_a_row: int, now: float) -> bool:
        """Whether one more restart is too many.

        ``failures`` are the times of past failures, the one just now included.
        """
        recent = sum(1 for moment in failures if now - moment < self.period)
        return max(recent, in_a_row) > self.restarts


def may_retry(error: BaseException | None) -> bool:
    """Whether trying again can help: not when any part of the error is a fault of a kind that says otherwise."""
    return error is None or all(leaf.retry for leaf in leaves(error) if isinstance(leaf, Fault))


def decide(
    restart: Restart, cause: Cause, *, critical: bool, exceeded: bool = False, error: BaseException | None = None
) -> Verdict:
    """Return the verdict on a child that ended by itself, was frozen or did not start; one that was stopped needs none.

    ``exceeded`` is :meth:`Intensity.exceeded`, which only counts for a critical child.
    """
    if cause is Cause.RETURNED and restart is not Restart.PERMANENT:
        return Verdict.FINISH
    if critical and (exceeded or restart is Restart.TEMPORARY or not may_retry(error)):
        return Verdict.ESCALATE
    return Verdict.GIVE_UP if restart is Restart.TEMPORARY else Verdict.RESTART


def cause_of(error: BaseException | None) -> Cause:
    """Return how an incarnation ended that nobody stopped."""
    if error is None:
        return Cause.RETURNED
    return Cause.FAULT if all(isinstance(leaf, Fault) for leaf in leaves(error)) else Cause.BUG
