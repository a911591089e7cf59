"""From everything that users wrote to the one value that says what this node should be.

A pure function of its arguments, independent of the order of the resources, and wherever they come from. Resources fail
alone: one that breaks a rule takes itself and its dependents out, named in the problems, and everything else proceeds.
Of two that clash, the one in force stays (:mod:`config.resolve.precedence`). Only the underlay is different: while it
is not usable nothing may change, which the result says with ``desired`` None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_interface
from types import MappingProxyType
from typing import Any, Final, TypeVar

from config.desired import (
    BGPFamily,
    DesiredL2VNI,
    DesiredL3VNI,
    DesiredPassthrough,
    DesiredRawFRR,
    DesiredState,
    DesiredUnderlay,
    GracefulRestart,
    HostMasterKind,
    network_of,
)
from config.models import RawFrrConfig
from config.models.overlays import HostMaster
from config.outcomes import NodeIdentity
from config.problems import Kind, Problem, ResourceId
from config.resources import Resource, UnknownContent, Unusable
from config.validation.allocations import Taken
from config.validation.findings import Findings, in_order
from config.validation.overlays import accept_overlays
from config.validation.passthroughs import PlacedPassthrough
from config.validation.underlays import PlacedUnderlay, UnderlayRefusedError, choose_underlay
from config.validation.vnis import PlacedL2, PlacedL3, managed_bridge

from .precedence import NOBODY, Held, Precedence, Standing
from .selection import selects
from .sessions import Configured, fabric_neighbor, host_session

P = TypeVar("P", PlacedL3, PlacedL2)
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Resolution:
    """``desired`` None: the underlay is not usable and everything must stay as it is; ``problems`` say why.

    ``standing`` is what is in force now, for the next resolution.
    """

    desired: DesiredState | None
    problems: tuple[Problem, ...] = ()
    standing: Standing = field(default_factory=lambda: NOBODY)


@dataclass(slots=True)
class _Parts:
    """The node's overlays as far as they are in force."""

    l3vnis: tuple[DesiredL3VNI, ...] = ()
    l2vnis: tuple[DesiredL2VNI, ...] = ()
    passthrough: DesiredPassthrough | None = None
    underlay: DesiredUnderlay | None = None
    standing: dict[ResourceId, Held] = field(default_factory=dict)


def resolve(
    resources: Sequence[Resource],
    node: NodeIdentity,
    *,
    labels: Mapping[str, str] = _NO_LABELS,
    standing: Standing = NOBODY,
    generation: int = 0,
    reload_id: int = 0,
) -> Resolution:
    """Return what the node should be, and every problem found on the way.

    ``resources`` come from files and API alike, valid ones with their model as ``spec``, others with
    :class:`~config.resolve.unusable.Unusable`. ``labels`` are the node's, ``standing`` is what was in force until
    now. Raises nothing for anything that users can write.
    """
    selected = _select(resources, labels)
    precedence = Precedence(selected, standing)
    findings = Findings()
    try:
        underlay = choose_underlay(_of(Kind.UNDERLAY, selected), node.index, precedence, findings)
    except UnderlayRefusedError:
        return Resolution(None, _sorted(findings), standing)
    if underlay is None:
        parts = _without_underlay(selected, precedence, findings)
    else:
        parts = _overlays(selected, underlay, node, precedence, findings)
    problems = _sorted(findings)
    state = DesiredState(
        generation=generation,
        node_name=node.name,
        node_index=node.index,
        reload_id=reload_id,
        log_level=node.log_level,
        underlay=parts.underlay,
        l3vnis=parts.l3vnis,
        l2vnis=parts.l2vnis,
        passthrough=parts.passthrough,
        raw_frr=_raw_snippets(_of(Kind.RAW_FRR_CONFIG, selected)),
        problems=problems,
    )
    return Resolution(state, problems, MappingProxyType(parts.standing))


def _sorted(findings: Findings) -> tuple[Problem, ...]:
    return tuple(sorted(findings.problems, key=lambda problem: (problem.origin, problem.field, problem.message)))


def _select(resources: Iterable[Resource], labels: Mapping[str, str]) -> list[Resource]:
    """Return the resources for this node, in order."""
    return in_order(resource for resource in resources if _is_for(resource.spec, labels))


def _is_for(spec: Any, labels: Mapping[str, str]) -> bool:
    if isinstance(spec, Unusable | UnknownContent):
        return True
    return selects(spec.node_selector, labels)


def _of(kind: Kind, resources: Iterable[Resource]) -> list[Resource]:
    return [resource for resource in resources if resource.kind is kind]


def _without_underlay(resources: Sequence[Resource], precedence: Precedence, findings: Findings) -> _Parts:
    """No underlay is a legal state that means: nothing but raw snippets. Who was there before keeps its place."""
    for resource in resources:
        idle = resource.kind not in (Kind.UNDERLAY, Kind.RAW_FRR_CONFIG)
        if idle and not isinstance(resource.spec, Unusable):
            findings.warn(resource, "not in force: no underlay is configured for this node")
    known = {resource.id for resource in resources}
    return _Parts(standing={one: held for one, held in precedence.standing.items() if one in known})


