"""All overlays of one node beside each other.

Taken in order of precedence (:mod:`config.resolve.precedence`); each is accepted when it fits those accepted before it.
One that is refused therefore never stands in another's way, and what is in force loses to nothing that is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from config.problems import Kind, Reason, ResourceId
from config.resolve.precedence import Held, Precedence
from config.resources import Resource, Unusable

from .allocations import Taken
from .domains import Domains
from .findings import Findings, RefusedError
from .passthroughs import PlacedPassthrough, accept_passthrough
from .vnis import PlacedL2, PlacedL3, accept_l2vni, accept_l3vni

_KINDS = frozenset({Kind.L3VNI, Kind.L2VNI, Kind.L3PASSTHROUGH})


@dataclass(slots=True)
class Overlays:
    """The overlays in force, by their identities."""

    l3vnis: dict[ResourceId, PlacedL3] = field(default_factory=dict)
    l2vnis: dict[ResourceId, PlacedL2] = field(default_factory=dict)
    passthrough: PlacedPassthrough | None = None

    def standing(self, precedence: Precedence) -> dict[ResourceId, Held]:
        """Return what to remember of them."""
        held = {one: precedence.hold(placed.resource) for one, placed in self.l3vnis.items()}
        for one, placed in self.l2vnis.items():
            held[one] = precedence.hold(placed.resource, placed.domain.resource if placed.domain else None)
        if self.passthrough is not None:
            held[self.passthrough.resource.id] = precedence.hold(self.passthrough.resource)
        return held


def accept_overlays(
    resources: Sequence[Resource], node_name: str, taken: Taken, precedence: Precedence, findings: Findings
) -> Overlays:
    """Return what is in force of all the node's resources; the others are told why they are not."""
    overlays = Overlays()
    domains = _domains(resources, node_name, precedence, findings)
    ordered = sorted(_candidates(resources, domains), key=lambda one: precedence.key(one, domains.get(one.id)))
    for resource in ordered:
        try:
            _accept(resource, domains.get(resource.id), overlays, taken)
        except RefusedError as refusal:
            findings.refuse(resource, refusal)
    return overlays


def _domains(
    resources: Iterable[Resource], node_name: str, precedence: Precedence, findings: Findings
) -> dict[ResourceId, Resource | None]:
    """Return the routing domain of each L2VNI; those whose domain is not there are refused, and left out."""
    known = Domains((one for one in resources if one.kind is Kind.L3VNI), node_name, precedence.standing)
    found: dict[ResourceId, Resource | None] = {}
    for resource in resources:
        if resource.kind is not Kind.L2VNI or isinstance(resource.spec, Unusable):
            continue
        try:
            found[resource.id] = known.find(resource, findings)
        except RefusedError as refusal:
            findings.refuse(resource, refusal)
    return found


def _candidates(resources: Iterable[Resource], domains: dict[ResourceId, Resource | None]) -> Iterable[Resource]:
    for resource in resources:
        lost = resource.kind is Kind.L2VNI and resource.id not in domains
        if resource.kind in _KINDS and not isinstance(resource.spec, Unusable) and not lost:
            yield resource


def _accept(resource: Resource, domain: Resource | None, overlays: Overlays, taken: Taken) -> None:
    match resource.kind:
        case Kind.L3VNI:
            overlays.l3vnis[resource.id] = accept_l3vni(resource, taken)
        case Kind.L2VNI:
            placed = overlays.l3vnis.get(domain.id) if domain else None
            if domain is not None and placed is None:
                name = resource.spec.routing_domain.l3vni.name
                message = f'referenced L3VNI "{name}" not found'
                raise RefusedError(message, "routingDomain.l3vni.name", Reason.DEPENDENCY_FAILED)
            overlays.l2vnis[resource.id] = accept_l2vni(resource, placed, taken)
        case _:
            overlays.passthrough = accept_passthrough(resource, taken)
