"""When to restart a child, how long to wait before, and when to give up: pure decisions, without a clock or a task.

A child that is not critical is restarted indefinitely, with growing delays. A critical one that cannot live ends the
process instead, so that systemd and the administrator notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .faults import is_bug

#: Restarts in a row, without a healthy run between them, that a critical child may need before the tree ends.
MAX_RESTARTS: Final = 5
#: How long a run must last, and not hang, for the failures before it to be forgotten.
HEALTHY_SECONDS: Final = 60.0


class Cause(StrEnum):
    """How a run ended. All but ``STOPPED`` are failures: a child is meant to run until it is cancelled."""

    RETURNED = "returned"
    FAULT = "fault"
    BUG = "bug"
    FROZEN = "frozen"
    START_TIMEOUT = "start_timeout"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff in seconds: ``first`` times ``factor`` per failure up to ``longest``, then a jitter.

    ``jitter`` is the largest share that is added or taken away, at the longest delay too.
    """

    first: float = 0.5
    factor: float = 2.0
    longest: float = 30.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.longest and self.factor >= 1 and 0 <= self.jitter < 1):
            raise ValueError(f"invalid backoff: {self}")

    def delay(self, failures: int, chance: float) -> float:
        """Return the wait before the attempt that follows ``failures`` failures in a row (1 or more).

        ``chance`` is a random number in [0, 1): 0.5 gives no jitter.
        """
        delay = self.first
        for _ in range(failures - 1):
            if delay >= self.longest or self.factor == 1:
                break
            delay *= self.factor
        return min(delay, self.longest) * (1 + self.jitter * (2 * chance - 1))


#: Between restarts of a child.
RESTART_BACKOFF: Final = Backoff()


def must_end(*, critical: bool, in_a_row: int) -> bool:
    """Whether a child's failure ends the tree: ``in_a_row`` counts this failure and those before it.

    The kind of the failure does not matter: even a configuration that cannot be used may only be half written.
    """
    return critical and in_a_row > MAX_RESTARTS


def cause_of(error: BaseException | None) -> Cause:
    """Return how a run ended that was not cancelled by the tree."""
    if error is None:
        return Cause.RETURNED
    return Cause.BUG if is_bug(error) else Cause.FAULT
