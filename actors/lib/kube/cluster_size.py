"""How many nodes the cluster has, roughly, and how their simultaneous requests are spread over time.

Requests that all nodes have to send at the same moment are spread over a *window*: each node waits for a random part of
it, its *jitter*. The window is so long that all of them together stay below a rate; in a small cluster it is too short
to notice.

The size comes from the API server: a list of the nodes' status objects that is limited to one item has in
``remainingItemCount`` how many more there are. It is polled soon after the start, after a minute (nodes may all start
at the same time), and then ever more rarely, down to a few times a day. Until an answer comes, or where RBAC forbids
the list, the size is what the caller assumes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from config.api import API_VERSION, NODE_STATUS_PLURAL
from supervisor.logs.logger import get_logger
from supervisor.runtime.restart_policy import Backoff

from .client import KubeClient
from .errors import SERVER_ERRORS, ApiError

log = get_logger("api")

#: The size for which the design is made, and which a writer assumes until the first count.
LARGE: Final = 5000
#: Requests per second of all nodes together, when each of them has one to send. The nodes' leases alone are five times
#: as many in a cluster of 5 000.
RATE: Final = 100.0
#: Events per second that the API server sends to all watchers together, where each write goes to all nodes: those of a
#: node's own objects, which are of kinds that all watch. With 5 000 nodes that is 20 writes a second, or 150 MB/s where
#: an object has 1.5 kB; up to 1 000 nodes the rate above is the lower one.
MESSAGES: Final = 100_000.0
#: By how much a new size must differ to be recorded, in its natural logarithm.
_OTHER_SIZE: Final = 0.5
#: The first poll comes within this many seconds: not from all nodes at once when a server comes back.
FIRST_POLL_SECONDS: Final = 2.0
POLL: Final = Backoff(first=60.0, factor=6.0, longest=6 * 3600.0, jitter=0.5)


@dataclass(slots=True)
class ClusterSize:
    """``nodes`` is their number; ``chance`` returns a random number in [0, 1). ``jitter`` is this node's part
    of every window, in [0, 1).

    ``poll_at`` is when the next poll is due, in seconds of the caller's clock.
    """

    nodes: int = LARGE
    chance: Callable[[], float] = random.random
    jitter: float = field(init=False)
    poll_at: float = math.inf
    _polls: int = 0

    def __post_init__(self) -> None:
        self.jitter = self.chance()

    def learn(self, nodes: int) -> None:
        """Record a count; one of about the same size changes nothing."""
        nodes = max(1, nodes)
        if abs(math.log(nodes / self.nodes)) >= _OTHER_SIZE:
            self.nodes = nodes

    def window(self, shortest: float = 0.0) -> float:
        """Return over how many seconds requests of all nodes are spread."""
        return max(shortest, (self.nodes - 1) / RATE)

    def watched_window(self, writes: int) -> float:
        """Return over how many seconds ``writes`` of every node are spread when each is sent to all nodes."""
        return (self.nodes - 1) * writes / min(RATE, MESSAGES / self.nodes)

    def poll_soon(self, now: float) -> None:
        """Schedule the first poll, unless it is scheduled."""
        if self.poll_at == math.inf:
            self.poll_at = now + FIRST_POLL_SECONDS * self.chance()

    def poll_later(self, now: float) -> None:
        """Schedule the next poll, further away than the one before."""
        self._polls += 1
        self.poll_at = now + POLL.delay(self._polls, self.chance())

    async def poll(self, client: KubeClient, namespace: str, now: float) -> None:
        """Count the status objects in the program's namespace.

        Raises the errors of the client. After one that concerns the whole server the poll stays due.
        """
        path = f"/apis/{API_VERSION}/namespaces/{namespace}/{NODE_STATUS_PLURAL}"
        try:
            page = await client.get(path, {"limit": 1})
        except SERVER_ERRORS:
            raise
        except ApiError:
            self.poll_later(now)
            raise
        self.poll_later(now)
        more = page.get("metadata", {}).get("remainingItemCount")
        self.learn(len(page.get("items") or ()) + (more if isinstance(more, int) else 0))

    async def keep_polling(self, client: KubeClient, namespace: str, ready: Callable[[], Awaitable[object]]) -> None:
        """Poll until cancelled, the first time after a minute; before each poll wait for ``ready``.

        A failure leaves the size as it was. Called again, it continues the schedule: credentials may change more often
        than a poll is due.
        """
        while True:
            if self.poll_at == math.inf:
                self.poll_later(trio.current_time())
            await trio.sleep_until(self.poll_at)
            await ready()
            try:
                await self.poll(client, namespace, trio.current_time())
            except ApiError as error:
                log.debug("cannot count the nodes", error=str(error))
                if isinstance(error, SERVER_ERRORS):
                    self.poll_later(trio.current_time())
