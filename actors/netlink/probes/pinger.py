"""Sends ICMP echo requests from the router's namespace, bound to a VRF, and waits for the answers.

The sockets are ICMP datagram sockets (icmp(7)): the kernel assigns the identifier and delivers only matching replies.
Opening one needs no capability, only a group within ``net.ipv4.ping_group_range``. They are closed after each round:
an open socket would keep a deleted namespace alive, with the NIC in it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import trio

from ..wire.namespace import enter
from .schedule import PingResult, ProbeTarget

#: Timeout of a reply, seconds.
ANSWER_SECONDS: Final = 1.0
#: ICMP types of echo request and reply (RFC 792, RFC 4443).
_TYPES: Final = {4: (8, 0), 6: (128, 129)}
_FAMILIES: Final = {
    4: (socket.AF_INET, socket.IPPROTO_ICMP),
    6: (socket.AF_INET6, socket.IPPROTO_ICMPV6),
}
#: Type, code, checksum, identifier and sequence number; the kernel fills in checksum and identifier.
_HEADER: Final = struct.Struct("!BBHHH")
_DATA: Final = b"openperouter"


class Pinger(Protocol):
    """Sends one round of pings."""

    async def ping(self, targets: Sequence[ProbeTarget]) -> list[PingResult]:
        """Ping each target once, all at the same time. Raises NamespaceMissing if there is no router."""


class RouterPinger:
    """Pings from a named namespace."""

    def __init__(self, namespace: Path) -> None:
        self._namespace = namespace

    async def ping(self, targets: Sequence[ProbeTarget]) -> list[PingResult]:
        """Ping each target once, all at the same time. Raises NamespaceMissing if there is no router."""
        opened = await trio.to_thread.run_sync(partial(_open, self._namespace, targets))
        answers = [PingResult()] * len(targets)

        async def ask(number: int) -> None:
            answers[number] = await _ask(opened[number], targets[number])

        try:
            async with trio.open_nursery() as nursery:
                for number in range(len(targets)):
                    nursery.start_soon(ask, number)
        finally:
            for one in opened:
                if isinstance(one, socket.socket):
                    one.close()
        return answers


def _open(namespace: Path, targets: Sequence[ProbeTarget]) -> list[socket.socket | OSError]:
    """Open a socket for each target, in a thread of its own: a thread cannot leave the namespace again."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="netns-probes") as inside:
        inside.submit(enter, namespace).result()
        return inside.submit(lambda: [_socket(target) for target in targets]).result()


def _socket(target: ProbeTarget) -> socket.socket | OSError:
    family, protocol = _FAMILIES[target.address.version]
    try:
        opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
    except OSError as error:
        return error
    try:
        if target.vrf:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, target.vrf.encode() + b"\0")
    except OSError as error:
        opened.close()
        return error
    return opened


async def _ask(opened: socket.socket | OSError, target: ProbeTarget) -> PingResult:
    if isinstance(opened, OSError):
        return PingResult(problem=opened.strerror or "no socket")
    request, reply = _TYPES[target.address.version]
    packet = _HEADER.pack(request, 0, 0, 0, 1) + _DATA
    asking = trio.socket.from_stdlib_socket(opened)
    began = trio.current_time()
    with trio.move_on_after(ANSWER_SECONDS):
        try:
            await asking.sendto(packet, (str(target.address), 0))
            while True:
                answer, sender = await asking.recvfrom(512)
                if answer[:1] == bytes([reply]) and sender[0] == str(target.address):
                    return PingResult(rtt=trio.current_time() - began)
        except OSError as error:
            return PingResult(problem=error.strerror or type(error).__name__)
    return PingResult()
