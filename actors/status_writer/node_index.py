"""Keeps the node's index on its Node object: the annotation ``openpe.io/nodeindex`` (reference ARCH-14).

The node's own configuration decides, and the annotation shows it: another value is replaced, and an Event reports that.
Against another client that keeps writing its own value, it is replaced with increasing back-off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import ClusterSize
from config.api import INDEX_ANNOTATION, NODE_MANAGER, ApiNode
from supervisor.runtime.restart_policy import Backoff

from .node_events import NodeEvent, index_replaced
from .node_state import NodeState

#: Between writes; the first is how long a watch may lag behind.
BACKOFF: Final = Backoff(first=10.0, factor=3.0, longest=1800.0)
#: After so many seconds without a write the back-off starts over.
FORGET_SECONDS: Final = 7200.0


class NodeIndexWriter:
    """``report`` takes the Event of a replaced index."""

    name = "node index"

    def __init__(self, report: Callable[[NodeEvent], None], size: ClusterSize) -> None:
        self._report, self._size = report, size
        self._state: NodeState | None = None
        self._writes = 0
        self._written_at = self._next_at = -math.inf
        self._differs_at = math.inf

    def update(self, state: NodeState, now: float) -> None:
        """Compare the annotation."""
        self._state = state
        differs = _annotation(state.node) != str(state.desired.node_index)
        self._differs_at = min(self._differs_at, now) if differs else math.inf
        if now - self._written_at > FORGET_SECONDS:
            self._writes = 0

    def due(self, now: float) -> float:
        """Return when to write."""
        return max(now, self._next_at, self._differs_at + self._size.jitter * self._size.window())

    async def write(self, client: KubeClient, now: float) -> None:
        """Write the annotation."""
        state = self._state
        if state is None or self.due(now) > now:
            return
        node, index = state.node, state.desired.node_index
        metadata = {"annotations": {INDEX_ANNOTATION: str(index)}, "uid": node.uid}
        await client.merge_patch(f"/api/v1/nodes/{node.name}", {"metadata": metadata}, manager=NODE_MANAGER)
        self._writes += 1
        self._written_at, self._next_at = now, now + BACKOFF.delay(self._writes, self._size.chance())
        old = _annotation(node)
        if old is not None:
            self._report(index_replaced(old, index))


def _annotation(node: ApiNode) -> str | None:
    return node.annotations.get(INDEX_ANNOTATION)
