"""Wakes a task when what it looks at may have changed, so that it need not look all the time.

An event is a reason to look again, and nothing else: the look decides. Some changes have no event, those of a file
system on another machine for example, so a wait ends after :data:`LONGEST_SECONDS` anyway. Where the kernel gives no
events at all (a user has only so many inotify instances; a directory may be closed to us), a wait lasts as long as the
shortest time between two looks, which also bounds how often events lead to one.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import trio

from ..runtime.wakeups import aligned

#: The longest time between two looks, in seconds.
LONGEST_SECONDS: Final = 30.0
#: sys/inotify.h: IN_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF, and
#: IN_EXCL_UNLINK, without which files that have no name any more count as well.
_CHANGES: Final = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x4000000
#: Bytes of events that are taken at once; they are not decoded.
_READ: Final = 1 << 16
#: How often paths are followed at once; a process that creates more directories meanwhile makes the next wait short.
_PASSES: Final = 4
#: As many symbolic links as the kernel follows (path_resolution(7)).
_MOST_LINKS: Final = 40
#: Why a path cannot be watched whose directory will give an event of it.
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


class PathEvents:
    """Events at the paths that ``paths`` returns, which is called when an event ends a wait: it may return others then.

    When it may for another reason, :meth:`renew` has to follow. A context manager; outside of it there are no events.
    No event between a look and the following wait is missed.

    Symbolic links are followed as the look follows them, and every directory on the way is watched, so that a swapped
    link, a replaced directory and a path that does not exist yet have events. A mount has none. What is deleted stays
    in memory while it is watched, so the file of a network namespace must not be among the paths.
    """

    def __init__(self, paths: Callable[[], Iterable[str | Path]]) -> None:
        self._paths = paths
        self._watched: frozenset[int] = frozenset()
        self._opened = ExitStack()
        self._descriptor = -1
        self._last = -LONGEST_SECONDS
        #: Whether every change that can have an event has one.
        self.complete = False

    def __enter__(self) -> Self:
        with suppress(OSError), ExitStack() as opened:
            self._descriptor = self._open(opened)
            self._opened = opened.pop_all()
            self.complete = self._renew()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._descriptor, self.complete = -1, False
        self._opened.close()

    async def wait(self, shortest: float, longest: float = math.inf) -> None:
        """Return when it is time for a look: upon an event, ``shortest`` seconds after the last wait at the earliest.

        Without an event it returns after ``longest`` seconds, after ``shortest`` if there may be changes without, and
        always after about :data:`LONGEST_SECONDS`.
        """
        happened, now = False, trio.current_time()
        end = min(now + longest, aligned(now + LONGEST_SECONDS))
        with trio.move_on_at(end if self.complete else min(now + shortest, end)):
            if self.complete:
                await trio.lowlevel.wait_readable(self._descriptor)
                happened = True
                await trio.sleep_until(self._last + shortest)
            else:
                await trio.sleep_forever()
        self._last = trio.current_time()
        # Without an event there is nothing else to watch, and a wait without one costs a node at rest less than this.
        if happened or not self.complete:
            self.renew()

    def renew(self) -> None:
        """Follow the paths as they are now. This takes the events that have come, so a look has to come after it."""
        if self._descriptor >= 0:
            self.complete = self._renew()

    def _open(self, opened: ExitStack) -> int:
        """Return a new descriptor; ``opened`` closes it. Raises OSError."""
        # The code that enters network namespaces has loaded this library.
        self._libc = ctypes.CDLL(None, use_errno=True)
        descriptor = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        opened.callback(os.close, descriptor)
        return descriptor

    def _renew(self) -> bool:
        """Take the events that have come and prepare for the next; return whether all changes will have one."""
        with suppress(BlockingIOError):
            while os.read(self._descriptor, _READ):
                continue
        for _ in range(_PASSES):
            complete, watched = True, set()
            for path in dict.fromkeys(step for one in self._paths() for step in on_the_way(str(one))):
                number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), _CHANGES)
                if number >= 0:
                    watched.add(number)
                else:
                    complete = complete and ctypes.get_errno() in _ABSENT
            for number in self._watched - watched:
                self._libc.inotify_rm_watch(self._descriptor, number)
            before, self._watched = self._watched, frozenset(watched)
            # What came into a directory before it was watched had no event.
            if self._watched <= before:
                return complete
        return False


def on_the_way(path: str) -> Iterator[str]:
    """Yield the directories that the kernel goes through to an absolute path, and what is there, while they exist."""
    rest, here, links = path.split("/")[::-1], "/", 0
    yield here
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            # It has no links any more.
            here = os.path.dirname(here)  # noqa: PTH120
            continue
        found = f"{here.rstrip('/')}/{name}"
        try:
            target = os.readlink(found)  # noqa: PTH115 - many of these in a row
        except FileNotFoundError:
            return
        except OSError:
            here = found
            yield here
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        if target.startswith("/"):
            here = "/"
        rest += target.split("/")[::-1]
