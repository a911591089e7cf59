"""Links over rtnetlink: dump, create, change, move, delete (linux/if_link.h)."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import ip_address
from operator import itemgetter
from typing import Final, Literal

from ..planning.observed import OUR_GROUPS, OWNED_GROUP, Link, LinkKind, VxlanAttributes
from ..planning.steps import ChangeLink
from ..planning.wanted import WantedLink
from .message import (
    ATTRIBUTE,
    CREATE,
    NESTED,
    NLM_F_REQUEST,
    NUMBER,
    REQUEST,
    NetlinkRequest,
    address,
    as_address,
    as_int,
    as_text,
    attribute,
    attributes,
    pairs,
    text,
    u8,
    u32,
)
from .socket import RouteSocket

RTM_NEWLINK = 16
RTM_DELLINK = 17
RTM_GETLINK = 18
RTM_SETLINK = 19
RTM_NEWLINKPROP = 108

IFLA_ADDRESS = 1
IFLA_IFNAME = 3
IFLA_MTU = 4
IFLA_LINK = 5
IFLA_MASTER = 10
IFLA_LINKINFO = 18
IFLA_IFALIAS = 20
IFLA_AF_SPEC = 26
IFLA_GROUP = 27
IFLA_NET_NS_FD = 28
IFLA_EXT_MASK = 29
IFLA_PROP_LIST = 52
IFLA_ALT_IFNAME = 53

IFLA_INFO_KIND = 1
IFLA_INFO_DATA = 2
IFLA_INFO_SLAVE_KIND = 4
IFLA_INFO_SLAVE_DATA = 5

IFLA_VRF_TABLE = 1
VETH_INFO_PEER = 1
IFLA_BRPORT_NEIGH_SUPPRESS = 32
IFLA_VXLAN_ID = 1
IFLA_VXLAN_LINK = 3
IFLA_VXLAN_LOCAL = 4
IFLA_VXLAN_LEARNING = 7
IFLA_VXLAN_PORT = 15
IFLA_VXLAN_LOCAL6 = 17

AF_INET = 2
IFLA_INET_CONF = 1
#: Where IFLA_INET_CONF has ``arp_ignore`` (linux/ip.h IPV4_DEVCONF_ARP_IGNORE, which counts from 1, in numbers of 32
#: bits), in bytes.
ARP_IGNORE: Final = slice(18 * 4, 19 * 4)
AF_INET6 = 10
IFLA_INET6_ADDR_GEN_MODE = 8
#: linux/if_link.h IN6_ADDR_GEN_MODE_NONE
ADDR_GEN_NONE = 1

_Volatile = Literal[True] | dict[int, "_Volatile"]
#: Attributes that change without anybody's doing, with the nests that they are in: IFLA_STATS and IFLA_STATS64; a
#: bridge port's timers; of IFLA_AF_SPEC IPv6's flags.
VOLATILE: Final[dict[int, _Volatile]] = {
    7: True,
    23: True,
    IFLA_LINKINFO: {IFLA_INFO_SLAVE_DATA: {21: True, 22: True, 23: True}},
    IFLA_AF_SPEC: {AF_INET6: {1: True}},
}
#: The same for a bridge, which has timers and a number of learned MACs of its own. Other kinds have their
#: configuration at these numbers.
VOLATILE_OF_BRIDGE: Final[dict[int, _Volatile]] = {
    **VOLATILE,
    IFLA_LINKINFO: {
        IFLA_INFO_DATA: {16: True, 17: True, 18: True, 19: True, 48: True},
        IFLA_INFO_SLAVE_DATA: {21: True, 22: True, 23: True},
    },
}

IFF_UP = 1
#: linux/rtnetlink.h RTEXT_FILTER_SKIP_STATS: half of a link message is counters.
SKIP_STATS = 1 << 3
#: ifinfomsg: family, hardware type, index, flags, mask of the flags that change.
_INFO: Final = struct.Struct("=BxHiII")


def _body(*parts: bytes, index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return _INFO.pack(0, 0, index, flags, change) + b"".join(parts)


@dataclass(slots=True)
class _Known:
    """A link as it was decoded, with the indices of what it names.

    Once a second message of the link comes, ``select`` picks the parts of a message that are not volatile, which were
    ``parts`` in the first. Until then ``message`` is the first: after a start nothing is compared for a while.
    """

    link: Link
    master: int
    lower: int
    message: bytes
    select: Callable[[bytes], tuple[bytes, ...]] | None = None
    parts: tuple[bytes, ...] = ()

    def is_same_in(self, message: bytes) -> bool:
        """Whether the link's new message differs from the one that was decoded in volatile parts at the most."""
        if self.select is None:
            below = VOLATILE_OF_BRIDGE if self.link.kind == LinkKind.BRIDGE else VOLATILE
            ranges = tuple(_volatile(self.message, _INFO.size, len(self.message), below))
            self.select = _selection(ranges, len(self.message))
            self.parts, self.message = self.select(self.message), b""
        return self.select(message) == self.parts

    def named(self, names: Mapping[int, str]) -> _Known:
        """Return the same with the present names of its master and lower device."""
        link, master, lower = self.link, names.get(self.master, ""), names.get(self.lower, "")
        if link.master == master and (link.vxlan is None or link.vxlan.lower == lower):
            return self
        vxlan = None if link.vxlan is None else replace(link.vxlan, lower=lower)
        return replace(self, link=replace(link, master=master, vxlan=vxlan))


