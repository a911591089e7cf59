"""Whether each VNI works, and if not, the cause rather than FRR's symptom.

A VNI has to be up in zebra and in bgpd, with our tunnel endpoint and, if it is routed, its router MAC. FRR 10.3 and
10.4 can lose an L3VNI in bgpd after a quick down and up (commit 0f2cb27310, reverted for 10.5), and then exchange no
type-5 route although zebra shows it as up. What depends on routes is in :mod:`.routes`, and on the kernel's entries of
next hops in :mod:`.entries`.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState
from config.outcomes import VniHealth
from config.problems import ResourceId

from .entries import missing_entry
from .frr_json import DEFAULT_VRF, KEPT_ROUTES, Observation, RouteCounts, Vni
from .routes import RouteCheck, VniFault

DesiredVni = DesiredL3VNI | DesiredL2VNI
_NO_MAC: Final = "00:00:00:00:00:00"
#: What no VNI's state depends on, and what changes all the time among it.
_UNUSED: Final[dict[str, Any]] = {"peers": {}, "bfd": {}, "bfd_unanswered": frozenset(), "routes": {}, "counts": {}}


def vnis_of(state: DesiredState) -> tuple[DesiredVni, ...]:
    """Return all VNIs of a state, routed ones first."""
    return (*state.l3vnis, *state.l2vnis)


class VniCheck:
    """What is wrong with the VNIs, poll after poll: it is found out again if something that it depends on differs."""

    def __init__(self) -> None:
        self._known: tuple[DesiredState, AbstractSet[ResourceId], Observation, dict[ResourceId, VniFault]] | None = None

    def faults_of(
        self, state: DesiredState, omitted: AbstractSet[ResourceId], seen: Observation
    ) -> dict[ResourceId, VniFault]:
        """Return what :func:`faults_of` does."""
        if seen.table_size > KEPT_ROUTES:
            self._known = None
            return faults_of(state, omitted, seen)
        seen = replace(seen, **_UNUSED)
        known = self._known
        if known is None or known[0] is not state or known[1:3] != (omitted, seen):
            known = self._known = state, omitted, seen, faults_of(state, omitted, seen)
        return known[3]


def faults_of(state: DesiredState, omitted: AbstractSet[ResourceId], seen: Observation) -> dict[ResourceId, VniFault]:
    """Return what is wrong with each VNI that is to work."""
    check = RouteCheck(state, seen)
    found = ((vni.resource, _fault(vni, seen, check)) for vni in vnis_of(state) if vni.resource not in omitted)
    return {resource: fault for resource, fault in found if fault}


def _fault(vni: DesiredVni, seen: Observation, check: RouteCheck) -> VniFault | None:
    known = seen.vnis.get(vni.vni)
    absent = next((daemon for daemon in ("zebra", "bgpd") if daemon not in seen.daemons), None)
    if absent is not None:
        return VniFault(f"unknown: {absent} is not running")
    if not seen.announces_vnis:
        return VniFault("bgpd announces no VNI: advertise-all-vni is missing")
    if known is None:
        return VniFault(f"VNI {vni.vni} is missing in zebra")
    if known.vtep and known.vtep != str(vni.vtep):
        return VniFault(f"zebra has the tunnel endpoint {known.vtep}, not {vni.vtep}")
    if isinstance(vni, DesiredL3VNI):
        return _l3_fault(vni, known, seen) or check.l3(vni, known) or _unreached(known, vni.vni, seen)
    return _l2_fault(vni, known, seen) or check.l2(vni, known)


def _l3_fault(vni: DesiredL3VNI, known: Vni, seen: Observation) -> VniFault | None:
    """Return why an L3VNI does not work, its cause first."""
    if fault := _l3_fault_in_zebra(vni, known, seen):
        return fault
    if seen.l3vnis.get(vni.vrf) != vni.vni:
        return VniFault(f"up in zebra, but bgpd has not attached it to VRF {vni.vrf}", in_frr=True)
    return _differing(vni, known, seen)


def _l3_fault_in_zebra(vni: DesiredL3VNI, known: Vni, seen: Observation) -> VniFault | None:
    if known.type != "L3":
        return VniFault(f"zebra has VNI {vni.vni} as {known.type}, not as L3", in_frr=True)
    if known.vrf != vni.vrf:
        unknown = known.vrf == "Unknown"
        return VniFault(f"VRF {vni.vrf} is not in the kernel" if unknown else f"zebra has it in VRF {known.vrf}")
    if not known.up:
        return _why_down(known, seen)
    if known.router_mac == _NO_MAC:
        return VniFault("zebra has no router MAC for it", in_frr=True)
    return _outside(known, vni.vrf, seen)


def _unreached(known: Vni, vni: int, seen: Observation) -> VniFault | None:
    """Return which next hop the kernel does not reach, although zebra has its router MAC."""
    text = missing_entry(known, seen.evpn.next_hops.get(vni, {}), seen.entries) if seen.evpn else ""
    return VniFault(text, in_frr=True, passing=True) if text else None


def _outside(known: Vni, vrf: str, seen: Observation) -> VniFault | None:
    where = seen.device_vrfs.get(known.svi, vrf)
    return None if where == vrf else VniFault(f"bridge {known.svi} is in VRF {where}, not in {vrf}")


def _differing(vni: DesiredVni, known: Vni, seen: Observation) -> VniFault | None:
    """Return how a VNI in bgpd differs from zebra's."""
    if seen.bgp_vnis is None:
        return None
    bgp = seen.bgp_vnis.get(vni.vni)
    if bgp is None:
        return VniFault("zebra has it, but bgpd has not", in_frr=True)
    if bgp.originator != str(vni.vtep):
        return VniFault(f"bgpd announces the tunnel endpoint {bgp.originator}, not {vni.vtep}", in_frr=True)
    if bgp.router_mac and known.router_mac and bgp.router_mac != known.router_mac:
        return VniFault(f"bgpd announces the router MAC {bgp.router_mac}, not {known.router_mac}", in_frr=True)
    return None


