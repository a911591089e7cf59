"""Addresses over rtnetlink: dump, add, remove."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from ipaddress import ip_interface
from socket import AF_INET, AF_INET6
from typing import Any

from pyroute2.netlink.rtnl import RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR

from config.desired import IPInterface

from ..planning.observed import ADDRESS_PROTOCOL, Address, usual_broadcast
from .socket import CREATE, REQUEST, MarkedAddress, RouteSocket


def dump_addresses(socket: RouteSocket, names: Mapping[int, str]) -> dict[int, tuple[Address, ...]]:
    """Return every address of the namespace, by link index; ``names`` are the links' names by index."""
    found: defaultdict[int, list[Address]] = defaultdict(list)
    for message in socket.dump(MarkedAddress, RTM_GETADDR):
        found[message["index"]].append(_address(message, names))
    return {index: tuple(addresses) for index, addresses in found.items()}


def _address(message: Any, names: Mapping[int, str]) -> Address:
    far = message.get_attr("IFA_ADDRESS")
    text = message.get_attr("IFA_LOCAL") or far
    flags = message.get_attr("IFA_FLAGS")
    interface = ip_interface(f"{text}/{message['prefixlen']}")
    peer = far if far and far != text else ""
    broadcast = message.get_attr("IFA_BROADCAST") or ""
    label = message.get_attr("IFA_LABEL") or ""
    return Address(
        interface,
        flags=message["flags"] if flags is None else flags,
        scope=message["scope"],
        ours=message.get_attr("IFA_PROTO") == ADDRESS_PROTOCOL,
        peer=peer,
        broadcast=None if broadcast == usual_broadcast(interface, peer) else broadcast,
        label="" if label == names.get(message["index"]) else label,
    )


def add_address(socket: RouteSocket, index: int, address: Address) -> None:
    """Add an address to a link, with our mark if it is ours."""
    message = _message(index, address.interface, address.peer)
    message["scope"] = address.scope
    broadcast = address.broadcast
    if broadcast is None:
        broadcast = usual_broadcast(address.interface, address.peer)
    pairs = (
        ("IFA_BROADCAST", broadcast),
        ("IFA_LABEL", address.label),
        ("IFA_FLAGS", address.flags),
        ("IFA_PROTO", ADDRESS_PROTOCOL if address.ours else 0),
    )
    message["attrs"] += [[key, value] for key, value in pairs if value]
    socket.request(message, RTM_NEWADDR, CREATE)


def remove_address(socket: RouteSocket, index: int, interface: IPInterface) -> None:
    """Remove an address from a link."""
    socket.request(_message(index, interface), RTM_DELADDR, REQUEST)


def _message(index: int, interface: IPInterface, peer: str = "") -> Any:
    message = MarkedAddress()
    message["family"] = AF_INET if interface.version == 4 else AF_INET6
    message["index"] = index
    message["prefixlen"] = interface.network.prefixlen
    text = str(interface.ip)
    message["attrs"] = [["IFA_LOCAL", text], ["IFA_ADDRESS", peer or text]]
    return message
