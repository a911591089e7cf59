"""Tunnel endpoints must not take a network that the machine uses. Pure.

    a range of the underlay, what the machine uses, the ranges in force -> nothing, or the network in its way

A range is refused when it contains a route, a subnet or a server of the host, or overlaps the subnet of one of the
underlay's own interfaces. Only a new range is: one in force keeps a node connected, whatever routes come later, and at
a start it may be all that the node has. What a routing daemon taught the host does not count, since that may be this
very range. Whether the router has its NICs already makes no difference, so a restart judges as the first start did.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from config.desired import IPNetwork
from config.models import Underlay
from config.models.types import parse_cidr
from config.problems import Kind
from config.resources import Resource


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """A network that the host uses, and what it is: ``the host's route 10.96.0.0/12 dev eth0``.

    ``learned``: by a routing daemon or from a router advertisement. ``interface``: whose subnet it is.
    """

    network: IPv4Network | IPv6Network
    what: str
    learned: bool = False
    interface: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the machine uses, and the ranges in force; None: unknown, so each may be."""

    networks: tuple[HostNetwork, ...] = ()
    in_force: frozenset[IPNetwork] | None = frozenset()

    def is_in_force(self, network: IPNetwork) -> bool:
        """Whether a range, or one that it is part of, is in force."""
        return self.in_force is None or any(_contains(one, network) for one in self.in_force)

    def conflict(self, network: IPNetwork, interfaces: Collection[str]) -> str:
        """Return what a range takes or overlaps, given the underlay's interfaces; nothing if it takes nothing."""
        for one in self.networks:
            if _contains(network, one.network) and not one.learned:
                return f"{network} contains {one.what}"
            if one.interface in interfaces and _contains(one.network, network):
                return f"{network} is part of {one.what}"
        return ""


#: For who does not know the machine: nothing is judged.
ANYWHERE: Final = Surroundings()


def ranges(resources: Iterable[Resource]) -> frozenset[IPNetwork]:
    """Return the tunnel endpoints' ranges of all usable underlays."""
    specs: list[Underlay] = [one.spec for one in resources if one.kind is Kind.UNDERLAY and one.is_usable]
    return networks(pool for spec in specs if spec.tunnel_endpoint for pool in spec.tunnel_endpoint.cidrs)


def networks(pools: Iterable[str]) -> frozenset[IPNetwork]:
    """Return ranges as networks."""
    return frozenset(parse_cidr(pool).network for pool in pools)


def _contains(outer: IPNetwork, inner: IPNetwork) -> bool:
    return outer.version == inner.version and inner[0] in outer and inner[-1] in outer
