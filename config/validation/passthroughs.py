"""The passthrough of this node: at most one, with addresses that no other session uses."""

from __future__ import annotations

from dataclasses import dataclass

from config.desired import SessionAddresses
from config.models import L3Passthrough
from config.resolve.precedence import named
from config.resources import Resource

from .allocations import Taken
from .findings import RefusedError
from .host_sessions import check_overlap, claim, place_session


@dataclass(frozen=True, slots=True)
class PlacedPassthrough:
    """The accepted passthrough with its addresses on this node."""

    resource: Resource
    spec: L3Passthrough
    addresses: tuple[SessionAddresses, ...]


def accept_passthrough(resource: Resource, taken: Taken) -> PlacedPassthrough:
    """Return the node's passthrough, and take what it occupies. Raises :class:`RefusedError`."""
    spec: L3Passthrough = resource.spec
    addresses = place_session(spec.host_session, taken.index)
    if taken.passthrough is not None:
        message = f"can't have more than one passthrough per node: it has {named(taken.passthrough)}"
        raise RefusedError(message, winner=taken.passthrough)
    check_overlap(spec.host_session, taken.pools)
    claim(spec.host_session, resource, taken.pools)
    taken.passthrough = resource
    return PlacedPassthrough(resource, spec, addresses)
