"""The memory of the API on disk: read once at start, written when it means something else or has grown old.

It holds passwords, hence mode 0600. A memory that cannot be used counts as none, and a disk that refuses costs only the
memory, not the router; both are said once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from config.store.api_snapshot_file import FILE, ApiMemory, ApiMemoryError, from_json, to_json
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic

log = get_logger("desired")

MODE: Final = 0o600
#: While a server is followed, the moment on disk is at most so many seconds older than the truth.
REFRESH_SECONDS: Final = 600.0


class UnusableMemoryError(Exception):
    """There is a memory, but it is of no use; the text says why, and never what is in it."""


def recall(state_dir: Path, node_name: str) -> ApiMemory | None:
    """Return this node's memory, None when there is none. Raises :class:`UnusableMemoryError`; changes nothing."""
    path = state_dir / FILE
    try:
        memory = from_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ApiMemoryError) as error:
        raise UnusableMemoryError(f"{path}: {error}") from None
    if memory.node_name != node_name:
        raise UnusableMemoryError(f"{path}: it is of another node, {memory.node_name}")
    return memory


class Keeper:
    """The one writer of the memory."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir
        self._path = state_dir / FILE
        self._stored: ApiMemory | None = None
        self._failing = False

    def load(self, node_name: str) -> ApiMemory:
        """Return what is remembered, or an empty memory."""
        remove_stale(self._path)
        try:
            self._stored = recall(self._directory, node_name)
        except UnusableMemoryError as error:
            log.warning(f"what is remembered of the API is not usable: {error}", message_id=message_ids.MEMORY_LOST)
        return self._stored or ApiMemory(node_name)

    def is_due(self, memory: ApiMemory, *, live: bool) -> bool:
        """Whether to write: another meaning, or a moment that is much later, or the last one before the server went."""
        if not memory.same_as(self._stored):
            return bool(memory.snapshot or memory.standing or self._stored)
        age = _moment(memory) - _moment(self._stored)
        return age >= (REFRESH_SECONDS if live else 1.0)

    def write(self, memory: ApiMemory) -> None:
        """Replace the memory on disk."""
        try:
            write_atomic(self._path, to_json(memory), mode=MODE)
        except OSError as error:
            if not self._failing:
                log.warning(
                    "cannot remember the API's objects: a restart without the API would lose their networks",
                    message_id=message_ids.MEMORY_LOST,
                    file=self._path,
                    error=error,
                )
            self._failing = True
        else:
            self._stored, self._failing = memory, False


def _moment(memory: ApiMemory | None) -> float:
    return memory.snapshot.synced_at if memory is not None and memory.snapshot is not None else 0.0
