"""Addresses over rtnetlink: dump, add, remove (linux/if_addr.h)."""

from __future__ import annotations

import errno
import struct
from collections import defaultdict
from collections.abc import Mapping
from ipaddress import ip_interface
from socket import AF_INET, AF_INET6
from typing import Final

from config.desired import IPInterface

from ..planning.observed import ADDRESS_PROTOCOL, Address, usual_broadcast
from .message import CREATE, REQUEST, NetlinkRequest, address, as_address, as_int, as_text, attributes, text, u8, u32
from .socket import RouteSocket

RTM_NEWADDR = 20
RTM_DELADDR = 21
RTM_GETADDR = 22

IFA_ADDRESS = 1
IFA_LOCAL = 2
IFA_LABEL = 3
IFA_BROADCAST = 4
IFA_FLAGS = 8
IFA_PROTO = 11

#: ifaddrmsg: family, prefix length, flags, scope, index.
_INFO: Final = struct.Struct("=BBBBI")


class AddressDump:
    """Dumps the addresses of a namespace. A message that was in the dump before as well is not decoded again."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, str], Address] = {}

    def read(self, socket: RouteSocket, names: Mapping[int, str]) -> dict[int, tuple[Address, ...]]:
        """Return the addresses of links by link index; ``names`` are the links' names by index."""
        found: defaultdict[int, list[Address]] = defaultdict(list)
        known: dict[tuple[bytes, str], Address] = {}
        for message in socket.dump(RTM_GETADDR, _INFO.pack(0, 0, 0, 0, 0)):
            index = _INFO.unpack_from(message)[4]
            if index not in names:
                continue
            key = (message, names[index])
            known[key] = decoded = self._known.get(key) or _decode(*key)
            found[index].append(decoded)
        self._known = known
        return {index: tuple(addresses) for index, addresses in found.items()}


def _decode(message: bytes, name: str) -> Address:
    _, length, flags, scope, _ = _INFO.unpack_from(message)
    found = attributes(message, _INFO.size)
    far = as_address(found.get(IFA_ADDRESS))
    near = as_address(found.get(IFA_LOCAL)) or far
    interface = ip_interface(f"{near}/{length}")
    peer = far if far != near else ""
    broadcast = as_address(found.get(IFA_BROADCAST))
    label = as_text(found.get(IFA_LABEL))
    return Address(
        interface,
        flags=as_int(found[IFA_FLAGS]) if IFA_FLAGS in found else flags,
        scope=scope,
        ours=as_int(found.get(IFA_PROTO)) == ADDRESS_PROTOCOL,
        peer=peer,
        broadcast=None if broadcast == usual_broadcast(interface, peer) else broadcast,
        label="" if label == name else label,
    )


def add_address(index: int, new: Address) -> NetlinkRequest:
    """Add an address to a link, with our mark if it is ours."""
    broadcast = usual_broadcast(new.interface, new.peer) if new.broadcast is None else new.broadcast
    parts = [_local(new.interface, new.peer)]
    if broadcast:
        parts.append(address(IFA_BROADCAST, broadcast))
    if new.label:
        parts.append(text(IFA_LABEL, new.label))
    if new.flags:
        parts.append(u32(IFA_FLAGS, new.flags))
    if new.ours:
        parts.append(u8(IFA_PROTO, ADDRESS_PROTOCOL))
    return NetlinkRequest(RTM_NEWADDR, CREATE, _body(index, new.interface, new.scope, *parts), (errno.EEXIST,))


def remove_address(index: int, interface: IPInterface) -> NetlinkRequest:
    """Remove an address from a link."""
    return NetlinkRequest(RTM_DELADDR, REQUEST, _body(index, interface, 0, _local(interface)), (errno.EADDRNOTAVAIL,))


def _local(interface: IPInterface, peer: str = "") -> bytes:
    local = str(interface.ip)
    return address(IFA_LOCAL, local) + address(IFA_ADDRESS, peer or local)


def _body(index: int, interface: IPInterface, scope: int, *parts: bytes) -> bytes:
    family = AF_INET if interface.version == 4 else AF_INET6
    return _INFO.pack(family, interface.network.prefixlen, 0, scope, index) + b"".join(parts)
