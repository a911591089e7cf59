"""Routes over rtnetlink: our unreachable defaults, whether tables are in use, and the routes through a NIC.

All dumps are filtered in the kernel (NETLINK_GET_STRICT_CHK): a router's whole table is never read.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from socket import AF_INET, AF_INET6
from typing import Final

from config.desired import Family
from config.resolve.host_networks import HostNetwork

from ..planning.observed import (
    CONFIGURED_PROTOCOLS,
    MAIN_TABLE,
    ROUTE_PROTOCOL,
    UNREACHABLE_METRIC,
    SavedRoute,
)
from .message import (
    CREATE,
    REQUEST,
    Attributes,
    NetlinkRequest,
    address,
    as_address,
    as_int,
    attribute,
    attributes,
    u32,
)
from .socket import KernelRefusal, RouteSocket

#: linux/rtnetlink.h
RTM_NEWROUTE = 24
RTM_DELROUTE = 25
RTM_GETROUTE = 26
RTM_GETRULE = 34
RTA_DST = 1
RTA_OIF = 4
RTA_GATEWAY = 5
RTA_PRIORITY = 6
RTA_PREFSRC = 7
RTA_METRICS = 8
RTA_MULTIPATH = 9
RTA_TABLE = 15
RTAX_MTU = 2
#: linux/fib_rules.h; struct fib_rule_hdr has the table at this place, if it is below 256
FRA_TABLE = 15
RTN_UNICAST = 1
RTN_UNREACHABLE = 7
#: Protocols of routes that the kernel adds again by itself: redirect, kernel, router advertisement.
REMADE_PROTOCOLS = frozenset({1, 2, 9})
#: RTM_F_CLONED: a cache entry, not a configured route.
RTM_F_CLONED = 0x200
#: RTNH_F_ONLINK: the only next-hop flag that a user sets.
RTNH_F_ONLINK = 4
SOCKET_FAMILIES = {Family.IPV4: AF_INET, Family.IPV6: AF_INET6}
#: rtmsg: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
_INFO: Final = struct.Struct("=BBBBBBBBI")
#: struct rtnexthop: length, flags, weight, link
#: struct fib_rule_hdr: family, lengths of destination and source, TOS, table, two reserved, action, flags
_RULE: Final = struct.Struct("=BBBBBBBBI")
_NEXT_HOP: Final = struct.Struct("=HBBi")


def _body(
    family: Family, *parts: bytes, length: int = 0, protocol: int = 0, scope: int = 0, kind: int = 0, flags: int = 0
) -> bytes:
    return _INFO.pack(SOCKET_FAMILIES[family], length, 0, 0, 0, protocol, scope, kind, flags) + b"".join(parts)


@dataclass(frozen=True, slots=True)
class _Route:
    """A decoded message: the header's fields and the attributes."""

    family: Family
    length: int
    table: int
    protocol: int
    scope: int
    kind: int
    flags: int
    found: Attributes


def _dump(socket: RouteSocket, family: Family, *parts: bytes, protocol: int = 0, kind: int = 0) -> Iterator[_Route]:
    """Yield a filtered dump; a table that does not exist is an empty one."""
    try:
        messages = socket.dump(RTM_GETROUTE, _body(family, *parts, protocol=protocol, kind=kind))
    except KernelRefusal as refusal:
        if refusal.errno != errno.ENOENT:
            raise
        return
    for message in messages:
        _, length, _, _, table, made_by, scope, found_kind, flags = _INFO.unpack_from(message)
        found = attributes(message, _INFO.size)
        yield _Route(family, length, as_int(found.get(RTA_TABLE)) or table, made_by, scope, found_kind, flags, found)


def unreachable_tables(socket: RouteSocket) -> frozenset[tuple[Family, int]]:
    """Return the tables that have our unreachable default."""
    return frozenset(
        (family, route.table)
        for family in Family
        for route in _dump(socket, family, protocol=ROUTE_PROTOCOL, kind=RTN_UNREACHABLE)
        if route.length == 0 and as_int(route.found.get(RTA_PRIORITY)) == UNREACHABLE_METRIC
    )


def busy_tables(socket: RouteSocket, tables: Iterable[int]) -> frozenset[int]:
    """Return which of these tables hold a foreign route."""
    return frozenset(table for table in tables if _is_busy(socket, table))


