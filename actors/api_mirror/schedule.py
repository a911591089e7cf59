"""When it is this node's turn to write: a file that comes to all nodes at once changes a mirror of each of them.

What a mirror's write costs is its way to every other node, since all watch these kinds. So each change waits for its
place in a row of those of all nodes, which takes next to no time in a small cluster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from actors.lib.kube.cluster_size import ClusterSize
from config.desired import ResourceId

from .planning import Change


@dataclass(frozen=True, slots=True)
class _Turn:
    """``since`` is when the change was first wanted, ``place`` in [0, 1) is one of ``writes`` of this node."""

    since: float
    place: float
    writes: int


@dataclass(slots=True)
class Turns:
    """Times are seconds of one clock."""

    size: ClusterSize
    _turns: dict[ResourceId, _Turn] = field(default_factory=dict)

    def begin(self, changes: Iterable[Change], now: float) -> None:
        """Take in what is to be changed. What has waited for its turn need not wait again while it is not done."""
        planned = [change.id for change in changes]
        before, self._turns = self._turns, {}
        for key in planned:
            self._turns[key] = before.get(key) or _Turn(now, self.size.chance(), len(planned))
        if self._turns:
            self.size.poll_soon(now)

    def due_at(self, change: Change) -> float:
        """Return when a change's turn is."""
        turn = self._turns[change.id]
        return turn.since + turn.place * self.size.watched_row(turn.writes)

    def poll_at(self, changes: Iterable[Change], now: float) -> float:
        """Return when to count the nodes: not while nothing waits for its turn."""
        return self.size.poll_at if any(self.due_at(change) > now for change in changes) else math.inf
