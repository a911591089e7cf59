"""The saved API snapshot on disk: read once at start, written when its meaning changes or it has grown old.

An unusable file counts as none, and a disk that refuses costs only what a restart would find, not the router. Both are
logged once.
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
    """The one writer of the file."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir
        self._path = state_dir / FILE
        self._stored: SavedSnapshot | None = None
        self._failing = False

    def load(self, node_name: str) -> SavedSnapshot:
        """Return what is on disk, or an empty value."""
        remove_stale(self._path)
        try:
            self._stored = read_saved(self._directory, node_name)
        except StoreError as error:
            log.warning(f"the saved API snapshot is not usable: {error}", message_id=message_ids.MEMORY_LOST)
        return self._stored or SavedSnapshot(node_name)

    def is_due(self, saved: SavedSnapshot, *, live: bool) -> bool:
        """Whether to write: a changed meaning, a much later time, or the last time before the server was lost."""
        if not saved.same_as(self._stored):
            return bool(saved.snapshot or saved.standing or self._stored)
        age = _synced_at(saved) - _synced_at(self._stored)
        return age >= (REFRESH_SECONDS if live else 1.0)

    def write(self, saved: SavedSnapshot) -> None:
        """Replace the file, readable for root alone."""
        try:
            write_atomic(self._path, to_json(saved))
        except OSError as error:
            if not self._failing:
                log.warning(
                    "cannot save the API's objects: a restart while the API is unreachable would lose their networks",
                    message_id=message_ids.MEMORY_LOST,
                    file=self._path,
                    error=error,
                )
            self._failing = True
        else:
            self._stored, self._failing = saved, False


def _synced_at(saved: SavedSnapshot | None) -> float:
    return saved.snapshot.synced_at if saved is not None and saved.snapshot is not None else 0.0
