"""Whether the kernel has what zebra says of each L3VNI's next hops: without it, a VNI that FRR shows as up drops all.

A routed frame is sent to its next hop's router MAC, from a neighbour entry of the VNI's bridge, at the next hop's
tunnel endpoint, from a bridge entry of the VXLAN device. FRR 10.3's zebra adds a neighbour again that someone has
deleted, but not a bridge entry. (Those of L2VNIs need no such check: it adds flood entries again, and what has no entry
of its own is flooded.)

The kernel is read after zebra, when zebra's next hops have changed, until it has answered and has them all, and then
once a minute. Its answer contains all that the router has of all MACs and neighbours, which has its price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from actors.lib.tunnel_entries import ReadEntries, TunnelEntries
from supervisor.runtime.faults import DependencyFault, KernelFault

from .frr_json import Observation, Vni, plain_address

#: Seconds between two readings of a kernel that has everything.
READ_SECONDS: Final = 60.0
#: The kernel is not read for more next hops than this, of all VNIs together: as many are 0.05 s of work.
MOST_NEXT_HOPS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Tunnels:
    """An L3VNI in zebra, and its next hops with their router MACs."""

    vni: Vni
    next_hops: Mapping[str, str]


class EntryReader:
    """Reads the kernel's entries when they may have changed; ``error`` is why they are unknown."""

    def __init__(self, read: ReadEntries) -> None:
        self._read = read
        self.error = ""
        self._tunnels: tuple[_Tunnels, ...] = ()
        self._due = 0.0
        self._known: TunnelEntries | None = None

    async def added(self, seen: Observation, now: float) -> Observation:
        """Return an observation with the kernel's entries. ``now`` is trio's time."""
        tunnels = tuple(_tunnels(seen))
        if not tunnels:
            self._tunnels, self._known, self.error = (), None, ""
        elif tunnels != self._tunnels or now >= self._due:
            self._tunnels, self._known = tunnels, await self._entries(tunnels)
            unknown = self._known is None
            incomplete = any(missing_entry(one.vni, one.next_hops, self._known) for one in tunnels)
            self._due = now if unknown or incomplete else now + READ_SECONDS
        return replace(seen, entries=self._known)

    async def _entries(self, tunnels: tuple[_Tunnels, ...]) -> TunnelEntries | None:
        count = sum(len(one.next_hops) for one in tunnels)
        self.error = f"{count} next hops are more than {MOST_NEXT_HOPS}" if count > MOST_NEXT_HOPS else ""
        if self.error:
            return None
        bridges, vxlans = [one.vni.svi for one in tunnels], [one.vni.vxlan for one in tunnels]
        try:
            return await self._read(bridges, vxlans)
        except (DependencyFault, KernelFault) as fault:
            self.error = str(fault) or type(fault).__name__
            return None


def _tunnels(seen: Observation) -> list[_Tunnels]:
    next_hops = seen.evpn.next_hops if seen.evpn else {}
    return [
        _Tunnels(seen.vnis[vni], found)
        for vni, found in next_hops.items()
        if found and vni in seen.vnis and seen.vnis[vni].up
    ]


def missing_entry(vni: Vni, next_hops: Mapping[str, str], entries: TunnelEntries | None) -> str:
    """Return which entry of a next hop the kernel lacks, or nothing."""
    if entries is None:
        return ""
    for address, mac in next_hops.items():
        if (vni.svi, address, mac) not in entries.neighbors:
            return f"{vni.svi} has no neighbour entry for the next hop {address} with the router MAC {mac}"
        endpoint = plain_address(address)
        if (vni.vxlan, mac, endpoint) in entries.endpoints:
            continue
        # Several routers may share a MAC. Then the kernel has it at one of them.
        others = (plain_address(other) for other, its in next_hops.items() if its == mac)
        if not any((vni.vxlan, mac, other) in entries.endpoints for other in others):
            return f"{vni.vxlan} has no bridge entry for the router MAC {mac} of {endpoint}"
    return ""
