"""When each change of a mirror may be sent: not before its slot, not again before its effect shows, not endlessly.

In: the plan, and the outcome of each attempt. Out: the time at which each planned change is due, the latest of three:

* Its slot. A file that comes to all nodes at once changes a mirror on each of them, and each write goes to every node,
  since all watch these kinds. So each node sends each change at a random time in a window over all nodes' changes.
* The watch. It lags behind what was written, so a change is planned again until the watch shows its effect. Where the
  server defaults or drops a field that the model does not know, its answer is as close as the mirror will get.
* Back-off, after failures and against another client that keeps undoing the node's writes. What RBAC, a missing CRD or
  a failing webhook refuses several times in one pass makes all changes of that verb and kind wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from actors.lib.kube.cluster_size import ClusterSize
from actors.lib.kube.errors import ApiError, ForbiddenError, NotFoundError, ServerError
from actors.lib.kube.request_backoff import PASSING, RequestBackoff
from config.api import ApiObject
from config.problems import Kind, ResourceId
from supervisor.runtime.restart_policy import Backoff

from .planning import ABSENT, Change, MirrorPlan, same_content
from .writer import WriteOutcome

#: Seconds for the watch to show what was written; after that the change is sent once more.
LAG_SECONDS: Final = 30.0
#: Seconds without an attempt after which a change counts as a new one.
FORGET_SECONDS: Final = 900.0
#: Changes of one verb and kind that may fail in one pass before the others wait with them.
FAILURES_BEFORE_HOLD: Final = 3
#: How often in a row a write must be undone to be attributed to a program, and not to a person who tries an edit.
UNDONE_OFTEN: Final = 3
BACKOFF: Final = Backoff(first=1.0, factor=2.0, longest=300.0)
#: After what the server refuses as invalid: its schema may change.
INVALID: Final = Backoff(first=600.0, longest=600.0)


@dataclass(frozen=True, slots=True)
class _Slot:
    """``since`` is when the change was first planned, ``jitter`` in [0, 1) is for one of this node's ``writes``."""

    since: float
    jitter: float
    writes: int


@dataclass(slots=True)
class _Attempt:
    """The last attempt at one object, the ``times``-th in a row.

    ``stale`` are the resource versions that a snapshot from before it may still show: until ``stale_until`` they mean
    nothing. Any other version may be acted on from ``due`` on. ``undone`` is how often this very write succeeded, was
    seen by the watch, and then had to be repeated.
    """

    wanted: ApiObject | None
    at: float
    due: float
    times: int
    stale: frozenset[str] = frozenset()
    stale_until: float = -math.inf
    answer: ApiObject | None = None
    error: ApiError | None = None
    undone: int = 0

    def due_at(self, change: Change) -> float:
        """Return when a change of the same object may be sent; infinity is not before something changes."""
        if self.wanted != change.wanted:
            return -math.inf
        if self._is_answer(change):
            # Another write would not remove the difference.
            return math.inf
        return self.stale_until if change.seen in self.stale else self.due

    def _is_answer(self, change: Change) -> bool:
        if change.observed is None or change.wanted is None or self.answer is None:
            return False
        return same_content(change.observed, self.answer, change.wanted)


@dataclass(slots=True)
class _Hold:
    """Makes all changes of one verb and kind wait; ``failures`` are those of the present pass."""

    backoff: RequestBackoff
    failures: int = 0


