"""Files that are replaced whole or not at all.

A reader of ``path`` finds the complete old or the complete new content, at any moment and after any crash. The new file
has its final mode and owner before its first byte is written, so a secret is never readable by others, not even
briefly.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final

from ..logs import message_ids
from ..logs.logger import get_logger

log = get_logger("files")

#: Temporary files are called ``.<name>.<random>.tmp``: hidden, and recognisable for :func:`remove_stale`.
_SUFFIX: Final = ".tmp"


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
    """Replace the content of ``path`` durably. Text is written as UTF-8.

    ``mode`` is exact, whatever the umask; ``owner`` is ``(uid, gid)``, by default the process's own. A symbolic link at
    ``path`` is itself replaced. Raises :class:`OSError` with ``path`` untouched and nothing left behind.
    """
    content = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        _write_new(temporary, content, mode, owner)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def remove_stale(path: Path) -> None:
    """Remove temporary files that a killed writer of ``path`` left behind; a disk that refuses keeps them.

    For the single writer of ``path`` only, and not during its :func:`write_atomic`.
    """
    temporary = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\{_SUFFIX}")
    try:
        for entry in path.parent.iterdir() if path.parent.is_dir() else ():
            if temporary.fullmatch(entry.name):
                entry.unlink(missing_ok=True)
    except OSError as error:
        # They do no harm: each has a name of its own.
        message = "cannot remove the temporary file of an interrupted write"
        log.warning(message, message_id=message_ids.LEFTOVER, file=path, error=error)


def _write_new(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    # The umask can only narrow the mode here; it is widened to the wanted one when the owner is right.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode & 0o600)
    try:
        if owner is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make what was renamed or removed in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
