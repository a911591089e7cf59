"""Where log lines go: the journal with fields, or standard error.

A sink never raises and never waits: when the journal does not read, or standard error is closed, broken or full, lines
are dropped, counted, and the count is written as soon as there is room again.
"""

from __future__ import annotations

import os
import select
import socket
import stat
from collections.abc import Mapping
from typing import Final

#: The descriptor, not ``sys.stderr``, which may be replaced, buffered or None.
STDERR = 2

#: The most that fits into a pipe that ``poll`` reports writable (PIPE_BUF of Linux, pipe(7)).
_PIECE: Final = 4096

#: Where journald takes records with fields (systemd-journald.service(8)).
JOURNAL_SOCKET: Final = "/run/systemd/journal/socket"

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
        if self._send(_encoded(data)):
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
    """Sends records with their fields to the journal's socket; what that refuses goes to standard error.

    Uses the journal's own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL), since libsystemd waits while journald does not
    read.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._fallback = StderrSink(prefix_priority=True)
        self.dropped = 0

    def write(self, priority: int, text: str, decorated: str, fields: Mapping[str, str]) -> None:
        """Send or drop a record."""
        try:
            if self.dropped:
                self._send(4, f"{self.dropped} log lines were lost because the journal did not take them", {})
                self.dropped = 0
            self._send(priority, text, fields)
        except BlockingIOError:
            self.dropped += 1
        except OSError:
            self._fallback.write(priority, text, decorated, fields)

    def _send(self, priority: int, text: str, fields: Mapping[str, str]) -> None:
        own = {"MESSAGE": text, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": IDENTIFIER}
        members = (_member(name, _encoded(value)) for name, value in {**fields, **own}.items())
        self._socket.sendto(b"".join(members), self._path)


def _member(name: str, value: bytes) -> bytes:
    if b"\n" in value:
        return b"%s\n%s%s\n" % (name.encode(), len(value).to_bytes(8, "little"), value)
    return b"%s=%s\n" % (name.encode(), value)


def _encoded(text: str) -> bytes:
    """Return UTF-8; what cannot be encoded, such as a byte of a file's name, is escaped."""
    return text.encode(errors="backslashreplace")


Sink = StderrSink | JournalSink


def choose_sink() -> Sink:
    """Return the journal if standard error leads to it, else standard error."""
    return JournalSink(JOURNAL_SOCKET) if stderr_is_journal() else StderrSink(prefix_priority=False)