class LinkDump:
    """Dumps the links of a namespace.

    A message is decoded only if it is new, or differs from the one that the link had in the last dump elsewhere than in
    counters and timers. As all lengths are compared, what is left out is at the same place in both.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def read(self, socket: RouteSocket) -> list[Link]:
        """Return every link of the namespace."""
        found: dict[int, _Known] = {}
        for message in _dump(socket):
            index = index_in(message)
            known = self._known.get(index)
            found[index] = known if known and known.is_same_in(message) else _decode(message)
        names = {index: known.link.name for index, known in found.items()}
        self._known = {index: known.named(names) for index, known in found.items()}
        return [known.link for known in self._known.values()]


def _dump(socket: RouteSocket) -> list[bytes]:
    return socket.dump(RTM_GETLINK, _body(u32(IFLA_EXT_MASK, SKIP_STATS)))


def read_others(socket: RouteSocket) -> tuple[dict[int, str], list[Link]]:
    """Return the name of every link by its index, and the links that we have not created.

    Ours are not decoded: with hundreds of networks they are nearly all.
    """
    names: dict[int, str] = {}
    others = []
    for message in _dump(socket):
        group = 0
        for kind, value in pairs(message, _INFO.size):
            if kind == IFLA_IFNAME:
                names[index_in(message)] = as_text(value)
            elif kind == IFLA_GROUP:
                group = as_int(value)
                break
        if group not in OUR_GROUPS:
            others.append(_decode(message))
    return names, [known.named(names).link for known in others]


@cache
def _selection(volatile: tuple[tuple[int, int], ...], length: int) -> Callable[[bytes], tuple[bytes, ...]]:
    """Return what picks everything but these ranges of a message of that length."""
    starts, ends = (0, *(end for _, end in volatile)), (*(start for start, _ in volatile), None)
    # The first item makes sure of the length, and that there are two, so that the result is a tuple.
    return itemgetter(slice(length - 1, None), *(slice(*ends_of) for ends_of in zip(starts, ends, strict=True)))


def _volatile(message: bytes, at: int, end: int, below: Mapping[int, _Volatile]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of volatile payloads in a nest, in order."""
    while at + 4 <= end:
        length, kind = ATTRIBUTE.unpack_from(message, at)
        if not 4 <= length <= end - at:
            return
        inside = below.get(kind & NUMBER)
        if inside is True:
            yield at + 4, at + length
        elif inside:
            yield from _volatile(message, at + 4, at + length, inside)
        at += (length + 3) & ~3


