"""Files that are replaced whole or not at all.

A reader of ``path`` finds the complete old or the complete new content, at any moment and after any crash. The new file
has its final mode and owner before its first byte is written, so a secret is never readable by others, not even
briefly.
"""

from __future__ import annotations

import os
import re
import secrets
import struct
from pathlib import Path
from typing import Final

from ..logs import message_ids
from ..logs.logger import get_logger

log = get_logger("files")

#: Temporary files are called ``.<name>.<random>.tmp``: hidden, and recognisable for :func:`remove_stale`.
_SUFFIX: Final = ".tmp"
#: linux/posix_acl_xattr.h: a version, then tag, permissions and id of each entry; in this order (posix_acl_valid).
_ACL: Final = "system.posix_acl_access"
_ACL_VERSION: Final = struct.pack("<I", 2)
_ACL_ENTRY: Final = struct.Struct("<HHI")
_USER_OBJ, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x04, 0x08, 0x10, 0x20
_NO_ID: Final = 0xFFFFFFFF


def write_atomic(
    path: Path, data: bytes | str, *, mode: int = 0o600, owner: tuple[int, int] | None = None, reader: int | None = None
) -> None:
    """Replace the content of ``path`` durably. Text is written as UTF-8.

    ``mode`` is exact, whatever the umask; ``owner`` is ``(uid, gid)``, by default the process's own. ``reader`` is the
    one group that may read the file, with a mode that lets the group read: for a process that may not give files away.
    A symbolic link at ``path`` is itself replaced. Raises :class:`OSError` with ``path`` untouched and nothing left
    behind.
    """
    content = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        _write_new(temporary, content, mode, owner, reader)
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


def _write_new(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None, reader: int | None) -> None:
    # The umask can only narrow the mode here; it is widened to the wanted one when the owner is right.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode & 0o600)
    try:
        if owner is not None:
            os.fchown(descriptor, *owner)
        if reader is not None:
            _let_read(descriptor, reader)
        os.fchmod(descriptor, mode)
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _let_read(descriptor: int, group: int) -> None:
    """Let a group read a file of ours: as the file's group if that is possible, else by an access control list.

    The daemon's sandbox has no CAP_CHOWN. A directory with the set-group-ID bit gives its group to new files.
    """
    if os.fstat(descriptor).st_gid == group:
        return
    try:
        os.fchown(descriptor, -1, group)
    except PermissionError:
        # Read and write for us, read for the group; the mask is the mode's, which is set next.
        entries = ((_USER_OBJ, 6, _NO_ID), (_GROUP_OBJ, 0, _NO_ID), (_GROUP, 4, group), (_MASK, 4, _NO_ID))
        packed = b"".join(_ACL_ENTRY.pack(*entry) for entry in (*entries, (_OTHER, 0, _NO_ID)))
        os.setxattr(descriptor, _ACL, _ACL_VERSION + packed)


def sync_directory(directory: Path) -> None:
    """Make what was renamed or removed in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
