"""Neighbours over rtnetlink: which MACs a bridge has learned at its ports, and which addresses the IP stack knows."""

from __future__ import annotations

import errno
import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from config.desired import IPAddress

from .message import REQUEST, Attributes, NetlinkRequest, attribute, attributes
from .socket import RouteSocket

RTM_DELNEIGH = 29
RTM_GETNEIGH = 30
AF_UNSPEC = 0
AF_BRIDGE = 7

#: linux/neighbour.h
NDA_DST = 1
NDA_LLADDR = 2
NDA_CACHEINFO = 3
NTF_SELF = 0x02
NTF_MASTER = 0x04
NTF_PROXY = 0x08
NTF_EXT_LEARNED = 0x10
NTF_STICKY = 0x40
NUD_STALE = 0x04
NUD_NOARP = 0x40
NUD_PERMANENT = 0x80

#: ndmsg: family, interface index, state, flags, type.
_INFO: Final = struct.Struct("=BxxxiHBB")
#: nda_cacheinfo: confirmed, used, updated; each the time since, in clock ticks.
_TIMES: Final = struct.Struct("=III")
#: USER_HZ, in which the kernel gives times to programs on all architectures that Debian has.
TICKS_PER_SECOND = 100


@dataclass(frozen=True, slots=True)
class Station:
    """A MAC that a bridge has learned at a port; ``silent`` is the time since its last frame, seconds."""

    port: int
    mac: bytes
    silent: float


@dataclass(frozen=True, slots=True)
class NeighborEntry:
    """An address that the IP stack has learned on a link; ``stale``: nothing has confirmed it recently."""

    link: int
    mac: bytes
    address: IPAddress
    stale: bool


def dump_stations(socket: RouteSocket, ports: Container[int]) -> list[Station]:
    """Return what bridges have learned at these ports, without what was configured or came from the fabric."""
    return [
        Station(index, found[NDA_LLADDR], _since(found, 2))
        for index, flags, _, found in _entries(socket, AF_BRIDGE, ports)
        if not flags & (NTF_SELF | NTF_STICKY)
    ]


def dump_neighbors(socket: RouteSocket, links: Container[int]) -> list[NeighborEntry]:
    """Return the local neighbours on these links."""
    return [
        NeighborEntry(index, found[NDA_LLADDR], ip_address(found[NDA_DST]), bool(state & NUD_STALE))
        for index, flags, state, found in _entries(socket, AF_UNSPEC, links)
        if not flags & NTF_PROXY and NDA_DST in found
    ]


def forget_station(port: int, mac: bytes) -> NetlinkRequest:
    """Have a bridge forget a MAC that it has at a port; one that it has elsewhere by now stays.

    Tolerated: it has none (ENOENT), the port is gone (ENODEV) or is no bridge's any more (EINVAL).
    """
    body = _INFO.pack(AF_BRIDGE, port, 0, NTF_MASTER, 0) + attribute(NDA_LLADDR, mac)
    return NetlinkRequest(RTM_DELNEIGH, REQUEST, body, (errno.ENOENT, errno.ENODEV, errno.EINVAL))


def _entries(socket: RouteSocket, family: int, links: Container[int]) -> Iterator[tuple[int, int, int, Attributes]]:
    """Yield index, flags, state and attributes of entries with a MAC that may age."""
    for message in socket.dump(RTM_GETNEIGH, _INFO.pack(family, 0, 0, 0, 0)):
        _, index, state, flags, _ = _INFO.unpack_from(message)
        if index not in links or flags & NTF_EXT_LEARNED or state & (NUD_PERMANENT | NUD_NOARP):
            continue
        found = attributes(message, _INFO.size)
        if len(found.get(NDA_LLADDR, b"")) == 6:
            yield index, flags, state, found


def _since(found: Attributes, which: int) -> float:
    times = found.get(NDA_CACHEINFO, b"")
    return _TIMES.unpack_from(times)[which] / TICKS_PER_SECOND if len(times) >= _TIMES.size else 0.0
