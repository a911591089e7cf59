"""What accepted resources occupy on the node, so that no two occupy the same."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from config.resources import Resource

from .host_sessions import Pools
from .underlays import PlacedUnderlay


@dataclass(slots=True)
class Taken:
    """Every number, name and address range with its owner. ``subnets`` are those of each VRF."""

    underlay: PlacedUnderlay
    index: int
    vnis: dict[int, Resource] = field(default_factory=dict)
    vrfs: dict[str, Resource] = field(default_factory=dict)
    pools: Pools = field(default_factory=Pools)
    subnets: defaultdict[str, Pools] = field(default_factory=lambda: defaultdict(Pools))
    interfaces: frozenset[str] = frozenset()
    external_bridges: dict[str, Resource] = field(default_factory=dict)
    managed_bridges: dict[str, Resource] = field(default_factory=dict)
    passthrough: Resource | None = None

    @classmethod
    def beside(cls, underlay: PlacedUnderlay, index: int) -> Taken:
        """Start with what the underlay occupies."""
        return cls(underlay, index, interfaces=frozenset(interface.name for interface in underlay.spec.interfaces))
