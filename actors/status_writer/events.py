"""Tells admins by Events, each thing once: what is repeated is counted, at bounded intervals, in one Event.

Names are made of what is told, so that a restarted daemon finds what it told before, and nodes that tell the same of
one object make one Event of it. What lasts is told again before the server forgets it (an hour by default).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from actors.lib.kube.client import Json, KubeClient
from actors.lib.kube.cluster_size import Crowd
from actors.lib.kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError

from .error_log import Telling
from .node_events import Occurrence, Standing, body, standing
from .rate_limit import TokenBucket
from .writer import Scene

MANAGER: Final = "openperouter"
#: Events at once, and then one in so many seconds, of one node.
BURST: Final = 10
PERIOD: Final = 10.0
#: How long something has to last before it is told, and be over before that is, seconds.
STEADY_SECONDS: Final = 10.0
#: Repetitions are told after so many seconds at the earliest, and what lasts after so many.
AGAIN_SECONDS: Final = 300.0
REFRESH_SECONDS: Final = 1800.0
#: Most things that wait to be told; more are not told.
MAX_WAITING: Final = 100
#: Attempts at one thing that the server refuses, unless it is the thing itself that it does not like.
MAX_ATTEMPTS: Final = 3
#: How the server refuses what is of a namespace on its way out: with 403, as what RBAC forbids (the admission plugin
#: NamespaceLifecycle). Should it ever say so in other words, all Events wait as if RBAC forbade them.
_ENDING: Final = "because it is being terminated"


@dataclass(slots=True)
class _Series:
    """What was told, and how often it happened since. ``count`` 0: not told by this process."""

    occurrence: Occurrence
    count: int = 0
    waiting: int = 0
    sent_at: float = -math.inf
    refusals: int = 0

    @property
    def due(self) -> float:
        return self.sent_at + AGAIN_SECONDS if self.waiting else math.inf


@dataclass(slots=True)
class _Lasting:
    """Something that is so, or was until ``gone_at``. ``next_at`` is when to tell it."""

    standing: Standing
    next_at: float
    told: bool = False
    gone_at: float = math.inf


@dataclass(slots=True)
class EventsDuty:
    """``wall`` is the clock in Unix seconds, ``chance`` returns a random number in [0, 1)."""

    wall: Callable[[], float]
    crowd: Crowd
    chance: Callable[[], float]
    telling: Telling = field(default_factory=Telling)
    name: str = "events"
    dropped: int = 0
    _node: str = ""
    _series: dict[tuple[str, str], _Series] = field(default_factory=dict)
    _lasting: dict[str, _Lasting] = field(default_factory=dict)
    _bucket: TokenBucket = field(default_factory=lambda: TokenBucket(BURST, PERIOD))

    def tell(self, occurrence: Occurrence) -> None:
        """Note that something happened."""
        key = (occurrence.namespace, occurrence.name)
        if key not in self._series and len(self._series) >= MAX_WAITING:
            settled = [known for known, series in self._series.items() if not series.waiting]
            if not settled:
                self.dropped += 1
                return
            del self._series[min(settled, key=lambda known: self._series[known].sent_at)]
        self._series.setdefault(key, _Series(occurrence)).waiting += 1

    def see(self, scene: Scene, now: float) -> None:
        """Compare what is wrong with what was told."""
        self._node = scene.basis.node.name
        present = {one.key: one for one in standing(scene)}
        for key, one in present.items():
            lasting = self._lasting.setdefault(key, _Lasting(one, now + STEADY_SECONDS + self._place()))
            if lasting.standing.occurrence != one.occurrence:
                lasting.next_at = min(lasting.next_at, now + STEADY_SECONDS)
            lasting.standing, lasting.gone_at = one, math.inf
        for key, lasting in self._lasting.items():
            if key not in present:
                lasting.gone_at = min(lasting.gone_at, now)
        self._progress(now)

    def due(self, now: float) -> float:
        """Return when something lasted long enough, or may be sent."""
        waiting = min((series.due for series in self._series.values()), default=math.inf)
        sending = max(waiting, self._bucket.due(now)) if waiting < math.inf else math.inf
        return min([sending, *(_moment(lasting) for lasting in self._lasting.values())])

    async def act(self, client: KubeClient, now: float) -> None:
        """Send one Event. One that the server refuses by itself does not stop the others."""
        series = min(self._series.values(), key=lambda series: series.due, default=None)
        if series is None or series.due > now or now < self._bucket.due(now):
            return
        self._bucket.take(now)
        # Whatever comes of it, the others are next.
        series.sent_at = now
        try:
            await (self._repeat if series.count else self._begin)(client, series)
        except (ForbiddenError, InvalidError, NotFoundError) as error:
            self._refused(series, error)
            if isinstance(error, ForbiddenError) and _ENDING not in str(error):
                raise
        else:
            series.waiting = series.refusals = 0

    def _refused(self, series: _Series, error: ApiError) -> None:
        """Give up in the end: an Event that is refused for what it says never gets better."""
        series.refusals += 1
        if series.refusals >= MAX_ATTEMPTS or not error.retry:
            series.waiting = 0
            self.dropped += 1
            self.telling.gave_up(f"the Event {series.occurrence.namespace}/{series.occurrence.name}", error)

    def _progress(self, now: float) -> None:
        """Tell what has lasted, and end what is over."""
        for key, lasting in list(self._lasting.items()):
            if lasting.gone_at + STEADY_SECONDS <= now:
                del self._lasting[key]
                if lasting.told:
                    self.tell(lasting.standing.end)
            elif lasting.gone_at == math.inf and lasting.next_at <= now:
                self.tell(lasting.standing.occurrence)
                lasting.told, lasting.next_at = True, now + REFRESH_SECONDS + self._place()

    async def _begin(self, client: KubeClient, series: _Series) -> None:
        """Create the Event. One that is there already counts as told while it is fresh: it may be our own."""
        path = _collection(series.occurrence)
        try:
            await client.create(path, body(series.occurrence, self._node, self._moment()), {"fieldManager": MANAGER})
        except ConflictError:
            found = await client.get(f"{path}/{series.occurrence.name}")
            series.count, age = _count(found), self.wall() - _last_seen(found)
            if age >= REFRESH_SECONDS:
                await self._repeat(client, series)
        else:
            series.count = 1

    async def _repeat(self, client: KubeClient, series: _Series) -> None:
        """Count on in the Event; one that the server has forgotten begins again."""
        path = _collection(series.occurrence)
        count = series.count + series.waiting
        change = {"series": {"count": count, "lastObservedTime": self._moment()}}
        try:
            await client.merge_patch(f"{path}/{series.occurrence.name}", change, manager=MANAGER)
        except NotFoundError:
            await client.create(path, body(series.occurrence, self._node, self._moment()), {"fieldManager": MANAGER})
            count = 1
        series.count = count

    def _moment(self) -> str:
        return datetime.fromtimestamp(self.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _place(self) -> float:
        """Return this node's turn when all of them have the same to tell."""
        return self.crowd.spread(self.chance())


def _moment(lasting: _Lasting) -> float:
    return lasting.next_at if lasting.gone_at == math.inf else lasting.gone_at + STEADY_SECONDS


def _collection(occurrence: Occurrence) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{occurrence.namespace}/events"


def _count(event: Json) -> int:
    series: Mapping[str, Any] = event.get("series") or {}
    return max(1, int(series.get("count") or 1))


def _last_seen(event: Json) -> float:
    """Return when the Event was last told, in Unix seconds; long ago when it does not say."""
    text = str((event.get("series") or {}).get("lastObservedTime") or event.get("eventTime") or "")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
