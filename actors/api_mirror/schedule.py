"""When it is this node's turn to write: a file that comes to all nodes at once changes a mirror of each of them.

What a mirror's write costs is its way to every other node, since all watch these kinds. So each change waits for its
place in a row of those of all nodes, which takes next to no time in a small cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from actors.lib.kube.cluster_size import Crowd
from config.problems import ResourceId
from supervisor.runtime.restart_policy import Backoff

from .planning import Change

#: How many nodes there are is asked within so many seconds when something waits, and then ever more rarely.
FIRST_SECONDS: Final = 2.0
ASKING: Final = Backoff(first=60.0, factor=6.0, longest=6 * 3600.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class _Turn:
    """``since`` is when the change was first wanted, ``place`` in [0, 1) is one of ``writes`` of this node."""

    since: float
    place: float
    writes: int


@dataclass(slots=True)
class Turns:
    """``chance`` returns a random number in [0, 1); times are seconds of one clock."""

    chance: Callable[[], float]
    crowd: Crowd = field(default_factory=Crowd)
    _turns: dict[ResourceId, _Turn] = field(default_factory=dict)
    _asked: int = 0
    _ask_at: float = math.inf

    def begin(self, changes: Iterable[Change], now: float) -> None:
        """Take in what is to be changed. What has waited for its turn need not wait again while it is not done."""
        planned = [change.id for change in changes]
        before, self._turns = self._turns, {}
        for key in planned:
            self._turns[key] = before.get(key) or _Turn(now, self.chance(), len(planned))
        if self._turns and self._ask_at == math.inf:
            self._ask_at = now + FIRST_SECONDS * self.chance()

    def due_at(self, change: Change) -> float:
        """Return when a change's turn is."""
        turn = self._turns[change.id]
        return turn.since + self.crowd.spread_watched(turn.place, turn.writes)

    def ask_at(self, changes: Iterable[Change], now: float) -> float:
        """Return when to ask how many nodes there are: not while nothing waits for its turn."""
        return self._ask_at if any(self.due_at(change) > now for change in changes) else math.inf

    def asked(self, nodes: int | None, now: float) -> None:
        """Take in the answer, None for a refusal."""
        self._asked += 1
        self._ask_at = now + ASKING.delay(self._asked, self.chance())
        if nodes is not None:
            self.crowd.learn(nodes)
