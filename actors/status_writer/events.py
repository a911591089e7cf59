"""Writes the node's Events, each once: repetitions are counted in the same Event, at bounded intervals.

Failures come with each new state of the node, and a replaced index when it happens. A failure is reported once it has
lasted for ten seconds, again before the server forgets its Event (after an hour by default), and once more when it is
over. Names are derived from the content, so that a restarted daemon finds its Events and does not repeat them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from actors.lib.kube.client import Json, KubeClient
from actors.lib.kube.cluster_size import ClusterSize
from actors.lib.kube.decoding import micro_time, unix_time
from actors.lib.kube.errors import ConflictError, InvalidError, NotFoundError
from actors.lib.kube.request_backoff import TokenBucket
from config.api import NODE_MANAGER, ApiNode
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger

from .node_events import NAMESPACE, LastingFailure, NodeEvent, lasting_failures
from .node_state import NodeState

log = get_logger("status_writer")

PATH: Final = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
#: Events at once, and then one in so many seconds.
BURST: Final = 10
PERIOD: Final = 10.0
#: How long a failure has to last before it is reported, and be over before that is, seconds.
STEADY_SECONDS: Final = 10.0
#: Repetitions are counted after so many seconds at the earliest, and what lasts after so many.
AGAIN_SECONDS: Final = 300.0
REFRESH_SECONDS: Final = 1800.0
#: Maximum number of Events that are kept or wait to be sent; others are dropped.
MAX_WAITING: Final = 100


@dataclass(slots=True)
class _Series:
    """``count`` is how often the Event was sent, 0: not by this process; ``waiting`` how often it happened since."""

    event: NodeEvent
    count: int = 0
    waiting: int = 0
    sent_at: float = -math.inf

    @property
    def due(self) -> float:
        return self.sent_at + AGAIN_SECONDS if self.waiting else math.inf


@dataclass(slots=True)
class _Lasting:
    """A failure that is there, or was until ``gone_at``.

    It is reported from ``next_at`` on, after ``jitter`` in [0, 1) of the window of all nodes, which report the same.
    """

    failure: LastingFailure
    next_at: float
    jitter: float
    reported: bool = False
    gone_at: float = math.inf

    def due(self, size: ClusterSize) -> float:
        """Return when to report it, or that it is over."""
        begin = self.next_at if self.gone_at == math.inf else self.gone_at + STEADY_SECONDS
        return begin + self.jitter * size.window()


class EventWriter:
    """``wall`` is the clock in Unix seconds."""

    name = "events"

    def __init__(self, wall: Callable[[], float], size: ClusterSize) -> None:
        self._wall, self._size = wall, size
        self._node: ApiNode | None = None
        self._series: dict[tuple[str, ...], _Series] = {}
        self._lasting: dict[str, _Lasting] = {}
        self._bucket = TokenBucket(BURST, PERIOD)
        self.dropped = 0

    def report(self, event: NodeEvent) -> None:
        """Record an occurrence."""
        if event.identity not in self._series and len(self._series) >= MAX_WAITING:
            settled = [known for known, series in self._series.items() if not series.waiting]
            if not settled:
                self.dropped += 1
                return
            del self._series[min(settled, key=lambda known: self._series[known].sent_at)]
        self._series.setdefault(event.identity, _Series(event)).waiting += 1

    def update(self, state: NodeState, now: float) -> None:
        """Compare the failures with those that were reported."""
        self._node = state.node
        present = {one.key: one for one in lasting_failures(state)}
        for key, failure in present.items():
            lasting = self._lasting.setdefault(key, _Lasting(failure, now + STEADY_SECONDS, self._size.chance()))
            if lasting.failure.begin != failure.begin:
                lasting.next_at = min(lasting.next_at, now + STEADY_SECONDS)
            lasting.failure, lasting.gone_at = failure, math.inf
        for key, lasting in self._lasting.items():
            if key not in present:
                lasting.gone_at = min(lasting.gone_at, now)
        self._report_lasting(now)

    def due(self, now: float) -> float:
        """Return when a failure has lasted long enough, or an Event may be sent."""
        waiting = min((series.due for series in self._series.values()), default=math.inf)
        sending = max(waiting, self._bucket.due(now)) if waiting < math.inf else math.inf
        return min([sending, *(lasting.due(self._size) for lasting in self._lasting.values())])

    async def write(self, client: KubeClient, now: float) -> None:
        """Send one Event. One whose text the server refuses is dropped, since the server would refuse it again."""
        series = min(self._series.values(), key=lambda series: series.due, default=None)
        if self._node is None or series is None or series.due > now or now < self._bucket.due(now):
            return
        self._bucket.take(now)
        # Whether it succeeds or not, the others are next.
        series.sent_at = now
        try:
            await (self._repeat if series.count else self._begin)(client, series, self._node)
        except InvalidError as error:
            self.dropped += 1
            name = series.event.name(self._node)
            log.warning(f"dropped the Event {name}: {error}", message_id=message_ids.REPORTING_FAILS)
        series.waiting = 0

    def _report_lasting(self, now: float) -> None:
        """Report lasting failures, and the end of those that are over."""
        for key, lasting in list(self._lasting.items()):
            if lasting.due(self._size) > now:
                continue
            if lasting.gone_at < math.inf:
                del self._lasting[key]
                if lasting.reported:
                    self.report(lasting.failure.end)
            else:
                self.report(lasting.failure.begin)
                lasting.reported, lasting.next_at = True, now + REFRESH_SECONDS

    async def _begin(self, client: KubeClient, series: _Series, node: ApiNode) -> None:
        """Create the Event. One that is there and fresh counts as sent: it is from before a restart."""
        try:
            await self._create(client, series, node)
        except ConflictError:
            found = await client.get(f"{PATH}/{series.event.name(node)}")
            series.count, age = _count(found), self._wall() - _last_seen(found)
            if age >= REFRESH_SECONDS:
                await self._repeat(client, series, node)

    async def _repeat(self, client: KubeClient, series: _Series, node: ApiNode) -> None:
        """Raise the Event's count; one that the server has forgotten begins again."""
        count = series.count + series.waiting
        change = {"series": {"count": count, "lastObservedTime": micro_time(self._wall())}}
        try:
            await client.merge_patch(f"{PATH}/{series.event.name(node)}", change, manager=NODE_MANAGER)
        except NotFoundError:
            await self._create(client, series, node)
        else:
            series.count = count

    async def _create(self, client: KubeClient, series: _Series, node: ApiNode) -> None:
        await client.create(PATH, series.event.body(node, micro_time(self._wall())), {"fieldManager": NODE_MANAGER})
        series.count = 1


def _count(event: Json) -> int:
    series: Mapping[str, Any] = event.get("series") or {}
    return max(1, int(series.get("count") or 1))


def _last_seen(event: Json) -> float:
    """Return when the Event was last counted, in Unix seconds; long ago when it has no time."""
    return unix_time((event.get("series") or {}).get("lastObservedTime") or event.get("eventTime"))
