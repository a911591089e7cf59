"""Notifications to systemd (sd_notify(3)) through the ``sdnotify`` library.

More than the library: it never blocks on a full socket and never raises, and a datagram that systemd waits for (READY,
RELOADING, STOPPING) is kept and sent again with the next one when it could not be delivered. Without ``NOTIFY_SOCKET``
nothing is sent.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Final

from sdnotify import SystemdNotifier

#: Longest STATUS= text, in characters: more is not readable in one line of ``systemctl status``.
STATUS_LENGTH: Final = 300

#: Undelivered datagrams kept; more than a start, a reload and a stop produce.
_KEPT: Final = 16


class Notifier:
    """One connection to systemd's notification socket, opened again when it broke."""

    def __init__(self) -> None:
        self._connection: SystemdNotifier | None = None
        self._unsent: deque[str] = deque(maxlen=_KEPT)
        self._status = ""
        self.enabled = bool(os.environ.get("NOTIFY_SOCKET"))

    def ready(self) -> None:
        """Report that start or reload is complete."""
        self._insist("READY=1")

    def reloading(self) -> None:
        """Report that a reload has begun; :meth:`ready` must follow. systemd fails a reload without the time stamp."""
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._insist(f"RELOADING=1\nMONOTONIC_USEC={microseconds}")

    def stopping(self) -> None:
        """Report that the process is about to end."""
        self._insist("STOPPING=1")

    def status(self, text: str) -> None:
        """Show one line in ``systemctl status``; sent only when it differs from the last one delivered."""
        line = " ".join(text.split())
        line = line if len(line) <= STATUS_LENGTH else f"{line[: STATUS_LENGTH - 1]}…"
        if line != self._status and self._send(f"STATUS={line}"):
            self._status = line

    def watchdog(self) -> None:
        """Notify the watchdog."""
        self._send("WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> None:
        """Extend the start or stop in progress to at least ``seconds`` from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def failing(self, exit_status: int) -> None:
        """Announce the exit status."""
        self._insist(f"EXIT_STATUS={exit_status}")

    def _insist(self, message: str) -> None:
        self._unsent.append(message)
        self._flush()

    def _flush(self) -> bool:
        while self._unsent:
            if not self._deliver(self._unsent[0]):
                return False
            self._unsent.popleft()
        return True

    def _send(self, message: str) -> bool:
        """Send a message after those that wait; return whether it was delivered. An undelivered one is not kept."""
        return self._flush() and self._deliver(message)

    def _deliver(self, message: str) -> bool:
        if not self.enabled:
            return True
        try:
            if self._connection is None:
                self._connection = _connect()
            # The library encodes as Latin-1; this way UTF-8 arrives, which systemd demands.
            self._connection.notify(message.encode().decode("latin-1"))
        except BlockingIOError:
            return False
        except OSError:
            self._close()
            return False
        return True

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None


def _connect() -> SystemdNotifier:
    """Return a connection whose errors are raised and whose socket does not block."""
    connection = SystemdNotifier(debug=True)
    connection.socket.setblocking(False)
    return connection
