"""The underlay of this node: one of those that are for it, and with room for the node in its pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from config.desired import IPInterface
from config.models import Underlay
from config.models.types import parse_cidr
from config.problems import Kind, Reason
from config.resolve.ipam import PoolExhaustedError, router_id, vtep
from config.resolve.precedence import Precedence, named
from config.resources import Resource, UnknownContent, Unusable

from .findings import Findings, RefusedError


class UnderlayRefusedError(Exception):
    """No underlay can be told for this node, which is not the same as none: everything must stay as it is."""


@dataclass(frozen=True, slots=True)
class PlacedUnderlay:
    """A valid underlay with the addresses that this node has in its pools."""

    resource: Resource
    spec: Underlay
    router_id: IPv4Address
    vteps: tuple[IPInterface, ...]


def choose_underlay(
    underlays: Sequence[Resource], index: int, precedence: Precedence, findings: Findings
) -> PlacedUnderlay | None:
    """Return the node's underlay, or None when there is none. Raises :class:`UnderlayRefusedError`.

    Of several the first by precedence is it, usable or not: one that was in force and became invalid must not make way
    for another. Where precedence says nothing, an invalid one comes first, which means that nothing changes.
    """
    certain = [resource for resource in underlays if not isinstance(resource.spec, UnknownContent)]
    unknown = [resource for resource in underlays if isinstance(resource.spec, UnknownContent)]
    if unknown and (not certain or precedence.lacks(Kind.UNDERLAY, certain)):
        for resource in unknown:
            findings.refuse(
                resource, RefusedError("cannot tell whether this file has the underlay", reason=Reason.UNDERLAY_FAILED)
            )
        raise UnderlayRefusedError
    if not certain:
        return None
    chosen, *others = sorted(certain, key=lambda one: _key(one, precedence))
    for other in others:
        if not isinstance(other.spec, Unusable):
            message = f"can't have more than one underlay per node: it has {named(chosen)}"
            findings.refuse(other, RefusedError(message, winner=chosen))
    if isinstance(chosen.spec, Unusable):
        raise UnderlayRefusedError
    return _place(chosen, index, findings)


def _key(resource: Resource, precedence: Precedence) -> tuple[object, ...]:
    rank, source, *names = precedence.key(resource)
    return rank, source, not isinstance(resource.spec, Unusable), *names


def _place(resource: Resource, index: int, findings: Findings) -> PlacedUnderlay:
    spec: Underlay = resource.spec
    try:
        return PlacedUnderlay(resource, spec, _router_id(spec, index), _vteps(spec, index))
    except RefusedError as refusal:
        findings.refuse(resource, refusal)
        raise UnderlayRefusedError from None


def _router_id(spec: Underlay, index: int) -> IPv4Address:
    try:
        return router_id(spec.router_id_cidr, index)
    except PoolExhaustedError as error:
        raise RefusedError(f"no router ID for node index {index}: {error}", "routerIDCIDR") from None


def _vteps(spec: Underlay, index: int) -> tuple[IPInterface, ...]:
    """Return the node's tunnel endpoints, IPv4 first."""
    pools = spec.tunnel_endpoint.cidrs if spec.tunnel_endpoint else ()
    try:
        return tuple(vtep(pool, index) for pool in sorted(pools, key=lambda pool: parse_cidr(pool).version))
    except PoolExhaustedError as error:
        raise RefusedError(f"no tunnel endpoint for node index {index}: {error}", "tunnelEndpoint.cidrs") from None
