"""Sockets in the file system: one to listen on, with its mode from its first moment, and connections to others."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import trio

#: Between two attempts to connect to a process that has too many connections to accept.
QUEUE_SECONDS: Final = 0.1


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


async def connect(path: Path) -> trio.SocketStream:
    """Connect to a socket; as long as its queue is full, wait. Raises ``OSError``."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        # No event says that there is room again.
        while not _connected(connection, path):  # noqa: ASYNC110
            await trio.sleep(QUEUE_SECONDS)
    except BaseException:
        connection.close()
        raise
    return trio.SocketStream(trio.socket.from_stdlib_socket(connection))


def _connected(connection: socket.socket, path: Path) -> bool:
    """Connect unless the queue is full (EAGAIN, connect(2)), which trio takes for a connection that is on its way."""
    try:
        connection.connect(str(path))
    except BlockingIOError:
        return False
    return True
