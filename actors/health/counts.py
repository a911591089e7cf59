"""How many EVPN routes each VNI has: of types 2 (MACs and their addresses), 3 (tunnel endpoints) and 5 (prefixes).

bgpd counts them in its tables of L2VNIs, and prints only those that begin here: its answer grows with the VNIs and the
node's own hosts, not with the fabric. Prefixes are counted among the routes that a poll has read anyway
(:mod:`.query`), if it has. FRR 10.3's bgpd crashes on "show bgp l2vpn evpn route vni all json".

bgpd is not queried while every EVPN session has as many routes as before, received and sent, except for a recount every
few minutes: a route that was withdrawn and one that was added leave the numbers as they were.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from ipaddress import ip_address
from typing import Final

from supervisor.runtime.faults import DependencyFault

from .frr_json import EVPN, Observation, RouteCounts, parse_vni_tables
from .query import FrrReader
from .route_targets import imports, keys

#: bgpd's tables of L2VNIs: MACs, addresses of MACs, tunnel endpoints. The tunnel endpoint limits what is printed and
#: ``numPaths``, but not ``numPrefix``. The table of MACs has all our paths of type 2, that of addresses some of them.
MAC_TABLES: Final = "show bgp vni all type macip mac vtep {} json"
ADDRESS_TABLES: Final = "show bgp vni all type macip ip vtep {} json"
ENDPOINT_TABLES: Final = "show bgp vni all type multicast vtep {} json"
#: Seconds after which the routes are counted again although no session has another number of them.
RECOUNT_SECONDS: Final = 300.0
#: The shortest time between two counts, in seconds: during convergence FRR is polled more often than that.
PAUSE_SECONDS: Final = 5.0


class RouteCounter:
    """Counts when routes may have changed, and caches the result; ``error`` is why those of L2VNIs are unknown."""

    def __init__(self) -> None:
        self.error = ""
        self._counts: dict[int, RouteCounts] = {}
        self._numbers: object = None
        self._pause_ends = self._recount_at = 0.0

    async def counted(
        self, frr: FrrReader, seen: Observation, derived: frozenset[int], now: float
    ) -> dict[int, RouteCounts]:
        """Return the numbers by VNI, those that are known.

        ``derived`` are the VNIs whose import targets FRR derives, ``now`` is trio's time.
        """
        if seen.error or not seen.bgp_vnis:
            self._counts, self._numbers, self.error = {}, None, ""
            return {}
        numbers = derived, _numbers(seen)
        changed = numbers != self._numbers
        if now >= self._pause_ends and (changed or now >= self._recount_at):
            # bgpd counts a session's route before it has imported it into a VNI: after a change it is queried twice.
            self._recount_at = now if changed else now + RECOUNT_SECONDS
            self._pause_ends, self._numbers = now + PAUSE_SECONDS, numbers
            self._counts = _prefixes(seen, derived) | await self._tables(frr, seen)
        return self._counts

    async def _tables(self, frr: FrrReader, seen: Observation) -> dict[int, RouteCounts]:
        """Return the numbers of L2VNIs. If FRR refuses the query only these are unknown."""
        endpoint = _endpoint(seen)
        self.error = "" if endpoint else "bgpd's VNIs have no common IPv4 tunnel endpoint"
        if not endpoint:
            return {}
        commands = (command.format(endpoint) for command in (MAC_TABLES, ADDRESS_TABLES, ENDPOINT_TABLES))
        try:
            macs, addresses, endpoints = map(parse_vni_tables, await frr.json(*commands, daemon="bgpd"))
        except DependencyFault as fault:
            self.error = str(fault) or type(fault).__name__
            return {}
        return {
            vni: RouteCounts(
                received={"2": macs[vni].others + addresses[vni].others, "3": endpoints[vni].others},
                advertised={"2": macs[vni].own_paths, "3": endpoints[vni].own_paths},
            )
            for vni in macs.keys() & addresses.keys() & endpoints.keys()
        }


def _numbers(seen: Observation) -> object:
    """Return what changes with the routes: the VNIs, and how many EVPN routes each session has, both ways."""
    sessions = {
        name: (peer.prefixes[EVPN], peer.evpn_sent) for name, peer in seen.peers.items() if EVPN in peer.prefixes
    }
    return seen.bgp_vnis, seen.evpn is None, sessions


def _endpoint(seen: Observation) -> str:
    """Return the node's tunnel endpoint, if a command can name it: 0.0.0.0 would select the whole tables."""
    known = {bgp.originator for bgp in (seen.bgp_vnis or {}).values()}
    if len(known) != 1:
        return ""
    try:
        address = ip_address(next(iter(known)))
    except ValueError:
        return ""
    return "" if address.version != 4 or address.is_unspecified else str(address)


def _prefixes(seen: Observation, derived: frozenset[int]) -> dict[int, RouteCounts]:
    """Return the numbers of L3VNIs, from the routes that the poll has read; without them they are unknown."""
    if seen.evpn is None or seen.bgp_vnis is None:
        return {}
    routed = {vni: bgp for vni, bgp in seen.bgp_vnis.items() if vni in seen.l3vnis.values()}
    owners = {bgp.rd: vni for vni, bgp in routed.items()}
    importers: defaultdict[str, set[int]] = defaultdict(set)
    for vni, bgp in routed.items():
        for key in imports(bgp.import_rts, derived=vni in derived):
            importers[key].add(vni)
    received, advertised = Counter[int](), Counter[int]()
    for route in seen.evpn.type5:
        if not route.own:
            received.update(set().union(*(importers.get(key, ()) for key in keys(route.targets))))
        elif route.rd in owners:
            advertised[owners[route.rd]] += 1
    return {vni: RouteCounts({"5": received[vni]}, {"5": advertised[vni]}) for vni in routed}
