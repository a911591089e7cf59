"""Where a host session must not be: in networks that the host or the fabric's NICs already have. Pure.

The session's connected route would take them from what they are for: the API server, name service, pods. Only an
address that is not there yet is judged: what is in force does not lose to a route that comes later. What goes through a
device of ours is ours, above all what the host's BGP speaker learns; a default route overlaps everything and is left
out.
"""

from __future__ import annotations

from collections.abc import Iterator

from config.desired import DesiredState, IPInterface
from config.problems import ResourceId

from .observed import NIC_GROUP, PASSTHROUGH_HOST, HostNetwork, Namespace, NamespaceView, Observed, host_veth
from .wanted import KernelModel


def has_new_session(desired: DesiredState, host: NamespaceView) -> bool:
    """Return whether a session's address is not in the host yet, so that the host's networks matter."""
    sessions = [(host_veth(vni.vni), vni.session) for vni in desired.l3vnis]
    if desired.passthrough is not None:
        sessions.append((PASSTHROUGH_HOST, desired.passthrough.session))
    return any(
        pair.host not in host.interfaces(name)
        for name, session in sessions
        if session is not None
        for pair in session.addresses
    )


def conflicts(model: KernelModel, observed: Observed) -> Iterator[tuple[ResourceId, str]]:
    """Yield each resource with a new address in a network that is in use, and why, with both networks."""
    used = (*observed.host_networks, *_of_nics(model, observed))
    for link in model.links:
        if link.namespace is not Namespace.HOST or not link.addresses:
            continue
        present = observed.host.interfaces(link.name)
        for interface in link.addresses:
            if interface not in present:
                for one in used:
                    if interface.network.version == one.network.version and _overlap(interface, one):
                        yield link.resource, f"host session {interface.network} overlaps {one.what}"


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