def _why_down(known: Vni, seen: Observation) -> VniFault:
    for device in (known.vxlan, known.svi, known.vrf):
        if not seen.interfaces.get(device, False):
            return VniFault(f"down: {device or 'a device'} {'is down' if device in seen.interfaces else 'is missing'}")
    return VniFault("down in zebra", in_frr=True)


def _l2_fault(vni: DesiredL2VNI, known: Vni, seen: Observation) -> VniFault | None:
    wanted = vni.vrf or DEFAULT_VRF
    if known.type != "L2":
        return VniFault(f"zebra has VNI {vni.vni} as {known.type}, not as L2")
    if known.vrf != wanted:
        return VniFault(f"zebra has it in VRF {known.vrf}, not in {wanted}")
    if not seen.interfaces.get(known.vxlan, True):
        return VniFault(f"down: {known.vxlan} is down")
    if known.vxlan and not known.svi:
        return VniFault(f"{known.vxlan} is in no bridge")
    return _outside(known, wanted, seen) or _differing(vni, known, seen)


def vni_health(vni: DesiredVni, fault: VniFault | None, seen: Observation) -> VniHealth:
    """Return a VNI in the report's form."""
    routed, known = isinstance(vni, DesiredL3VNI), seen.vnis.get(vni.vni)
    counts = seen.counts.get(vni.vni, RouteCounts())
    return VniHealth(
        resource=vni.resource,
        vni=vni.vni,
        type="L3" if routed else "L2",
        vrf=vni.vrf or "",
        ok=fault is None,
        detail=fault.text if fault else "",
        origin=vni.origin,
        remote_vteps=known.remote_vteps if known else 0,
        routes=seen.routes.get(vni.vrf or "", 0) if routed else 0,
        evpn_received=counts.received,
        evpn_advertised=counts.advertised,
    )
