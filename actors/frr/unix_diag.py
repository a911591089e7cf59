"""Which connections to a UNIX socket have lost their other end; the kernel tells, through sock_diag(7).

A server that waits for something else does not read, so it learns of a client's end last. Only connections of our own
network namespace are seen, which is that of the client and not of the server: the vtysh that we start are among them.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Netlink family and message, from linux/netlink.h and linux/sock_diag.h.
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST_DUMP: Final = 0x301
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
#: From linux/unix_diag.h: a set of states with only TCP_ESTABLISHED in it, what to show, and the attributes.
_ESTABLISHED: Final = 1 << 1
_SHOW_NAME_AND_PEER: Final = 0x1 | 0x4
_NAME: Final = 0
_PEER: Final = 2

_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBHIIIII")
_ANSWER: Final = struct.Struct("=BBBBIII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_BUFFER: Final = 1 << 16
#: The kernel answers at once; this is for one that does not know the request and says nothing. Seconds.
_SECONDS: Final = 1.0


def abandoned(path: Path) -> frozenset[int]:
    """Return the inode numbers of the server's ends of connections to ``path`` whose clients are gone.

    Raises OSError when the kernel does not tell.
    """
    resolved = path.resolve()
    # An abstract address begins with a zero byte, is no path and cannot be resolved.
    return frozenset(
        inode
        for inode, name, peer in _connections()
        if peer == 0 and name.startswith("/") and name.endswith(f"/{path.name}") and Path(name).resolve() == resolved
    )


def _connections() -> Iterator[tuple[int, str, int]]:
    """Yield the inode number, the bound address or nothing, and the other end's inode number, which is 0 for none."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(_SECONDS)
        request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ESTABLISHED, 0, _SHOW_NAME_AND_PEER, 0, 0)
        header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
        asking.send(header + request)
        while True:
            for kind, body in _messages(asking.recv(_BUFFER)):
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, os.strerror(number))
                inode = _ANSWER.unpack_from(body)[4]
                attributes = dict(_attributes(body[_ANSWER.size :]))
                name = os.fsdecode(attributes.get(_NAME, b"").rstrip(b"\0"))
                yield inode, name, int.from_bytes(attributes.get(_PEER, b""), sys.byteorder)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        length, kind = _HEADER.unpack_from(data)[:2]
        yield kind, data[_HEADER.size : length]
        data = data[_aligned(length) :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return max((length + 3) & ~3, _ATTRIBUTE.size)
