"""Finds out roughly how many nodes there are: a small cluster need not wait as long as a large one.

One request for one object of a list says how many more there are. It is asked at the start, after a minute, and then at
growing distance, since nodes may all start at the same time. Where it is not answered the waits are those of a large
cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import Crowd, count_nodes
from supervisor.runtime.restart_policy import Backoff

from .writer import Scene

ASKING: Final = Backoff(first=60.0, factor=6.0, longest=6 * 3600.0, jitter=0.5)
#: The first time, it is asked within this many seconds: not by all nodes at once when a server comes back.
FIRST_SECONDS: Final = 2.0


class CrowdDuty:
    """``chance`` returns a random number in [0, 1)."""

    name = "number of nodes"

    def __init__(self, crowd: Crowd, chance: Callable[[], float]) -> None:
        self._crowd, self._chance = crowd, chance
        self._namespace = ""
        self._next_at = math.inf
        self._asked = 0

    def see(self, scene: Scene, now: float) -> None:
        """Begin to ask."""
        if not self._namespace:
            self._namespace, self._next_at = scene.namespace, now + FIRST_SECONDS * self._chance()

    def due(self, now: float) -> float:
        """Return when to ask."""
        return self._next_at

    async def act(self, client: KubeClient, now: float) -> None:
        """Ask."""
        self._asked += 1
        self._next_at = now + ASKING.delay(self._asked, self._chance())
        self._crowd.learn(await count_nodes(client, self._namespace))
