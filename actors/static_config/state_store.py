"""What must survive the process: last good texts, texts in force and the node's identity, each in a file of its own.

What is known and what is on disk are kept apart: a disk that refuses costs only what a restart would find, not the
router, and each file is tried again until it is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from config.outcomes import NodeIdentity
from config.store.last_good import LastGood, LastGoodError, read_texts, to_json
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic

from .node_identity import recall
from .node_identity import to_json as node_to_json
from .trial import Journal

log = get_logger("static_config")

#: They may hold passwords.
MODE: Final = 0o600


@dataclass
class Memory:
    """Loaded once, written when it changes and until that has succeeded."""

    state_dir: Path
    #: The last good text of each file.
    last_good: LastGood = field(default_factory=LastGood)
    #: The texts of the last reading as a whole that had a usable underlay, or rightly none.
    in_force: LastGood = field(default_factory=LastGood)
    node: NodeIdentity | None = None
    #: What is on disk, by path; a path is missing when that is not known or of no use.
    _stored: dict[Path, str] = field(default_factory=dict, repr=False)
    _failing: bool = False

    @property
    def journal(self) -> Journal:
        """Return where a configuration on trial is."""
        return Journal(self.state_dir)

    @property
    def texts_file(self) -> Path:
        """Return where the last good texts are."""
        return self.state_dir / "last-good.json"

    @property
    def in_force_file(self) -> Path:
        """Return where the texts in force are."""
        return self.state_dir / "in-force.json"

    @property
    def node_file(self) -> Path:
        """Return where the last known identity is."""
        return self.state_dir / "node.json"

    @property
    def is_behind(self) -> bool:
        """Whether the disk has refused what is known now."""
        return self._failing

    def load(self) -> None:
        """Recall what an earlier life knew; a damaged memory counts as none, and is said."""
        for path in (self.texts_file, self.in_force_file, self.node_file, self.journal.ended_file):
            remove_stale(path)
        self.node = recall(self.node_file)
        self.last_good = self._recall_texts(self.texts_file)
        self.in_force = self._recall_texts(self.in_force_file)
        if self.node is not None:
            self._stored[self.node_file] = node_to_json(self.node)

    def keep(self, last_good: LastGood, in_force: LastGood, node: NodeIdentity | None) -> None:
        """Remember, and try again what the disk has refused before; ``node`` None leaves the one that is known."""
        self.last_good, self.in_force, self.node = last_good, in_force, node or self.node
        wanted = {self.texts_file: to_json(last_good), self.in_force_file: to_json(in_force)}
        if self.node is not None:
            wanted[self.node_file] = node_to_json(self.node)
        failures = [error for path, text in wanted.items() if (error := self._write(path, text)) is not None]
        if failures and not self._failing:
            log.warning(
                "cannot keep the last good configuration on disk",
                message_id=message_ids.MEMORY_LOST,
                directory=self.state_dir,
                error=failures[0],
            )
        elif self._failing and not failures:
            log.info("the last good configuration is on disk again", directory=self.state_dir)
        self._failing = bool(failures)

    def _write(self, path: Path, text: str) -> OSError | None:
        """Replace one file unless it says so already; return why that was not possible."""
        if self._stored.get(path) == text:
            return None
        try:
            write_atomic(path, text, mode=MODE)
        except OSError as error:
            return error
        self._stored[path] = text
        return None

    def _recall_texts(self, path: Path) -> LastGood:
        try:
            texts = read_texts(path)
        except LastGoodError as error:
            log.warning(
                "the last good configuration on disk is not usable",
                message_id=message_ids.MEMORY_LOST,
                file=path,
                error=error,
            )
            return LastGood()
        self._stored[path] = to_json(texts)
        return texts