def _overlays(
    resources: Sequence[Resource],
    underlay: PlacedUnderlay,
    node: NodeIdentity,
    precedence: Precedence,
    findings: Findings,
) -> _Parts:
    taken = Taken.beside(underlay, node.index)
    accepted = accept_overlays(resources, node.name, taken, precedence, findings)
    passthrough = accepted.passthrough
    if passthrough is not None and passthrough.spec.host_session.asn != underlay.spec.asn:
        message = f"has no effect: the session runs in the underlay's BGP instance, whose AS is {underlay.spec.asn}"
        findings.warn(passthrough.resource, message, "hostSession.asn")
    l2vnis = _listed(accepted.l2vnis.values())
    return _Parts(
        l3vnis=tuple(_l3vni(placed, underlay, l2vnis) for placed in _listed(accepted.l3vnis.values())),
        l2vnis=tuple(_l2vni(placed) for placed in l2vnis),
        passthrough=_passthrough(passthrough, underlay) if passthrough else None,
        underlay=_underlay(underlay, Configured.by(resources)),
        standing={underlay.resource.id: precedence.hold(underlay.resource), **accepted.standing(precedence)},
    )


def _listed(placed: Iterable[P]) -> list[P]:
    return sorted(placed, key=lambda one: (one.resource.namespace, one.resource.name))


def _underlay(placed: PlacedUnderlay, configured: Configured) -> DesiredUnderlay:
    spec = placed.spec
    neighbors = tuple(fabric_neighbor(neighbor, spec, configured) for neighbor in spec.neighbors)
    restart = spec.graceful_restart
    return DesiredUnderlay(
        resource=placed.resource.id,
        origin=placed.resource.origin,
        asn=spec.asn,
        router_id=placed.router_id,
        interfaces=tuple(interface.name for interface in spec.interfaces),
        neighbors=neighbors,
        vteps=placed.vteps,
        graceful_restart=(
            GracefulRestart(restart.restart_time_seconds, restart.stale_path_time_seconds) if restart else None
        ),
        advertise_evpn=bool(placed.vteps) or any(BGPFamily.EVPN in neighbor.families for neighbor in neighbors),
    )


def _l3vni(placed: PlacedL3, underlay: PlacedUnderlay, l2vnis: Iterable[PlacedL2]) -> DesiredL3VNI:
    """Without a session the VRF's instance has the underlay's AS; with one it has the session's."""
    spec, written = placed.spec, placed.spec.host_session
    gateways = {
        network_of(ip_interface(gateway)) for l2 in l2vnis if l2.domain is placed for gateway in l2.spec.gateway_ips
    }
    return DesiredL3VNI(
        resource=placed.resource.id,
        origin=placed.resource.origin,
        vrf=spec.vrf,
        vni=spec.vni,
        vxlan_port=spec.vxlan_port,
        vtep=placed.vtep,
        asn=written.asn if written else underlay.spec.asn,
        session=host_session(written, written.asn, placed.addresses) if written else None,
        export_rts=spec.export_rts,
        import_rts=spec.import_rts,
        gateway_networks=tuple(sorted(gateways)),
    )


def _l2vni(placed: PlacedL2) -> DesiredL2VNI:
    spec = placed.spec
    master, bridge = _host_master(spec.host_master, spec.vni)
    return DesiredL2VNI(
        resource=placed.resource.id,
        origin=placed.resource.origin,
        vni=spec.vni,
        vxlan_port=spec.vxlan_port,
        vtep=placed.vtep,
        vrf=placed.domain.spec.vrf if placed.domain else None,
        gateways=tuple(sorted((ip_interface(gateway) for gateway in spec.gateway_ips), key=lambda one: one.version)),
        host_master=master,
        bridge=bridge,
    )


def _host_master(master: HostMaster | None, vni: int) -> tuple[HostMasterKind, str | None]:
    if master is None or master.linux_bridge is None:
        return HostMasterKind.NONE, None
    if master.linux_bridge.name is None:
        return HostMasterKind.MANAGED_BRIDGE, managed_bridge(vni)
    return HostMasterKind.EXTERNAL_BRIDGE, master.linux_bridge.name


def _passthrough(placed: PlacedPassthrough, underlay: PlacedUnderlay) -> DesiredPassthrough:
    session = host_session(placed.spec.host_session, underlay.spec.asn, placed.addresses)
    return DesiredPassthrough(placed.resource.id, placed.resource.origin, session)


def _raw_snippets(resources: Iterable[Resource]) -> tuple[DesiredRawFRR, ...]:
    """Return the snippets by priority; equal ones in the order of their files, then by name."""
    snippets = []
    for resource in resources:
        if isinstance(resource.spec, RawFrrConfig):
            spec = resource.spec
            snippets.append(DesiredRawFRR(resource.id, resource.origin, spec.priority, spec.raw_config))
    return tuple(sorted(snippets, key=lambda one: (one.priority, one.origin.path, one.origin.line, one.origin.column)))
