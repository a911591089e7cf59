"""One resource as a user wrote it, in a file or in the API, and the stand-ins for contents that cannot be used.

A resource whose content breaks a rule is still *configured*: an invalid underlay must not look like a removed one, an
L2VNI that refers to an invalid L3VNI is refused for that reason, and BGP sessions must not lose an address family
because the last VNI became invalid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from config.desired import Family
from config.problems import Kind, Origin, ResourceId


@dataclass(frozen=True, slots=True)
class Resource:
    """``spec`` is the resource's model from ``config.models``, :class:`Unusable` or :class:`UnknownContent`.

    ``label`` is its name in a file, empty for an object of the API. ``places`` knows where each field stands in it.
    """

    kind: Kind
    namespace: str
    name: str
    origin: Origin
    spec: Any
    label: str = ""
    places: Callable[[str], Origin] | None = field(default=None, compare=False, repr=False)
    #: The resource's identity, which resolution asks for nine times.
    id: ResourceId = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", ResourceId(self.kind, self.namespace, self.name, self.label))

    @property
    def is_from_file(self) -> bool:
        """Whether the resource is from a file rather than from the API."""
        return bool(self.origin.path)

    def place_of(self, rule_field: str) -> Origin:
        """Return where a field such as ``hostSession.asn`` is written, or its own beginning where that is unknown."""
        return self.places(rule_field) if self.places and rule_field else self.origin

    @property
    def is_usable(self) -> bool:
        """Whether the content passed validation."""
        return not isinstance(self.spec, Unusable | UnknownContent)


@dataclass(frozen=True, slots=True)
class Unusable:
    """The ``spec`` of a resource that failed validation; its problems are reported where it was read.

    ``families`` are those of a passthrough's pools, as far as they could be recognised.
    """

    families: frozenset[Family] = frozenset()


@dataclass(frozen=True, slots=True)
class UnknownContent:
    """The ``spec`` of the Underlay that *may* be in a source that cannot be read and of which no good version is known.

    Any other underlay takes its place.
    """


def passthrough_families(data: Any) -> frozenset[Family]:
    """Return the families of an invalid passthrough's spec as far as they can be recognised."""
    session = data.get("hostSession") if isinstance(data, dict) else None
    if not isinstance(session, dict):
        return frozenset()
    pools, listed = session.get("localCIDR"), session.get("localCIDRs")
    given = {family for family in Family if isinstance(pools, dict) and pools.get(family.value)}
    for pool in listed if isinstance(listed, list | tuple) else ():
        given.add(Family.IPV6 if ":" in str(pool) else Family.IPV4)
    return frozenset(given)
