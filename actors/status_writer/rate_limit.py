"""How often this node writes: a token bucket for what repeats, a growing pause and a log line for what fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from actors.lib.kube.errors import ApiError, ForbiddenError
from actors.lib.kube.request_backoff import RequestBackoff
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter

log = get_logger("status_writer")


@dataclass(slots=True)
class TokenBucket:
    """Lets ``burst`` through at once and then one in ``period`` seconds. Times are seconds of one clock."""

    burst: int
    period: float
    _full_at: float = -math.inf

    def due(self, now: float) -> float:
        """Return when the next one may go, ``now`` at the earliest."""
        return max(now, self._full_at - (self.burst - 1) * self.period)

    def take(self, now: float) -> None:
        """Take one token."""
        self._full_at = max(self._full_at, now) + self.period


class Retry:
    """One thing that may fail by itself: when to try it again, and its lines in the log."""

    def __init__(self, subject: str, chance: Callable[[], float], limiter: RepeatLimiter) -> None:
        self.subject = subject
        self.backoff = RequestBackoff(chance)
        #: Why it fails, the server's reason if it gave one; None while it works.
        self.error: str | None = None
        self._limiter = limiter

    def failed(self, error: ApiError, now: float) -> None:
        """Wait, and log the failure unless it repeats the one before."""
        self.backoff.failed(error, now)
        self.error = error.reason or str(error)
        message_id = message_ids.API_FORBIDDEN if isinstance(error, ForbiddenError) else message_ids.REPORTING_FAILS
        self._limiter.failing(
            self.subject, f"reporting to the cluster fails: {self.subject}: {error}", message_id=message_id
        )

    def succeeded(self) -> None:
        """Try the next one at once, and log that it works if it failed before."""
        self.backoff.reset()
        self.error = None
        message = f"reporting to the cluster works again: {self.subject}"
        self._limiter.recovered(self.subject, message, message_id=message_ids.REPORTING_WORKS)
