"""The overlays of one node: each is accepted when it fits those accepted before it.

Resources come in order of precedence (:mod:`config.precedence`). One that is accepted occupies its VNI, VRF, address
ranges and bridge; one that is refused occupies nothing, so it never blocks another. What is in force loses to nothing
new.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_interface

from config.desired import (
    DesiredL2VNI,
    DesiredL3VNI,
    DesiredPassthrough,
    DesiredSession,
    DesiredUnderlay,
    Family,
    HostMasterKind,
    IPAddress,
    SessionAddresses,
    network_of,
)
from config.models import HostSession, L2Vni, L3Passthrough, L3Vni
from config.models.overlays import LinuxBridge
from config.outcomes import NodeIdentity
from config.precedence import Held, Precedence
from config.problems import Kind, Reason, ResourceId
from config.resources import Resource

from .domains import DOMAIN_FIELD, Domains
from .findings import Claim, Findings, RefusedError
from .grants import Grants
from .ipam import PoolExhaustedError, parsed_network, route_distinguisher, session_addresses
from .sessions import host_session

_KINDS = frozenset({Kind.L3VNI, Kind.L2VNI, Kind.L3PASSTHROUGH})
_BRIDGE_FIELD = "hostMaster.linuxBridge.name"
_FAMILIES = {"IPv4": Family.IPV4, "IPv6": Family.IPV6}


@dataclass(slots=True)
class Pools:
    """Disjoint address ranges with their owners, kept separately for each IP version."""

    _starts: dict[int, list[int]] = field(default_factory=lambda: {4: [], 6: []})
    _ranges: dict[int, list[tuple[int, int, Claim, str]]] = field(default_factory=lambda: {4: [], 6: []})

    def overlapping(self, pool: str) -> tuple[Claim, str] | None:
        """Return the owner and the text of a pool that overlaps this one, or None."""
        network = parsed_network(pool)
        first, last = int(network.network_address), int(network.broadcast_address)
        # Ranges are disjoint, so only the one that begins last before this one's end can reach into it.
        position = bisect_right(self._starts[network.version], last) - 1
        if position < 0:
            return None
        _, end, owner, text = self._ranges[network.version][position]
        return (owner, text) if end >= first else None

    def add(self, pool: str, owner: Claim) -> None:
        """Add a pool that overlaps none."""
        network = parsed_network(pool)
        first, last = int(network.network_address), int(network.broadcast_address)
        position = bisect_right(self._starts[network.version], first)
        self._starts[network.version].insert(position, first)
        self._ranges[network.version].insert(position, (first, last, owner, str(network)))


@dataclass(slots=True)
class Overlays:
    """The overlays accepted so far, and every number, name and address range that they occupy.

    All host sessions share the host's namespace, so their pools must not overlap; ``_subnets`` are those of each VRF.
    """

    underlay: DesiredUnderlay
    node: NodeIdentity
    grants: Grants = field(default_factory=Grants)
    l3vnis: dict[ResourceId, DesiredL3VNI] = field(default_factory=dict)
    l2vnis: dict[ResourceId, DesiredL2VNI] = field(default_factory=dict)
    passthrough: DesiredPassthrough | None = None
    standing: dict[ResourceId, Held] = field(default_factory=dict)
    _vnis: dict[int, Claim] = field(default_factory=dict)
    _vrfs: dict[str, Claim] = field(default_factory=dict)
    _distinguishers: dict[str, Claim] = field(default_factory=dict)
    _sessions: Pools = field(default_factory=Pools)
    _subnets: defaultdict[str, Pools] = field(default_factory=lambda: defaultdict(Pools))
    _external_bridges: dict[str, Claim] = field(default_factory=dict)
    _managed_bridges: dict[str, Claim] = field(default_factory=dict)
    _passthrough_owner: Claim | None = None

    def accept(self, resource: Resource, domain: Resource | None) -> None:
        """Accept a resource, given an L2VNI's routing domain. Raises :class:`RefusedError`."""
        match resource.kind:
            case Kind.L3VNI:
                self.l3vnis[resource.id] = self._l3vni(resource, resource.spec)
            case Kind.L2VNI:
                routed_by = self.l3vnis.get(domain.id) if domain else None
                if domain is not None and routed_by is None:
                    name = resource.spec.routing_domain.l3vni.name
                    message = f'referenced L3VNI "{name}" is not in force; its own error says why'
                    raise RefusedError(message, DOMAIN_FIELD, Reason.DEPENDENCY_FAILED)
                self.l2vnis[resource.id] = self._l2vni(resource, resource.spec, routed_by.vrf if routed_by else None)
            case _:
                self.passthrough = self._accept_passthrough(resource, resource.spec)

    def listed_l3vnis(self) -> tuple[DesiredL3VNI, ...]:
        """Return the L3VNIs by namespace and name, each with the subnets of its L2VNIs."""
        gateways: defaultdict[str | None, set[str]] = defaultdict(set)
        for segment in self.l2vnis.values():
            gateways[segment.vrf].update(map(network_of, segment.gateways))
        found = (replace(one, gateway_networks=tuple(sorted(gateways[one.vrf]))) for one in self.l3vnis.values())
        return tuple(sorted(found, key=_place))

    def listed_l2vnis(self) -> tuple[DesiredL2VNI, ...]:
        """Return the L2VNIs by namespace and name."""
        return tuple(sorted(self.l2vnis.values(), key=_place))

    def _l3vni(self, resource: Resource, spec: L3Vni) -> DesiredL3VNI:
        vtep = self._tunnel_address(spec.underlay_address_family)
        if spec.vrf in self.underlay.interfaces:
            raise RefusedError(f"VRF {spec.vrf} has the name of an underlay interface", "vrf")
        # Without a session the VRF's BGP instance has the underlay's AS; with one it has the session's.
        asn = spec.host_session.asn if spec.host_session else self.underlay.asn
        session = self._session(spec.host_session, asn) if spec.host_session else None
        self._check_vni(spec.vni)
        owner = self._vrfs.get(spec.vrf)
        if owner is not None:
            raise RefusedError(f"VRF {spec.vrf} already belongs to {owner}", "vrf", winner=owner)
        distinguisher = route_distinguisher(self.underlay.router_id, spec.vni)
        self._check_distinguisher(distinguisher, "vni")
        if spec.host_session is not None:
            self._claim_pools(spec.host_session, resource)
            for pool in spec.host_session.pools:
                self._subnets[spec.vrf].add(pool, Claim(resource, _pool_field(spec.host_session, pool)))
        self._vnis[spec.vni] = self._distinguishers[distinguisher] = Claim(resource, "vni")
        self._vrfs[spec.vrf] = Claim(resource, "vrf")
        return DesiredL3VNI(
            resource=resource.id,
            origin=resource.origin,
            vrf=spec.vrf,
            vni=spec.vni,
            vxlan_port=spec.vxlan_port,
            vtep=vtep,
            asn=asn,
            session=session,
            export_rts=spec.export_rts,
            import_rts=spec.import_rts,
        )

    def _l2vni(self, resource: Resource, spec: L2Vni, vrf: str | None) -> DesiredL2VNI:
        vtep = self._tunnel_address(spec.underlay_address_family)
        self._check_vni(spec.vni)
        if spec.rd is not None:
            self._check_distinguisher(spec.rd, "rd")
        bridge = spec.host_master.linux_bridge if spec.host_master else None
        self._check_bridge(resource, bridge, spec.vni)
        if vrf is not None:
            self._claim_subnets(resource, spec.gateway_ips, vrf)
        master, name = self._claim_bridge(resource, bridge, spec.vni)
        self._vnis[spec.vni] = Claim(resource, "vni")
        if spec.rd is not None:
            self._distinguishers[spec.rd] = Claim(resource, "rd")
        return DesiredL2VNI(
            resource=resource.id,
            origin=resource.origin,
            vni=spec.vni,
            vxlan_port=spec.vxlan_port,
            vtep=vtep,
            vrf=vrf,
            gateways=tuple(sorted(map(ip_interface, spec.gateway_ips), key=lambda one: one.version)),
            host_master=master,
            bridge=name,
            export_rts=spec.export_rts,
            import_rts=spec.import_rts,
            rd=spec.rd,
        )

    def _accept_passthrough(self, resource: Resource, spec: L3Passthrough) -> DesiredPassthrough:
        """It runs in the underlay's BGP instance, whatever AS is written."""
        session = self._session(spec.host_session, self.underlay.asn)
        owner = self._passthrough_owner
        if owner is not None:
            message = f"only one passthrough per node, and {owner} is used"
            raise RefusedError(message, winner=owner)
        self._claim_pools(spec.host_session, resource)
        self._passthrough_owner = Claim(resource)
        return DesiredPassthrough(resource.id, resource.origin, session)

    def _tunnel_address(self, wanted: str | None) -> IPAddress:
        """Return the local address of a VNI's tunnel: of the wanted family, else IPv4 before IPv6."""
        if not self.underlay.vteps:
            raise RefusedError("the underlay has no tunnelEndpoint, which every VNI needs")
        vtep = self.underlay.vteps[0] if wanted is None else self.underlay.vtep(_FAMILIES[wanted])
        if vtep is None:
            raise RefusedError(f"the underlay's tunnelEndpoint has no {wanted} network", "underlayAddressFamily")
        return vtep.ip

    def _session(self, written: HostSession, asn: int) -> DesiredSession:
        """Return a session with the host on this node, in a BGP instance whose AS is ``asn``."""
        addresses: list[SessionAddresses] = []
        for pool in written.pools:
            try:
                addresses.append(session_addresses(pool, self.node.index))
            except PoolExhaustedError as error:
                raise RefusedError(error.on(self.node), _pool_field(written, pool)) from None
        return host_session(written, asn, addresses)

    def _claim_pools(self, session: HostSession, claimant: Resource) -> None:
        for pool in session.pools:
            self._check_tunnels(pool, _pool_field(session, pool))
            found = self._sessions.overlapping(pool)
            if found is not None:
                owner, other = found
                message = f"{pool} overlaps {other} of a host session of {owner}"
                raise RefusedError(message, _pool_field(session, pool), winner=owner)
        for pool in session.pools:
            self._sessions.add(pool, Claim(claimant, _pool_field(session, pool)))

    def _check_tunnels(self, subnet: str, rule_field: str) -> None:
        """The connected route of a subnet with tunnel endpoints would take these from the fabric."""
        network = parsed_network(subnet)
        for pool in self.underlay.vtep_pools:
            if network.overlaps(parsed_network(pool)):
                message = f"{network} overlaps {pool}, the tunnelEndpoint of {self.underlay.resource}"
                raise RefusedError(message, rule_field)

    def _check_vni(self, vni: int) -> None:
        owner = self._vnis.get(vni)
        if owner is not None:
            raise RefusedError(f"VNI {vni} is also used by {owner}; change one of them", "vni", winner=owner)

    def _check_distinguisher(self, distinguisher: str, rule_field: str) -> None:
        """Two networks with one distinguisher have the same routes, of which FRR and the fabric keep one."""
        owner = self._distinguishers.get(distinguisher)
        if owner is not None:
            message = f"route distinguisher {distinguisher} is also that of {owner}"
            raise RefusedError(message, rule_field, winner=owner)

    def _claim_subnets(self, claimant: Resource, gateways: Sequence[str], vrf: str) -> None:
        """Upstream refuses everything in a VRF in which two subnets overlap (reference VAL-V-1); here the later one."""
        for index, gateway in enumerate(gateways):
            rule_field = f"gatewayIPs[{index}]"
            self._check_tunnels(gateway, rule_field)
            found = self._subnets[vrf].overlapping(gateway)
            if found is not None:
                owner, other = found
                subnet = parsed_network(gateway)
                message = f"{subnet} overlaps {other} of {owner} in VRF {vrf}"
                raise RefusedError(message, rule_field, winner=owner)
        for index, gateway in enumerate(gateways):
            self._subnets[vrf].add(gateway, Claim(claimant, f"gatewayIPs[{index}]"))

    def _check_bridge(self, claimant: Resource, bridge: LinuxBridge | None, vni: int) -> None:
        """Several segments may share a bridge of the user's, but nothing may share a bridge that the router makes."""
        if bridge is None:
            return
        if bridge.name is None:
            owner = self._external_bridges.get(managed_bridge(vni))
            if owner is not None:
                message = f"{owner} uses bridge {managed_bridge(vni)} as an external one"
                raise RefusedError(message, "hostMaster", winner=owner)
            return
        self.grants.check_bridge(claimant, bridge.name, _BRIDGE_FIELD)
        owner = self._managed_bridges.get(bridge.name)
        if owner is not None:
            message = f"bridge {bridge.name} is created by the router for {owner}"
            raise RefusedError(message, _BRIDGE_FIELD, winner=owner)
        if bridge.name in self.underlay.interfaces:
            raise RefusedError(f"bridge {bridge.name} has the name of an underlay interface", _BRIDGE_FIELD)

    def _claim_bridge(
        self, claimant: Resource, bridge: LinuxBridge | None, vni: int
    ) -> tuple[HostMasterKind, str | None]:
        if bridge is None:
            return HostMasterKind.NONE, None
        if bridge.name is None:
            self._managed_bridges[managed_bridge(vni)] = Claim(claimant, "hostMaster")
            return HostMasterKind.MANAGED_BRIDGE, managed_bridge(vni)
        self._external_bridges.setdefault(bridge.name, Claim(claimant, _BRIDGE_FIELD))
        return HostMasterKind.EXTERNAL_BRIDGE, bridge.name


