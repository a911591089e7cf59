"""Properties of planning over random states and random interruptions, on the verified fake kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import ip_interface

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.netlink.converge import apply_plan, converge
from actors.netlink.planning.observed import Address, Link, LinkKind, Namespace, SavedRoute
from actors.netlink.planning.plan import plan
from actors.netlink.planning.steps import (
    AddAddress,
    ChangeLink,
    CreateLink,
    DeleteLinks,
    Plan,
    RemoveAddress,
    RemoveUnreachable,
    SetSysctl,
    Step,
)
from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState, Family
from config.problems import ResourceId
from tests.actors.netlink.builders import state, without_underlay
from tests.actors.netlink.random_states import EXTERNAL, NETWORKS, AnyVNI, desired_states
from tests.fakes.kernel import FakeKernel, Key


def address(text: str, flags: int = 0x80, broadcast: str | None = None, label: str = "") -> Address:
    return Address(ip_interface(text), flags=flags, broadcast=broadcast, label=label)


EXTERNAL_KEY = (Namespace.HOST, EXTERNAL)
#: Devices with names that some networks want, and a VRF with a table that one wants.
FOREIGN = {
    (Namespace.HOST, "br-hs-5"): Link(0, "br-hs-5", kind=LinkKind.BRIDGE, up=True),
    (Namespace.ROUTER, "customer"): Link(0, "customer", kind=LinkKind.VRF, up=True, table=10_000_002),
    (Namespace.ROUTER, "br-pe-4"): Link(0, "br-pe-4", kind=LinkKind.BRIDGE, up=True),
}


def node(foreign: Iterable[Key] = FOREIGN) -> FakeKernel:
    """Return a host with three NICs, a user's bridge and foreign devices."""
    kernel = FakeKernel()
    kernel.add(
        Namespace.HOST, Link(0, "toswitch1", up=True, mtu=9000), address("192.168.11.3/24"), address("fd00::3/64")
    )
    kernel.add(
        Namespace.HOST,
        Link(0, "toswitch2", kind=LinkKind.VETH, mac="52:54:00:00:00:02", group=7),
        address("192.168.12.3/24", 0x280, broadcast="", label="toswitch2:1"),
    )
    kernel.add(Namespace.HOST, Link(0, "toswitch3", up=True, mtu=1330), address("192.168.13.3/24"))
    kernel.routes["toswitch1"] = [SavedRoute(Family.IPV4, "10.0.0.0/8", 254, gateway="192.168.11.1")]
    kernel.add(Namespace.HOST, Link(0, EXTERNAL, kind=LinkKind.BRIDGE, up=True))
    for namespace, name in foreign:
        kernel.add(namespace, FOREIGN[namespace, name], address("10.4.4.4/24"))
    return kernel


