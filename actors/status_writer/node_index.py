"""Keeps the node's index on its Node object: ``openpe.io/nodeindex`` (reference ARCH-14).

Where a node is told its index by its own files they are the truth, and the annotation is there to be read: another
value is replaced, and an Event says so. Against somebody who insists it is replaced ever more slowly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import Crowd
from config.api import INDEX_ANNOTATION, ApiNode
from supervisor.runtime.restart_policy import Backoff

from .node_events import Occurrence, index_replaced
from .writer import Scene

MANAGER: Final = "openperouter"
#: Between writes; the first is how long a watch may lag behind.
BACKOFF: Final = Backoff(first=10.0, factor=3.0, longest=1800.0)
#: After so many quiet seconds nobody insists any more.
FORGET_SECONDS: Final = 7200.0


class NodeIndexDuty:
    """``tell`` gets what admins should know, ``chance`` returns a random number in [0, 1)."""

    name = "node index"

    def __init__(self, tell: Callable[[Occurrence], None], crowd: Crowd, chance: Callable[[], float]) -> None:
        self._tell, self._crowd, self._chance = tell, crowd, chance
        self._scene: Scene | None = None
        self._writes = 0
        self._written_at = self._next_at = -math.inf
        self._differs_at = math.inf
        self._place = chance()

    def see(self, scene: Scene, now: float) -> None:
        """Take in what the Node says."""
        self._scene = scene
        self._differs_at = min(self._differs_at, now) if _differs(scene) else math.inf
        if now - self._written_at > FORGET_SECONDS:
            self._writes = 0

    def due(self, now: float) -> float:
        """Return when to write."""
        return max(now, self._next_at, self._differs_at + self._crowd.spread(self._place))

    async def act(self, client: KubeClient, now: float) -> None:
        """Write the annotation."""
        scene = self._scene
        if scene is None or self.due(now) > now:
            return
        node, desired = scene.basis.node, scene.basis.desired
        metadata = {"annotations": {INDEX_ANNOTATION: str(desired.node_index)}, "uid": node.uid}
        await client.merge_patch(f"/api/v1/nodes/{node.name}", {"metadata": metadata}, manager=MANAGER)
        self._writes += 1
        self._written_at, self._next_at = now, now + BACKOFF.delay(self._writes, self._chance())
        old = _shown(node)
        if old is not None:
            self._tell(index_replaced(node, old, desired))


def _differs(scene: Scene) -> bool:
    return _shown(scene.basis.node) != str(scene.basis.desired.node_index)


def _shown(node: ApiNode) -> str | None:
    return node.annotations.get(INDEX_ANNOTATION)
