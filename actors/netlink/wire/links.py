"""Links over rtnetlink: dump, create, change, move, delete."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from pyroute2.netlink.rtnl import RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, RTM_NEWLINKPROP, RTM_SETLINK
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from ..planning.observed import OWNED_GROUP, Link, LinkKind, Vxlan
from ..planning.steps import ChangeLink
from ..planning.wanted import WantedLink
from .socket import CREATE, REQUEST, RouteSocket

IFF_UP = 1
#: linux/rtnetlink.h RTEXT_FILTER_SKIP_STATS: half of a link message is counters.
SKIP_STATS = 1 << 3
#: linux/if_link.h IN6_ADDR_GEN_MODE_NONE
ADDR_GEN_NONE = 1

Attribute = tuple[str, Any]


def _message(*attributes: Attribute, index: int = 0) -> Any:
    message = ifinfmsg()
    message["index"] = index
    message["attrs"] = [list(attribute) for attribute in attributes]
    return message


def _nested(*attributes: Attribute) -> dict[str, Any]:
    return {"attrs": [list(attribute) for attribute in attributes]}


def dump_links(socket: RouteSocket) -> list[Link]:
    """Return every link of the namespace."""
    messages = socket.dump(lambda: _message(("IFLA_EXT_MASK", SKIP_STATS)), RTM_GETLINK)
    names = {message["index"]: message.get_attr("IFLA_IFNAME") for message in messages}
    return [_link(message, names) for message in messages]


def index_of(socket: RouteSocket, name: str) -> int:
    """Return a link's index by its name; KernelRefusal (ENODEV) when there is no such link."""
    message = _message(("IFLA_EXT_MASK", SKIP_STATS), ("IFLA_IFNAME", name))
    return int(socket.request(message, RTM_GETLINK, REQUEST & ~4)[0]["index"])


def _at(message: Any, *path: str) -> Any:
    """Return the attribute at the end of a path of nested attributes, or None."""
    for key in path:
        if message is None:
            return None
        message = message.get_attr(key)
    return message


def _link(message: Any, names: dict[int, str]) -> Link:
    kind = _at(message, "IFLA_LINKINFO", "IFLA_INFO_KIND") or ""
    is_port = _at(message, "IFLA_LINKINFO", "IFLA_INFO_SLAVE_KIND") == "bridge"
    port_path = ("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_NEIGH_SUPPRESS")
    address_generation = _at(message, "IFLA_AF_SPEC", "AF_INET6", "IFLA_INET6_ADDR_GEN_MODE")
    properties = message.get_attr("IFLA_PROP_LIST")
    return Link(
        index=message["index"],
        name=message.get_attr("IFLA_IFNAME"),
        kind=kind,
        group=message.get_attr("IFLA_GROUP") or 0,
        up=bool(message["flags"] & IFF_UP),
        mtu=message.get_attr("IFLA_MTU") or 0,
        mac=message.get_attr("IFLA_ADDRESS") or "",
        master=names.get(message.get_attr("IFLA_MASTER") or 0, ""),
        table=_at(message, "IFLA_LINKINFO", "IFLA_INFO_DATA", "IFLA_VRF_TABLE") if kind == LinkKind.VRF else None,
        vxlan=_vxlan(_at(message, "IFLA_LINKINFO", "IFLA_INFO_DATA"), names) if kind == LinkKind.VXLAN else None,
        neigh_suppress=is_port and bool(_at(message, *port_path)),
        addr_gen_none=None if address_generation is None else address_generation == ADDR_GEN_NONE,
        peer_index=message.get_attr("IFLA_LINK") or 0,
        altnames=tuple(value for key, value in properties["attrs"] if key == "IFLA_ALT_IFNAME") if properties else (),
        alias=message.get_attr("IFLA_IFALIAS") or "",
    )


def _vxlan(data: Any, names: dict[int, str]) -> Vxlan | None:
    if data is None:
        return None
    local = data.get_attr("IFLA_VXLAN_LOCAL") or data.get_attr("IFLA_VXLAN_LOCAL6")
    return Vxlan(
        vni=data.get_attr("IFLA_VXLAN_ID") or 0,
        port=data.get_attr("IFLA_VXLAN_PORT") or 0,
        local=ip_address(local) if local else None,
        lower=names.get(data.get_attr("IFLA_VXLAN_LINK") or 0, ""),
        learning=bool(data.get_attr("IFLA_VXLAN_LEARNING")),
    )


