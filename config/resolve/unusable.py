"""Stand-ins for what a user wrote and nobody can use: they keep "not valid" apart from "not there".

A resource whose content breaks a rule is still *configured*: an invalid underlay must not look like a removed one, an
L2VNI that refers to an invalid L3VNI must hear so, and BGP sessions must not lose an address family because the last
VNI became invalid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from config.desired import Family


@dataclass(frozen=True, slots=True)
class Unusable:
    """The ``spec`` of a :class:`~config.outcomes.Resource` that failed validation; its problems are told elsewhere.

    ``families`` are those of a passthrough's pools, as far as they could be recognised.
    """

    families: frozenset[Family] = frozenset()


@dataclass(frozen=True, slots=True)
class UnknownContent:
    """The ``spec`` of the Underlay that *may* be in a source that cannot be read and of which no good version is known.

    It stands back when another underlay is there.
    """


def passthrough_families(data: Any) -> frozenset[Family]:
    """Return the families of an invalid passthrough's spec as far as they can be recognised."""
    session = data.get("hostSession") if isinstance(data, dict) else None
    pools = session.get("localCIDR") if isinstance(session, dict) else None
    given = pools if isinstance(pools, dict) else {}
    return frozenset(family for family in Family if given.get(family.value))
