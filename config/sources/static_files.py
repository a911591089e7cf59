"""Reads the directory of router configuration files into one complete value.

    directory, last good texts and passwords -> one FileContent per file -> StaticRead with the new last good texts

Complete means: never less than what is known. A broken file contributes its last good content, an unreadable directory
that of all its files, an unusable password file its last good password, and each is reported. Only a file that
verifiably does not exist contributes nothing. A missing directory may be one whose file system is not mounted: if it
had files, they count until a reload confirms that they were removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from config.problems import Kind, Origin, Problem, Reason, Severity
from config.resources import Resource, UnknownContent
from config.store.last_good import LastGood
from config.syntax.files import UnreadableFileError, read_bounded, scan_directory
from config.syntax.secret_files import Passwords
from config.syntax.yaml_reader import MAX_BYTES

from .naming import resource_name, unique_names
from .router_file import FileContent, parse_router_file

PREFIX: Final = "openpe_"
SUFFIX: Final = ".yaml"
_LIKELY_SUFFIXES: Final = frozenset({"yaml", "yml", "json"})
#: What upstream keeps in the same directory.
_OTHER_FILES: Final = frozenset({"node-config.yaml"})
_KEPT: Final = "its last good content stays in force"
_NOTHING_KNOWN: Final = "there is no last good content"
_NOTHING: Final = "it has no last good content"
_ABSENT: Final = "no longer exists; create it again, or reload to confirm that its files are removed"


@dataclass(frozen=True, slots=True)
class StaticRead:
    """All resources from files. ``last_good`` is for the next reading, and to store."""

    resources: tuple[Resource, ...]
    problems: tuple[Problem, ...]
    last_good: LastGood


#: The last content of each file, with the node, namespace and mode that it was parsed for. A file without changes is
#: not parsed again, unless it refers to password files, which are read each time.
ParsedFiles = dict[Path, tuple[tuple[str, str, int], FileContent]]


def read_directory(
    path: Path,
    node_name: str,
    previous: LastGood,
    *,
    namespace: str = "openperouter-system",
    absence_confirmed: bool = False,
    parsed: ParsedFiles | None = None,
) -> StaticRead:
    """Read ``openpe_*.yaml`` in lexical order; never raises.

    A directory that does not exist has no files when none were known in it, or with ``absence_confirmed``. ``parsed``
    is kept from one reading to the next.
    """
    parsed = {} if parsed is None else parsed
    reader = _Reader(node_name, namespace, previous, Passwords(previous.secrets), parsed)
    problems: list[Problem] = []
    known = sorted(text_path for text_path in previous.texts if Path(text_path).parent == path)
    try:
        present = _names(path, absence_confirmed=absence_confirmed or not known)
        problems += ignored_files(path, present)
        files = list(reader.read_all(path / name for name in present if is_router_file(name)))
    except UnreadableFileError as error:
        kept = f"the last good content of {len(known)} files stays in force" if known else _NOTHING_KNOWN
        problems.append(error.problem(in_force=kept))
        files = [reader.kept(Path(text_path)) for text_path in known]
        if not files:
            files = [FileContent(path, usable=False)]
    for gone in parsed.keys() - {file.path for file in files}:
        del parsed[gone]
    return _assemble(files, problems, reader)


def _names(path: Path, *, absence_confirmed: bool) -> list[str]:
    """Return the names in a directory. Raises :class:`UnreadableFileError`."""
    try:
        return scan_directory(path)
    except FileNotFoundError:
        if not absence_confirmed:
            raise UnreadableFileError(path, _ABSENT) from None
        return []


def is_router_file(name: str) -> bool:
    """Whether a file of this name is read."""
    return name.startswith(PREFIX) and name.endswith(SUFFIX)


def ignored_files(directory: Path, names: Iterable[str]) -> Iterator[Problem]:
    """Yield a warning for each file that looks as if it were to be read. Other programs' files are their own affair."""
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if is_router_file(name) or name.startswith(".") or suffix not in _LIKELY_SUFFIXES or name in _OTHER_FILES:
            continue
        hint = (
            f"rename it to {stem}{SUFFIX}" if name.startswith(PREFIX) else f"router files are named {PREFIX}*{SUFFIX}"
        )
        origin = Origin(str(directory / name))
        yield Problem(f"ignored: {hint}", origin, severity=Severity.WARNING, reason=Reason.FILE_INVALID)


