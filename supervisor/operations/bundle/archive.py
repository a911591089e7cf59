"""Writes the archive: readable for its owner only from its first byte on, complete or absent."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from .collector import Piece


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
        raise BundleError(f"{path} exists already") from None
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
