"""Properties of planning over random states and random interruptions, on the verified fake kernel."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.netlink.converge import apply_plan, converge
from actors.netlink.planning.observed import Address, Link, LinkKind, Namespace, SavedRoute
from actors.netlink.planning.plan import plan
from actors.netlink.planning.steps import Plan
from config.desired import DesiredState, Family, HostMasterKind
from tests.actors.netlink.builders import DUAL, l2vni, l3vni, passthrough, state, underlay, without_underlay
from tests.fakes.kernel import FakeKernel

NICS = ("toswitch1", "toswitch2")
VTEPS = ("100.65.0.0", "100.65.0.1", "2001:db8:ffff::1")
EXTERNAL = "br0"


def address(text: str, flags: int = 0x80, broadcast: str | None = None, label: str = "") -> Address:
    return Address(ip_interface(text), flags=flags, broadcast=broadcast, label=label)


def node() -> FakeKernel:
    """Return a host with two NICs, a user's bridge and foreign devices with names like ours."""
    kernel = FakeKernel()
    kernel.add(
        Namespace.HOST, Link(0, "toswitch1", up=True, mtu=9000), address("192.168.11.3/24"), address("fd00::3/64")
    )
    kernel.add(
        Namespace.HOST,
        Link(0, "toswitch2", kind=LinkKind.VETH, mac="52:54:00:00:00:02", group=7),
        address("192.168.12.3/24", 0x280, broadcast="", label="toswitch2:1"),
    )
    kernel.routes["toswitch1"] = [SavedRoute(Family.IPV4, "10.0.0.0/8", 254, gateway="192.168.11.1")]
    kernel.add(Namespace.HOST, Link(0, EXTERNAL, kind=LinkKind.BRIDGE, up=True))
    kernel.add(Namespace.HOST, Link(0, "br-hs-5", kind=LinkKind.BRIDGE, up=True))
    kernel.add(Namespace.ROUTER, Link(0, "customer", kind=LinkKind.VRF, up=True, table=10_000_002))
    kernel.add(Namespace.ROUTER, Link(0, "br-pe-4", kind=LinkKind.BRIDGE, up=True), address("10.4.4.4/24"))
    return kernel


FOREIGN = (
    (Namespace.HOST, EXTERNAL),
    (Namespace.HOST, "br-hs-5"),
    (Namespace.ROUTER, "customer"),
    (Namespace.ROUTER, "br-pe-4"),
)


@st.composite
def desired_states(draw: st.DrawFn) -> DesiredState:
    """Draw a state over a few VNIs, with all masters, sessions, gateways and VTEPs."""
    if draw(st.integers(0, 3)) == 0:
        return without_underlay(state())
    vtep = draw(st.sampled_from(VTEPS))
    pairs = st.sampled_from(((), DUAL, DUAL[:1], (("192.169.20.1/24", "192.169.20.2/24"),)))
    l3vnis = tuple(
        l3vni(f"red{vni}", vni, vrf=draw(st.sampled_from((f"red{vni}", "shared"))), pairs=draw(pairs), vtep=vtep)
        for vni in sorted(draw(st.sets(st.integers(1, 4), max_size=3)))
    )
    vrfs: list[str | None] = [None, *(l3.vrf for l3 in l3vnis)]
    used = {l3.vni for l3 in l3vnis}
    l2vnis = []
    for vni in sorted(draw(st.sets(st.integers(3, 7), max_size=3)) - used):
        master = draw(st.sampled_from(HostMasterKind))
        gateways = draw(st.sampled_from(((), ("192.170.1.1/24",), ("192.170.2.1/24", "2001:db8:2::1/64"))))
        bridge = EXTERNAL if master is HostMasterKind.EXTERNAL_BRIDGE else None
        vrf = draw(st.sampled_from(vrfs))
        l2vnis.append(l2vni(f"blue{vni}", vni, vrf=vrf, gateways=gateways, master=master, bridge=bridge, vtep=vtep))
    nics = tuple(draw(st.lists(st.sampled_from(NICS), min_size=1, max_size=2, unique=True)))
    vteps = (f"{vtep}/{128 if ':' in vtep else 32}",)
    return state(
        underlay=underlay(*nics, vteps=vteps),
        l3vnis=l3vnis,
        l2vnis=tuple(l2vnis),
        passthrough=draw(st.sampled_from((None, passthrough()))),
    )


def steps_of(desired: DesiredState, kernel: FakeKernel) -> Plan:
    return plan(desired, kernel.observe(desired))


def apply_some(desired: DesiredState, kernel: FakeKernel, share: float) -> None:
    """Apply the first part of a plan, as a process does that is killed in the middle."""
    observed = kernel.observe(desired)
    whole = plan(desired, observed)
    part = whole.steps[: round(len(whole.steps) * share)]
    apply_plan(replace(whole, steps=part), kernel)


def settle(desired: DesiredState, kernel: FakeKernel) -> None:
    result = converge(desired, kernel)
    assert not result.errors, (result.errors, result.plan.text)


shares = st.floats(0, 1)


@settings(max_examples=150, deadline=None)
@given(desired_states(), desired_states(), shares)
def test_a_plan_interrupted_anywhere_leads_to_the_same_state(
    old: DesiredState, new: DesiredState, share: float
) -> None:
    whole = node()
    settle(old, whole)
    cut = whole.copy()
    settle(new, whole)
    apply_some(new, cut, share)
    settle(new, cut)
    assert cut.fingerprint() == whole.fingerprint()


@settings(max_examples=150, deadline=None)
@given(desired_states(), desired_states(), shares)
def test_a_second_plan_is_empty(old: DesiredState, new: DesiredState, share: float) -> None:
    kernel = node()
    apply_some(old, kernel, share)
    settle(new, kernel)
    assert steps_of(new, kernel).steps == ()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(desired_states(), shares), min_size=1, max_size=4))
def test_foreign_devices_stay_as_they_are(history: list[tuple[DesiredState, float]]) -> None:
    kernel = node()
    before = {key: (kernel.links[key], tuple(kernel.addresses[key])) for key in FOREIGN}
    for desired, share in history:
        apply_some(desired, kernel, share)
    assert {key: (kernel.links[key], tuple(kernel.addresses[key])) for key in FOREIGN} == before


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(desired_states(), shares), min_size=1, max_size=4))
def test_without_an_underlay_the_node_is_as_it_was(history: list[tuple[DesiredState, float]]) -> None:
    kernel, untouched = node(), node()
    for desired, share in history:
        apply_some(desired, kernel, share)
    settle(without_underlay(state()), kernel)
    untouched.sysctls = kernel.sysctls
    assert kernel.fingerprint() == untouched.fingerprint()


@settings(max_examples=150, deadline=None)
@given(desired_states(), desired_states(), shares)
def test_one_whole_plan_is_enough(old: DesiredState, new: DesiredState, share: float) -> None:
    kernel = node()
    apply_some(old, kernel, share)
    apply_some(new, kernel, 1.0)
    assert steps_of(new, kernel).text.startswith(("nothing to do", "cannot:"))
