"""Collects all pieces and writes them into one archive.

A few pieces at a time, each with a deadline and all within one, each text redacted and bounded. The archive is readable
for its owner only from its first byte on, and complete or absent.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from supervisor.process.subprocesses import CommandTimeout

from .redactor import Redactor

#: Returns one piece's text.
Source = Callable[[], Awaitable[str]]

#: Longer than what a piece is made of may take: programs, and the areas that ``doctor`` reads.
PIECE_SECONDS: Final = 45.0
TOTAL_SECONDS: Final = 180.0
#: Twenty programs at once would slow down a loaded node.
AT_A_TIME: Final = 4
#: Bounds in characters. The end of a journal matters, and the beginning of everything else.
PIECE_CHARACTERS: Final = 4 * 1024 * 1024
TOTAL_CHARACTERS: Final = 48 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of the archive."""

    name: str
    text: str
    error: str = ""
    seconds: float = 0.0
    truncated: bool = False


@dataclass
class _Collector:
    redactor: Redactor
    pieces: dict[str, Piece] = field(default_factory=dict)

    async def take(self, name: str, source: Source, limit: trio.CapacityLimiter) -> None:
        async with limit:
            begun = trio.current_time()
            text, error = "", ""
            try:
                with trio.fail_after(PIECE_SECONDS):
                    text = await source()
            except trio.TooSlowError:
                error = f"took longer than {PIECE_SECONDS:g} s"
            except CommandTimeout as late:
                text, error = late.stdout, str(late)
            except Exception as failure:  # noqa: BLE001 - a piece that fails, be it by a bug of ours, must not cost the others
                error = f"{type(failure).__name__}: {failure}"
            self.keep(name, text, error, trio.current_time() - begun)

    def keep(self, name: str, text: str, error: str = "", seconds: float = 0.0) -> None:
        shown = self.redactor.clean(_bounded(text, keep_end=name.startswith("journal")))
        complaint = self.redactor.clean(error)
        if complaint:
            shown = f"{shown}\n*** {complaint}\n"
        self.pieces[name] = Piece(name, shown, complaint, round(seconds, 1), len(text) > PIECE_CHARACTERS)


def _bounded(text: str, *, keep_end: bool) -> str:
    """Cut a text between lines: half a secret would not be recognised afterwards."""
    if len(text) <= PIECE_CHARACTERS:
        return text
    if keep_end:
        start = text.find("\n", len(text) - PIECE_CHARACTERS) + 1 or len(text)
        return f"*** {start} characters are omitted ***\n{text[start:]}"
    end = text.rfind("\n", 0, PIECE_CHARACTERS) + 1
    return f"{text[:end]}*** {len(text) - end} characters are omitted ***\n"


async def collect(
    sources: Mapping[str, Source], redactor: Redactor, *, seconds: float = TOTAL_SECONDS
) -> tuple[Piece, ...]:
    """Return every piece in the order of ``sources``, then ``manifest.json``, which lists the result of each."""
    collector = _Collector(redactor)
    limit = trio.CapacityLimiter(AT_A_TIME)
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for name, source in sources.items():
                nursery.start_soon(collector.take, name, source, limit)
    for name in sources:
        if name not in collector.pieces:
            collector.keep(name, "", f"not collected within {seconds:g} s altogether")
    pieces = _within_total([collector.pieces[name] for name in sources])
    return (*pieces, _manifest(pieces))


def _within_total(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Return the pieces with the last ones emptied that would make the archive too large."""
    kept, total = [], 0
    for piece in pieces:
        total += len(piece.text)
        if total > TOTAL_CHARACTERS:
            total -= len(piece.text)
            why = "omitted: the archive would become too large"
            kept.append(Piece(piece.name, f"*** {why}\n", why, piece.seconds, truncated=True))
        else:
            kept.append(piece)
    return tuple(kept)


def _manifest(pieces: tuple[Piece, ...]) -> Piece:
    entries = [
        {
            "name": piece.name,
            "characters": len(piece.text),
            "seconds": piece.seconds,
            "truncated": piece.truncated,
            "error": piece.error,
        }
        for piece in pieces
    ]
    made = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return Piece("manifest.json", json.dumps({"schema_version": 1, "made": made, "pieces": entries}, indent=1) + "\n")


class BundleError(Exception):
    """The archive cannot be written; the text says why."""


def write_bundle(path: Path, pieces: Sequence[Piece], directory: str) -> int:
    """Write all pieces below one directory inside a new file; return its size in bytes.

    Never overwrites: in a directory that others can write to, an existing file may be a planted link. Raises
    :class:`BundleError` with nothing left behind.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise BundleError(f"{path} already exists") from None
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), 0o600)
            with tarfile.open(fileobj=stream, mode="w:gz") as archive:
                for piece in pieces:
                    _add(archive, f"{directory}/{piece.name}", piece.text.encode(errors="replace"))
            stream.flush()
            os.fsync(stream.fileno())
            return stream.tell()
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise BundleError(f"cannot write {path}: {error.strerror}") from None
        raise


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
    archive.addfile(member, io.BytesIO(content))
