"""How many nodes there are, roughly, and when each of them may write what all of them have to write.

The rows are made for thousands of nodes; in a small cluster nobody notices them. Where nobody can say how many nodes
there are they are many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from config.api import API_VERSION, NODE_STATUS_PLURAL

from .client import KubeClient

#: Assumed where nobody can say how many nodes there are: what the design is made for.
MANY: Final = 5000
#: Writes per second of all nodes together, when each has something to say of the same change. The nodes' leases alone
#: are five times as many in a cluster of 5 000.
RATE: Final = 100.0
#: Events per second that the API server sends to all watchers together, where each write goes to all nodes: those of a
#: node's own objects, which are of kinds that all watch. With 5 000 nodes that is 20 writes a second, or 150 MB/s where
#: an object has 1.5 kB; up to 1 000 nodes the rate above is the lower one.
MESSAGES: Final = 100_000.0
#: Sizes of a cluster that are told apart: by this in the logarithm.
_OTHER_SIZE: Final = 0.5


@dataclass(slots=True)
class Crowd:
    """``nodes`` is their number; ``chance`` is random in [0, 1) wherever it is asked for."""

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
        """Return this node's place in a row of all of them, in seconds."""
        return chance * (self.nodes - 1) / RATE

    def spread_watched(self, chance: float, writes: int) -> float:
        """Return the place of one of a node's ``writes``, in seconds, when each of them is sent to all nodes."""
        return chance * (self.nodes - 1) * writes / min(RATE, MESSAGES / self.nodes)


async def count_nodes(client: KubeClient, namespace: str) -> int:
    """Ask how many nodes have a status object in the program's namespace: for one of them, and how many more there are.

    Raises the errors of the client.
    """
    page = await client.get(f"/apis/{API_VERSION}/namespaces/{namespace}/{NODE_STATUS_PLURAL}", {"limit": 1})
    more = page.get("metadata", {}).get("remainingItemCount")
    return len(page.get("items") or ()) + (more if isinstance(more, int) else 0)
