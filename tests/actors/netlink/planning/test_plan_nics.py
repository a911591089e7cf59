"""When a NIC may be taken, what is recorded of it, and how it is returned."""

from __future__ import annotations

import errno
from dataclasses import replace
from ipaddress import ip_interface

import pytest

from actors.netlink.converge import apply_plan, converge
from actors.netlink.planning.observed import NIC_GROUP, Address, Link, LinkKind, Namespace, NicPhase, SavedRoute
from actors.netlink.planning.plan import plan
from actors.netlink.planning.plan_nics import IFA_F_TEMPORARY, record_of
from actors.netlink.planning.steps import AddAddress, ChangeLink, ForgetNic, MoveLink, SaveNic, SetNicSysctls, Step
from actors.netlink.wire.socket import KernelRefusal
from config.desired import BGPFamily, DesiredState, EndpointKind, FabricNeighbor, Family
from tests.actors.netlink.builders import l3vni, state, underlay, without_underlay
from tests.fakes.kernel import FakeKernel

IFA_F_PERMANENT = 0x80


def neighbor(kind: EndpointKind, endpoint: str = "192.168.11.2") -> FabricNeighbor:
    return FabricNeighbor(endpoint, kind, Family.IPV4, 64512, ebgp=True, families=(BGPFamily.IPV4_UNICAST,))


def wanting(*neighbors: FabricNeighbor, nics: tuple[str, ...] = ("toswitch1",)) -> DesiredState:
    return replace(state(), underlay=replace(underlay(*nics), neighbors=neighbors))


def host(**addresses: tuple[str, ...]) -> FakeKernel:
    kernel = FakeKernel()
    for index, (name, given) in enumerate(addresses.items()):
        kernel.add(Namespace.HOST, Link(index, name, up=True), *(Address(ip_interface(one)) for one in given))
    return kernel


def moves(desired: DesiredState, kernel: FakeKernel) -> list[str]:
    found = plan(desired, kernel.observe(desired))
    return [step.name for step in found.steps if isinstance(step, MoveLink)]


def complaints(desired: DesiredState, kernel: FakeKernel) -> list[str]:
    return [failure.message for failure in plan(desired, kernel.observe(desired)).failures]


@pytest.mark.parametrize("addresses", [(), ("fe80::1/64",)])
def test_an_unconfigured_nic_is_waited_for(addresses: tuple[str, ...]) -> None:
    desired = wanting(neighbor(EndpointKind.ADDRESS))
    assert moves(desired, host(toswitch1=addresses)) == []
    assert "toswitch1 has no address yet" in complaints(desired, host(toswitch1=addresses))[0]


def test_a_configured_nic_is_taken() -> None:
    assert moves(wanting(neighbor(EndpointKind.ADDRESS)), host(toswitch1=("192.168.11.3/24",))) == ["toswitch1"]


def test_an_unnumbered_neighbor_needs_no_address() -> None:
    unnumbered = neighbor(EndpointKind.INTERFACE, "toswitch1")
    assert moves(wanting(unnumbered), host(toswitch1=())) == ["toswitch1"]


def test_one_configured_nic_is_enough_for_all() -> None:
    desired = wanting(neighbor(EndpointKind.ADDRESS), nics=("toswitch1", "toswitch2"))
    kernel = host(toswitch1=("192.168.11.3/24",), toswitch2=())
    assert moves(desired, kernel) == ["toswitch1", "toswitch2"]


def test_a_nic_inside_needs_no_address() -> None:
    kernel = FakeKernel()
    kernel.add(Namespace.ROUTER, Link(1, "toswitch1", up=True))
    assert complaints(wanting(neighbor(EndpointKind.ADDRESS)), kernel) == []


@pytest.mark.parametrize("kind", ["bond", "team", "bridge", "vrf"])
def test_what_the_kernel_never_moves_is_refused_with_what_to_configure_instead(kind: str) -> None:
    kernel = FakeKernel()
    kernel.add(Namespace.HOST, Link(1, "bond0", kind=kind), Address(ip_interface("192.168.11.3/24")))
    kernel.add(Namespace.HOST, Link(2, "toswitch1", master="bond0"))
    kernel.add(Namespace.HOST, Link(3, "bond0.7", kind="vlan"), Address(ip_interface("192.168.12.3/24")))
    for nic in ("bond0", "toswitch1"):
        assert moves(wanting(nics=(nic,)), kernel) == []
        [complaint] = complaints(wanting(nics=(nic,)), kernel)
        assert "create a VLAN or macvlan interface on bond0" in complaint
    assert moves(wanting(nics=("bond0.7",)), kernel) == ["bond0.7"]


