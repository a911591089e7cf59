"""Holds back changes of files until a reload, with the setting ``autoApply: false``.

Before each reading the files' content is compared with the last accepted one: that of this process, else that of the
previous process, whose texts in force are on disk. If they differ and no reload was requested, what is in force is
published again, with a warning that names the changes. A trial and its confirmation take effect without a reload: both
were requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Origin, Problem, Reason, Severity
from config.settings import Settings
from config.sources.static_files import is_router_file, read_remembered
from config.syntax.files import UnreadableFileError, list_directory, read_bounded
from config.syntax.secret_files import SECRETS_DIRECTORY
from config.syntax.yaml_reader import MAX_BYTES

from .state_store import StateStore

#: Files by path; None for one that cannot be read.
Contents = Mapping[str, bytes | None]

_MESSAGE: Final = "changes wait for a reload (autoApply is false): "


@dataclass
class Gate:
    """The last accepted content, and the confirmed trial in it."""

    settings: Settings
    _applied: Contents | None = None
    _trial: str = ""

    def waiting(self, memory: StateStore) -> tuple[str, ...]:
        """Return the names of the files whose changes wait; none if they are accepted."""
        if self.settings.auto_apply:
            return ()
        now = contents(self.settings)
        before = self._in_force(memory) if self._applied is None else self._applied
        if before is None or self._confirmed(memory):
            return ()
        if self._applied is None:
            # What is not among the texts in force was not remembered: it counts as it is.
            now = {path: content for path, content in now.items() if _is_router_file(path, self.settings)}
        return tuple(sorted(Path(path).name for path in now.keys() | before if now.get(path) != before.get(path)))

    def take_in(self, memory: StateStore) -> None:
        """Record that the files as they are now are about to be read."""
        if not self.settings.auto_apply:
            ending = memory.journal.last()
            self._trial = ending.id if ending else ""
            self._applied = contents(self.settings)

    def _in_force(self, memory: StateStore) -> Contents | None:
        if not memory.has_in_force:
            return None
        return {path: text.encode() for path, text in memory.in_force.texts.items()}

    def _confirmed(self, memory: StateStore) -> bool:
        """Whether a trial was confirmed since the files were accepted."""
        ending = memory.journal.last()
        if ending is None or not ending.confirmed or ending.id == self._trial:
            return False
        return self._applied is not None or ending.at > memory.in_force_since


def hold(
    names: tuple[str, ...],
    settings: Settings,
    memory: StateStore,
    node: NodeIdentity | None,
    previous: StaticSnapshot | None,
) -> StaticSnapshot | None:
    """Return what is in force with a warning about the files that wait; None if it is not known.

    ``previous`` is what was published last. A trial in it is no longer in force.
    """
    warning = Problem(
        f"{_MESSAGE}{', '.join(names)}; openperouter plan shows them, openperouter reload applies them",
        Origin(path=str(settings.configs_dir)),
        severity=Severity.WARNING,
        reason=Reason.FILE_INVALID,
    )
    if previous is not None and not previous.on_trial:
        others = (problem for problem in previous.problems if not problem.message.startswith(_MESSAGE))
        return replace(previous, problems=(warning, *others))
    if node is None:
        return None
    kept = read_remembered(settings.configs_dir, node.name, memory.in_force, namespace=settings.namespace)
    return StaticSnapshot(node, kept.resources, (warning, *kept.problems), previous.reload_id if previous else 0)


def held_back(problems: Iterable[Problem]) -> str:
    """Return the message among ``problems`` that names the files that wait, empty if none do."""
    return next((problem.message for problem in problems if problem.message.startswith(_MESSAGE)), "")


def contents(settings: Settings) -> Contents:
    """Return the content of everything that a reading depends on."""
    secrets = settings.configs_dir / SECRETS_DIRECTORY
    paths = [settings.node_config_file]
    for directory in (settings.configs_dir, secrets):
        names = _names(directory)
        paths += [directory / name for name in names if directory == secrets or is_router_file(name)]
    found = {str(path): _content(path) for path in paths}
    return {path: content for path, content in found.items() if content != b""}


def _is_router_file(path: str, settings: Settings) -> bool:
    return Path(path).parent == settings.configs_dir


def _names(directory: Path) -> list[str]:
    try:
        return list_directory(directory)
    except UnreadableFileError:
        return []


def _content(path: Path) -> bytes | None:
    """Return a file's content; an absent one has none."""
    try:
        return read_bounded(path, MAX_BYTES)[0]
    except FileNotFoundError:
        return b""
    except UnreadableFileError:
        return None
