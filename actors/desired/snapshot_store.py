"""The saved API snapshot on disk: read once at start, written when its meaning changes or it has grown old.

What the disk refuses goes to a spare directory in memory (/run), which lasts until the next boot, and to the disk as
soon as that takes it. So a spare file is always the newer one. Failures are logged once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from config.store.api_snapshot_file import FILE, SavedSnapshot, read_saved, to_json
from config.store.json_store import StoreError
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic

log = get_logger("desired")

#: While the node follows a server, the time on disk is at most this many seconds behind.
REFRESH_SECONDS: Final = 600.0


class SnapshotStore:
    """The one writer of the file, and of its spare."""

    def __init__(self, state_dir: Path, spare_dir: Path) -> None:
        self._path, self._spare = state_dir / FILE, spare_dir / FILE
        self._stored: SavedSnapshot | None = None
        self._failing = False

    def load(self, node_name: str) -> SavedSnapshot | None:
        """Return what was saved, None when that is nothing usable."""
        saved = None
        for path in (self._spare, self._path):
            remove_stale(path)
        try:
            saved = read_saved((self._spare.parent, self._path.parent), node_name)
        except StoreError as error:
            log.warning(f"the saved API snapshot is not usable: {error}", message_id=message_ids.MEMORY_LOST)
        if not self._spare.exists():
            self._stored = saved
        return saved

    def is_due(self, saved: SavedSnapshot, *, live: bool) -> bool:
        """Whether to write: a changed meaning, a much later time, or the last time before the server was lost."""
        if not saved.same_as(self._stored):
            return bool(saved.snapshot or saved.standing or self._stored)
        age = _synced_at(saved) - _synced_at(self._stored)
        return age >= (REFRESH_SECONDS if live else 1.0)

    def write(self, saved: SavedSnapshot) -> None:
        """Replace the file, or else its spare, readable for root alone."""
        text = to_json(saved)
        try:
            write_atomic(self._path, text)
            if self._spare != self._path:
                self._spare.unlink(missing_ok=True)
        except OSError as error:
            self._write_spare(text, error)
        else:
            self._stored, self._failing = saved, False

    def _write_spare(self, text: str, refusal: OSError) -> None:
        message = "cannot save the API's objects on disk: kept in memory until the next successful write"
        try:
            write_atomic(self._spare, text)
        except OSError:
            message = "cannot save the API's objects: a restart while the API is unreachable would lack them"
        if not self._failing:
            log.warning(message, message_id=message_ids.MEMORY_LOST, file=self._path, error=refusal)
        self._failing = True


def _synced_at(saved: SavedSnapshot | None) -> float:
    return saved.snapshot.synced_at if saved is not None and saved.snapshot is not None else 0.0
