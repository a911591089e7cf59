"""Wakes the loop when a namespace's links or addresses change, without decoding what changed.

A netlink socket subscribes to notifications; each one only means "observe again", so a few bytes of it are enough. In
the host's namespace, where every pod causes notifications, only those about devices that concern us count. A full
buffer (ENOBUFS) means that notifications were lost, which is a reason to observe again.

A hundred new VNIs cause thousands of notifications. They do not wake the loop one by one: during a pass they stay in
the buffer, where the pass drops those that its next observation covers, and at other times what has come within
``PAUSE_SECONDS`` is read in one go.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import trio

from actors.lib.metrics.counters import NETLINK_OVERRUNS

from .planning.observed import PASSTHROUGH_HOST, PASSTHROUGH_VRF
from .wire.socket import enlarge_buffer

#: linux/rtnetlink.h: RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR
GROUPS = 0x1 | 0x10 | 0x100
DATAGRAM = 1 << 16
NETLINK_HEADER = 16
#: How long notifications are gathered before the next ones are read.
PAUSE_SECONDS = 0.1
#: Datagrams that are read in one go: a few milliseconds' worth.
MOST = 512
OUR_HOST_NAMES = (b"host-e-", b"host-v-", b"br-hs-", PASSTHROUGH_HOST.encode(), PASSTHROUGH_VRF.encode())


@dataclass(frozen=True, slots=True)
class Interest:
    """Which notifications count: those of links with these indices, or that contain one of these names."""

    indices: frozenset[int]
    names: tuple[bytes, ...]

    @staticmethod
    def of_host(names: Iterable[bytes], indices: Iterable[int]) -> Interest:
        """Return the interest in the host: our own names, and the names and indices given."""
        return Interest(frozenset(indices), (*OUR_HOST_NAMES, *names))

    def counts(self, datagram: bytes) -> bool:
        """Return whether a datagram of one or more messages is interesting."""
        if any(name in datagram for name in self.names):
            return True
        return any(index in self.indices for index in _indices(datagram))


def _indices(datagram: bytes) -> Iterator[int]:
    """Yield each message's link index, the second 32 bits of both ifinfomsg and ifaddrmsg."""
    offset = 0
    while offset + NETLINK_HEADER + 8 <= len(datagram):
        (length,) = struct.unpack_from("=I", datagram, offset)
        (index,) = struct.unpack_from("=i", datagram, offset + NETLINK_HEADER + 4)
        yield index
        if length < NETLINK_HEADER:
            return
        offset += (length + 3) & ~3


def open_monitor() -> socket.socket:
    """Return a subscribed socket of the calling thread's namespace."""
    monitor = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    try:
        enlarge_buffer(monitor)
        monitor.bind((0, GROUPS))
        monitor.setblocking(False)
    except BaseException:
        monitor.close()
        raise
    return monitor


def drain(monitor: socket.socket) -> None:
    """Drop all that is queued: the observation that follows sees its effect."""
    for _ in _queued(monitor):
        pass


def _queued(monitor: socket.socket) -> Iterator[bytes | None]:
    """Yield what is queued, datagram by datagram; None where some were lost."""
    while True:
        try:
            yield monitor.recv(DATAGRAM)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EBADF:
                # Closed: the actor is being stopped while a pass is under way in its thread.
                return
            if error.errno != errno.ENOBUFS:
                raise
            NETLINK_OVERRUNS.count()
            yield None


def something_changed(monitor: socket.socket, wanted: Interest | None) -> bool:
    """Read what is queued, ``MOST`` datagrams at the most; return whether any counts. Without an interest all do."""
    found = False
    for datagram in islice(_queued(monitor), MOST):
        found = found or datagram is None or wanted is None or wanted.counts(datagram)
    return found


async def watch(
    monitor: socket.socket, interest: Callable[[], Interest | None], changed: Callable[[], None], passing: trio.Lock
) -> None:
    """Call ``changed`` when interesting notifications have come, until cancelled.

    Nothing is read while another task holds ``passing``.
    """
    while True:
        await trio.lowlevel.wait_readable(monitor.fileno())
        async with passing:
            if something_changed(monitor, interest()):
                changed()
        await trio.sleep(PAUSE_SECONDS)
