"""When each change may be sent: not again before its effect can be seen, and not indefinitely against a wall.

The snapshot lags behind what was written, so a change is planned again until the watch shows it. What the server makes
of a wish is remembered: where it defaults or drops a field that the model does not know, that is as good as it gets.
Whoever keeps undoing our writes is answered at a growing distance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from actors.lib.kube.errors import ApiError, ForbiddenError, NotFoundError, ServerError
from config.api import ApiObject
from config.problems import Kind, ResourceId
from supervisor.runtime.restart_policy import Backoff

from .planning import ABSENT, Change, Plan, same_content

#: Seconds for the watch to show what was written; later, the change is sent once more.
LAG_SECONDS: Final = 30.0
#: Seconds until what the server refuses as invalid is tried again: its schema may have changed.
REFUSED_SECONDS: Final = 600.0
#: Seconds without an attempt after which a change counts as a new one.
FORGET_SECONDS: Final = 900.0
#: Changes of one sort that fail in one pass before the others of that sort wait with them.
FAILURES_OF_A_SORT: Final = 3
#: How often in a row somebody must have undone a write to be a program, and not a person who learns what mirrors are.
UNDONE_OFTEN: Final = 3
BACKOFF: Final = Backoff(first=1.0, factor=2.0, longest=300.0)

#: What RBAC, a missing CRD or a failing webhook usually refuse as a whole.
Sort = tuple[str, Kind]


@dataclass(slots=True)
class _Record:
    """The last attempt at one object.

    ``stale`` are the resource versions that a snapshot from before it may still show: until ``seen_by`` they mean
    nothing. Any other version may be acted on from ``due`` on. ``undone`` is how often this very wish was fulfilled,
    seen to be, and then had to be sent again.
    """

    wanted: ApiObject | None
    at: float
    due: float
    times: int
    stale: frozenset[str] = frozenset()
    seen_by: float = -math.inf
    answer: ApiObject | None = None
    error: ApiError | None = None
    undone: int = 0


@dataclass(slots=True)
class _Hold:
    """A sort of change that fails as a whole: ``failures`` in this pass, ``times`` passes in a row."""

    failures: int = 0
    times: int = 0
    until: float = -math.inf


@dataclass(slots=True)
class Ledger:
    """Times are seconds of one clock, ``chance`` is random in [0, 1)."""

    records: dict[ResourceId, _Record] = field(default_factory=dict)
    holds: dict[Sort, _Hold] = field(default_factory=dict)

    def due_at(self, change: Change) -> float:
        """Return when a change may be sent: infinity is never, while nothing changes."""
        hold = self.holds.get(_sort(change))
        record = self.records.get(change.id)
        return max(hold.until if hold else -math.inf, _due_at(record, change) if record else -math.inf)

    def sent(self, change: Change, answer: ApiObject | None, stale: Collection[str], now: float, chance: float) -> None:
        """Note that the server took a change, and what it made of it; ``stale`` is explained above."""
        times = self._times(change, now)
        pause = BACKOFF.delay(times - 1, chance) if times > 1 else 0.0
        self.records[change.id] = _Record(
            change.wanted,
            now,
            now + pause,
            times,
            frozenset(stale),
            now + LAG_SECONDS + pause,
            answer,
            undone=self._undone(change, now),
        )
        self.holds.pop(_sort(change), None)

    def failed(self, change: Change, error: ApiError, now: float, chance: float) -> None:
        """Note that the server refused a change or could not carry it out."""
        times = self._times(change, now)
        pause = BACKOFF.delay(times, chance) if error.retry else REFUSED_SECONDS * (0.8 + 0.4 * chance)
        undone = self._undone(change, now)
        self.records[change.id] = _Record(change.wanted, now, now + pause, times, error=error, undone=undone)
        if isinstance(error, ForbiddenError | NotFoundError | ServerError):
            self._hold(change, now, chance)

    def attempts(self, change: Change) -> int:
        """Return how many attempts in a row there were at this very change."""
        record = self.records.get(change.id)
        return record.times if record and record.wanted == change.wanted else 0

    def failing(self, changes: Iterable[Change]) -> list[tuple[Change, ApiError]]:
        """Return those of the changes whose last attempt failed, each with why."""
        found = ((change, self.records.get(change.id)) for change in changes)
        return [(change, record.error) for change, record in found if record and record.error]

    def fights(self) -> list[ResourceId]:
        """Return the mirrors that somebody keeps undoing."""
        return [key for key, record in self.records.items() if record.undone >= UNDONE_OFTEN]

    def begin(self, todo: Plan, now: float) -> None:
        """Begin a pass: take in what the watch shows by now, and forget what is neither planned nor recent."""
        for key, record in self.records.items():
            if todo.versions.get(key, ABSENT) not in record.stale:
                # The watch has caught up: from here on the same version is news.
                record.stale = frozenset()
        self.holds = {sort: hold for sort, hold in self.holds.items() if now - hold.until < FORGET_SECONDS}
        for hold in self.holds.values():
            hold.failures = 0
        planned = {change.id for change in todo.changes}
        recent = {key: one for key, one in self.records.items() if key in planned or now - one.at < FORGET_SECONDS}
        self.records = recent

    def _times(self, change: Change, now: float) -> int:
        record = self._same_before(change, now)
        return record.times + 1 if record else 1

    def _undone(self, change: Change, now: float) -> int:
        record = self._same_before(change, now)
        if record is None:
            return 0
        # What failed was not there to be undone, and what is still stale nobody has seen yet.
        stayed = record.error is not None or change.seen in record.stale
        return record.undone if stayed else record.undone + 1

    def _same_before(self, change: Change, now: float) -> _Record | None:
        """Return the last attempt, if it was at this very change and not long ago."""
        record = self.records.get(change.id)
        again = record is not None and record.wanted == change.wanted and now - record.at < FORGET_SECONDS
        return record if again else None

    def _hold(self, change: Change, now: float, chance: float) -> None:
        hold = self.holds.setdefault(_sort(change), _Hold())
        hold.failures += 1
        if hold.failures == FAILURES_OF_A_SORT:
            hold.times += 1
            hold.until = now + BACKOFF.delay(hold.times, chance)


def _sort(change: Change) -> Sort:
    return change.verb, change.id.kind


def _due_at(record: _Record, change: Change) -> float:
    if record.wanted != change.wanted:
        return -math.inf
    if _is_what_the_server_made(record, change):
        return math.inf
    return record.seen_by if change.seen in record.stale else record.due


def _is_what_the_server_made(record: _Record, change: Change) -> bool:
    if change.observed is None or change.wanted is None or record.answer is None:
        return False
    return same_content(change.observed, record.answer, change.wanted)
