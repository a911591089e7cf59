"""Keeping FRR's shells out of one another's way: a session that ends while mgmtd 10.3 commits spoils the commit.

The commit's values point into a tree that the end of any session with mgmtd, be it that of a ``show``, replaces. zebra
is sent what lies in that memory by then, refuses it and breaks the connection, and mgmtd keeps its configuration locked
for good (``tests/frr/test_sessions.py``). Sessions with other daemons do no harm. So whoever reads through mgmtd shares
a lock with other readers, and whoever writes has it alone, whichever process they are. It is best effort: an operator's
own shell knows nothing of it, and a lock that somebody keeps too long is not waited for indefinitely.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from supervisor.logs.logger import get_logger

log = get_logger("frr")

#: Longer than a whole configuration may take to be sent (60 s), by whoever sends it.
PATIENCE_SECONDS: Final = 70.0
_LOOK_SECONDS: Final = 0.05


@asynccontextmanager
async def access(path: Path | None, *, alone: bool) -> AsyncIterator[None]:
    """Hold the lock on a file, shared or ``alone``; without a file, or in vain for too long, go on without it.

    Readers that follow one another closely would keep a writer out indefinitely: everybody has to pass a second lock on
    the way in, which a writer keeps.
    """
    with ExitStack() as held:
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        with trio.move_on_after(PATIENCE_SECONDS) as patience, ExitStack() as passing:
            if path is not None:
                await _take(path.with_suffix(".turn"), kind, held if alone else passing)
                await _take(path, kind, held)
        if patience.cancelled_caught:
            log.debug("somebody keeps the lock on FRR's configuration; going on without it", file=path)
        yield


async def _take(path: Path, kind: int, until: ExitStack) -> None:
    """Take a lock that ``until`` gives back. No such directory, or not for us: nobody else locks then."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        log.debug("no lock on FRR's configuration", file=path, error=error)
        return
    until.callback(os.close, lock)
    while not _taken(lock, kind):  # noqa: ASYNC110 - other processes tell nobody
        await trio.sleep(_LOOK_SECONDS)


def _taken(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
