"""The labels that this node had when the last snapshot was accepted, for a node whose Node object cannot be had.

A Node that was deleted is made again by the kubelet, over a way that may need the very networks that its labels chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from config.store.api_snapshot_file import read_saved
from config.store.json_store import StoreError
from supervisor.logs.logger import get_logger

log = get_logger("crd_watch")


def remembered_labels(state_dir: Path, name: str) -> Mapping[str, str] | None:
    """Return them; None where nothing is remembered, not of this node, or not in a form that can be read."""
    try:
        saved = read_saved(state_dir, name)
    except StoreError as error:
        # Who keeps the memory says so; here it is as good as none.
        log.debug("the node's labels are not remembered", error=error)
        return None
    return saved.snapshot.chosen_by if saved is not None and saved.snapshot is not None else None