def create_link(socket: RouteSocket, wanted: WantedLink, *, lower: int = 0, peer_namespace: int = 0) -> None:
    """Create a device, down, with our group in the same message.

    ``lower`` is the index of a VXLAN's lower device; ``peer_namespace`` is a descriptor of the namespace in which a
    veth's other end is created.
    """
    data = _creation_data(wanted, lower, peer_namespace)
    info: list[Attribute] = [("IFLA_INFO_KIND", str(wanted.kind))]
    if data:
        info.append(("IFLA_INFO_DATA", _nested(*data)))
    attributes = (*_identity(wanted.name, wanted.mtu), ("IFLA_LINKINFO", _nested(*info)))
    socket.request(_message(*attributes), RTM_NEWLINK, CREATE)


def _identity(name: str, mtu: int | None) -> list[Attribute]:
    attributes: list[Attribute] = [("IFLA_IFNAME", name), ("IFLA_GROUP", OWNED_GROUP)]
    if mtu is not None:
        attributes.append(("IFLA_MTU", mtu))
    return attributes


def _creation_data(wanted: WantedLink, lower: int, peer_namespace: int) -> list[Attribute]:
    """Return IFLA_INFO_DATA, whose attributes depend on the kind."""
    if wanted.peer is not None:
        peer = _nested(*_identity(wanted.peer, wanted.mtu), ("IFLA_NET_NS_FD", peer_namespace))
        return [("VETH_INFO_PEER", {"index": 0, **peer})]
    if wanted.table is not None:
        return [("IFLA_VRF_TABLE", wanted.table)]
    vxlan = wanted.vxlan
    if vxlan is None:
        return []
    local: list[Attribute] = []
    if vxlan.local is not None:
        local = [("IFLA_VXLAN_LOCAL" if vxlan.local.version == 4 else "IFLA_VXLAN_LOCAL6", str(vxlan.local))]
    return [
        ("IFLA_VXLAN_ID", vxlan.vni),
        ("IFLA_VXLAN_LINK", lower),
        *local,
        ("IFLA_VXLAN_PORT", vxlan.port),
        ("IFLA_VXLAN_LEARNING", int(vxlan.learning)),
    ]


def change_link(socket: RouteSocket, change: ChangeLink, master: int | None = None) -> None:
    """Change a link's attributes in one message; ``master`` is the index of the change's master, 0 for none."""
    pairs: list[tuple[str, object]] = [
        ("IFLA_ADDRESS", change.mac),
        ("IFLA_MTU", change.mtu),
        ("IFLA_GROUP", change.group),
        ("IFLA_IFALIAS", change.alias),
        ("IFLA_MASTER", master),
    ]
    attributes = [("IFLA_IFNAME", change.name), *((key, value) for key, value in pairs if value is not None)]
    message = _message(*attributes)
    if change.up is not None:
        message["flags"], message["change"] = (IFF_UP if change.up else 0), IFF_UP
    if len(attributes) > 1 or change.up is not None:
        socket.request(message, RTM_NEWLINK, REQUEST)
    if change.neigh_suppress is not None:
        _set_neigh_suppress(socket, change.name, on=change.neigh_suppress)


def _set_neigh_suppress(socket: RouteSocket, name: str, *, on: bool) -> None:
    """Set it in a message of its own: the kernel accepts a bridge port's attributes only on an existing port."""
    slave = _nested(("IFLA_BRPORT_NEIGH_SUPPRESS", int(on)))
    info = _nested(("IFLA_INFO_SLAVE_KIND", "bridge"), ("IFLA_INFO_SLAVE_DATA", slave))
    socket.request(_message(("IFLA_IFNAME", name), ("IFLA_LINKINFO", info)), RTM_NEWLINK, REQUEST)


def move_link(socket: RouteSocket, name: str, namespace: int) -> None:
    """Move a link into the namespace of a file descriptor, keeping its name."""
    socket.request(_message(("IFLA_IFNAME", name), ("IFLA_NET_NS_FD", namespace)), RTM_SETLINK, REQUEST)


def add_altname(socket: RouteSocket, name: str, altname: str) -> None:
    """Add an alternative name to a link."""
    names = _nested(("IFLA_ALT_IFNAME", altname))
    socket.request(_message(("IFLA_IFNAME", name), ("IFLA_PROP_LIST", names)), RTM_NEWLINKPROP, CREATE)


def delete_link(socket: RouteSocket, name: str) -> None:
    """Delete one link."""
    socket.request(_message(("IFLA_IFNAME", name)), RTM_DELLINK, REQUEST)


def delete_group(socket: RouteSocket, group: int) -> None:
    """Delete every link of a group in one call."""
    socket.request(_message(("IFLA_GROUP", group)), RTM_DELLINK, REQUEST)