def _decode(message: bytes) -> _Known:
    _, _, index, flags, _ = _INFO.unpack_from(message)
    found = attributes(message, _INFO.size)
    info = attributes(found.get(IFLA_LINKINFO))
    kind, data = as_text(info.get(IFLA_INFO_KIND)), info.get(IFLA_INFO_DATA)
    lower, vxlan = _vxlan(data) if kind == LinkKind.VXLAN and data is not None else (0, None)
    port = attributes(info.get(IFLA_INFO_SLAVE_DATA)) if as_text(info.get(IFLA_INFO_SLAVE_KIND)) == "bridge" else {}
    families = attributes(found.get(IFLA_AF_SPEC))
    address_generation = attributes(families.get(AF_INET6)).get(IFLA_INET6_ADDR_GEN_MODE)
    arp_ignore = attributes(families.get(AF_INET)).get(IFLA_INET_CONF, b"")[ARP_IGNORE]
    names = pairs(found.get(IFLA_PROP_LIST, b""))
    link = Link(
        index=index,
        name=as_text(found[IFLA_IFNAME]),
        kind=kind,
        group=as_int(found.get(IFLA_GROUP)),
        up=bool(flags & IFF_UP),
        mtu=as_int(found.get(IFLA_MTU)),
        mac=found.get(IFLA_ADDRESS, b"").hex(":"),
        table=as_int(attributes(data).get(IFLA_VRF_TABLE)) if kind == LinkKind.VRF and data is not None else None,
        vxlan=vxlan,
        neigh_suppress=bool(as_int(port.get(IFLA_BRPORT_NEIGH_SUPPRESS))),
        addr_gen_none=None if address_generation is None else as_int(address_generation) == ADDR_GEN_NONE,
        peer_index=as_int(found.get(IFLA_LINK)),
        altnames=tuple(as_text(value) for key, value in names if key == IFLA_ALT_IFNAME),
        alias=as_text(found.get(IFLA_IFALIAS)),
        arp_ignore=as_int(arp_ignore) if arp_ignore else None,
    )
    return _Known(link, as_int(found.get(IFLA_MASTER)), lower, message)


def _vxlan(data: bytes) -> tuple[int, VxlanAttributes]:
    """Return a VXLAN device's lower device and attributes."""
    found = attributes(data)
    local = as_address(found.get(IFLA_VXLAN_LOCAL) or found.get(IFLA_VXLAN_LOCAL6))
    return as_int(found.get(IFLA_VXLAN_LINK)), VxlanAttributes(
        vni=as_int(found.get(IFLA_VXLAN_ID)),
        port=int.from_bytes(found.get(IFLA_VXLAN_PORT, b""), "big"),
        local=ip_address(local) if local else None,
        lower="",
        learning=bool(as_int(found.get(IFLA_VXLAN_LEARNING))),
    )


def get_index(name: str) -> NetlinkRequest:
    """Ask for a link by its name; ENODEV when there is no such link. :func:`index_in` reads the answer."""
    return NetlinkRequest(RTM_GETLINK, NLM_F_REQUEST, _body(text(IFLA_IFNAME, name), u32(IFLA_EXT_MASK, SKIP_STATS)))


def index_in(message: bytes) -> int:
    """Return the index of the link that a message is about."""
    return int(_INFO.unpack_from(message)[2])


def create_link(wanted: WantedLink, *, lower: int = 0, peer_namespace: int = 0) -> NetlinkRequest:
    """Create a device, down, with our group in the same message.

    ``lower`` is the index of a VXLAN's lower device; ``peer_namespace`` is a descriptor of the namespace in which a
    veth's other end is created.
    """
    data = _creation_data(wanted, lower, peer_namespace)
    info = [text(IFLA_INFO_KIND, wanted.kind)]
    if data:
        info.append(attribute(IFLA_INFO_DATA, data))
    return NetlinkRequest(
        RTM_NEWLINK, CREATE, _body(_identity(wanted.name, wanted.mtu), attribute(IFLA_LINKINFO, *info))
    )


