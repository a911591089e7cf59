"""Back-off of the API server, or of one kind of request, after consecutive failures; a token bucket for what repeats.

If five thousand nodes retry too early, they overload the server that everything else on them needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from supervisor.runtime.restart_policy import Backoff

from .errors import ApiError, ForbiddenError, NotFoundError

#: After an error that may pass by itself.
PASSING: Final = Backoff(first=1.0, longest=120.0)
#: After a refusal that an admin has to fix (RBAC, a missing CRD or namespace), or that only other content avoids.
REFUSED: Final = Backoff(first=30.0, longest=600.0)


@dataclass(slots=True)
class RequestBackoff:
    """``until`` is when to try again, in seconds of the caller's clock. ``chance`` returns a random number in [0, 1).

    ``refused`` is the back-off after an error that the server will probably repeat.
    """

    chance: Callable[[], float]
    refused: Backoff = REFUSED
    failures: int = 0
    until: float = -math.inf

    def failed(self, error: ApiError, now: float) -> None:
        """Count one more consecutive failure. The server's ``Retry-After`` is respected."""
        refused = not error.retry or isinstance(error, ForbiddenError | NotFoundError)
        self.failures += 1
        delay = (self.refused if refused else PASSING).delay(self.failures, self.chance())
        self.until = now + max(delay, error.retry_after or 0.0)

    def reset(self) -> None:
        """Start over: a request succeeded, or there is a reason to retry at once."""
        self.failures, self.until = 0, -math.inf


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
