"""Routes over rtnetlink: our unreachable defaults, whether a table is in use, and the routes through a NIC.

All dumps are filtered in the kernel (NETLINK_GET_STRICT_CHK): a router's whole table is never read.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping
from ipaddress import ip_network
from socket import AF_INET, AF_INET6
from typing import Any

from pyroute2.netlink.rtnl import RTM_DELROUTE, RTM_GETROUTE, RTM_NEWROUTE
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from config.desired import Family

from ..planning.observed import ROUTE_PROTOCOL, UNREACHABLE_METRIC, HostNetwork, SavedRoute
from .socket import CREATE, REQUEST, KernelRefusal, RouteSocket

#: linux/rtnetlink.h
RTN_UNICAST = 1
RTN_UNREACHABLE = 7
#: Protocols of routes that the kernel adds again by itself: redirect, kernel, router advertisement.
REMADE_PROTOCOLS = frozenset({1, 2, 9})
#: linux/rtnetlink.h RT_TABLE_MAIN
MAIN_TABLE = 254
#: RTM_F_CLONED: a cache entry, not a configured route.
RTM_F_CLONED = 0x200
#: RTNH_F_ONLINK: the only next-hop flag that a user sets.
RTNH_F_ONLINK = 4
SOCKET_FAMILIES = {Family.IPV4: AF_INET, Family.IPV6: AF_INET6}


def _message(family: Family, *attributes: tuple[str, Any], protocol: int = 0, kind: int = 0) -> Any:
    message = rtmsg()
    message["family"] = SOCKET_FAMILIES[family]
    message["proto"] = protocol
    message["type"] = kind
    message["attrs"] = [list(attribute) for attribute in attributes]
    return message


def _table_of(message: Any) -> int:
    return int(message.get_attr("RTA_TABLE") or message["table"])


def unreachable_tables(socket: RouteSocket) -> frozenset[tuple[Family, int]]:
    """Return the tables that have our unreachable default."""
    return frozenset(
        (family, _table_of(message))
        for family in Family
        for message in _dump(socket, family, protocol=ROUTE_PROTOCOL, kind=RTN_UNREACHABLE)
        if message["dst_len"] == 0 and message.get_attr("RTA_PRIORITY") == UNREACHABLE_METRIC
    )


def is_busy(socket: RouteSocket, table: int) -> bool:
    """Return whether a table holds a foreign route."""
    return any(
        message["proto"] != ROUTE_PROTOCOL
        for family in Family
        for message in _dump(socket, family, ("RTA_TABLE", table))
    )


def routes_via(socket: RouteSocket, index: int) -> tuple[SavedRoute, ...]:
    """Return the configured routes through a link, without multipath routes, which belong to more than one NIC."""
    return tuple(
        _saved(family, message)
        for family in Family
        for message in _dump(socket, family, ("RTA_OIF", index))
        if message.get_attr("RTA_OIF") == index
        and message["proto"] not in REMADE_PROTOCOLS
        and message["type"] == RTN_UNICAST
        and not message["flags"] & RTM_F_CLONED
    )


def host_networks(socket: RouteSocket, names: Mapping[int, str], ours: Collection[int]) -> list[HostNetwork]:
    """Return the main table's destinations but default routes and what goes through ``ours``, by index.

    ``names`` has the links' names by index.
    """
    found = []
    for family in Family:
        for message in _dump(socket, family, ("RTA_TABLE", MAIN_TABLE)):
            hops = message.get_attr("RTA_MULTIPATH") or ()
            indices = [hop["oif"] for hop in hops] or [message.get_attr("RTA_OIF") or 0]
            if not message["dst_len"] or message["flags"] & RTM_F_CLONED or set(indices) <= set(ours):
                continue
            network = ip_network(f"{message.get_attr('RTA_DST')}/{message['dst_len']}")
            devices = "".join(f" dev {names[index]}" for index in indices if index in names)
            found.append(HostNetwork(network, f"the host's route {network}{devices}"))
    return found


def _saved(family: Family, message: Any) -> SavedRoute:
    destination = message.get_attr("RTA_DST")
    default = "0.0.0.0" if family is Family.IPV4 else "::"  # noqa: S104 - a destination, not a listener
    metrics = message.get_attr("RTA_METRICS")
    return SavedRoute(
        family=family,
        destination=f"{destination or default}/{message['dst_len']}",
        table=_table_of(message),
        gateway=message.get_attr("RTA_GATEWAY") or "",
        source=message.get_attr("RTA_PREFSRC") or "",
        priority=message.get_attr("RTA_PRIORITY") or 0,
        protocol=message["proto"],
        scope=message["scope"],
        type=message["type"],
        flags=message["flags"] & RTNH_F_ONLINK,
        mtu=(metrics.get_attr("RTAX_MTU") or 0) if metrics else 0,
    )


def _dump(
    socket: RouteSocket, family: Family, *attributes: tuple[str, Any], protocol: int = 0, kind: int = 0
) -> list[Any]:
    """Return a filtered dump; a table that does not exist is an empty one."""
    try:
        return socket.dump(lambda: _message(family, *attributes, protocol=protocol, kind=kind), RTM_GETROUTE)
    except KernelRefusal as refusal:
        if refusal.errno != errno.ENOENT:
            raise
        return []


def _unreachable(family: Family, table: int) -> Any:
    attributes = (("RTA_TABLE", table), ("RTA_PRIORITY", UNREACHABLE_METRIC))
    return _message(family, *attributes, protocol=ROUTE_PROTOCOL, kind=RTN_UNREACHABLE)


def add_unreachable(socket: RouteSocket, family: Family, table: int) -> None:
    """Add the unreachable default to a table."""
    socket.request(_unreachable(family, table), RTM_NEWROUTE, CREATE)


def remove_unreachable(socket: RouteSocket, family: Family, table: int) -> None:
    """Remove the unreachable default from a table."""
    socket.request(_unreachable(family, table), RTM_DELROUTE, REQUEST)


def add_route(socket: RouteSocket, index: int, route: SavedRoute) -> None:
    """Add a route as it was saved."""
    destination, length = route.destination.split("/")
    pairs = (
        ("RTA_DST", destination if int(length) else ""),
        ("RTA_GATEWAY", route.gateway),
        ("RTA_PREFSRC", route.source),
        ("RTA_PRIORITY", route.priority),
        ("RTA_METRICS", {"attrs": [["RTAX_MTU", route.mtu]]} if route.mtu else None),
    )
    attributes = (("RTA_TABLE", route.table), ("RTA_OIF", index), *((key, value) for key, value in pairs if value))
    message = _message(route.family, *attributes, protocol=route.protocol, kind=route.type)
    message["dst_len"], message["scope"], message["flags"] = int(length), route.scope, route.flags
    socket.request(message, RTM_NEWROUTE, CREATE)