def _identity(name: str, mtu: int | None) -> bytes:
    identity = text(IFLA_IFNAME, name) + u32(IFLA_GROUP, OWNED_GROUP)
    return identity if mtu is None else identity + u32(IFLA_MTU, mtu)


def _creation_data(wanted: WantedLink, lower: int, peer_namespace: int) -> bytes:
    """Return IFLA_INFO_DATA, whose attributes depend on the kind."""
    if wanted.peer is not None:
        peer = _body(_identity(wanted.peer, wanted.mtu), u32(IFLA_NET_NS_FD, peer_namespace))
        return attribute(VETH_INFO_PEER, peer)
    if wanted.table is not None:
        return u32(IFLA_VRF_TABLE, wanted.table)
    vxlan = wanted.vxlan
    if vxlan is None:
        return b""
    data = [u32(IFLA_VXLAN_ID, vxlan.vni), u32(IFLA_VXLAN_LINK, lower)]
    if vxlan.local is not None:
        data.append(address(IFLA_VXLAN_LOCAL if vxlan.local.version == 4 else IFLA_VXLAN_LOCAL6, str(vxlan.local)))
    data.append(attribute(IFLA_VXLAN_PORT, vxlan.port.to_bytes(2, "big")))
    data.append(u8(IFLA_VXLAN_LEARNING, vxlan.learning))
    return b"".join(data)


def change_link(change: ChangeLink, master: int | None = None) -> list[NetlinkRequest]:
    """Change a link's attributes in one message; ``master`` is the index of the change's master, 0 for none.

    A bridge port's attributes take a second message: the kernel accepts them only on an existing port.
    """
    changes: list[bytes] = []
    if change.mac is not None:
        changes.append(attribute(IFLA_ADDRESS, bytes.fromhex(change.mac.replace(":", ""))))
    for kind, value in ((IFLA_MTU, change.mtu), (IFLA_GROUP, change.group), (IFLA_MASTER, master)):
        if value is not None:
            changes.append(u32(kind, value))
    if change.alias is not None:
        changes.append(text(IFLA_IFALIAS, change.alias))
    name, requests = text(IFLA_IFNAME, change.name), list[NetlinkRequest]()
    if changes or change.up is not None:
        flags, mask = (IFF_UP if change.up else 0), (0 if change.up is None else IFF_UP)
        requests.append(NetlinkRequest(RTM_NEWLINK, REQUEST, _body(name, *changes, flags=flags, change=mask)))
    if change.neigh_suppress is not None:
        port = attribute(IFLA_INFO_SLAVE_DATA, u8(IFLA_BRPORT_NEIGH_SUPPRESS, change.neigh_suppress))
        info = attribute(IFLA_LINKINFO, text(IFLA_INFO_SLAVE_KIND, "bridge"), port)
        requests.append(NetlinkRequest(RTM_NEWLINK, REQUEST, _body(name, info)))
    return requests


def move_link(name: str, namespace: int) -> NetlinkRequest:
    """Move a link into the namespace of a file descriptor, keeping its name."""
    return NetlinkRequest(RTM_SETLINK, REQUEST, _body(text(IFLA_IFNAME, name), u32(IFLA_NET_NS_FD, namespace)))


def add_altname(name: str, altname: str) -> NetlinkRequest:
    """Add an alternative name to a link."""
    names = attribute(IFLA_PROP_LIST | NESTED, text(IFLA_ALT_IFNAME, altname))
    return NetlinkRequest(RTM_NEWLINKPROP, CREATE, _body(text(IFLA_IFNAME, name), names), (errno.EEXIST,))


def delete_link(name: str) -> NetlinkRequest:
    """Delete one link."""
    return NetlinkRequest(RTM_DELLINK, REQUEST, _body(text(IFLA_IFNAME, name)), (errno.ENODEV,))


def delete_group(group: int) -> NetlinkRequest:
    """Delete every link of a group in one call."""
    return NetlinkRequest(RTM_DELLINK, REQUEST, _body(u32(IFLA_GROUP, group)), (errno.ENODEV,))
