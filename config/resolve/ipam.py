"""From the node's index to its addresses.

No state and no negotiation: every node computes its own addresses, and its neighbours', from the pools that all nodes
share. The formulas are upstream's (reference 4.0), since nodes of both kinds may meet in one fabric. A pool is always
masked first; "host number n" is its network address plus n, and must lie inside it.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_interface, ip_network
from typing import Final

from config.desired import IPAddress, IPInterface, RouterIdScheme, SessionAddresses
from config.models.types import KEPT_ADDRESSES, parse_address, parse_cidr
from config.outcomes import NodeIdentity

#: Parsed addresses of one kind that are kept for a node, and for each of its resources. Where that is too few, each
#: resolution parses its addresses again: 15 ms for 500 VNIs.
_FEW: Final = 100
_PER_RESOURCE: Final = 3
#: The greatest number of a type 1 route distinguisher, after its IPv4 address.
RD_NUMBERS: Final = 0xFFFF


class PoolExhaustedError(ValueError):
    """The node's index has no place in a pool; the text names both. ``by_index``: another index would have one."""

    def __init__(self, text: str, *, by_index: bool = False) -> None:
        super().__init__(text)
        self.by_index = by_index

    def on(self, node: NodeIdentity) -> str:
        """Return the text, with where the node's index is configured if that is the other end of the problem."""
        return f"{self}; the index is from {node.index_origin}" if self.by_index and node.index_origin else str(self)


@lru_cache(KEPT_ADDRESSES)
def parsed_network(text: str) -> IPv4Network | IPv6Network:
    """Parse a network, host bits allowed: each is looked at many times in one resolution."""
    return ip_network(text, strict=False)


def host_number(pool: str, index: int, offset: int = 0) -> IPAddress:
    """Return the address for a node: ``index + offset`` places after the pool's network address."""
    network = parsed_network(pool)
    if not 0 <= index + offset < network.num_addresses:
        highest, wanted = network.num_addresses - 1 - offset, (index + offset).bit_length()
        fits = f"; use at least a /{network.max_prefixlen - wanted}" if wanted <= network.max_prefixlen else ""
        raise PoolExhaustedError(
            f"{network} is too small for node index {index} (highest usable: {highest}){fits}"
            if highest >= 0
            else f"{network} is too small for any node{fits}",
            by_index=highest >= 0,
        )
    return network.network_address + index + offset


def router_id(pool: str, index: int, scheme: RouterIdScheme) -> IPv4Address:
    """Return the node's router ID: host number ``index`` by scheme v2, ``index + 1`` by v1."""
    address = host_number(pool, index, 1 if scheme == "v1" else 0)
    if not isinstance(address, IPv4Address):
        raise PoolExhaustedError(f"{pool} is not an IPv4 network")
    if address.is_unspecified:
        raise PoolExhaustedError(f"{pool} gives it {address}, which is not a valid router ID (RFC 6286)")
    return address


def route_distinguisher(router_id: IPv4Address, vni: int) -> str:
    """Return a VNI's route distinguisher: unique on the node whatever else it has, and stable across restarts.

    It is ``<router-id>:<vni>`` where the VNI fits into type 1's 16 bits (RFC 4364, 4.2). A greater one takes type 0,
    which has room for the VNI and the router ID's last three octets: two in the first number, one above the VNI's 24
    bits in the second. FRR's own choice counts VRFs in the order of their creation, so a restart would announce new
    routes to peers.
    """
    if vni <= RD_NUMBERS:
        return f"{router_id}:{vni}"
    octets = int(router_id)
    return f"{octets >> 8 & 0xFFFF}:{(octets & 0xFF) << 24 | vni}"


@lru_cache(KEPT_ADDRESSES)
def vtep(pool: str, index: int) -> IPInterface:
    """Return the node's tunnel endpoint as a host route: host number ``index``, so node 0 has the network address."""
    address = host_number(pool, index)
    return ip_interface(f"{address}/{address.max_prefixlen}")


@lru_cache(KEPT_ADDRESSES)
def session_addresses(pool: str, index: int) -> SessionAddresses:
    """Return both ends of a host session's veth, with the pool's own prefix length.

    The router's end is equal on every node: host number 0, or 1 when number 0 ends in a zero byte. The host's end is
    ``index + 1`` places after it.
    """
    network = parsed_network(pool)
    first = 1 if network.network_address.packed[-1] == 0 else 0
    router, host = host_number(pool, 0, first), host_number(pool, index, first + 1)
    return SessionAddresses(*(ip_interface(f"{address}/{network.prefixlen}") for address in (router, host)))


def forget_unused(resources: int) -> None:
    """Empty each cache of parsed addresses that has more than so many resources need: most are of earlier ones."""
    for parsed in (parsed_network, vtep, session_addresses, parse_cidr, parse_address):
        if parsed.cache_info().currsize > _FEW + _PER_RESOURCE * resources:
            parsed.cache_clear()