def accept_overlays(
    resources: Sequence[Resource],
    node: NodeIdentity,
    underlay: DesiredUnderlay,
    precedence: Precedence,
    findings: Findings,
    *,
    grants: Grants,
) -> Overlays:
    """Return what is in force of all the node's resources; ``findings`` say why others are not."""
    overlays = Overlays(underlay, node, grants)
    domains = _domains(resources, node.name, precedence, findings)
    ordered = sorted(_candidates(resources, domains), key=lambda one: precedence.key(one, domains.get(one.id)))
    for resource in ordered:
        domain = domains.get(resource.id)
        try:
            if resource.kind is Kind.L3PASSTHROUGH:
                grants.check_passthrough(resource, precedence, findings)
            overlays.accept(resource, domain)
        except RefusedError as refusal:
            findings.refuse(resource, refusal)
            continue
        overlays.standing[resource.id] = precedence.hold(resource.id, domain.id if domain else None)
        if resource.kind is Kind.L3PASSTHROUGH and resource.spec.host_session.asn != underlay.asn:
            message = f"has no effect: the session runs in the underlay's BGP instance, whose AS is {underlay.asn}"
            findings.warn(resource, message, "hostSession.asn")
    return overlays


def _domains(
    resources: Iterable[Resource], node_name: str, precedence: Precedence, findings: Findings
) -> dict[ResourceId, Resource | None]:
    """Return the routing domain of each L2VNI; those whose domain does not exist are refused, and left out."""
    known = Domains((one for one in resources if one.kind is Kind.L3VNI), node_name, precedence.standing)
    found: dict[ResourceId, Resource | None] = {}
    for resource in resources:
        if resource.kind is not Kind.L2VNI or not resource.is_usable:
            continue
        try:
            found[resource.id] = known.find(resource, findings)
        except RefusedError as refusal:
            findings.refuse(resource, refusal)
    return found


def _candidates(resources: Iterable[Resource], domains: Mapping[ResourceId, object]) -> Iterator[Resource]:
    for resource in resources:
        refused = resource.kind is Kind.L2VNI and resource.id not in domains
        if resource.kind in _KINDS and resource.is_usable and not refused:
            yield resource


def managed_bridge(vni: int) -> str:
    """Return the name of the host bridge that the router makes for a VNI."""
    return f"br-hs-{vni}"


def _pool_field(session: HostSession, pool: str) -> str:
    return f"hostSession.{session.field_of(pool)}"


def _place(part: DesiredL3VNI | DesiredL2VNI) -> tuple[str, str]:
    return part.resource.namespace, part.resource.name
