"""When a change is worth telling: soon after it when it is alone, in few steps when it is one of many.

``kubectl apply`` makes ten to fifty objects a second, one after the other, and whoever applies our snapshots needs
seconds for each: a hundred objects should be two or three snapshots, and one object should not wait for a second. So a
lone change waits for a quarter of a second, one of several for half a second of quiet, longer than the gap between two
objects on a slow machine. A burst without such a gap is told after five seconds, and then at growing distances: what
lasts for longer than that is not watched by somebody who waits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

LONE_SECONDS: Final = 0.25
QUIET_SECONDS: Final = 0.5
FIRST_CEILING_SECONDS: Final = 5.0
MOST_ROUNDS: Final = 2
LONGEST_CEILING_SECONDS: Final = FIRST_CEILING_SECONDS * 2**MOST_ROUNDS


@dataclass
class Settling:
    """The changes that have not been told. Times in seconds of any one clock."""

    first: float = math.inf
    last: float = -math.inf
    count: int = 0
    #: How often in a row a burst was told before it had ended.
    rounds: int = 0

    def saw(self, now: float, changes: int) -> None:
        """Take in so many changes, at least none."""
        if changes:
            self.first = min(self.first, now)
            self.last = now
            self.count += changes

    def due(self, *, calm: bool) -> float:
        """Return when to tell, infinity when there is nothing.

        While streams are being taken up again (not ``calm``) more is bound to come, so only the ceiling counts.
        """
        quiet = LONE_SECONDS if self.count == 1 else QUIET_SECONDS
        return min(self.last + quiet if calm and self.count else math.inf, self._ceiling())

    def told(self, now: float) -> None:
        """Begin again: everything seen so far was told."""
        in_time = now < self._ceiling()
        self.rounds = 0 if in_time else min(self.rounds + 1, MOST_ROUNDS)
        self.first, self.last, self.count = math.inf, -math.inf, 0

    def _ceiling(self) -> float:
        return self.first + FIRST_CEILING_SECONDS * 2.0**self.rounds
