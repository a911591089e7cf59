"""What ``try`` and ``plan`` are given: the whole router configuration as it would be, and how it differs from now.

A directory stands for all router files: those missing from it would be removed. Single files are added to those that
are in force, or replace those of the same name. The result is read by the daemon's own functions, as if the files were
in their place already; problems name the files where they really are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from actors.static_config.node_identity import read_identity
from actors.static_config.state_store import IN_FORCE_FILE
from actors.static_config.trial import Trial, now
from config.node import load_node_config
from config.problems import Problem, Severity, errors
from config.settings import Settings
from config.sources.static_files import PREFIX, SUFFIX, is_router_file, read_remembered
from config.store.json_store import StoreError
from config.store.last_good import LastGood, read_texts
from config.syntax.files import list_directory, read_bounded
from config.syntax.secret_files import SECRETS_DIRECTORY
from config.syntax.yaml_reader import MAX_BYTES

from .exit_codes import CONFIG, NO_INPUT, USAGE, CommandError
from .node_configuration import Configuration, problems_of_files, read_all, resolved
from .paths import require_readable


@dataclass(frozen=True, slots=True)
class Source:
    """One file's text, where it is, and its permission bits."""

    path: Path
    text: str
    mode: int


@dataclass(frozen=True, slots=True)
class CandidateFiles:
    """All files by name, and the names of those that are new or differ, and of those that would be removed."""

    configs_dir: Path
    files: Mapping[str, Source]
    added: tuple[str, ...]
    edited: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """Return the names of the files to write."""
        return tuple(sorted((*self.added, *self.edited)))

    @property
    def texts(self) -> dict[str, str]:
        """Return the texts by the path that they are for."""
        return {str(self.configs_dir / name): source.text for name, source in self.files.items()}

    def trial(self, seconds: float) -> Trial:
        """Return a trial of this that ends after ``seconds``."""
        moment = now()
        return Trial(
            texts=self.texts,
            changed=self.changed,
            removed=self.removed,
            modes={name: self.files[name].mode for name in self.changed},
            boot_id=moment.boot_id,
            deadline=moment.seconds + seconds,
            ends_at=time.time() + seconds,
        )

    def __str__(self) -> str:
        parts = (("adds", self.added), ("changes", self.edited), ("removes", self.removed))
        return "; ".join(f"{verb} {', '.join(names)}" for verb, names in parts if names)


def gather(settings: Settings, paths: Sequence[Path]) -> CandidateFiles:
    """Read what the user named.

    Raises :class:`CommandError` for what cannot be a router configuration, ``UnreadableFileError``.
    """
    current = _read_router_files(settings.configs_dir)
    if any(_directory_of(path).resolve() == settings.configs_dir.resolve() for path in paths):
        raise CommandError(f"{settings.configs_dir} is what is in force; try a copy of it", USAGE)
    if len(paths) == 1 and paths[0].is_dir():
        files = _read_router_files(paths[0])
        if not files:
            raise CommandError(f"{paths[0]} has no {PREFIX}*{SUFFIX}", USAGE)
        _check_secrets(paths[0], settings.configs_dir)
    else:
        _require_directory(settings)
        given = {path.name: _read(_router_file(path)) for path in paths}
        if len(given) < len(paths):
            raise CommandError("two of the files have the same name", USAGE)
        files = {**current, **given}
    return CandidateFiles(
        settings.configs_dir,
        dict(sorted(files.items())),
        added=tuple(sorted(files.keys() - current.keys())),
        edited=tuple(sorted(n for n in files.keys() & current.keys() if files[n].text != current[n].text)),
        removed=tuple(sorted(current.keys() - files.keys())),
    )


def read_candidate(candidate: CandidateFiles, settings: Settings, settings_file: Path) -> Configuration:
    """Return what the candidate results in on this node.

    The problems are all that it has, and as warnings those that it causes API objects. Raises PermissionError.
    """
    require_readable([settings.node_config_file])
    before = read_all(settings_file, remembered=True)
    texts = LastGood().with_texts(candidate.texts)
    read = read_remembered(settings.configs_dir, before.node.name, texts, namespace=settings.namespace)
    after = resolved(settings, before.node, read.resources, read.problems)
    of_api = (problem for problem in after.problems if not problem.origin.path and problem not in before.problems)
    known = read_identity(settings.state_dir / "node.json")
    # The daemon continues with the index that it knows; without one it does not start with this.
    lacking = () if known else errors(load_node_config(settings.node_config_file)[1])
    found = (*lacking, *problems_of_files(after), *(replace(problem, severity=Severity.WARNING) for problem in of_api))
    return replace(after, problems=tuple(_where_it_is(problem, candidate) for problem in found))


def _where_it_is(problem: Problem, candidate: CandidateFiles) -> Problem:
    path = Path(problem.origin.path)
    if path.parent != candidate.configs_dir or path.name not in candidate.files:
        return problem
    return replace(problem, origin=replace(problem.origin, path=str(candidate.files[path.name].path)))


def _directory_of(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _require_directory(settings: Settings) -> None:
    """Refuse to add files to a directory whose file system may not be mounted: its other files are in force still."""
    if settings.configs_dir.exists():
        return
    try:
        in_force = read_texts(settings.state_dir / IN_FORCE_FILE).texts
    except StoreError:
        return
    if any(Path(path).parent == settings.configs_dir for path in in_force):
        what = "mount or create it again, or give a directory with all files"
        raise CommandError(f"{settings.configs_dir} is missing, but its last good files are in force: {what}", USAGE)


def _router_file(path: Path) -> Path:
    if path.is_dir():
        raise CommandError(f"{path} is a directory: give either one directory or files", USAGE)
    if not path.exists():
        raise CommandError(f"{path}: no such file", NO_INPUT)
    if not is_router_file(path.name):
        raise CommandError(f"{path} is not a router configuration: its name must be {PREFIX}*{SUFFIX}", USAGE)
    return path


def _read_router_files(directory: Path) -> dict[str, Source]:
    return {name: _read(directory / name) for name in list_directory(directory) if is_router_file(name)}


def _read(path: Path) -> Source:
    try:
        content, mode = read_bounded(path, MAX_BYTES)
        return Source(path, content.decode("utf-8"), mode)
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file", NO_INPUT) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: is not UTF-8 text", CONFIG) from None


def _check_secrets(given: Path, configs_dir: Path) -> None:
    """Refuse a directory whose password files differ: they take effect by themselves and cannot be tried."""
    for name in list_directory(given / SECRETS_DIRECTORY):
        if _secret(configs_dir, name) != _secret(given, name):
            raise CommandError(
                f"{given / SECRETS_DIRECTORY / name} differs from the one in {configs_dir / SECRETS_DIRECTORY}, "
                "but password files cannot be tried: put the new password there under a new name first",
                USAGE,
            )


def _secret(directory: Path, name: str) -> bytes | None:
    try:
        return read_bounded(directory / SECRETS_DIRECTORY / name, MAX_BYTES)[0]
    except FileNotFoundError:
        return None
