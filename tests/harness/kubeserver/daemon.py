"""One server process: its words go to a file, and it never outlives the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: The parent-death signal comes when the *thread* that forked ends: hence one for all, which lives as long as we do.
_SPAWNER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
_END_SECONDS: Final = 30


@dataclass
class Daemon:
    """A command that can be started, killed, paused and started again; any thread may do so."""

    command: Sequence[str]
    log: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; nothing when it runs."""
        if not self.running:
            self._process = _SPAWNER.submit(self._spawn).result()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it and wait for its end; nothing when it does not run."""
        if self._process is None:
            return
        if self.running:
            # A paused process takes no other signal than SIGKILL.
            self.signal(signal.SIGCONT)
            self.signal(number)
        self._process.wait(_END_SECONDS)
        self._process = None

    def signal(self, number: int) -> None:
        """Send it a signal; nothing when it has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Stop it with SIGSTOP and return when all of its threads stand still; nothing when it has ended."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            # The signal alone returns at once, and a busy machine lets another thread answer one more request.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C at the terminal is for the tests, which then stop what they started.
                process_group=0,
            )