def read_remembered(
    path: Path, node_name: str, remembered: LastGood, *, namespace: str = "openperouter-system"
) -> StaticRead:
    """Return what the texts in ``remembered`` define, whatever the files in ``path`` contain now.

    Password files are still read; a remembered password counts where its file cannot be used.
    """
    reader = _Reader(node_name, namespace, remembered, Passwords(remembered.secrets))
    known = sorted(text_path for text_path in remembered.texts if Path(text_path).parent == path)
    return _assemble([reader.kept(Path(text_path)) for text_path in known], [], reader)


def combine(files: Sequence[FileContent]) -> tuple[list[Resource], list[Problem]]:
    """Return the resources of all files, each with a name of its own, and all problems."""
    entries = unique_names((_word(file.path), file.entries) for file in files)
    resources = [entry.resource for renamed in entries for entry in renamed]
    problems: list[Problem] = []
    for file, renamed in zip(files, entries, strict=True):
        problems += (*file.problems, *(problem for entry in renamed for problem in entry.problems))
    return resources, problems


def _assemble(files: Sequence[FileContent], problems: Iterable[Problem], reader: _Reader) -> StaticRead:
    resources, found = combine(files)
    resources += (reader.placeholder(file.path) for file in files if not file.usable)
    texts = {str(file.path): file.text for file in files if file.text is not None}
    last_good = reader.previous.with_texts(texts, reader.passwords.used)
    return StaticRead(tuple(resources), (*problems, *found), last_good)


def _word(path: Path) -> str:
    """Return the distinctive part of a file's name: ``red`` for ``openpe_red.yaml``."""
    return path.name.removeprefix(PREFIX).removesuffix(SUFFIX)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads files one by one, falling back on their last good texts."""

    node_name: str
    namespace: str
    previous: LastGood
    passwords: Passwords
    parsed: ParsedFiles = field(default_factory=dict)

    def read_all(self, paths: Iterable[Path]) -> Iterator[FileContent]:
        """Read the files; one that vanished since it was listed is skipped."""
        for path in paths:
            file = self._read(path)
            if file is not None:
                yield file

    def _read(self, path: Path) -> FileContent | None:
        try:
            content, mode = read_bounded(path, MAX_BYTES)
        except FileNotFoundError:
            if not path.is_symlink():
                return None
            message = "is a symbolic link to a file that does not exist"
            return self._broken(path, (Problem(message, Origin(str(path)), reason=Reason.FILE_INVALID),))
        except UnreadableFileError as error:
            return self._broken(path, (error.problem(),))
        conditions = (self.node_name, self.namespace, mode)
        known, file = self.parsed.get(path, ((), None))
        if file is not None and known == conditions and (file.text or "").encode() == content:
            return file
        self.parsed.pop(path, None)
        self.passwords.asked = False
        file = self._parse(content, path, mode)
        if not file.usable:
            return self._broken(path, file.problems)
        file = replace(file, text=content.decode("utf-8"))
        if not self.passwords.asked:
            self.parsed[path] = conditions, file
        return file

    def _broken(self, path: Path, problems: Iterable[Problem]) -> FileContent:
        """Return the last good content of a broken file, or nothing, with its present problems."""
        text = self.previous.texts.get(str(path))
        in_force = _NOTHING if text is None else _KEPT
        explained = tuple(replace(problem, in_force=in_force) for problem in problems)
        if text is None:
            return FileContent(path, problems=explained, usable=False)
        kept = self.kept(path)
        return replace(kept, problems=(*explained, *kept.problems))

    def kept(self, path: Path) -> FileContent:
        """Return the last good content of a file, which must be known."""
        text = self.previous.texts[str(path)]
        # A newer version may refuse what an older one accepted; then the file's content is unknown after all.
        return replace(self._parse(text.encode("utf-8"), path), text=text)

    def _parse(self, content: bytes, path: Path, mode: int = 0o600) -> FileContent:
        return parse_router_file(
            content, path, self.node_name, namespace=self.namespace, mode=mode, passwords=self.passwords
        )

    def placeholder(self, path: Path) -> Resource:
        """Return the underlay that may be in a file of unknown content."""
        label = f"unknown-{_word(path)}"
        name = resource_name(self.node_name, label)
        return Resource(Kind.UNDERLAY, self.namespace, name, Origin(path=str(path)), UnknownContent(), label)
