"""Neighbours over rtnetlink: which MACs a bridge has learned at its ports, and which addresses the IP stack knows.

And what zebra has put beside them: router MACs of the fabric, and the tunnel endpoint of each.
"""

from __future__ import annotations

import errno
import socket as sockets
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import trio

from actors.lib.tunnel_entries import TunnelEntries
from config.desired import IPAddress

from .message import REQUEST, Attributes, NetlinkRequest, attribute, attributes, u32
from .namespace import NamespaceHandle
from .socket import RouteSocket

RTM_DELNEIGH = 29
RTM_GETNEIGH = 30
AF_UNSPEC = 0
AF_BRIDGE = 7

#: linux/neighbour.h
NDA_DST = 1
NDA_LLADDR = 2
NDA_CACHEINFO = 3
NDA_IFINDEX = 8
NTF_SELF = 0x02
NTF_MASTER = 0x04
NTF_PROXY = 0x08
NTF_EXT_LEARNED = 0x10
NTF_STICKY = 0x40
NUD_STALE = 0x04
NUD_NOARP = 0x40
NUD_PERMANENT = 0x80

#: The entries of so many links are read link by link, those of more with all others: each bridge and each VXLAN device
#: has some of its own.
FEW_LINKS: Final = 8

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


def dump_stations(socket: RouteSocket, ports: Collection[int]) -> list[Station]:
    """Return what bridges have learned at these ports, without what was configured or came from the fabric."""
    return [
        Station(index, found[NDA_LLADDR], _since(found, 2))
        for index, flags, _, found in _ageing(socket, AF_BRIDGE, ports)
        if not flags & (NTF_SELF | NTF_STICKY)
    ]


def dump_neighbors(socket: RouteSocket, links: Collection[int]) -> list[NeighborEntry]:
    """Return the local neighbours on these links."""
    return [
        NeighborEntry(index, found[NDA_LLADDR], ip_address(found[NDA_DST]), bool(state & NUD_STALE))
        for index, flags, state, found in _ageing(socket, AF_UNSPEC, links)
        if not flags & NTF_PROXY and NDA_DST in found
    ]


def forget_station(port: int, mac: bytes) -> NetlinkRequest:
    """Have a bridge forget a MAC that it has at a port; one that it has elsewhere by now stays.

    Tolerated: it has none (ENOENT), the port is gone (ENODEV) or is no bridge's any more (EINVAL).
    """
    body = _INFO.pack(AF_BRIDGE, port, 0, NTF_MASTER, 0) + attribute(NDA_LLADDR, mac)
    return NetlinkRequest(RTM_DELNEIGH, REQUEST, body, (errno.ENOENT, errno.ENODEV, errno.EINVAL))


async def tunnel_entries(namespace: Path, bridges: Collection[str], vxlans: Collection[str]) -> TunnelEntries:
    """Return the router MACs of a namespace, see :data:`ReadEntries`. NamespaceMissing, KernelRefusal."""
    return await trio.to_thread.run_sync(partial(_read, namespace, bridges, vxlans))


def _read(namespace: Path, bridges: Collection[str], vxlans: Collection[str]) -> TunnelEntries:
    """Open the namespace only while it is read: an open one would outlive its deletion, with the NIC in it."""
    handle = NamespaceHandle("entries", namespace)
    try:
        return handle.call(partial(_tunnel_entries, bridges=bridges, vxlans=vxlans))
    finally:
        handle.close()


def _tunnel_entries(socket: RouteSocket, *, bridges: Collection[str], vxlans: Collection[str]) -> TunnelEntries:
    endpoints = frozenset(_with_addresses(socket, AF_BRIDGE, vxlans))
    neighbors = _with_addresses(socket, AF_UNSPEC, bridges)
    return TunnelEntries(frozenset((bridge, address, mac) for bridge, mac, address in neighbors), endpoints)


def _with_addresses(socket: RouteSocket, family: int, links: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the link, the MAC and the address of entries that have both."""
    names = {index: name for name in links if (index := link_index(name))}
    for index, _, _, found in _entries(socket, family, names):
        address = found.get(NDA_DST, b"")
        if len(address) in (4, 16):
            text = sockets.inet_ntop(sockets.AF_INET if len(address) == 4 else sockets.AF_INET6, address)
            yield names[index], found[NDA_LLADDR].hex(":"), text


def link_index(name: str) -> int:
    """Return the index of a link of the calling thread's namespace; 0 for a link that does not exist."""
    try:
        return sockets.if_nametoindex(name)
    except OSError:
        return 0


def _ageing(socket: RouteSocket, family: int, links: Collection[int]) -> Iterator[tuple[int, int, int, Attributes]]:
    """Yield the entries that may age: neither configured ones nor those of the fabric."""
    return _entries(socket, family, links, without=(NTF_EXT_LEARNED, NUD_PERMANENT | NUD_NOARP))


def _entries(
    socket: RouteSocket, family: int, links: Collection[int], *, without: tuple[int, int] = (0, 0)
) -> Iterator[tuple[int, int, int, Attributes]]:
    """Yield index, flags, state and attributes of entries with a MAC, but for those with certain flags or states."""
    for message in _dump(socket, family, links):
        _, index, state, flags, _ = _INFO.unpack_from(message)
        if index not in links or flags & without[0] or state & without[1]:
            continue
        found = attributes(message, _INFO.size)
        if len(found.get(NDA_LLADDR, b"")) == 6:
            yield index, flags, state, found


def _dump(socket: RouteSocket, family: int, links: Collection[int]) -> Iterator[bytes]:
    """Yield entries, at least those of these links."""
    every = _INFO.pack(family, 0, 0, 0, 0)
    bodies = [every] if len(links) > FEW_LINKS else [every + u32(NDA_IFINDEX, index) for index in links]
    for body in bodies:
        yield from socket.dump(RTM_GETNEIGH, body)


def _since(found: Attributes, which: int) -> float:
    times = found.get(NDA_CACHEINFO, b"")
    return _TIMES.unpack_from(times)[which] / TICKS_PER_SECOND if len(times) >= _TIMES.size else 0.0
