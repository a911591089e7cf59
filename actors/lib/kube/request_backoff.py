"""How long to leave the API server, or one kind of request, alone after failures in a row.

Five thousand nodes that each send once too often are a storm, and the server that they would hit is the one that
everything else on them needs.
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
        """Count one more failure in a row. A ``Retry-After`` of the server is respected."""
        refused = not error.retry or isinstance(error, ForbiddenError | NotFoundError)
        self.failures += 1
        delay = (self.refused if refused else PASSING).delay(self.failures, self.chance())
        self.until = now + max(delay, error.retry_after or 0.0)

    def reset(self) -> None:
        """Start over: it works, or there is a reason to try at once."""
        self.failures, self.until = 0, -math.inf
