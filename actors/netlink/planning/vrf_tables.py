"""Which routing table each VRF has: the same after every start, and never a table in foreign use.

An existing VRF keeps its table, by which FRR and the kernel identify it; then the persisted number counts; then ten
million plus the VNI, far above tables that are configured manually and above local, main and default (253-255).

VRFs in the host get their tables in the same way, but for the persisted number: users write the number into their BGP
speaker's configuration, so it has to follow from the VNI.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from config.desired import DesiredState

from .observed import LinkKind, Observed, router_bridge, router_veth
from .wanted import host_vrfs, vrf_owners

TABLE_BASE = 10_000_000
#: One whole VNI space: when a VNI's number is taken, the next one to try is no other VNI's first choice.
TABLE_STRIDE = 1 << 24
#: linux/rtnetlink.h: unspec, compat, default, main, local.
RESERVED_TABLES = frozenset({0, 252, 253, 254, 255})


def _tables(vni: int) -> range:
    """Return the numbers to try for a VNI's VRF, best first; one is taken only by a foreign VRF or foreign routes."""
    return range(TABLE_BASE + vni, 1 << 32, TABLE_STRIDE)


def candidate_tables(
    desired: DesiredState, persisted: Mapping[str, int], existing: Collection[str] = ()
) -> tuple[int, ...]:
    """Return the tables whose foreign use must be known before a VRF of this state can be created.

    VRFs of ours that are ``existing`` keep their tables.
    """
    candidates: list[int] = []
    for vrf, vni in _first_vnis(desired).items():
        if vrf not in existing:
            candidates += [persisted.get(vrf, 0) or _tables(vni)[0], *_tables(vni)[:2]]
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
    # A VRF of ours that is no longer wanted is deleted before any is created, so its table is free; otherwise the
    # result would depend on where an earlier run was interrupted. One whose ports move goes after them.
    leaving = {name for name in existing if name not in vnis and observed.router.links[name].ours}
    leaving -= _moving(desired, observed) if leaving else set()
    staying = {table for name, table in existing.items() if name not in leaving}
    taken = set(RESERVED_TABLES) | set(observed.busy_tables) | staying
    for vrf in vnis:
        table = observed.tables.get(vrf, 0)
        if vrf not in tables and table not in taken:
            tables[vrf] = table
            taken.add(table)
    for vrf, vni in vnis.items():
        if vrf not in tables:
            tables[vrf] = next(table for table in _tables(vni) if table not in taken)
            taken.add(tables[vrf])
    return tables


def _moving(desired: DesiredState, observed: Observed) -> set[str]:
    """Return the masters of the devices that are wanted."""
    numbers = [vni.vni for vnis in (desired.l3vnis, desired.l2vnis) for vni in vnis]
    names = [name for number in numbers for name in (router_bridge(number), router_veth(number))]
    found = (observed.router.links.get(name) for name in names)
    return {link.master for link in found if link is not None and link.ours}


def candidate_host_tables(desired: DesiredState, existing: Collection[str]) -> tuple[int, ...]:
    """Return the tables whose foreign use must be known before a VRF of this state can be created in the host."""
    new = (number for name, number in host_vrfs(desired).items() if name not in existing)
    return tuple(table for number in new for table in _tables(number)[:2])


def assign_host_tables(desired: DesiredState, observed: Observed) -> dict[str, int]:
    """Return the table of each VRF that is wanted in the host."""
    existing = {name: link for name, link in observed.host.links.items() if link.kind == LinkKind.VRF}
    taken = {*RESERVED_TABLES, *observed.busy_host_tables, *(link.table for link in existing.values())}
    found = {}
    for name, number in host_vrfs(desired).items():
        link = existing.get(name)
        # No two VRFs of ours try the same number.
        kept = link.table if link is not None and link.ours else None
        found[name] = kept or next(table for table in _tables(number) if table not in taken)
    return found


def _first_vnis(desired: DesiredState) -> dict[str, int]:
    return {} if desired.underlay is None else {vrf: owner.vni for vrf, owner in vrf_owners(desired).items()}
