"""Whether the routes of each VNI are exchanged in both directions, as seen from this node.

* Ours: bgpd has our type-3 route of an L2VNI, and a type-5 route for each prefix that an L3VNI announces by
  configuration, with our tunnel endpoint and router MAC.
* Those of others whose route target we import: zebra floods to each tunnel endpoint of a type-3 route, and has each
  type-5 route in the VRF, installed, with its next hop's router MAC. When devices of the VNI go down and up before bgpd
  notices, FRR 10.3 keeps a route that the kernel has dropped: it shows the route as installed, but not its next hop.
* No route of the VRF is in the default VRF's table.

What the fabric may intend is not a fault: no peer, no route from it, a prefix that we announce as well, a route without
a router MAC. With raw snippets, which may filter or leak, no route is checked.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from ipaddress import ip_network

from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState

from .frr_json import DEFAULT_VRF, BgpVni, EvpnRoute, NextHop, Observation, Routes, Vni, plain_address
from .route_targets import derived_targets, imports, keys


@dataclass(frozen=True, slots=True)
class VniFault:
    """Why a VNI does not work.

    ``in_frr``: FRR and the kernel are configured as they should be, so that removing an L3VNI from FRR and adding it
    again may help. ``passing``: it is also seen for a moment while routes change.
    """

    text: str
    in_frr: bool = False
    passing: bool = False


class RouteCheck:
    """The routes of one poll, indexed. Each check returns what is wrong, or nothing."""

    def __init__(self, state: DesiredState, seen: Observation) -> None:
        self._vnis = seen.bgp_vnis or {}
        self._derived = derived_targets(state)
        self._routes = None if state.raw_frr else seen.evpn
        self._own: dict[str, list[EvpnRoute]] = defaultdict(list)
        self._remote: dict[str, list[EvpnRoute]] = defaultdict(list)
        self._leaks: dict[str, str] = {}
        if self._routes is not None:
            self._index(self._routes)

    def _index(self, routes: Routes) -> None:
        for route in (*routes.type3, *routes.type5):
            if route.own:
                self._own[route.rd].append(route)
            for key in () if route.own else keys(route.targets):
                self._remote[key].append(route)
        for prefix, hops in routes.zebra.get(DEFAULT_VRF, {}).items():
            self._leaks |= {hop.vrf: prefix for hop in hops if hop.vrf}

    def l2(self, vni: DesiredL2VNI, known: Vni) -> VniFault | None:
        """Check the type-3 routes of an L2VNI."""
        if self._routes is None or (bgp := self._vnis.get(vni.vni)) is None:
            return None
        if not any(not route.prefix for route in self._own[bgp.rd]):
            return VniFault("bgpd announces no type-3 route for it", passing=True)
        endpoints = {route.next_hop for route in self._imported(vni, bgp) if not route.prefix}
        missing = sorted(endpoints - known.flooded - {str(vni.vtep)})
        return (
            VniFault(f"zebra does not flood to {_some(missing)}, which has this VNI", passing=True) if missing else None
        )

    def l3(self, vni: DesiredL3VNI, known: Vni) -> VniFault | None:
        """Check the type-5 routes of an L3VNI, and its routes in zebra."""
        if self._routes is None or (bgp := self._vnis.get(vni.vni)) is None:
            return None
        if vni.vrf in self._leaks:
            return VniFault(f"its route {self._leaks[vni.vrf]} is in the default VRF", passing=True)
        text = self._announced(vni, known, bgp)
        return VniFault(text, in_frr=True, passing=True) if text else self._installed(vni, known, bgp, self._routes)

    def _announced(self, vni: DesiredL3VNI, known: Vni, bgp: BgpVni) -> str:
        own = {route.prefix: route for route in self._own[bgp.rd] if route.prefix}
        missing = sorted(announced_networks(vni) - own.keys())
        if missing:
            return f"bgpd announces no type-5 route for {_some(missing)}"
        for prefix, route in own.items():
            if route.router_mac != known.router_mac:
                return f"the type-5 route for {prefix} has the router MAC {route.router_mac}, not {known.router_mac}"
            if route.next_hop != str(vni.vtep):
                return f"the type-5 route for {prefix} has the next hop {route.next_hop}, not {vni.vtep}"
        return ""

    def _installed(self, vni: DesiredL3VNI, known: Vni, bgp: BgpVni, routes: Routes) -> VniFault | None:
        table = routes.zebra.get(vni.vrf, {})
        tunnelled = {prefix: [hop for hop in found if _tunnelled(hop, known)] for prefix, found in table.items()}
        ours = {route.prefix for route in self._own[bgp.rd]}
        remote = {route.prefix for route in self._imported(vni, bgp) if route.prefix and route.router_mac}
        missing = sorted(remote - ours - table.keys())
        if missing:
            text = f"zebra lacks the route to {_some(missing)}, which the fabric announces"
            return VniFault(text, in_frr=True, passing=True)
        if stale := sorted(prefix for prefix, found in tunnelled.items() if found and _is_stale(found)):
            text = f"the route to {_some(stale)} is not in the kernel, although zebra shows it as installed"
            if all(hop.refused for prefix in stale for hop in tunnelled[prefix]):
                # A device that was down for a moment is a reason for that too.
                text = f"the kernel has refused the route to {_some(stale)}"
            return VniFault(text, in_frr=True, passing=True)
        unreached = sorted(
            {hop.address for found in tunnelled.values() for hop in found}
            - set(map(plain_address, routes.next_hops.get(vni.vni, ())))
        )
        if unreached:
            return VniFault(f"zebra has no router MAC for the next hop {_some(unreached)}", in_frr=True, passing=True)
        return None

    def _imported(self, vni: DesiredL3VNI | DesiredL2VNI, bgp: BgpVni) -> list[EvpnRoute]:
        wanted = imports(bgp.import_rts, derived=vni.vni in self._derived)
        return [route for key in wanted for route in self._remote.get(key, ())]


def announced_networks(vni: DesiredL3VNI) -> set[str]:
    """Return the prefixes that bgpd announces by configuration (``network``), whatever the host announces to it."""
    hosts = (ends.host for ends in vni.session.addresses) if vni.session else ()
    return {str(ip_network(host.ip)) for host in hosts} | set(vni.gateway_networks)


def _is_stale(found: list[NextHop]) -> bool:
    """Whether a route is not in the kernel that zebra shows as installed.

    Two sessions may bring the same next hop. The kernel has it once, and zebra then takes only some of a route's hops
    for installed, wrong ones among others (FRR #21709). After a flap that bgpd has not seen as one it still does.
    """
    return any(hop.lost for hop in found) or not any(hop.installed for hop in found)


def _tunnelled(hop: NextHop, known: Vni) -> bool:
    return bool(hop.device) and hop.device == known.svi


def _some(names: list[str]) -> str:
    """Return the first of several, without their number, so that the message stays the same while it changes."""
    return names[0] if len(names) == 1 else f"{names[0]} and others"
