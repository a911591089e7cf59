"""A listening socket in the file system, with its final mode from its first moment."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio


@contextmanager
def listening(path: Path, *, mode: int, backlog: int) -> Iterator[trio.SocketListener]:
    """Make the socket under a temporary name with its final mode, then put it in place of whatever is there.

    The mode of the unbound socket is the mode of the file (Linux, net/unix/af_unix.c), so there is no moment with a
    wider one. A socket left behind by a dead daemon is replaced: the instance lock excludes a running one. Raises
    ``OSError`` when the socket cannot be made.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as unbound:
        os.fchmod(unbound.fileno(), mode)
        unbound.bind(str(temporary))
        temporary.chmod(mode)  # the process's umask may have taken the group's bits
        unbound.listen(backlog)
        temporary.rename(path)
        inode = path.stat().st_ino
        try:
            yield trio.SocketListener(trio.socket.from_stdlib_socket(unbound))
        finally:
            _remove_own(path, inode)


def _remove_own(path: Path, inode: int) -> None:
    """Remove the socket unless a successor has already put its own there."""
    with suppress(FileNotFoundError):
        if path.stat().st_ino == inode:
            path.unlink()
