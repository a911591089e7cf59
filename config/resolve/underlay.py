"""The underlay of this node: which of several it is, and what its pools give this node.

No underlay is a legal state. An underlay that cannot be used is not: :class:`UnderlayUnusableError` then means that the
running configuration must be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from config.desired import BGPFamily, CniAttachment, DesiredUnderlay, GracefulRestart, IPInterface
from config.models import Underlay
from config.models.cni import canonical
from config.models.types import parse_cidr
from config.outcomes import NodeIdentity
from config.precedence import Precedence
from config.problems import Kind, Problem, Reason
from config.resources import Resource, UnknownContent

from .findings import Claim, Findings, RefusedError
from .grants import Grants
from .host_networks import ANYWHERE, Surroundings
from .ipam import PoolExhaustedError, router_id, vtep
from .sessions import Configured, fabric_neighbor

#: The shortest prefix of a listen range without a warning, by IP version: a private network, a provider's block.
_SHORTEST_RANGE: Final = {4: 8, 6: 32}


class UnderlayUnusableError(Exception):
    """The node's underlay cannot be determined or is invalid, which is not the same as none."""


def underlay_doubts(
    resources: Sequence[Resource], node: NodeIdentity, surroundings: Surroundings = ANYWHERE
) -> tuple[Problem, ...] | None:
    """Return None when the resources have a usable underlay or rightly none; else why not.

    The problems of an underlay that is invalid by itself are reported where it was read, and not again here.
    """
    findings = Findings()
    precedence = Precedence(one for one in resources if one.kind is Kind.UNDERLAY)
    try:
        resolve_underlay(resources, node, precedence, findings, Grants(), surroundings=surroundings)
    except UnderlayUnusableError:
        return findings.sorted()
    return None


def resolve_underlay(
    resources: Sequence[Resource],
    node: NodeIdentity,
    precedence: Precedence,
    findings: Findings,
    grants: Grants,
    *,
    surroundings: Surroundings,
) -> DesiredUnderlay | None:
    """Return the node's underlay, or None when there is none. Raises :class:`UnderlayUnusableError`."""
    underlays = [one for one in resources if one.kind is Kind.UNDERLAY]
    counted = [one for one in underlays if _counts(one, grants, precedence, findings)]
    chosen = _choose(counted, precedence, findings)
    if chosen is None:
        return None
    if not chosen.is_usable:
        raise UnderlayUnusableError
    _warn_of_open_ranges(chosen, findings)
    try:
        _judge(chosen, surroundings, findings)
        return _resolved(chosen, node, Configured.by([one for one in resources if _has_say(one, grants, precedence)]))
    except RefusedError as refusal:
        findings.refuse(chosen, refusal)
        raise UnderlayUnusableError from None


def _has_say(resource: Resource, grants: Grants, precedence: Precedence) -> bool:
    return resource.kind is not Kind.L3PASSTHROUGH or grants.passthrough_counts(resource, precedence)


def _counts(underlay: Resource, grants: Grants, precedence: Precedence, findings: Findings) -> bool:
    try:
        return grants.underlay_counts(underlay, precedence, findings)
    except RefusedError as refusal:
        findings.refuse(underlay, refusal)
        raise UnderlayUnusableError from None


def _warn_of_open_ranges(underlay: Resource, findings: Findings) -> None:
    """Warn of listen ranges from which anyone, or nearly anyone, gets a session.

    They are not refused: without its underlay a node has no network at the next start, and upstream takes any range.
    """
    spec: Underlay = underlay.spec
    for index, neighbor in enumerate(spec.neighbors):
        if neighbor.listen_range is None:
            continue
        network, field = parse_cidr(neighbor.listen_range).network, f"neighbors[{index}].listenRange"
        if neighbor.password is None:
            message = f"every speaker with an address in {network} gets a session: set password or passwordSecret"
            findings.warn(underlay, message, field)
        if network.prefixlen < _SHORTEST_RANGE[network.version]:
            shortest = f"/{_SHORTEST_RANGE[network.version]}"
            findings.warn(underlay, f"{network} is more than a fabric has: use ranges of {shortest} or longer", field)


