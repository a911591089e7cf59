"""How long a node waits before it says what many others want to say, too.

What few of them need to say is said by few: those waits follow Nonnenmacher and Biersack, "Scalable feedback for large
groups" (IEEE/ACM Transactions on Networking 7, 1999). Everybody draws from a truncated exponential distribution that is
dense at the end of the window. A few draw early, the others hear them and are silent. With N nodes, a window of T
seconds, the steepness ln N + 1 and news that takes d seconds to spread about exp((ln N + 1) d / T) speak, whatever N
is; the first does so early in the window.

What each of them has to say is spread evenly (:mod:`actors.lib.kube.cluster_size`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: The window of a cluster of one node, and what each further factor of e adds, in seconds. With 5 000 nodes that is
#: 10.5 s, ten times what news needs to reach that many watchers of a busy API server.
_SHORTEST: Final = 2.0
_PER_E: Final = 1.0


@dataclass(frozen=True, slots=True)
class Window:
    """Waits of up to ``seconds``; ``steepness`` says how few of them are short."""

    seconds: float
    steepness: float

    def draw(self, chance: float) -> float:
        """Return a wait; ``chance`` is random in [0, 1)."""
        wait = self.seconds / self.steepness * math.log1p(chance * math.expm1(self.steepness))
        return min(wait, self.seconds)

    def stretched(self, factor: float) -> Window:
        """Return a longer one."""
        return Window(self.seconds * factor, self.steepness)


def window_for(nodes: int) -> Window:
    """Return the window of a cluster of so many nodes."""
    crowd = math.log(max(1, nodes))
    return Window(_SHORTEST + _PER_E * crowd, crowd + 1.0)
