"""Notice that a kubeconfig, or a file that it names, has another content than when it was read.

Upon an event of the kernel, and every half minute, each file gets a ``stat``; every second where there are no events.
Only when one of those differs are the contents compared: a credentials proxy that writes the same every ten seconds
(reference 8.6) changes nothing. The content that was read is known by the digests that the reader took before it read,
so nothing that is written meanwhile is missed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Final, TypeVar

import trio

from actors.lib.kube.credentials import digest
from config.syntax.files import Mark, mark
from supervisor.process.change_events import PathEvents

T = TypeVar("T")

#: Between two polls at least, in seconds.
POLL_SECONDS: Final = 1.0
#: A change is settled when a poll finds nothing new, and after so many polls at the latest: files that belong together
#: are written one after another.
MAX_SETTLE_POLLS: Final = 4
#: Work in progress is given up for newer files after this many seconds, not before: a writer without end would
#: otherwise keep it from ever ending.
PATIENCE_SECONDS: Final = 5.0


class Wake(Enum):
    """Why a wait ended: the files changed, the credentials expired, or time was up."""

    CHANGED = auto()
    EXPIRED = auto()
    TIMER = auto()


class CredentialFiles:
    """What was read of the kubeconfig and of the files that it names, and whether that is still their content.

    Within the context ``events``, the files are only looked at when something may have changed.
    """

    def __init__(self, kubeconfig: Path, wall: Callable[[], float] = time.time) -> None:
        self.kubeconfig = kubeconfig
        self._wall = wall
        self._read: Mapping[Path, str] = {kubeconfig: "missing"}
        self._marks: tuple[Mark, ...] | None = None
        self.events = PathEvents(lambda: self._read)

    def exist(self) -> bool:
        """Whether there is a kubeconfig, readable or not."""
        return mark(self.kubeconfig) is not None

    def begin(self) -> None:
        """Take the files as they are now for the content that is being read."""
        self.remember({path: digest(path) for path in self._read})

    def remember(self, digests: Mapping[Path, str]) -> None:
        """Set the digests of what was read."""
        self._read = {self.kubeconfig: "missing", **digests}
        self._marks = None

    def changed(self) -> bool:
        """Whether a file has another content than what was read."""
        marks = self._stat()
        if marks == self._marks:
            return False
        if any(digest(path) != read for path, read in self._read.items()):
            return True
        self._marks = marks
        return False

    async def wait(self, seconds: float, expires_at: float | None = None) -> Wake:
        """Wait for a settled change; for at most ``seconds``, and until ``expires_at`` (Unix seconds)."""
        end = trio.current_time() + seconds
        # What was read since the last wait may have named other files.
        self.events.renew()
        while not self.changed():
            left = math.inf if expires_at is None else expires_at - self._wall()
            if left <= 0:
                return Wake.EXPIRED
            if trio.current_time() >= end:
                return Wake.TIMER
            # The wall clock may be set at any moment, and is read again by then.
            await self.events.wait(POLL_SECONDS, min(left, end - trio.current_time()))
        await self._settled()
        return Wake.CHANGED

    async def unless_changed(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Return what ``work`` returns, or None when it was given up because the files changed again."""
        results: list[T] = []
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                await trio.sleep(PATIENCE_SECONDS)
                await self.wait(float("inf"))
                nursery.cancel_scope.cancel()

            nursery.start_soon(give_up)
            results.append(await work())
            nursery.cancel_scope.cancel()
        return results[0] if results else None

    async def _settled(self) -> None:
        before = self._stat()
        for _ in range(MAX_SETTLE_POLLS):
            await trio.sleep(POLL_SECONDS)
            now = self._stat()
            if now == before:
                return
            before = now

    def _stat(self) -> tuple[Mark, ...]:
        return tuple(mark(path) for path in self._read)