def inside(desired: DesiredState, kernel: FakeKernel) -> set[str]:
    """Return the NICs that the router has when the kernel is as desired; nothing that works is lost meanwhile."""
    result = converge(desired, kernel)
    assert not result.errors
    return {name for (where, name), link in kernel.links.items() if where is Namespace.ROUTER and name != "lo"}


@pytest.mark.parametrize("ours", ["lo", "vni100"])
def test_a_device_of_ours_in_place_of_a_nic_costs_no_nic(ours: str) -> None:
    kernel = host(toswitch1=("192.168.11.3/24",))
    desired = replace(wanting(), l3vnis=(l3vni(),))
    inside(desired, kernel)
    inside(replace(desired, underlay=underlay(ours)), kernel)
    assert kernel.links[Namespace.ROUTER, "toswitch1"].up


def test_a_misspelt_nic_does_not_cost_the_one_that_works() -> None:
    kernel = host(toswitch1=("192.168.11.3/24",))
    assert inside(wanting(), kernel) == {"toswitch1"}
    [complaint] = complaints(wanting(nics=("toswich1",)), kernel)
    assert complaint.endswith("it is moved when it appears; until then the router keeps toswitch1")
    assert inside(wanting(nics=("toswich1",)), kernel) == {"toswitch1"}
    assert kernel.addresses[Namespace.ROUTER, "toswitch1"] == [Address(ip_interface("192.168.11.3/24"))]
    assert kernel.journal["toswitch1"].phase is NicPhase.INSIDE


def test_a_nic_is_returned_when_the_one_in_its_place_is_inside() -> None:
    kernel = host(toswitch1=("192.168.11.3/24",), toswitch2=("192.168.12.3/24",))
    inside(wanting(), kernel)
    both_then = wanting(nics=("toswitch2", "toswitch3"))
    assert inside(both_then, kernel) == {"toswitch1", "toswitch2"}
    kernel.add(Namespace.HOST, Link(0, "toswitch3", up=True))
    assert inside(both_then, kernel) == {"toswitch2", "toswitch3"}
    assert kernel.addresses[Namespace.HOST, "toswitch1"] == [Address(ip_interface("192.168.11.3/24"))]
    assert set(kernel.journal) == {"toswitch2", "toswitch3"}


def test_a_nic_that_the_kernel_refuses_to_move_does_not_cost_the_one_that_works() -> None:
    kernel = host(toswitch1=("192.168.11.3/24",), toswitch2=("192.168.12.3/24",))
    inside(wanting(), kernel)
    kernel.fail = {"host: move toswitch2 to router"}
    assert inside(wanting(nics=("toswitch2",)), kernel) == {"toswitch1"}
    kernel.fail = set()
    assert inside(wanting(nics=("toswitch2",)), kernel) == {"toswitch2"}


def test_an_address_on_a_nic_that_leaves_does_not_bring_in_a_bare_one() -> None:
    kernel = host(toswitch1=("192.168.11.3/24",), toswitch2=())
    fabric = neighbor(EndpointKind.ADDRESS)
    inside(wanting(fabric), kernel)
    assert inside(wanting(fabric, nics=("toswitch2",)), kernel) == {"toswitch1"}
    assert "toswitch2 has no address yet" in complaints(wanting(fabric, nics=("toswitch2",)), kernel)[0]


def test_a_nic_kept_inside_is_configured_to_the_end() -> None:
    kernel = host(toswitch1=("192.168.11.3/24",))
    whole = plan(wanting(), kernel.observe(wanting()))
    moved = next(count for count, step in enumerate(whole.steps) if isinstance(step, MoveLink))
    apply_plan(replace(whole, steps=whole.steps[: moved + 1]), kernel)
    assert inside(wanting(nics=("toswich1",)), kernel) >= {"toswitch1"}
    assert kernel.addresses[Namespace.ROUTER, "toswitch1"] == [Address(ip_interface("192.168.11.3/24"))]
    assert kernel.links[Namespace.ROUTER, "toswitch1"].up


