"""How many nodes there are, roughly, and how long their lists take when all of them want one at the same moment.

A label that every node gets, or a history that the server forgets, makes all nodes list. Spread over the few seconds
that a small cluster waits, the lists of thousands of nodes keep the server busy with refusing them. The count is asked
for while all is quiet, because it is needed when nothing is: one request for one status object says how many more there
are. As long as it is not known, or RBAC forbids it, the waits are those of a small cluster, and grow with refusals.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import ApiError
from supervisor.logs.logger import get_logger
from supervisor.runtime.faults import summarize
from supervisor.runtime.restart_policy import Backoff

from .reflector import RELIST_SECONDS

if TYPE_CHECKING:
    from .availability import Availability

log = get_logger("crd_watch")

#: Lists of one kind a second, of all nodes together.
RATE: Final = 100.0
#: Nodes that start together ask apart, and ever more rarely.
ASKING: Final = Backoff(first=60.0, factor=6.0, longest=6 * 3600.0, jitter=0.5)


class Crowd:
    """``place`` is this node's in the row of all of them, in [0, 1); ``nodes`` is their number, 1 if not known."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self.place = chance()
        self.nodes = 1
        self._asked = 0
        self._next_at: float | None = None

    @property
    def spread_seconds(self) -> float:
        """Return over how many seconds the nodes' lists of one kind are spread."""
        return max(RELIST_SECONDS, (self.nodes - 1) / RATE)

    async def count(self, client: KubeClient, server: Availability, path: str, chance: Callable[[], float]) -> None:
        """Ask now and then, indefinitely; ``path`` is that of the collection with one object for each node.

        Over other credentials it goes on where it was: they may come more often than it asks.
        """
        while True:
            if self._next_at is None:
                self._asked += 1
                self._next_at = trio.current_time() + ASKING.delay(self._asked, chance())
            await trio.sleep_until(self._next_at)
            await server.wait()
            self._next_at = None
            try:
                page = await client.get(path, {"limit": 1})
            except ApiError as error:
                # Nothing is lost: the streams tell what is wrong with the server.
                log.debug("the nodes are not counted", error=summarize(error))
                continue
            more = page.get("metadata", {}).get("remainingItemCount")
            self.nodes = max(1, len(page.get("items") or ()) + (more if isinstance(more, int) else 0))
