"""What the actors count while the daemon runs and no status has: writes, errors, durations.

One set for the process, as in Prometheus' own libraries, so a restarted actor continues its counters. A
counter may be used from any thread. Its labels' values come from code, never from a user or a server, so their number
is bounded; beyond the description's ``most`` nothing is added.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .descriptions import DESCRIPTIONS, Description

#: Upper bounds of a histogram's buckets, in seconds: from an audit that finds nothing to a pass over hundreds of VNIs.
BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_lock: Final = threading.Lock()
Labels = tuple[str, ...]


class _Measured:
    """The values of one metric by the values of its labels."""

    def __init__(self, name: str) -> None:
        self.description: Description = DESCRIPTIONS[name]
        # Without labels a counter is there from the start, so that its first increase shows.
        self._values: dict[Labels, float] = {(): 0.0} if self.description.starts_at_zero else {}

    def values(self) -> Mapping[Labels, float]:
        """Return a copy."""
        with _lock:
            return dict(self._values)

    def _has_room(self, labels: Labels) -> bool:
        if len(labels) != len(self.description.labels):
            raise ValueError(f"{self.description.name} has the labels {self.description.labels}")
        return labels in self._values or len(self._values) < self.description.most


class Counter(_Measured):
    """A number that only grows."""

    def count(self, *labels: str) -> None:
        """Add one to the counter with these values of its labels."""
        with _lock:
            if self._has_room(labels):
                self._values[labels] = self._values.get(labels, 0.0) + 1


class Gauge(_Measured):
    """A number that is set."""

    def set(self, value: float, *labels: str) -> None:
        """Replace the value."""
        with _lock:
            if self._has_room(labels):
                self._values[labels] = value


@dataclass(slots=True)
class Distribution:
    """A histogram's numbers: how many seconds fell into each bucket and above the last one, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def copy(self) -> Distribution:
        """Return an independent one."""
        return Distribution(list(self.counts), self.total)


class Histogram:
    """Durations in seconds."""

    def __init__(self, name: str) -> None:
        self.description: Description = DESCRIPTIONS[name]
        self._values: dict[Labels, Distribution] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        """Add a duration."""
        with _lock:
            found = self._values.setdefault(labels, Distribution())
            found.counts[bisect_left(BUCKETS, seconds)] += 1
            found.total += seconds

    def values(self) -> Mapping[Labels, Distribution]:
        """Return a copy."""
        with _lock:
            return {labels: found.copy() for labels, found in self._values.items()}


LAST_APPLY: Final = Gauge("last_apply_timestamp_seconds")
RECONCILE_SECONDS: Final = Histogram("reconcile_duration_seconds")
DRIFT_DETECTED: Final = Counter("drift_detected_total")
DRIFT_REPAIRS: Final = Counter("drift_repairs_total")
FRR_RELOAD_SECONDS: Final = Histogram("frr_reload_duration_seconds")
FRR_RELOAD_FAILURES: Final = Counter("frr_reload_failures_total")
FRR_WRITES: Final = Counter("frr_writes_total")
NETLINK_OPS: Final = Counter("netlink_ops_total")
NETLINK_OVERRUNS: Final = Counter("netlink_overruns_total")
API_WRITE_ERRORS: Final = Counter("api_write_errors_total")
WATCH_RESTARTS: Final = Counter("watch_restarts_total")

COUNTERS: Final = (
    LAST_APPLY, DRIFT_DETECTED, DRIFT_REPAIRS, FRR_RELOAD_FAILURES, FRR_WRITES,
    NETLINK_OPS, NETLINK_OVERRUNS, API_WRITE_ERRORS, WATCH_RESTARTS,
)  # fmt: skip
HISTOGRAMS: Final = (RECONCILE_SECONDS, FRR_RELOAD_SECONDS)
