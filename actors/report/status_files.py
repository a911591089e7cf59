"""The files that carry the status: the state file and the metrics.

Both are replaced atomically. A disk that refuses costs the file, not the daemon, and is logged once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from config.settings import Settings
from config.status import Status
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic

from .metrics import metrics_text

log = get_logger("report")

STATE_FILE: Final = "state.json"
#: For root and its group: it names tenants and peers.
STATE_MODE: Final = 0o640
METRICS_FILE: Final = "metrics.prom"
#: For any collector: it holds nothing but numbers.
METRICS_MODE: Final = 0o644
#: Unchanged metrics are written this often, seconds: their file may be on a disk.
METRICS_SECONDS: Final = 60.0


class StatusFiles:
    """Writes both files: the state file for each status, the metrics when they change or are a minute old."""

    def __init__(self, settings: Settings) -> None:
        self._state = _File(settings.run_dir / STATE_FILE, STATE_MODE)
        self._metrics = _File(settings.metrics_file or settings.run_dir / METRICS_FILE, METRICS_MODE)
        self._measured: Status | None = None

    async def write(self, status: Status) -> None:
        """Write a new status."""
        await self._state.write(status.to_json() + "\n")
        if self._is_due(status):
            await self._metrics.write(metrics_text(status))
            self._measured = status

    def _is_due(self, status: Status) -> bool:
        before = self._measured
        if before is None or not 0 <= status.updated_at - before.updated_at < METRICS_SECONDS:
            return True
        return status.essence() != before.essence()


class _File:
    """One file; a series of failures to write it is logged once."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path = path
        self._mode = mode
        self._failing = False
        remove_stale(path)

    async def write(self, text: str) -> None:
        try:
            await trio.to_thread.run_sync(lambda: write_atomic(self._path, text, mode=self._mode))
        except OSError as error:
            if not self._failing:
                message = f"{self._path} cannot be written: {error.strerror}"
                log.warning(message, message_id=message_ids.STATUS_UNWRITTEN)
            self._failing = True
        else:
            self._failing = False
