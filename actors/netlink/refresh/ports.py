"""The router's ports towards hosts: packet sockets on them, and what its bridges and IP stack have learned.

A socket is bound to one port (``pe-e-VNI``) and receives only ARP and neighbour discovery on it. Frames wait for the
next poll in a small buffer and are dropped beyond it: a storm costs the router nothing.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ..planning.observed import gateway_mac, router_bridge, router_veth
from ..wire.namespace import NamespaceHandle
from ..wire.neighbors import dump_neighbors, dump_stations, forget_station, link_index
from ..wire.socket import KernelRefusal, RouteSocket
from .hosts import Host, Look, Probe, Segment
from .packets import FILTER, LONGEST, question, sender_of

ETH_P_ALL = 0x0003
#: linux/if_packet.h, asm-generic/socket.h
SOL_PACKET = 263
PACKET_IGNORE_OUTGOING = 23
SO_ATTACH_FILTER = 26
#: Bytes of a port's buffer: some hundred frames between two polls.
BUFFER: Final = 1 << 17
#: Frames of one port that are read in one poll.
MOST_FRAMES: Final = 512
#: Errors of a port that is gone or down, or whose queue is full: the next poll or probe succeeds.
PASSING: Final = frozenset({errno.ENODEV, errno.ENXIO, errno.ENETDOWN, errno.ENOBUFS, errno.EAGAIN, errno.EMSGSIZE})


class RefreshPorts(Protocol):
    """What the refresher reads and sends; all methods block, except :meth:`ask` and :meth:`is_current`."""

    def look(self, segments: Iterable[Segment]) -> Look:
        """Follow the segments' ports and return what is known about their hosts. Raises NamespaceMissing."""

    def forget(self, hosts: Iterable[Host]) -> None:
        """Have the bridges forget hosts' MACs until the next frame of each."""

    def ask(self, probe: Probe) -> bool:
        """Send a probe; return whether it was sent."""

    def is_current(self) -> bool:
        """Return whether the open namespace, if any, is still the one with that name."""

    def close(self) -> None:
        """Release the namespace; the next poll opens it again."""


@dataclass(frozen=True, slots=True)
class _Port:
    """A port's socket, the port's and its bridge's index, and the port's MAC."""

    socket: socket.socket
    index: int
    bridge: int
    mac: bytes


class RouterPorts:
    """The ports of the router in a named namespace."""

    def __init__(self, namespace: Path) -> None:
        self._path = namespace
        self._router: NamespaceHandle | None = None
        self._ports: dict[int, _Port] = {}
        self._routed: frozenset[int] = frozenset()

    def is_current(self) -> bool:
        """Return whether the open namespace, if any, is still the one with that name."""
        return self._router is None or self._router.is_current()

    def close(self) -> None:
        """Close all sockets: any of them would keep the namespace alive, with the NIC in it."""
        ports, self._ports = self._ports, {}
        for port in ports.values():
            port.socket.close()
        router, self._router = self._router, None
        if router is not None:
            router.close()

    def look(self, segments: Iterable[Segment]) -> Look:
        """Follow the segments' ports and return what is known about their hosts."""
        if not self.is_current():
            self.close()
        if self._router is None:
            self._router = NamespaceHandle("refresh", self._path)
        wanted = {segment.vni: segment for segment in segments}
        self._routed = frozenset(vni for vni, segment in wanted.items() if segment.gateways)
        return self._router.call(lambda netlink: self._look(netlink, wanted))

    def _look(self, netlink: RouteSocket, wanted: Iterable[int]) -> Look:
        self._follow(wanted)
        seen = tuple(
            found
            for vni, port in self._ports.items()
            for frame in _frames(port.socket)
            if (found := sender_of(vni, frame)) is not None
        )
        by_port = {port.index: vni for vni, port in self._ports.items()}
        by_bridge = {port.bridge: vni for vni, port in self._ports.items()}
        stations, neighbors = dump_stations(netlink, by_port), dump_neighbors(netlink, by_bridge)
        return Look(
            {Host(by_port[one.port], one.mac): one.silent for one in stations},
            {(Host(by_bridge[one.link], one.mac), one.address): one.stale for one in neighbors},
            seen,
            {vni: port.index for vni, port in self._ports.items()},
        )

    def _follow(self, wanted: Iterable[int]) -> None:
        """Open a socket on each port that is new, and close those of removed ports."""
        indices = {vni: (link_index(router_veth(vni)), link_index(router_bridge(vni))) for vni in wanted}
        for vni, port in list(self._ports.items()):
            if indices.get(vni) != (port.index, port.bridge):
                del self._ports[vni]
                port.socket.close()
        for vni, (index, bridge) in indices.items():
            if index and bridge and vni not in self._ports:
                opened = _open(router_veth(vni))
                if opened is not None:
                    self._ports[vni] = _Port(opened, index, bridge, opened.getsockname()[4])

    def forget(self, hosts: Iterable[Host]) -> None:
        """Have the bridges forget hosts' MACs until the next frame of each."""
        requests = [forget_station(self._ports[host.vni].index, host.mac) for host in hosts if host.vni in self._ports]
        if self._router is not None and requests:
            for answer in self._router.call(lambda netlink: netlink.send(requests)):
                if isinstance(answer, KernelRefusal):
                    raise answer

    def ask(self, probe: Probe) -> bool:
        """Send a probe out of the host's port; return False if it could not be sent now."""
        vni = probe.host.vni
        port = self._ports.get(vni)
        if port is None:
            return False
        # A gateway's address never comes with another MAC than the one that all nodes have.
        own = bytes.fromhex(gateway_mac(vni).replace(":", "")) if vni in self._routed else port.mac
        try:
            port.socket.send(question(probe, own))
        except OSError as error:
            if error.errno not in PASSING:
                raise KernelRefusal(error.errno or errno.EIO, f"{router_veth(vni)}: {error}") from error
            return False
        return True


#: linux/filter.h sock_filter.
_INSTRUCTION: Final = struct.Struct("=HBBI")


class _Program(ctypes.Structure):
    """linux/filter.h sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _open(name: str) -> socket.socket | None:
    """Return a packet socket that takes what :data:`.packets.FILTER` passes; None for a port that no longer exists."""
    # Without a protocol it takes nothing until it is bound, when the filter is in place.
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0)
    except OSError as error:
        raise KernelRefusal(error.errno or errno.EIO, f"a packet socket for {name}: {error.strerror}") from error
    try:
        code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in FILTER)
        opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(_Program(len(FILTER), code)))
        opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        opened.bind((name, ETH_P_ALL))
    except OSError as error:
        opened.close()
        if error.errno not in PASSING:
            raise KernelRefusal(error.errno or errno.EIO, f"a packet socket on {name}: {error.strerror}") from error
        return None
    return opened


def _frames(opened: socket.socket) -> Iterator[bytes]:
    """Yield the beginnings of received frames, at most ``MOST_FRAMES``."""
    for _ in range(MOST_FRAMES):
        try:
            yield opened.recv(LONGEST)
        except OSError as error:
            if error.errno in PASSING:
                return
            raise
