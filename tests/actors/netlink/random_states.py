"""Random desired states over a few VNIs, for property tests on the fake kernel and on the real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState, HostMasterKind
from config.problems import Kind, ResourceId
from tests.actors.netlink.builders import DUAL, l2vni, l3vni, passthrough, state, underlay, without_underlay

#: Each NIC of the tests with its MTU; the last one leaves too little for IPv6 inside a VXLAN.
NICS = {"toswitch1": 9000, "toswitch2": 1500, "toswitch3": 1330}
PORTS = (4789, 4790)
VTEPS = ("100.65.0.0", "100.65.0.1", "2001:db8:ffff::1")
#: A bridge that the user has in the host.
EXTERNAL = "br0"
AnyVNI = DesiredL3VNI | DesiredL2VNI
#: Two namespaces with a network of the same name, and one more.
NETWORKS = (("tenant-a", "net"), ("tenant-b", "net"), ("tenant-b", "other"), ("tenant-c", "more"))


@st.composite
def desired_states(draw: st.DrawFn) -> DesiredState:
    """Draw a state over a few VNIs, with all kinds, masters, sessions, gateways, VTEPs and ports."""
    if draw(st.integers(0, 3)) == 0:
        return without_underlay(state())
    vtep = draw(st.sampled_from(VTEPS))
    networks = draw(st.lists(st.sampled_from(NETWORKS), unique=True, max_size=4))
    numbers = draw(st.permutations(range(1, 7)))
    sides = [draw(st.sampled_from(Kind)) for _ in networks]
    l3vnis = tuple(
        _l3vni(draw, network, vni, vtep)
        for network, vni, kind in zip(networks, numbers, sides, strict=False)
        if kind is Kind.L3VNI
    )
    vrfs: list[str | None] = [None, *(l3.vrf for l3 in l3vnis)]
    l2vnis = tuple(
        _l2vni(draw, network, vni, vtep, vrfs)
        for network, vni, kind in zip(networks, numbers, sides, strict=False)
        if kind is not Kind.L3VNI
    )
    nics = tuple(draw(st.lists(st.sampled_from(sorted(NICS)), min_size=1, max_size=2, unique=True)))
    return state(
        underlay=underlay(*nics, vteps=(f"{vtep}/{128 if ':' in vtep else 32}",)),
        l3vnis=l3vnis,
        l2vnis=l2vnis,
        passthrough=draw(st.sampled_from((None, passthrough(), passthrough(host_vrf=True)))),
    )


def _l3vni(draw: st.DrawFn, network: tuple[str, str], vni: int, vtep: str) -> DesiredL3VNI:
    pairs = draw(st.sampled_from(((), DUAL, DUAL[:1], (("172.26.20.1/24", "172.26.20.2/24"),))))
    vrf, port = draw(st.sampled_from(("shared", f"red{vni}", "-".join(network)))), draw(st.sampled_from(PORTS))
    plain = l3vni("any", vni, vrf=vrf, pairs=pairs, vtep=vtep, host_vrf=draw(st.booleans()))
    return replace(plain, resource=ResourceId(Kind.L3VNI, *network), vxlan_port=port)


def _l2vni(draw: st.DrawFn, network: tuple[str, str], vni: int, vtep: str, vrfs: Sequence[str | None]) -> DesiredL2VNI:
    master, port = draw(st.sampled_from(HostMasterKind)), draw(st.sampled_from(PORTS))
    # The user's bridge may join two of them: an address that both have would fail duplicate address detection.
    dual = (f"172.27.{vni}.1/24", f"2001:db8:{vni}::1/64")
    vrf = draw(st.sampled_from(vrfs))
    gateways = draw(st.sampled_from(((), dual, (f"172.28.{vni}.1/24",)))) if vrf else ()
    bridge = EXTERNAL if master is HostMasterKind.EXTERNAL_BRIDGE else None
    plain = l2vni("any", vni, vrf=vrf, gateways=gateways, master=master, bridge=bridge, vtep=vtep)
    return replace(plain, resource=ResourceId(Kind.L2VNI, *network), vxlan_port=port)
