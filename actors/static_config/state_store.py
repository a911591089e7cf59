"""What a restart needs of the files: last good texts, texts in force and the node's identity, each in its own file.

The values in memory count; the files follow. A disk that refuses costs only what a restart would find, not the router,
and each file is tried again until it is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from config.outcomes import NodeIdentity
from config.store.json_store import StoreError
from config.store.last_good import LastGood, read_texts, to_json
from config.syntax.files import mark
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic

from .node_identity import STORE, read_identity
from .trial import Journal

log = get_logger("static_config")

LAST_GOOD_FILE: Final = "last-good.json"
IN_FORCE_FILE: Final = "in-force.json"
NODE_FILE: Final = "node.json"


@dataclass
class StateStore:
    """Loaded once; :meth:`save` writes each file whose value has changed, until that has succeeded."""

    state_dir: Path
    #: The last good text of each file.
    last_good: LastGood = field(default_factory=LastGood)
    #: The texts of the last reading as a whole that had a usable underlay, or rightly none.
    in_force: LastGood = field(default_factory=LastGood)
    node: NodeIdentity | None = None
    #: The texts on disk, by file name; the name of an absent or unusable file is missing.
    _stored: dict[str, str] = field(default_factory=dict, repr=False)
    _failing: bool = False

    @property
    def journal(self) -> Journal:
        """Return the files of a configuration on trial."""
        return Journal(self.state_dir)

    @property
    def is_behind(self) -> bool:
        """Whether the disk has refused the newest values."""
        return self._failing

    @property
    def has_in_force(self) -> bool:
        """Whether it is known what is in force, be it nothing."""
        return IN_FORCE_FILE in self._stored

    @property
    def in_force_since(self) -> float:
        """Return when the texts in force were written, in Unix seconds; 0 if they are not on disk."""
        found = mark(self.state_dir / IN_FORCE_FILE)
        return found[3] / 1e9 if found else 0.0

    def load(self) -> None:
        """Read the files; a damaged one counts as none, and is logged."""
        for name in (LAST_GOOD_FILE, IN_FORCE_FILE, NODE_FILE):
            remove_stale(self.state_dir / name)
        remove_stale(self.journal.ended_file)
        self.last_good = self._load_texts(LAST_GOOD_FILE)
        self.in_force = self._load_texts(IN_FORCE_FILE)
        self.node = read_identity(self.state_dir / NODE_FILE)
        if self.node is not None:
            self._stored[NODE_FILE] = STORE.encode(self.node)

    def keep(self, last_good: LastGood, in_force: LastGood, node: NodeIdentity | None) -> None:
        """Take these values, which :meth:`save` writes; ``node`` None keeps the known one."""
        self.last_good, self.in_force, self.node = last_good, in_force, node or self.node

    def save(self) -> None:
        """Write what has changed, and try again what the disk has refused before."""
        wanted = {LAST_GOOD_FILE: to_json(self.last_good), IN_FORCE_FILE: to_json(self.in_force)}
        if self.node is not None:
            wanted[NODE_FILE] = STORE.encode(self.node)
        failures = [error for name, text in wanted.items() if (error := self._write(name, text)) is not None]
        if failures and not self._failing:
            log.warning(
                "cannot save the last good configuration",
                message_id=message_ids.MEMORY_LOST,
                directory=self.state_dir,
                error=failures[0],
            )
        elif self._failing and not failures:
            log.info("the last good configuration is saved again", directory=self.state_dir)
        self._failing = bool(failures)

    def _write(self, name: str, text: str) -> OSError | None:
        """Replace one file if its text differs; return why that failed."""
        if self._stored.get(name) == text:
            return None
        try:
            write_atomic(self.state_dir / name, text)
        except OSError as error:
            return error
        self._stored[name] = text
        return None

    def _load_texts(self, name: str) -> LastGood:
        try:
            texts = read_texts(self.state_dir / name)
        except StoreError as error:
            log.warning(
                "the saved last good configuration is not usable",
                message_id=message_ids.MEMORY_LOST,
                file=self.state_dir / name,
                error=error,
            )
            return LastGood()
        if mark(self.state_dir / name) is not None:
            self._stored[name] = to_json(texts)
        return texts
