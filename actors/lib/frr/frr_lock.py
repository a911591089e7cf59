"""Keeps vtysh sessions of our processes from breaking one another's commits.

In FRR 10.3 a commit's values point into a tree that mgmtd replaces when any session with it ends, even that of a
``show``. mgmtd then sends zebra freed memory, zebra refuses the value and disconnects, and mgmtd stays locked
(``tests/frr/test_sessions.py``). Sessions with other daemons do no harm.

So each of our processes holds a lock file during a session with mgmtd: shared to read, exclusive to write. The lock is
best effort: an operator's own shell does not take it, and a session that cannot get it in time starts without it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from supervisor.logs.logger import get_logger

log = get_logger("frr")

#: Longer than sending a whole configuration may take (60 s).
PATIENCE_SECONDS: Final = 70.0
_POLL_SECONDS: Final = 0.05
#: All file locks of the machine.
LOCKS: Final = Path("/proc/locks")


@asynccontextmanager
async def session_lock(path: Path | None, *, exclusive: bool) -> AsyncIterator[Sequence[int]]:
    """Hold the lock on a file; without a file, or after :data:`PATIENCE_SECONDS`, continue without it.

    The value is the descriptors that hold it: a child that inherits them keeps the lock until it ends.

    Readers that follow one another closely would starve a writer: all pass a second lock on the way in, and a writer
    keeps that one until it has finished.
    """
    with ExitStack() as held:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        holding: list[int] = []
        with trio.move_on_after(PATIENCE_SECONDS) as patience, ExitStack() as passing:
            if path is not None:
                await _take(path.with_suffix(".turn"), kind, held if exclusive else passing)
                holding += await _take(path, kind, held)
        if patience.cancelled_caught:
            log.debug("another process holds the lock on FRR's configuration; continuing without it", file=path)
        yield holding


def holders(path: Path) -> tuple[int, ...]:
    """Return the processes that hold the lock on a file now, by /proc/locks (proc(5)); none if it does not say."""
    try:
        status, table = path.stat(), LOCKS.read_text()
    except OSError:
        return ()
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    # "1: FLOCK  ADVISORY  WRITE 812 00:19:1234 0 EOF"; a line of a process that waits has an arrow after the number.
    found = (fields for line in table.splitlines() if len(fields := line.split()) > 5 and fields[1] == "FLOCK")
    return tuple(int(fields[4]) for fields in found if fields[5] == wanted)


async def _take(path: Path, kind: int, until: ExitStack) -> tuple[int, ...]:
    """Take a lock that ``until`` releases, and return its descriptor.

    Without the directory or access to it there is no one to share with, and no descriptor.
    """
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        log.debug("no lock on FRR's configuration", file=path, error=error)
        return ()
    until.callback(os.close, lock)
    while True:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            await trio.sleep(_POLL_SECONDS)
        else:
            return (lock,)
