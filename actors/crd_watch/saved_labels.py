"""The labels that this node's Node object had last, kept in a file of their own.

The kubelet recreates a deleted Node, over a connection that may need the networks that the Node's labels selected. So
the last labels keep selecting while there is no Node, also across a restart. The labels in memory count; the file
follows in a task of its own, since a disk may be slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from config.store.api_snapshot_file import read_saved
from config.store.json_store import JsonStore, StoreError
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import write_atomic
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

log = get_logger("crd_watch")

FILE: Final = "node-labels.json"
#: Deadline of writing a few kilobytes.
DISK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Content:
    node: str
    labels: Mapping[str, str]


_STORE: Final = JsonStore(_Content, "labels file", version=1)


class SavedLabels:
    """The labels of the node called ``node``."""

    def __init__(self, state_dir: Path, node: str) -> None:
        self._state_dir = state_dir
        self._path = state_dir / FILE
        self._node = node
        self._saved: Mapping[str, str] | None = None
        self._changes: Latest[Mapping[str, str]] = Latest("crd_watch.labels")
        self._written = 0

    def load(self) -> Mapping[str, str] | None:
        """Return the labels; None where none are saved, not of this node, or not readable."""
        if self._own() is None and not self._path.exists():
            return self._former()
        return self._saved

    def save(self, labels: Mapping[str, str]) -> None:
        """Take the labels, which :meth:`write_changes` writes unless they are in the file."""
        if labels != self._own():
            self._saved = labels
            self._changes.set(labels)

    async def write_changes(self, ctx: ActorContext) -> None:
        """Write the newest labels, indefinitely. What a cancelled call has not written the next one writes."""
        while True:
            version = await self._changes.wait_newer(self._written)
            labels = self._changes.peek() or {}
            with ctx.working("saving the Node's labels", DISK_SECONDS):
                await trio.to_thread.run_sync(self.write, labels)
            self._written = version

    def write(self, labels: Mapping[str, str]) -> None:
        """Replace the file. An error is only reported, once for each change of the labels."""
        try:
            write_atomic(self._path, _STORE.encode(_Content(self._node, dict(labels))))
        except OSError as error:
            message = "cannot save the Node's labels: if the Node cannot be read after a restart, nothing is selected"
            log.warning(message, message_id=message_ids.MEMORY_LOST, file=self._path, error=error)

    def _own(self) -> Mapping[str, str] | None:
        if self._saved is None:
            try:
                stored = _STORE.read(self._path)
            except StoreError as error:
                log.debug("no saved labels", file=self._path, error=str(error))
                stored = None
            self._saved = stored.labels if stored is not None and stored.node == self._node else None
        return self._saved

    def _former(self) -> Mapping[str, str] | None:
        """Return the labels that versions before this file saved with the API's snapshot."""
        try:
            saved = read_saved([self._state_dir], self._node)
        except StoreError:
            return None
        return saved.snapshot.chosen_by if saved is not None and saved.snapshot is not None else None