def ruled_tables(socket: RouteSocket) -> frozenset[int]:
    """Return the tables that rules of either family name."""
    found = set()
    for family in SOCKET_FAMILIES.values():
        for message in socket.dump(RTM_GETRULE, _RULE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
            table = _RULE.unpack_from(message)[4]
            found.add(as_int(attributes(message, _RULE.size).get(FRA_TABLE)) or table)
    return frozenset(found)


def _is_busy(socket: RouteSocket, table: int) -> bool:
    return any(
        route.protocol != ROUTE_PROTOCOL for family in Family for route in _dump(socket, family, u32(RTA_TABLE, table))
    )


def routes_via(socket: RouteSocket, index: int) -> tuple[SavedRoute, ...]:
    """Return the configured routes through a link, without multipath routes, which belong to more than one NIC."""
    return tuple(
        _saved(route)
        for family in Family
        for route in _dump(socket, family, u32(RTA_OIF, index))
        if as_int(route.found.get(RTA_OIF)) == index
        and route.protocol not in REMADE_PROTOCOLS
        and route.kind == RTN_UNICAST
        and not route.flags & RTM_F_CLONED
    )


def host_networks(socket: RouteSocket, names: Mapping[int, str], ours: Collection[int]) -> list[HostNetwork]:
    """Return the main table's destinations but default routes and what goes through ``ours``, by index.

    ``names`` has the links' names by index.
    """
    found = []
    for family in Family:
        for route in _dump(socket, family, u32(RTA_TABLE, MAIN_TABLE)):
            indices = _hops(route.found.get(RTA_MULTIPATH)) or [as_int(route.found.get(RTA_OIF))]
            if not route.length or route.flags & RTM_F_CLONED or set(indices) <= set(ours):
                continue
            network = ip_network(f"{as_address(route.found.get(RTA_DST))}/{route.length}")
            devices = "".join(f" dev {names[index]}" for index in indices if index in names)
            learned = route.protocol not in CONFIGURED_PROTOCOLS
            found.append(HostNetwork(network, f"the host's route {network}{devices}", learned))
    return found


def _hops(data: bytes | memoryview | None) -> list[int]:
    """Return the links of a multipath route's next hops (struct rtnexthop)."""
    indices, rest = [], bytes(data or b"")
    while len(rest) >= _NEXT_HOP.size:
        length, _, _, index = _NEXT_HOP.unpack_from(rest)
        indices.append(index)
        rest = rest[max(length, _NEXT_HOP.size) :]
    return indices


def _saved(route: _Route) -> SavedRoute:
    found = route.found
    default = "0.0.0.0" if route.family is Family.IPV4 else "::"  # noqa: S104 - a destination, not a listener
    return SavedRoute(
        family=route.family,
        destination=f"{as_address(found.get(RTA_DST)) or default}/{route.length}",
        table=route.table,
        gateway=as_address(found.get(RTA_GATEWAY)),
        source=as_address(found.get(RTA_PREFSRC)),
        priority=as_int(found.get(RTA_PRIORITY)),
        protocol=route.protocol,
        scope=route.scope,
        type=route.kind,
        flags=route.flags & RTNH_F_ONLINK,
        mtu=as_int(attributes(found.get(RTA_METRICS)).get(RTAX_MTU)),
    )


def _unreachable(family: Family, table: int) -> bytes:
    parts = (u32(RTA_TABLE, table), u32(RTA_PRIORITY, UNREACHABLE_METRIC))
    return _body(family, *parts, protocol=ROUTE_PROTOCOL, kind=RTN_UNREACHABLE)


def add_unreachable(family: Family, table: int) -> NetlinkRequest:
    """Add the unreachable default to a table."""
    return NetlinkRequest(RTM_NEWROUTE, CREATE, _unreachable(family, table), (errno.EEXIST,))


def remove_unreachable(family: Family, table: int) -> NetlinkRequest:
    """Remove the unreachable default from a table."""
    return NetlinkRequest(RTM_DELROUTE, REQUEST, _unreachable(family, table), (errno.ESRCH, errno.ENOENT))


def add_route(index: int, route: SavedRoute) -> NetlinkRequest:
    """Add a route as it was saved."""
    destination, _, prefix = route.destination.partition("/")
    length = int(prefix)
    parts = [u32(RTA_TABLE, route.table), u32(RTA_OIF, index)]
    known = ((RTA_DST, destination if length else ""), (RTA_GATEWAY, route.gateway), (RTA_PREFSRC, route.source))
    parts += [address(kind, value) for kind, value in known if value]
    if route.priority:
        parts.append(u32(RTA_PRIORITY, route.priority))
    if route.mtu:
        parts.append(attribute(RTA_METRICS, u32(RTAX_MTU, route.mtu)))
    body = _body(
        route.family, *parts, length=length, protocol=route.protocol, scope=route.scope, kind=route.type,
        flags=route.flags,
    )  # fmt: skip
    return NetlinkRequest(RTM_NEWROUTE, CREATE, body, (errno.EEXIST,))