def mixture(old: DesiredState, new: DesiredState, changed: set[tuple[str, str]]) -> DesiredState:
    """Return ``old``, with some networks as in ``new`` where that goes with the rest."""
    if old.underlay is None:
        return new

    def chosen(ours: Iterable[AnyVNI], theirs: Iterable[AnyVNI]) -> list[AnyVNI]:
        kept = [vni for vni in ours if (vni.resource.namespace, vni.resource.name) not in changed]
        return kept + [vni for vni in theirs if (vni.resource.namespace, vni.resource.name) in changed]

    l3vnis, l2vnis = chosen(old.l3vnis, new.l3vnis), chosen(old.l2vnis, new.l2vnis)
    vtep, used, vrfs = old.underlay.vteps[0].ip, set[int](), {vni.vrf for vni in l3vnis}
    result: list[AnyVNI] = []
    for vni in (*l3vnis, *l2vnis):
        if vni.vni not in used and (vni.vrf is None or vni.vrf in vrfs):
            used.add(vni.vni)
            result.append(replace(vni, vtep=vtep))
    return replace(
        old,
        l3vnis=tuple(vni for vni in result if isinstance(vni, DesiredL3VNI)),
        l2vnis=tuple(vni for vni in result if isinstance(vni, DesiredL2VNI)),
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
    watched = (*FOREIGN, EXTERNAL_KEY)
    before = {key: (kernel.links[key], tuple(kernel.addresses[key])) for key in watched}
    for desired, share in history:
        apply_some(desired, kernel, share)
    assert {key: (kernel.links[key], tuple(kernel.addresses[key])) for key in watched} == before


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
    if old.underlay is not None and new.underlay is not None and old.underlay.interfaces != new.underlay.interfaces:
        # A NIC is returned once the others are seen inside.
        apply_some(new, kernel, 1.0)
    rest = steps_of(new, kernel)
    # The masters that devices have left, with their tables.
    assert all(isinstance(step, DeleteLinks | RemoveUnreachable) for step in rest.steps), rest.text
    apply_some(new, kernel, 1.0)
    assert steps_of(new, kernel).steps == ()


def without_tables(kernel: FakeKernel) -> object:
    """Return the kernel's state with VRFs in place of their tables: a VRF keeps the table that it got first."""
    plain = kernel.copy()
    inside = [link for (namespace, _), link in plain.links.items() if namespace is Namespace.ROUTER]
    names = {link.table: link.name for link in inside if link.kind == LinkKind.VRF}
    plain.links = {key: replace(link, table=None) for key, link in plain.links.items()}
    plain.tables = dict.fromkeys(plain.tables, 0)
    return plain.fingerprint()[:-3], {(family, names[table]) for family, table in kernel.unreachable}, plain.journal


@settings(max_examples=300, deadline=None)
@given(desired_states(), desired_states())
def test_a_change_leads_to_the_state_of_a_new_node(old: DesiredState, new: DesiredState) -> None:
    # Without the foreign devices: a network that cannot have its devices keeps those that it had.
    changed, fresh = node(foreign=()), node(foreign=())
    settle(old, changed)
    settle(new, changed)
    settle(new, fresh)
    if new.underlay is None:
        fresh.sysctls = changed.sysctls
    assert without_tables(changed) == without_tables(fresh)


def devices_of(step: Step) -> set[Key]:
    """Return the devices that a step writes to."""
    match step:
        case CreateLink():
            wanted = step.wanted
            return {(wanted.namespace, wanted.name)} | ({(Namespace.ROUTER, wanted.peer)} if wanted.peer else set())
        case DeleteLinks():
            return {(step.namespace, name) for name in step.names}
        case ChangeLink():
            return {(step.namespace, step.name)}
        case AddAddress() | RemoveAddress():
            return {(step.namespace, step.link)}
        case SetSysctl():
            return {(step.namespace, step.key.split(".")[3])} if ".conf." in step.key else set()
    return set()


def vnis(desired: DesiredState) -> dict[ResourceId, AnyVNI]:
    everything: tuple[AnyVNI, ...] = (*desired.l3vnis, *desired.l2vnis)
    return {vni.resource: vni for vni in everything}


@settings(max_examples=300, deadline=None)
@given(desired_states(), desired_states(), st.sets(st.sampled_from(NETWORKS)))
def test_what_does_not_change_is_not_touched(
    old: DesiredState, other: DesiredState, changed: set[tuple[str, str]]
) -> None:
    """Nor is anything foreign. ``changed`` are the networks that are as in ``other``, the rest is as in ``old``."""
    new = mixture(old, other, changed)
    kernel = node()
    settle(old, kernel)
    failed = {failure.resource for failure in (*steps_of(old, kernel).failures, *steps_of(new, kernel).failures)}
    same = {resource for resource, vni in vnis(new).items() if vnis(old).get(resource) == vni} - failed
    whole = steps_of(new, kernel)
    untouched = {
        (link.namespace, link.name)
        for link in whole.model.links
        # Which of several L3VNIs creates a VRF is in the VRF's alias.
        if link.resource in same and link.kind is not LinkKind.VRF
    }
    for step in whole.steps:
        assert not devices_of(step) & {*untouched, *FOREIGN, EXTERNAL_KEY}, step
