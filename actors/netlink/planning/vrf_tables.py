"""Which routing table each VRF has: the same on every start, and never somebody else's.

An existing VRF keeps its table (FRR and the kernel know it by that), then the persisted number counts, then ten million
plus the VNI: far above what people write by hand, and above the local, main and default tables (253-255).
"""

from __future__ import annotations

from collections.abc import Mapping

from config.desired import DesiredState

from .observed import LinkKind, Observed

TABLE_BASE = 10_000_000
#: One whole VNI space further, when a natural number is taken: never another VNI's natural number.
TABLE_STRIDE = 1 << 24
#: linux/rtnetlink.h: unspec, compat, default, main, local.
RESERVED_TABLES = frozenset({0, 252, 253, 254, 255})
#: Numbers tried for one VRF; each is taken only by a foreign VRF or foreign routes.
TRIES = 8


def natural_tables(vni: int) -> tuple[int, ...]:
    """Return the numbers tried for a VNI's VRF, best first."""
    return tuple(TABLE_BASE + vni + TABLE_STRIDE * turn for turn in range(TRIES))


def candidate_tables(desired: DesiredState, persisted: Mapping[str, int]) -> tuple[int, ...]:
    """Return the tables whose use by others must be known before a VRF of this state can be made."""
    candidates: list[int] = []
    for vrf, vni in _first_vnis(desired).items():
        candidates.append(persisted.get(vrf, 0) or natural_tables(vni)[0])
        candidates.append(natural_tables(vni)[1])
    return tuple(dict.fromkeys(candidates))


def assign_tables(desired: DesiredState, observed: Observed) -> dict[str, int]:
    """Return each wanted VRF's table; deterministic in its arguments."""
    vnis = _first_vnis(desired)
    existing = {
        name: link.table
        for name, link in observed.router.links.items()
        if link.kind == LinkKind.VRF and link.table is not None
    }
    tables = {vrf: table for vrf, table in existing.items() if vrf in vnis and observed.router.links[vrf].ours}
    # A VRF of ours that nobody wants any more is deleted before any is made, so its table is free; were it not, the
    # outcome would depend on where an earlier run was interrupted.
    staying = {table for name, table in existing.items() if name in vnis or not observed.router.links[name].ours}
    taken = set(RESERVED_TABLES) | set(observed.busy_tables) | staying
    for vrf in vnis:
        table = observed.tables.get(vrf, 0)
        if vrf not in tables and table not in taken:
            tables[vrf] = table
            taken.add(table)
    for vrf, vni in vnis.items():
        if vrf not in tables:
            tables[vrf] = next(table for table in (*natural_tables(vni), *_beyond(vni)) if table not in taken)
            taken.add(tables[vrf])
    return tables


def _beyond(vni: int) -> range:
    """Return what is left after the natural numbers: in practice never looked at."""
    return range(TABLE_BASE + vni + TABLE_STRIDE * TRIES, 1 << 32, TABLE_STRIDE)


def _first_vnis(desired: DesiredState) -> dict[str, int]:
    vnis: dict[str, int] = {}
    if desired.underlay is not None:
        for l3vni in desired.l3vnis:
            vnis.setdefault(l3vni.vrf, l3vni.vni)
    return vnis