@dataclass(slots=True)
class MirrorSchedule:
    """Times are seconds of one clock."""

    size: ClusterSize
    _slots: dict[ResourceId, _Slot] = field(default_factory=dict)
    _attempts: dict[ResourceId, _Attempt] = field(default_factory=dict)
    _holds: dict[tuple[str, Kind], _Hold] = field(default_factory=dict)

    def begin(self, todo: MirrorPlan, now: float) -> None:
        """Begin a pass: take in the plan and what the watch shows, and forget what is neither planned nor recent."""
        planned = [change.id for change in todo.changes]
        slots, self._slots = self._slots, {}
        for key in planned:
            # A change whose slot has passed and that is not done gets no new one.
            self._slots[key] = slots.get(key) or _Slot(now, self.size.chance(), len(planned))
        if planned:
            self.size.poll_soon(now)
        for key, attempt in self._attempts.items():
            if todo.versions.get(key, ABSENT) not in attempt.stale:
                # The watch has caught up: from here on the same version is news.
                attempt.stale = frozenset()
        recent = now - FORGET_SECONDS
        self._attempts = {key: one for key, one in self._attempts.items() if key in self._slots or one.at > recent}
        self._holds = {key: hold for key, hold in self._holds.items() if hold.backoff.until > recent}
        for hold in self._holds.values():
            hold.failures = 0

    def due_at(self, change: Change) -> float:
        """Return when a change may be sent; infinity is not before something changes."""
        hold = self._holds.get((change.verb, change.id.kind))
        attempt = self._attempts.get(change.id)
        return max(
            self._slot_at(change),
            hold.backoff.until if hold else -math.inf,
            attempt.due_at(change) if attempt else -math.inf,
        )

    def poll_at(self, changes: Iterable[Change], now: float) -> float:
        """Return when to count the nodes: only while a change waits for its slot."""
        return self.size.poll_at if any(self._slot_at(change) > now for change in changes) else math.inf

    def sent(self, change: Change, outcome: WriteOutcome, now: float) -> None:
        """Record that the server accepted a change, and its answer."""
        times, undone = self._counts(change, now)
        pause = BACKOFF.delay(times - 1, self.size.chance()) if times > 1 else 0.0
        due, stale_until = now + pause, now + pause + LAG_SECONDS
        self._attempts[change.id] = _Attempt(
            change.wanted, now, due, times, outcome.stale, stale_until, outcome.answer, undone=undone
        )
        self._holds.pop((change.verb, change.id.kind), None)

    def failed(self, change: Change, error: ApiError, now: float) -> None:
        """Record that the server refused a change or failed."""
        times, undone = self._counts(change, now)
        pause = (BACKOFF if error.retry else INVALID).delay(times, self.size.chance())
        self._attempts[change.id] = _Attempt(change.wanted, now, now + pause, times, error=error, undone=undone)
        if isinstance(error, ForbiddenError | NotFoundError | ServerError):
            new = _Hold(RequestBackoff(self.size.chance, refused=PASSING))
            hold = self._holds.setdefault((change.verb, change.id.kind), new)
            hold.failures += 1
            if hold.failures == FAILURES_BEFORE_HOLD:
                hold.backoff.failed(error, now)

    def attempts(self, change: Change) -> int:
        """Return how many attempts in a row there were at this very change."""
        attempt = self._attempts.get(change.id)
        return attempt.times if attempt and attempt.wanted == change.wanted else 0

    def failing(self, changes: Iterable[Change]) -> list[tuple[Change, ApiError]]:
        """Return those of the changes whose last attempt failed, each with its error."""
        found = ((change, self._attempts.get(change.id)) for change in changes)
        return [(change, attempt.error) for change, attempt in found if attempt and attempt.error]

    def fights(self) -> list[ResourceId]:
        """Return the mirrors that another client keeps changing."""
        return [key for key, attempt in self._attempts.items() if attempt.undone >= UNDONE_OFTEN]

    def _slot_at(self, change: Change) -> float:
        slot = self._slots.get(change.id)
        return slot.since + slot.jitter * self.size.watched_window(slot.writes) if slot else -math.inf

    def _counts(self, change: Change, now: float) -> tuple[int, int]:
        """Return, with the attempt just made, how many there were in a row and how many of them were undone."""
        last = self._attempts.get(change.id)
        if last is None or last.wanted != change.wanted or now - last.at >= FORGET_SECONDS:
            return 1, 0
        # What failed was not there to be undone, and no one has seen yet what is still stale.
        undone = last.error is None and change.seen not in last.stale
        return last.times + 1, last.undone + undone
