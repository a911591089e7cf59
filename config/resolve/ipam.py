"""From the node's index to its addresses.

No state and no negotiation: every node computes its own addresses, and its neighbours', from the pools that all nodes
share. The formulas are upstream's (reference 4.0), since nodes of both kinds may meet in one fabric. A pool is always
masked first; "host number n" is its network address plus n, and must lie inside it.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Network, ip_interface, ip_network
from typing import Final

from config.desired import IPAddress, IPInterface, SessionAddresses

#: One uSID F3216 locator: 32 bits of block and 16 of node.
_LOCATOR_BITS: Final = 48
#: An IS-IS system identifier (ISO 10589).
_SYSTEM_ID_BITS: Final = 48


class PoolExhaustedError(ValueError):
    """The node's index has no place in a pool; the text names both."""


def host_number(pool: str, number: int) -> IPAddress:
    """Return the address ``number`` places after the pool's network address."""
    network = ip_network(pool, strict=False)
    if not 0 <= number < network.num_addresses:
        raise PoolExhaustedError(f"{network} has no host number {number}")
    return network.network_address + number


def router_id(pool: str, index: int) -> IPv4Address:
    """Return the node's router ID: host number ``index + 1``."""
    address = host_number(pool, index + 1)
    if not isinstance(address, IPv4Address):
        raise PoolExhaustedError(f"{pool} is not an IPv4 network")
    return address


def vtep(pool: str, index: int) -> IPInterface:
    """Return the node's tunnel endpoint as a host route: host number ``index``, so node 0 has the network address."""
    address = host_number(pool, index)
    return ip_interface(f"{address}/{address.max_prefixlen}")


def session_addresses(pool: str, index: int) -> SessionAddresses:
    """Return both ends of a host session's veth, with the pool's own prefix length.

    The router's end is equal on every node: host number 0, or 1 when number 0 ends in a zero byte. The host's end is
    ``index + 1`` places after it.
    """
    network = ip_network(pool, strict=False)
    first = 1 if network.network_address.packed[-1] == 0 else 0
    router, host = host_number(pool, first), host_number(pool, first + 1 + index)
    return SessionAddresses(*(ip_interface(f"{address}/{network.prefixlen}") for address in (router, host)))


def srv6_locator(base: str, index: int) -> IPv6Network:
    """Return the node's uSID F3216 locator: the /48 that is ``index`` blocks after the base prefix.

    Node 0 has the base prefix with its own length.
    """
    network = IPv6Network(base, strict=False)
    if index == 0:
        return network
    block = int(network.network_address) >> (128 - _LOCATOR_BITS)
    if index < 0 or block + index >= 1 << _LOCATOR_BITS:
        raise PoolExhaustedError(f"no locator number {index} after {network}")
    return IPv6Network(((block + index) << (128 - _LOCATOR_BITS), _LOCATOR_BITS))


def isis_net(base: str, index: int) -> str:
    """Return the node's IS-IS network entity title: the base's six-byte system identifier plus ``index``."""
    area, *system, selector = base.rsplit(".", 4)
    number = int("".join(system), 16) + index
    if index < 0 or number >= 1 << _SYSTEM_ID_BITS:
        raise PoolExhaustedError(f"no system identifier number {index} after {base}")
    digits = f"{number:012x}"
    return ".".join((area, digits[:4], digits[4:8], digits[8:], selector))
