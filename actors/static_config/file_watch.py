"""Notice that files changed, whatever happened to their directory.

Comparing fingerprints twice a second costs some ten ``stat`` calls and survives everything that kernel notifications do
not: a directory removed and made again, replaced by a rename, swapped behind a symbolic link, or on a file system
without notifications. A burst of writes is one change: the fingerprint must hold still for one interval, but a
directory that is written to without end is read all the same after a bounded wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import trio

from config.syntax.files import Mark, mark

Fingerprint = tuple[tuple[str, Mark], ...]

#: A steadily written directory is read after this many settle intervals at the latest.
MAX_SETTLE_INTERVALS = 4


def fingerprint(paths: Iterable[Path]) -> Fingerprint:
    """Return the marks of ``paths`` and of everything directly inside those that are directories, in a stable order."""
    marks: dict[str, Mark] = {}
    for path in paths:
        marks[str(path)] = mark(path)
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError:
            continue
        marks.update({entry.path: mark(Path(entry.path)) for entry in entries})
    return tuple(sorted(marks.items()))


async def wait_changed(take: Callable[[], Fingerprint], seen: Fingerprint, settle_seconds: float) -> None:
    """Return once the fingerprint differs from ``seen`` and has held still, or has kept changing for too long."""
    current = take()
    while current == seen:
        await trio.sleep(settle_seconds)
        current = take()
    for _ in range(MAX_SETTLE_INTERVALS):
        await trio.sleep(settle_seconds)
        settled = take()
        if settled == current:
            return
        current = settled
