"""One VNI beside those that are in force already: it fits, or it is refused and occupies nothing."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from config.desired import IPAddress, SessionAddresses
from config.models import L2Vni, L3Vni
from config.resolve.precedence import named
from config.resources import Resource

from .allocations import Taken
from .findings import RefusedError
from .host_sessions import check_overlap, claim, place_session
from .tunnels import tunnel_address


@dataclass(frozen=True, slots=True)
class PlacedL3:
    """An accepted L3VNI with its addresses on this node."""

    resource: Resource
    spec: L3Vni
    vtep: IPAddress
    addresses: tuple[SessionAddresses, ...]


@dataclass(frozen=True, slots=True)
class PlacedL2:
    """An accepted L2VNI with the L3VNI that routes for it, if any."""

    resource: Resource
    spec: L2Vni
    vtep: IPAddress
    domain: PlacedL3 | None


def accept_l3vni(resource: Resource, taken: Taken) -> PlacedL3:
    """Return the L3VNI as it is on this node, and take what it occupies. Raises :class:`RefusedError`."""
    spec: L3Vni = resource.spec
    vtep = tunnel_address(spec.underlay_address_family, taken.underlay.vteps)
    if spec.vrf in taken.interfaces:
        raise RefusedError(f"VRF {spec.vrf} has the name of an underlay interface", "vrf")
    addresses = place_session(spec.host_session, taken.index) if spec.host_session else ()
    _check_vni(spec.vni, taken)
    owner = taken.vrfs.get(spec.vrf)
    if owner is not None:
        raise RefusedError(f"VRF {spec.vrf} is that of {named(owner)} already", "vrf", winner=owner)
    if spec.host_session is not None:
        check_overlap(spec.host_session, taken.pools)
        claim(spec.host_session, resource, taken.pools)
        claim(spec.host_session, resource, taken.subnets[spec.vrf])
    taken.vnis[spec.vni] = resource
    taken.vrfs[spec.vrf] = resource
    return PlacedL3(resource, spec, vtep, addresses)


def accept_l2vni(resource: Resource, domain: PlacedL3 | None, taken: Taken) -> PlacedL2:
    """Return the L2VNI as it is on this node, and take what it occupies. Raises :class:`RefusedError`."""
    spec: L2Vni = resource.spec
    vtep = tunnel_address(spec.underlay_address_family, taken.underlay.vteps)
    _check_vni(spec.vni, taken)
    _check_bridge(spec, taken)
    if domain is not None:
        _check_subnets(spec, domain.spec.vrf, taken)
        for gateway in spec.gateway_ips:
            taken.subnets[domain.spec.vrf].add(gateway, resource)
    _take_bridge(resource, spec, taken)
    taken.vnis[spec.vni] = resource
    return PlacedL2(resource, spec, vtep, domain)


def _check_vni(vni: int, taken: Taken) -> None:
    owner = taken.vnis.get(vni)
    if owner is not None:
        raise RefusedError(f"duplicate vni {vni}: {named(owner)}", "vni", winner=owner)


def _check_subnets(spec: L2Vni, vrf: str, taken: Taken) -> None:
    """Upstream refuses everything in a VRF in which two subnets overlap (reference VAL-V-1); here the later one."""
    for gateway in spec.gateway_ips:
        owner = taken.subnets[vrf].overlapping(gateway)
        if owner is not None:
            subnet = ip_network(gateway, strict=False)
            message = f"subnets overlap in VRF {vrf}: {subnet} with a subnet of {named(owner)}"
            raise RefusedError(message, "gatewayIPs", winner=owner)


def managed_bridge(vni: int) -> str:
    """Return the name of the host bridge that the router makes for a VNI."""
    return f"br-hs-{vni}"


def _check_bridge(spec: L2Vni, taken: Taken) -> None:
    """Several segments may share a bridge of the user's, but nothing may share a bridge that we make."""
    bridge = spec.host_master.linux_bridge if spec.host_master else None
    if bridge is None:
        return
    name_field = "hostMaster.linuxBridge.name"
    if bridge.name is None:
        name = managed_bridge(spec.vni)
        owner = taken.external_bridges.get(name)
        if owner is not None:
            raise RefusedError(f"bridge {name} is a user's bridge for {named(owner)}", "hostMaster", winner=owner)
        return
    owner = taken.managed_bridges.get(bridge.name)
    if owner is not None:
        message = f"bridge {bridge.name} is made by the router for {named(owner)}"
        raise RefusedError(message, name_field, winner=owner)
    if bridge.name in taken.interfaces:
        raise RefusedError(f"bridge {bridge.name} has the name of an underlay interface", name_field)


def _take_bridge(resource: Resource, spec: L2Vni, taken: Taken) -> None:
    bridge = spec.host_master.linux_bridge if spec.host_master else None
    if bridge is not None and bridge.name is None:
        taken.managed_bridges[managed_bridge(spec.vni)] = resource
    elif bridge is not None and bridge.name is not None:
        taken.external_bridges.setdefault(bridge.name, resource)