def _judge(underlay: Resource, surroundings: Surroundings, findings: Findings) -> None:
    """Refuse a new range of tunnel endpoints that takes a network of the machine; warn of one that is in force."""
    spec: Underlay = underlay.spec
    interfaces = {interface.name for interface in spec.interfaces}
    for index, pool in enumerate(spec.tunnel_endpoint.cidrs if spec.tunnel_endpoint else ()):
        network, field = parse_cidr(pool).network, f"tunnelEndpoint.cidrs[{index}]"
        conflict = surroundings.conflict(network, interfaces)
        if conflict and not surroundings.is_in_force(network):
            raise RefusedError(conflict, field)
        if conflict:
            findings.warn(underlay, f"{conflict}; since it is in force it stays", field)


def _choose(underlays: Sequence[Resource], precedence: Precedence, findings: Findings) -> Resource | None:
    """Return the first by precedence, usable or not: one that is in force and becomes invalid is not replaced.

    Where precedence does not decide, an invalid one comes first, which means that nothing changes.
    """
    known = [one for one in underlays if not isinstance(one.spec, UnknownContent)]
    unknown = [one for one in underlays if isinstance(one.spec, UnknownContent)]
    if unknown and (not known or precedence.lacks(Kind.UNDERLAY, known)):
        for one in unknown:
            refusal = RefusedError("this file may contain the underlay", reason=Reason.UNDERLAY_FAILED)
            findings.refuse(one, refusal)
        raise UnderlayUnusableError
    if not known:
        return None
    chosen, *others = sorted(known, key=lambda one: _key(one, precedence))
    for other in others:
        if other.is_usable:
            message = f"only one underlay per node, and {Claim(chosen)} is used"
            findings.refuse(other, RefusedError(message, winner=Claim(chosen)))
    return chosen


def _key(resource: Resource, precedence: Precedence) -> tuple[object, ...]:
    rank, source, *names = precedence.key(resource)
    return rank, source, resource.is_usable, *names


def _resolved(resource: Resource, node: NodeIdentity, configured: Configured) -> DesiredUnderlay:
    """Return a valid underlay as it is on this node. Raises :class:`RefusedError` where a pool has no room for it."""
    spec: Underlay = resource.spec
    own_router_id, vteps = _router_id(spec, node), _vteps(spec, node)
    neighbors = tuple(fabric_neighbor(neighbor, spec, configured) for neighbor in spec.neighbors)
    restart = spec.graceful_restart
    return DesiredUnderlay(
        resource=resource.id,
        origin=resource.origin,
        asn=spec.asn,
        router_id=own_router_id,
        interfaces=tuple(interface.name for interface in spec.interfaces),
        neighbors=neighbors,
        vteps=vteps,
        vtep_pools=spec.tunnel_endpoint.cidrs if spec.tunnel_endpoint else (),
        graceful_restart=(
            GracefulRestart(restart.restart_time_seconds, restart.stale_path_time_seconds) if restart else None
        ),
        advertise_evpn=bool(vteps) or any(BGPFamily.EVPN in neighbor.families for neighbor in neighbors),
        router_id_pool=spec.router_id_cidr,
        router_id_scheme=node.router_id_scheme,
        cluster_id=IPv4Address(spec.route_reflector.cluster_id) if spec.route_reflector else None,
        attachments=tuple(
            CniAttachment(device.interface_name, canonical(device.raw_config), canonical(device.runtime_config or {}))
            for device in (interface.cni_device for interface in spec.interfaces)
            if device is not None
        ),
    )


def _router_id(spec: Underlay, node: NodeIdentity) -> IPv4Address:
    try:
        return router_id(spec.router_id_cidr, node.index, node.router_id_scheme)
    except PoolExhaustedError as error:
        which = "" if "router_id_cidr" in spec.model_fields_set else "the default "
        message = f"no router ID for this node: {which}{error.on(node)}"
        raise RefusedError(message, "routerIDCIDR") from None


def _vteps(spec: Underlay, node: NodeIdentity) -> tuple[IPInterface, ...]:
    """Return the node's tunnel endpoints, IPv4 first."""
    pools = spec.tunnel_endpoint.cidrs if spec.tunnel_endpoint else ()
    try:
        return tuple(vtep(pool, node.index) for pool in sorted(pools, key=lambda pool: parse_cidr(pool).version))
    except PoolExhaustedError as error:
        message = f"no tunnel endpoint for this node: {error.on(node)}"
        raise RefusedError(message, "tunnelEndpoint.cidrs") from None
