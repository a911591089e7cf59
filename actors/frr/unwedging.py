"""Frees FRR's management daemon from a configuration lock that nobody will ever give back.

In FRR 10.3 a backend daemon that drops its connection while mgmtd commits leaves mgmtd's datastore locked for good:
"Lock already taken on DS by another session!". It answers questions, but every later configuration waits for ever.
Nothing but a new mgmtd helps; watchfrr starts one as soon as the old one is gone, and forwarding does not depend on it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import trio

from actors.vtysh import Vtysh
from supervisor.faults import DependencyFault
from supervisor.logs import get_logger

log = get_logger("frr")

DAEMON: Final = "mgmtd"
#: Entering configuration mode needs milliseconds, on an emulated machine tenths of a second.
PROBE_SECONDS: Final = 10.0
#: Seconds between two kills: a new mgmtd needs time to be started and to load its configuration.
PAUSE_SECONDS: Final = 120.0


class Unwedger:
    """Looks for a stuck mgmtd after a configuration did not end in time, and ends it, at most once in a while."""

    def __init__(self, vtysh: Vtysh, run_dir: Path) -> None:
        self._vtysh = vtysh
        self._pid_file = run_dir / f"{DAEMON}.pid"
        self._quiet_until = 0.0

    async def after_timeout(self) -> None:
        """Kill mgmtd if it does not let anybody configure; do nothing when somebody else is to blame."""
        if trio.current_time() < self._quiet_until or not await self._is_stuck():
            return
        self._quiet_until = trio.current_time() + PAUSE_SECONDS
        pid = self._pid()
        if pid is None:
            log.warning("mgmtd does not accept configuration, and its process cannot be told", file=self._pid_file)
            return
        log.warning("mgmtd's configuration is locked for good: ending it, so that watchfrr starts a new one", pid=pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError as error:
            log.warning("mgmtd cannot be ended", pid=pid, error=error)

    async def _is_stuck(self) -> bool:
        # "file-lock" is what vtysh itself says before a file: without it entering configuration mode takes no lock.
        commands = ("-d", DAEMON, "-c", "configure terminal file-lock", "-c", "end")
        try:
            done = await self._vtysh.run(*commands, seconds=PROBE_SECONDS)
        except DependencyFault:
            return True
        return done.returncode != 0 or "lock" in f"{done.stdout}{done.stderr}".lower()

    def _pid(self) -> int | None:
        """Return the process that the PID file names, if it really is mgmtd."""
        try:
            pid = int(self._pid_file.read_text())
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except (OSError, ValueError):
            return None
        return pid if name == DAEMON else None