@pytest.mark.parametrize("nics", [("toswich1",), ("toswitch1", "toswitch2")])
def test_without_an_underlay_no_nic_is_kept(nics: tuple[str, ...]) -> None:
    kernel = host(toswitch1=("192.168.11.3/24",))
    inside(wanting(), kernel)
    inside(wanting(nics=nics), kernel)
    assert inside(without_underlay(wanting()), kernel) == set()
    assert kernel.journal == {}


def returned(nic: Link, *, seen: Link | None = None) -> list[ChangeLink]:
    """Return the changes that return a NIC: the journal has it as ``nic``, the router as ``seen``."""
    kernel = FakeKernel()
    kernel.add(Namespace.ROUTER, replace(seen or nic, group=NIC_GROUP, up=True))
    kernel.journal[nic.name] = record_of(nic, (), (), NicPhase.INSIDE)
    return [step for step in planned_without_underlay(kernel) if isinstance(step, ChangeLink)]


def planned_without_underlay(kernel: FakeKernel) -> tuple[Step, ...]:
    desired = without_underlay(state())
    return plan(desired, kernel.observe(desired)).steps


def test_a_virtual_nic_gets_its_own_mac_before_the_host_sees_it() -> None:
    first, _ = returned(Link(1, "toswitch1", kind=LinkKind.VETH, mac="52:54:00:00:00:01", up=True))
    assert (first.namespace, first.mac) == (Namespace.ROUTER, "52:54:00:00:00:01")


def test_hardware_keeps_the_mac_that_it_has() -> None:
    assert [change.mac for change in returned(Link(1, "eth1", mac="52:54:00:00:00:01", up=True))] == [None]


def test_a_mac_that_was_changed_in_the_router_is_changed_back() -> None:
    nic = Link(1, "eth1", mac="52:54:00:00:00:01", up=True)
    first, _ = returned(nic, seen=replace(nic, mac="52:54:00:00:00:ff"))
    assert (first.namespace, first.mac) == (Namespace.ROUTER, "52:54:00:00:00:01")


def test_a_mac_that_was_changed_on_the_way_is_changed_back() -> None:
    kernel = FakeKernel()
    nic = Link(1, "toswitch1", kind=LinkKind.VETH, mac="52:54:00:00:00:01", up=True)
    kernel.add(Namespace.HOST, replace(nic, mac="52:54:00:00:00:ff", up=False))
    kernel.journal[nic.name] = record_of(nic, (), (), NicPhase.RESTORING)
    mac, up = (step for step in planned_without_underlay(kernel) if isinstance(step, ChangeLink))
    assert (mac.namespace, mac.mac, up.namespace, up.up) == (Namespace.HOST, "52:54:00:00:00:01", Namespace.HOST, True)


def test_a_nic_that_was_down_is_returned_down_and_in_its_group() -> None:
    (change,) = returned(Link(1, "eth1", group=7))
    assert (change.up, change.group) == (None, 7)


def test_a_nic_wanted_again_during_its_return_keeps_its_original_record() -> None:
    kernel = FakeKernel()
    was = Link(1, "toswitch1", mtu=9000, group=7, altnames=("enp1s0",), up=True)
    kernel.add(Namespace.HOST, replace(was, mtu=1500, group=NIC_GROUP, altnames=(), up=False))
    kernel.journal[was.name] = record_of(was, (), (), NicPhase.RESTORING)
    assert converge(state(), kernel).clean
    assert kernel.journal[was.name] == record_of(was, (), (), NicPhase.INSIDE)


TO_GATEWAY = SavedRoute(Family.IPV4, "10.0.0.1/32", 254, scope=253)
DEFAULT = SavedRoute(Family.IPV4, "0.0.0.0/0", 254, gateway="10.0.0.1")
LOST = replace(DEFAULT, destination="10.7.0.0/16", gateway="203.0.113.1")
HOSTED = Link(1, "eth1", up=True)


