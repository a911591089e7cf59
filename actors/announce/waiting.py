"""How long a node waits before it says what many others want to say, too.

What few of them need to say is said by few: those waits follow Nonnenmacher and Biersack, "Scalable feedback for large
groups" (IEEE/ACM Transactions on Networking 7, 1999). Everybody draws from a truncated exponential distribution that is
dense at the end of the window. A few draw early, the others hear them and are silent. With N nodes, a window of T
seconds, the steepness ln N + 1 and news that takes d seconds to spread about exp((ln N + 1) d / T) speak, whatever N
is; the first does so early in the window.

What each of them has to say is spread evenly, so that all together stay below a rate that the API server does not feel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: Assumed where nobody can say how many nodes there are: what the design is made for.
MANY: Final = 5000
#: The window of a cluster of one node, and what each further factor of e adds, in seconds. With 5 000 nodes that is
#: 10.5 s, ten times what news needs to reach that many watchers of a busy API server.
_SHORTEST: Final = 2.0
_PER_E: Final = 1.0
#: Writes per second of all nodes together, when each has something to say of the same change. The nodes' leases alone
#: are five times as many in a cluster of 5 000.
RATE: Final = 100.0
#: Sizes of a cluster that are told apart: by this in the logarithm.
_OTHER_SIZE: Final = 0.5


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


@dataclass(slots=True)
class Crowd:
    """How many nodes there are, roughly."""

    nodes: int = MANY

    def learn(self, nodes: int) -> None:
        """Take in a count; one of about the same size changes nothing."""
        nodes = max(1, nodes)
        if abs(math.log(nodes / self.nodes)) >= _OTHER_SIZE:
            self.nodes = nodes

    def pace(self, longest: float) -> float:
        """Return the seconds between two writes of one node: all together keep to the rate, or each to ``longest``."""
        return min(longest, self.nodes / RATE)

    def spread(self, chance: float) -> float:
        """Return this node's place in a row of all of them, in seconds; ``chance`` is random in [0, 1)."""
        return chance * (self.nodes - 1) / RATE
