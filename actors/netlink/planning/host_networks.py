"""What must not take a network from the host that the host, or one of the fabric's NICs, already has. Pure.

The session's connected route would take them from what they are for: the API server, name service, pods. Only an
address that is not there yet is judged: what is in force does not lose to a route that comes later. What goes through a
device of ours is ours, above all what the host's BGP speaker learns; a default route overlaps everything and is left
out.

What a session announces to the host takes networks from it, too: the gateways' subnets of its VRF, and a passthrough
the tunnel endpoints. They must not contain a network of the host, but may be part of one, since a summary route is no
use of what it covers. What the host has learned itself does not count: it may be this very network, by another way. A
session in a VRF of the host announces nothing to the main table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from itertools import product

from config.desired import DesiredState, IPInterface, IPNetwork
from config.problems import ResourceId
from config.resolve.host_networks import HostNetwork

from .observed import (
    CONFIGURED_PROTOCOLS,
    MAIN_TABLE,
    NIC_GROUP,
    PASSTHROUGH_HOST,
    Namespace,
    NamespaceView,
    NicRecord,
    Observed,
    host_veth,
    router_bridge,
)
from .wanted import KernelModel


def has_new_address(desired: DesiredState, host: NamespaceView, router: NamespaceView) -> bool:
    """Return whether an address of a session or a gateway is not there yet, so that the host's networks matter."""
    gateways = ((router_bridge(vni.vni), gateway) for vni in desired.l2vnis for gateway in vni.gateways)
    return _has_new_session(desired, host) or not all(router.has(name, one) for name, one in gateways)


def _has_new_session(desired: DesiredState, host: NamespaceView) -> bool:
    sessions = [(host_veth(vni.vni), vni.session) for vni in desired.l3vnis]
    if desired.passthrough is not None:
        sessions.append((PASSTHROUGH_HOST, desired.passthrough.session))
    return not all(
        host.has(name, pair.host) for name, session in sessions if session is not None for pair in session.addresses
    )


def conflicts(desired: DesiredState, model: KernelModel, observed: Observed) -> Iterator[tuple[ResourceId, str]]:
    """Yield each resource with a new address in a network that is in use, and why, with both networks."""
    used = (*observed.host_networks, *_of_nics(model, observed))
    yield from _announced(desired, observed, [one for one in used if not one.learned])
    for link in model.links:
        if link.namespace is not Namespace.HOST or not link.addresses:
            continue
        present = observed.host.interfaces(link.name)
        for interface in link.addresses:
            if interface not in present:
                for one in used:
                    if interface.network.version == one.network.version and _overlap(interface, one):
                        yield link.resource, f"host session {interface.network} overlaps {one.what}"


def machine_networks(
    host: NamespaceView, router: NamespaceView, journal: Mapping[str, NicRecord], routes: Iterable[HostNetwork]
) -> tuple[HostNetwork, ...]:
    """Return what tunnel endpoints must not take of the machine's subnets and ``routes``.

    In the same words whether the router has its NICs or not: one that has moved is known by its addresses there, and by
    what the journal says that the host had.
    """
    moved = [name for name, link in router.links.items() if link.group == NIC_GROUP]
    own = [name for name, link in host.links.items() if not link.ours]
    found = {(name, one) for view, names in ((host, own), (router, moved)) for name in names
             for one in view.interfaces(name)}  # fmt: skip
    found |= {(name, address.interface) for name, nic in journal.items() for address in nic.addresses}
    interfaces = {(name, one.network) for name, one in found if not (one.ip.is_link_local or one.ip.is_loopback)}
    connected = {f"the host's route {network} dev {name}" for name, network in interfaces}
    listed = [one for one in routes if not (one.learned or one.network.is_link_local or one.what in connected)]
    listed += [
        HostNetwork(ip_network(route.destination), f"the host's route {route.destination} dev {name}")
        for name, nic in journal.items()
        for route in nic.routes
        if route.protocol in CONFIGURED_PROTOCOLS and route.table == MAIN_TABLE and not route.destination.endswith("/0")
    ]
    subnets = [
        HostNetwork(network, f"{network}, the subnet of interface {name}", interface=name)
        for name, network in interfaces
    ]
    return (*sorted(subnets, key=lambda one: one.what), *sorted(set(listed), key=lambda one: one.what))


def _announced(
    desired: DesiredState, observed: Observed, used: Sequence[HostNetwork]
) -> Iterator[tuple[ResourceId, str]]:
    """Yield what is new and would be announced to the host's main table although it contains a network in use."""
    joined = {vni.vrf for vni in desired.l3vnis if vni.session is not None and not vni.session.host_vrf}
    for segment in desired.l2vnis:
        present = observed.router.interfaces(router_bridge(segment.vni))
        new = [gateway.network for gateway in segment.gateways if gateway not in present]
        for network, one in _containing(new if segment.vrf in joined else (), used):
            yield segment.resource, f"gateway network {network} contains {one.what}, and is announced to the host"
    passthrough, underlay = desired.passthrough, desired.underlay
    if passthrough is None or underlay is None or passthrough.session.host_vrf:
        return
    present = observed.host.interfaces(PASSTHROUGH_HOST)
    if any(pair.host not in present for pair in passthrough.session.addresses):
        pools = [ip_network(pool, strict=False) for pool in underlay.vtep_pools]
        for network, one in _containing(pools, used):
            what = f"the tunnelEndpoint {network} of {underlay.resource}"
            yield passthrough.resource, f"{what} contains {one.what}, and is announced to the host"


def _containing(networks: Iterable[IPNetwork], used: Iterable[HostNetwork]) -> Iterator[tuple[IPNetwork, HostNetwork]]:
    for network, one in product(networks, used):
        if network.version == one.network.version and one.network[0] in network and one.network[-1] in network:
            yield network, one


def _overlap(interface: IPInterface, one: HostNetwork) -> bool:
    network = interface.network
    return one.network[0] in network or network[0] in one.network


def _of_nics(model: KernelModel, observed: Observed) -> Iterator[HostNetwork]:
    """Yield the subnets of the NICs, wherever they are."""
    inside = {name for name, link in observed.router.links.items() if link.group == NIC_GROUP}
    for name in sorted(inside.union(model.nics, observed.journal)):
        interfaces = observed.router.interfaces(name) | observed.host.interfaces(name)
        if name in observed.journal:
            interfaces |= {address.interface for address in observed.journal[name].addresses}
        for interface in sorted(interfaces, key=str):
            if not interface.ip.is_link_local:
                yield HostNetwork(interface.network, f"{interface} of the underlay's interface {name}")
