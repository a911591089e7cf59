"""Whether each VNI works, and if not, the cause rather than FRR's symptom.

An L3VNI has to be up in zebra and in bgpd: FRR 10.3 and 10.4 can lose it in bgpd after a quick down and up (commit
0f2cb27310, reverted for 10.5), and then no type-5 route is exchanged although zebra shows it as up.
"""

from __future__ import annotations

from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState
from config.outcomes import VniHealth

from .frr_json import DEFAULT_VRF, Observation, Vni

DesiredVni = DesiredL3VNI | DesiredL2VNI


def vnis_of(state: DesiredState) -> tuple[DesiredVni, ...]:
    """Return all VNIs of a state, routed ones first."""
    return (*state.l3vnis, *state.l2vnis)


def check_vni(vni: DesiredVni, seen: Observation) -> VniHealth:
    """Compare one configured VNI with its state in zebra and bgpd."""
    known = seen.vnis.get(vni.vni)
    absent = next((daemon for daemon in ("zebra", "bgpd") if daemon not in seen.daemons), None)
    if absent is not None:
        return vni_health(vni, known, f"unknown: {absent} is not running", seen)
    if known is None:
        return vni_health(vni, None, f"VNI {vni.vni} is missing in zebra", seen)
    fault = _l3_fault(vni, known, seen) if isinstance(vni, DesiredL3VNI) else _l2_fault(vni, known)
    return vni_health(vni, known, fault, seen)


def _l3_fault(vni: DesiredL3VNI, known: Vni, seen: Observation) -> str:
    """Return why an L3VNI does not work, its cause first, or nothing."""
    if known.type != "L3":
        return f"zebra has VNI {vni.vni} as {known.type}, not as L3"
    if known.vrf != vni.vrf:
        return f"VRF {vni.vrf} is not in the kernel" if known.vrf == "Unknown" else f"zebra has it in VRF {known.vrf}"
    if not known.up:
        return _why_down(known, seen)
    if seen.l3vnis.get(vni.vrf) != vni.vni:
        return f"up in zebra, but bgpd has not attached it to VRF {vni.vrf}"
    return ""


def _why_down(known: Vni, seen: Observation) -> str:
    for device in (known.vxlan, known.svi, known.vrf):
        if not seen.interfaces.get(device, False):
            return f"down: {device or 'a device'} {'is down' if device in seen.interfaces else 'is missing'}"
    return "down in zebra"


def _l2_fault(vni: DesiredL2VNI, known: Vni) -> str:
    wanted = vni.vrf or DEFAULT_VRF
    if known.type != "L2":
        return f"zebra has VNI {vni.vni} as {known.type}, not as L2"
    return "" if known.vrf == wanted else f"zebra has it in VRF {known.vrf}, not in {wanted}"


def vni_health(vni: DesiredVni, known: Vni | None, detail: str, seen: Observation | None = None) -> VniHealth:
    """Return a VNI in the report's form; a non-empty ``detail`` means that it does not work."""
    routed = isinstance(vni, DesiredL3VNI)
    return VniHealth(
        resource=vni.resource,
        vni=vni.vni,
        type="L3" if routed else "L2",
        vrf=vni.vrf or "",
        ok=not detail,
        detail=detail,
        origin=vni.origin,
        remote_vteps=known.remote_vteps if known else 0,
        routes=seen.routes.get(vni.vrf or "", 0) if seen and routed else 0,
    )