def in_router(*routes: SavedRoute) -> FakeKernel:
    """Return a kernel that has a provider's NIC in the router, with these routes in the journal."""
    kernel = FakeKernel()
    kernel.add(Namespace.ROUTER, replace(HOSTED, group=NIC_GROUP))
    record = record_of(HOSTED, (Address(ip_interface("10.0.0.5/32")),), (), NicPhase.INSIDE)
    kernel.journal["eth1"] = replace(record, routes=routes, altnames=("enp1s0",))
    return kernel


def test_the_route_to_a_gateway_is_saved_before_routes_through_it() -> None:
    assert record_of(HOSTED, (), (DEFAULT, TO_GATEWAY), NicPhase.MOVING).routes == (TO_GATEWAY, DEFAULT)


def test_routes_of_an_older_journal_are_restored_in_an_order_that_works() -> None:
    kernel = in_router(DEFAULT, TO_GATEWAY)
    assert converge(without_underlay(state()), kernel).clean
    assert kernel.routes["eth1"] == [TO_GATEWAY, DEFAULT]
    assert kernel.journal == {}


def test_a_refused_route_is_named_and_stays_in_the_record_while_all_else_is_restored() -> None:
    kernel = in_router(LOST, TO_GATEWAY, DEFAULT)
    result = converge(without_underlay(state()), kernel)
    [error] = result.errors
    assert error.startswith("host: add route 10.7.0.0/16 via 203.0.113.1 dev eth1 table 254: ")
    assert kernel.routes["eth1"] == [TO_GATEWAY, DEFAULT]
    assert kernel.journal["eth1"].phase is NicPhase.RESTORING
    kernel.routes["eth1"].append(replace(TO_GATEWAY, destination="203.0.113.1/32"))
    assert converge(without_underlay(state()), kernel).clean
    assert LOST in kernel.routes["eth1"]
    assert kernel.journal == {}


def test_routes_are_restored_despite_a_refused_address_and_altname() -> None:
    kernel = in_router(TO_GATEWAY)
    kernel.apply(MoveLink("eth1", Namespace.ROUTER, Namespace.HOST))
    kernel.fail = {"host: add address 10.0.0.5/32 to eth1", "host: add altname enp1s0 to eth1"}
    assert {error.rpartition(": ")[0] for error in converge(without_underlay(state()), kernel).errors} == kernel.fail
    assert kernel.routes["eth1"] == [TO_GATEWAY]
    assert "eth1" in kernel.journal


@pytest.mark.parametrize("refused", ["mtu 9000", "address 52:54:00:00:00:01"])
def test_a_nic_that_cannot_be_all_it_was_is_up_in_the_host_with_its_routes(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = in_router(TO_GATEWAY, DEFAULT)
    kernel.journal["eth1"] = replace(kernel.journal["eth1"], mtu=9000, mac="52:54:00:00:00:01", group=7)

    def apply(step: Step) -> None:
        if refused in str(step):
            raise KernelRefusal(errno.ERANGE)
        FakeKernel.apply(kernel, step)

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "apply", apply)
        for _ in range(2):
            [error] = converge(without_underlay(state()), kernel).errors
            assert refused in error
    nic = kernel.links[Namespace.HOST, "eth1"]
    assert (nic.up, nic.group) == (True, 7)
    assert [str(address.interface) for address in kernel.addresses[Namespace.HOST, "eth1"]] == ["10.0.0.5/32"]
    assert kernel.routes["eth1"] == [TO_GATEWAY, DEFAULT]
    assert (nic.mtu == 9000, nic.mac == "52:54:00:00:00:01") == ("mtu" not in refused, "mtu" in refused)
    assert kernel.journal["eth1"].phase is NicPhase.RESTORING
    assert converge(without_underlay(state()), kernel).clean
    assert kernel.journal == {}


def test_all_refused_routes_of_a_replaced_nic_are_named() -> None:
    kernel = in_router(LOST, replace(LOST, destination="10.8.0.0/16"))
    kernel.add(Namespace.HOST, Link(2, "toswitch1"))
    [failure] = converge(state(), kernel).failures
    assert "10.7.0.0/16" in failure.message
    assert "10.8.0.0/16" in failure.message
    assert (Namespace.ROUTER, "toswitch1") in kernel.links


OWN = (("ipv4.rp_filter", "2"), ("ipv6.accept_ra", "0"))


