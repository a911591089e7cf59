"""The labels that this node's Node object had last, kept in a file of their own.

A Node that was deleted is created again by the kubelet, over a connection that may need the very networks that the
Node's labels selected. So they keep selecting while there is no Node, over a restart too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import write_atomic

log = get_logger("crd_watch")

FILE: Final = "node-labels.json"
_VERSION: Final = 1
#: Where versions before this file had the labels, beside the saved snapshot; read only while there is no file of ours.
_FORMER_FILE: Final = "api-snapshot.json"


class SavedLabels:
    """The labels of the node called ``node``."""

    def __init__(self, state_dir: Path, node: str) -> None:
        self._path, self._former = state_dir / FILE, state_dir / _FORMER_FILE
        self._node = node
        self._saved: Mapping[str, str] | None = None

    def load(self) -> Mapping[str, str] | None:
        """Return the labels; None where none are saved, not of this node, or not readable."""
        if self._own() is None and not self._path.exists():
            return _labels((_read(self._former) or {}).get("content"), self._node)
        return self._saved

    def save(self, labels: Mapping[str, str]) -> None:
        """Write the labels unless they are in the file. A disk that refuses costs only the file."""
        if labels == self._own():
            return
        text = json.dumps({"version": _VERSION, "node": self._node, "labels": dict(labels)}, sort_keys=True)
        try:
            write_atomic(self._path, text + "\n")
        except OSError as error:
            message = "cannot save the Node's labels: if the Node cannot be read after a restart, nothing is selected"
            log.warning(message, message_id=message_ids.MEMORY_LOST, file=self._path, error=error)
        # Also after a failure, which is reported once for each change.
        self._saved = labels

    def _own(self) -> Mapping[str, str] | None:
        if self._saved is None:
            self._saved = _labels(_read(self._path), self._node)
        return self._saved


def _read(path: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        log.debug("no saved labels", file=path, error=type(error).__name__)
        return None
    return stored if isinstance(stored, dict) and stored.get("version") == _VERSION else None


def _labels(stored: Any, node: str) -> Mapping[str, str] | None:
    labels = stored.get("labels") if isinstance(stored, dict) and stored.get("node") == node else None
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        return None
    return labels
