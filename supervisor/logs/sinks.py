"""Where log lines go: the journal with fields, or standard error.

A sink never raises and never waits: when standard error is closed, broken or full, lines are dropped, counted, and the
count is written as soon as there is room again.
"""

from __future__ import annotations

import importlib
import os
import select
import socket
import stat
from collections.abc import Callable, Mapping
from typing import Final

#: The descriptor, not ``sys.stderr``, which may be replaced, buffered or None.
STDERR = 2

#: The most that fits into a pipe that ``poll`` reports writable (PIPE_BUF of Linux, pipe(7)).
_PIECE: Final = 4096

#: This program's name in the journal.
IDENTIFIER: Final = "openperouter"


def stderr_is_journal() -> bool:
    """Whether standard error leads to the journal: systemd identifies it in ``JOURNAL_STREAM`` (``device:inode``)."""
    try:
        status = os.fstat(STDERR)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class StderrSink:
    """Writes to standard error; with ``prefix_priority`` each line starts with ``<N>`` for the journal."""

    def __init__(self, *, prefix_priority: bool, descriptor: int | None = None) -> None:
        self._prefix = prefix_priority
        self._descriptor = STDERR if descriptor is None else descriptor
        self.dropped = 0

    def write(self, priority: int, text: str, decorated: str, fields: Mapping[str, str]) -> None:
        """Write or drop a record: syslog priority, its text, the same with time and level, and its fields."""
        data = "".join(f"<{priority}>{line}\n" for line in text.splitlines()) if self._prefix else f"{decorated}\n"
        if self.dropped:
            prefix = "<4>" if self._prefix else ""
            data = f"{prefix}{self.dropped} log lines were lost because standard error was not read\n{data}"
        if self._send(data.encode(errors="replace")):
            self.dropped = 0
        else:
            self.dropped += 1

    def _send(self, data: bytes) -> bool:
        """Write all pieces, or stop at the first that would wait."""
        try:
            is_socket = stat.S_ISSOCK(os.fstat(self._descriptor).st_mode)
            for start in range(0, len(data), _PIECE):
                piece = data[start : start + _PIECE]
                if not (
                    self._has_room()
                    and (_send_socket if is_socket else os.write)(self._descriptor, piece) == len(piece)
                ):
                    return False
        except OSError:
            return False
        return True

    def _has_room(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return any(event & select.POLLOUT for _, event in poll.poll(0))


def _send_socket(descriptor: int, data: bytes) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        return duplicate.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class JournalSink:
    """Sends records with their fields through python3-systemd, or to standard error when the journal refuses one."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._fallback = StderrSink(prefix_priority=True)

    def write(self, priority: int, text: str, decorated: str, fields: Mapping[str, str]) -> None:
        """Send a record."""
        own: dict[str, object] = {"PRIORITY": str(priority), "SYSLOG_IDENTIFIER": IDENTIFIER}
        try:
            if "CODE_LINE" in fields:
                # The only one that python3-systemd formats itself, as a number.
                own["CODE_LINE"] = int(fields["CODE_LINE"])
            self._send(text, **{**fields, **own})
        except (OSError, TypeError, ValueError):
            self._fallback.write(priority, text, decorated, fields)


Sink = StderrSink | JournalSink


def choose_sink() -> Sink:
    """Return the journal if standard error leads to it and python3-systemd is installed, else standard error."""
    if not stderr_is_journal():
        return StderrSink(prefix_priority=False)
    try:
        return JournalSink(importlib.import_module("systemd.journal").send)
    except ImportError:
        return StderrSink(prefix_priority=True)