def test_a_nics_own_sysctls_are_recorded_and_restored_before_it_is_up() -> None:
    kernel = host(toswitch1=("192.168.11.3/24",))
    kernel.nic_sysctls["toswitch1"] = dict(OWN)
    assert converge(state(), kernel).clean
    assert kernel.journal["toswitch1"].sysctls == OWN
    order = [type(step) for step in planned_without_underlay(kernel) if step.unit == "nic toswitch1"]
    assert order == [SaveNic, MoveLink, SetNicSysctls, AddAddress, ChangeLink, ForgetNic]
    assert converge(without_underlay(state()), kernel).clean
    assert kernel.nic_sysctls["toswitch1"] == dict(OWN)


def test_sysctls_lost_during_an_interrupted_return_stay_in_the_record() -> None:
    kernel = host(toswitch1=("192.168.11.3/24",))
    kernel.nic_sysctls["toswitch1"] = {"ipv4.rp_filter": "1"}
    kernel.journal["toswitch1"] = replace(record_of(HOSTED, (), (), NicPhase.RESTORING), name="toswitch1", sysctls=OWN)
    assert converge(state(), kernel).clean
    assert kernel.journal["toswitch1"].sysctls == (("ipv4.rp_filter", "1"), ("ipv6.accept_ra", "0"))


def test_nothing_is_restored_on_a_nic_that_cannot_move() -> None:
    kernel = in_router(TO_GATEWAY)
    kernel.fail = {"router: move eth1 to host"}
    assert len(converge(without_underlay(state()), kernel).errors) == 1


def test_a_leased_address_is_kept_and_a_privacy_address_is_not() -> None:
    leased = Address(ip_interface("192.168.11.3/24"), flags=0)
    secondary = Address(ip_interface("192.168.11.4/24"), flags=IFA_F_PERMANENT | 0x01)
    privacy = Address(ip_interface("2001:db8::dead/64"), flags=IFA_F_TEMPORARY)
    static = Address(ip_interface("2001:db8::1/64"), flags=IFA_F_PERMANENT)
    record = record_of(Link(1, "toswitch1"), (leased, secondary, privacy, static), (), NicPhase.MOVING)
    assert record.addresses == (leased, secondary, static)


@pytest.mark.parametrize("since", ["moved on", "enslaved"])
def test_a_record_of_a_move_that_never_happened_is_not_restored(since: str) -> None:
    kernel = host(eth0=("192.168.11.3/24",), toswitch1=("192.168.12.3/24",))
    refused = {str(step) for step in plan(wanting(nics=("eth0",)), kernel.observe(wanting())).steps}
    kernel.fail = {step for step in refused if step.startswith("host: move eth0")}
    assert kernel.fail
    assert converge(wanting(nics=("eth0",)), kernel).errors == ()
    assert kernel.journal["eth0"].phase is NicPhase.MOVING
    kernel.fail = set()
    # The administrator gives its address to a bridge, as the message advises to name another interface.
    kernel.addresses[Namespace.HOST, "eth0"] = []
    if since == "moved on":
        kernel.add(Namespace.HOST, kernel.links[Namespace.HOST, "eth0"], Address(ip_interface("10.1.1.1/24")))
    else:
        kernel.add(Namespace.HOST, Link(0, "br0", kind="bridge", up=True))
        kernel.links[Namespace.HOST, "eth0"] = replace(kernel.links[Namespace.HOST, "eth0"], master="br0")
    before = list(kernel.addresses[Namespace.HOST, "eth0"])
    assert converge(wanting(nics=("toswitch1",)), kernel).clean
    assert kernel.addresses[Namespace.HOST, "eth0"] == before
    assert "eth0" not in kernel.journal


def test_each_nic_that_the_kernel_refuses_to_move_is_named() -> None:
    kernel = host(a0=("192.168.11.3/24",), a1=("192.168.12.3/24",))
    desired = wanting(nics=("a0", "a1"))
    steps = {str(step) for step in plan(desired, kernel.observe(desired)).steps}
    kernel.fail = {step for step in steps if " move a" in step}
    assert len(kernel.fail) == 2
    [failure] = converge(desired, kernel).failures
    assert "move a0 to router" in failure.message
    assert "move a1 to router" in failure.message
