"""How often something may be sent: a token bucket for what repeats, a growing pause for what fails.

Five thousand nodes that each send once too often are a storm, and the server that they would hit is the one that
everything else on them needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from actors.lib.kube.errors import ApiError, ForbiddenError, NotFoundError
from supervisor.runtime.restart_policy import Backoff

#: After an error that may pass by itself.
PASSING: Final = Backoff(first=2.0, longest=120.0)
#: After a refusal that an admin has to mend (RBAC, a missing CRD or namespace), or that only other content mends.
REFUSED: Final = Backoff(first=30.0, longest=600.0)


@dataclass(slots=True)
class TokenBucket:
    """Lets ``burst`` through at once and then one in ``period`` seconds. Times are seconds of one clock."""

    burst: int
    period: float
    _full_at: float = -math.inf

    def due(self, now: float) -> float:
        """Return when the next one may go, ``now`` at the earliest."""
        return max(now, self._full_at - (self.burst - 1) * self.period)

    def pace(self, period: float, now: float) -> None:
        """Go on with another period: as many as before are left of the burst."""
        self._full_at = now + max(0.0, self._full_at - now) / self.period * period
        self.period = period

    def take(self, now: float) -> None:
        """Note that one went."""
        self._full_at = max(self._full_at, now) + self.period


@dataclass(slots=True)
class Pause:
    """The wait after failures; ``chance`` returns a random number in [0, 1)."""

    chance: Callable[[], float]
    failures: int = 0
    until: float = field(default=-math.inf)

    def failed(self, error: ApiError, now: float) -> None:
        """Note one more failure in a row."""
        if isinstance(error, ForbiddenError | NotFoundError) or not error.retry:
            self.refused(now)
            return
        self.failures += 1
        self.until = now + max(PASSING.delay(self.failures, self.chance()), error.retry_after or 0.0)

    def refused(self, now: float) -> None:
        """Note one more failure in a row, of a kind that does not pass by itself."""
        self.failures += 1
        self.until = now + REFUSED.delay(self.failures, self.chance())

    def over(self) -> None:
        """Note that it works, or that there is a reason to try at once."""
        self.failures, self.until = 0, -math.inf
