"""A plan's steps and their order, what it refuses to do, and what happens when a step is refused."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_interface

import pytest

from actors.netlink.converge import ROUNDS, apply_plan, converge
from actors.netlink.planning.observed import (
    CONDEMNED_GROUP,
    OWNED_GROUP,
    Address,
    Link,
    LinkKind,
    Namespace,
    SavedRoute,
)
from actors.netlink.planning.plan import plan
from actors.netlink.planning.steps import ChangeLink, CreateLink, DeleteLinks, Plan, Step
from config.desired import DesiredState, Family, HostMasterKind
from config.problems import Kind, Reason, ResourceId
from tests.actors.netlink.builders import UNDERLAY, demo, l2vni, l3vni, state, without_underlay
from tests.fakes.kernel import FakeKernel


def node() -> FakeKernel:
    kernel = FakeKernel()
    kernel.add(Namespace.HOST, Link(0, "toswitch1", up=True), Address(ip_interface("192.168.11.3/24")))
    return kernel


def planned(desired: DesiredState, kernel: FakeKernel) -> Plan:
    return plan(desired, kernel.observe(desired))


def texts(found: Plan) -> list[str]:
    return [str(step) for step in found.steps]


def settled(desired: DesiredState) -> FakeKernel:
    kernel = node()
    assert converge(desired, kernel).clean
    return kernel


def test_a_plan_is_readable_and_names_the_resource_of_each_step() -> None:
    text = planned(state(l3vnis=(l3vni(),)), node()).text
    assert "router: create vrf red table 10000100  # L3VNI red" in text
    assert "host: move toswitch1 to router  # Underlay underlay" in text
    assert "host: create veth host-e-100 peer pe-e-100 in router mtu 1450  # L3VNI red" in text
    assert planned(state(), settled(state())).text == "nothing to do"


def test_the_journal_is_written_before_the_nic_moves() -> None:
    lines = texts(planned(state(), node()))
    journal = lines.index("journal: toswitch1 moving, 1 addresses, 0 routes")
    assert journal < lines.index("host: move toswitch1 to router")
    assert lines.index("router: set toswitch1 group 4242 up") < lines.index(
        "journal: toswitch1 inside, 1 addresses, 0 routes"
    )


def test_devices_are_enslaved_before_they_get_addresses() -> None:
    steps = planned(demo(), node()).steps
    for name in ("pe-e-100", "br-pe-110"):
        enslaved = next(i for i, s in enumerate(steps) if isinstance(s, ChangeLink) and s.name == name and s.master)
        addressed = next(i for i, s in enumerate(steps) if f"to {name}" in str(s) and "add address" in str(s))
        assert enslaved < addressed


def test_a_vxlan_device_disables_address_generation_before_it_is_up() -> None:
    lines = texts(planned(demo(), node()))
    up = next(i for i, line in enumerate(lines) if line.startswith("router: set vni100") and line.endswith(" up"))
    assert lines.index("router: sysctl net.ipv6.conf.vni100.addr_gen_mode=1") < up


def test_no_device_is_ever_taken_down() -> None:
    for kernel, desired in ((node(), demo()), (settled(demo()), without_underlay(demo())), (settled(demo()), state())):
        assert not [
            step for step in planned(desired, kernel).steps if isinstance(step, ChangeLink) and step.up is False
        ]


def test_all_deletions_of_a_namespace_are_one_step_but_for_vrfs() -> None:
    deletions = [s for s in planned(without_underlay(demo()), settled(demo())).steps if isinstance(s, DeleteLinks)]
    assert [d.namespace for d in deletions] == [Namespace.HOST, Namespace.ROUTER, Namespace.ROUTER]
    assert all(d.batch for d in deletions)
    # The router's veth ends go with the host's.
    assert [d.names for d in deletions[1:]] == [("br-pe-100", "br-pe-110", "vni100", "vni110"), ("red",)]


def test_a_foreign_member_of_the_condemned_group_is_not_deleted_along() -> None:
    kernel = settled(demo())
    kernel.add(Namespace.ROUTER, Link(0, "innocent", kind="dummy", group=CONDEMNED_GROUP))
    found = planned(state(l3vnis=(l3vni(),)), kernel)
    deletion = next(s for s in found.steps if isinstance(s, DeleteLinks) and s.namespace is Namespace.ROUTER)
    assert "br-pe-110" in deletion.names


def test_a_condemned_device_that_is_wanted_again_leaves_the_group() -> None:
    kernel = settled(demo())
    kernel.apply(ChangeLink(Namespace.ROUTER, "br-pe-100", group=CONDEMNED_GROUP))
    found = planned(state(l3vnis=(l3vni(),)), kernel)
    deletion = next(s for s in found.steps if isinstance(s, DeleteLinks) and s.namespace is Namespace.ROUTER)
    assert not deletion.batch
    assert "br-pe-100" not in deletion.names
    converge(state(l3vnis=(l3vni(),)), kernel)
    assert kernel.links[Namespace.ROUTER, "br-pe-100"].group == OWNED_GROUP


def test_an_l2vni_without_an_l3vni_for_its_vrf_is_a_failed_dependency() -> None:
    (failure,) = planned(state(l2vnis=(l2vni(vrf="nowhere"),)), node()).failures
    assert failure.reason is Reason.DEPENDENCY_FAILED
    assert "nowhere" in failure.message
    assert failure.origin.path == "openpe_blue.yaml"


def test_a_veth_whose_ends_do_not_belong_together_is_recreated() -> None:
    kernel = settled(demo())
    key = (Namespace.ROUTER, "pe-e-100")
    kernel.links[key] = replace(kernel.links[key], peer_index=999)
    lines = texts(planned(demo(), kernel))
    assert "host: create veth host-e-100 peer pe-e-100 in router mtu 1450" in lines
    assert any(line.startswith("host: delete") and "host-e-100" in line for line in lines)
    assert any(line.startswith("router: delete") and "pe-e-100" in line for line in lines)


def test_a_refused_step_skips_the_rest_of_its_resource_and_its_dependents_only() -> None:
    kernel = node()
    kernel.fail = {"router: create bridge br-pe-100"}
    desired = demo()
    observed = kernel.observe(desired)
    applied = apply_plan(plan(desired, observed), kernel)
    reasons = {failure.resource.name: failure.reason for failure in applied.failures}
    assert reasons == {"red": Reason.OVERLAY_ATTACHMENT_FAILED, "blue": Reason.DEPENDENCY_FAILED}
    names = {name for _, name in kernel.links}
    assert {"pt-ns", "pt-host", "red"} <= names
    assert not {"vni100", "br-pe-110"} & names


def test_a_refusal_for_one_tenant_leaves_another_tenants_network_of_the_same_name_alone() -> None:
    one, other = (
        replace(l3vni(vni=vni, vrf=f"v{vni}"), resource=ResourceId(Kind.L3VNI, namespace, "net"))
        for vni, namespace in ((100, "tenant-a"), (200, "tenant-b"))
    )
    kernel = node()
    kernel.fail = {"router: create bridge br-pe-100"}
    result = converge(state(l3vnis=(one, other)), kernel)
    [failure] = result.failures
    assert failure.resource == one.resource
    assert failure.resource != other.resource
    assert (Namespace.ROUTER, "vni100") not in kernel.links
    assert kernel.links[Namespace.ROUTER, "vni200"].up
    assert len(kernel.addresses[Namespace.ROUTER, "pe-e-200"]) == 2


@pytest.mark.parametrize("gateways", [(), ("172.27.1.1/24",)])
def test_a_number_that_changes_its_kind_keeps_nothing_of_the_other(gateways: tuple[str, ...]) -> None:
    layer2, layer3 = state(l2vnis=(l2vni(vni=100, vrf=None, gateways=gateways),)), state(l3vnis=(l3vni(vrf="v"),))
    key = (Namespace.ROUTER, "br-pe-100")
    for old, new in ((layer2, layer3), (layer3, layer2)):
        kernel = settled(old)
        assert converge(new, kernel).clean
        bridge, fresh = kernel.links[key], settled(new).links[key]
        assert bridge.addr_gen_none is fresh.addr_gen_none
        assert bridge.mac.startswith("00:f3:") is fresh.mac.startswith("00:f3:")


def test_an_l3vnis_bridge_keeps_its_mac_while_it_has_its_tunnel() -> None:
    """Another router MAC may not reach other nodes' kernels; the bridges of older versions have random ones."""
    desired, bridge = state(l3vnis=(l3vni(),)), (Namespace.ROUTER, "br-pe-100")
    kernel = settled(desired)
    assert kernel.links[bridge].mac == "02:f3:64:41:00:00"
    kernel.links[bridge] = replace(kernel.links[bridge], mac="ae:00:00:00:00:01")
    assert not planned(desired, kernel).steps
    del kernel.links[Namespace.ROUTER, "vni100"]
    lines = texts(planned(desired, kernel))
    given = lines.index("router: set br-pe-100 address 02:f3:64:41:00:00")
    assert given < next(number for number, line in enumerate(lines) if "create vxlan vni100" in line)


def test_another_tunnel_endpoint_means_another_router_mac() -> None:
    kernel = settled(state(l3vnis=(l3vni(),)))
    assert converge(state(l3vnis=(replace(l3vni(), vtep=ip_address("100.66.0.1")),)), kernel).clean
    assert kernel.links[Namespace.ROUTER, "br-pe-100"].mac == "02:f3:64:42:00:01"


def test_a_transient_failure_deletes_nothing_that_worked() -> None:
    kernel = settled(demo())
    kernel.fail = {"router: set br-pe-100 mtu 1400", "router: create vxlan vni110"}
    before = set(kernel.links)
    moved = replace(demo(2), l3vnis=(replace(l3vni(), session=None),))
    kernel.fail = {str(step) for step in planned(moved, kernel).steps if isinstance(step, CreateLink)}
    kernel.links[Namespace.ROUTER, "br-pe-110"] = replace(kernel.links[Namespace.ROUTER, "br-pe-110"], up=False)
    kernel.fail |= {"router: set br-pe-110 up"}
    result = converge(demo(), kernel)
    assert [failure.resource.name for failure in result.failures] == ["blue"]
    assert set(kernel.links) == before


def test_a_nic_that_cannot_move_fails_the_underlay_and_keeps_its_journal() -> None:
    kernel = node()
    kernel.fail = {"host: move toswitch1 to router"}
    result = converge(demo(), kernel)
    (failure,) = result.failures
    assert (failure.resource, failure.reason) == (UNDERLAY, Reason.UNDERLAY_FAILED)
    assert (Namespace.HOST, "toswitch1") in kernel.links
    assert (Namespace.ROUTER, "vni100") in kernel.links
    kernel.fail = set()
    assert converge(demo(), kernel).clean


def test_a_failed_journal_write_stops_the_move() -> None:
    kernel = node()
    kernel.fail = {"journal: toswitch1 moving, 1 addresses, 0 routes"}
    assert not converge(demo(), kernel).clean
    assert (Namespace.HOST, "toswitch1") in kernel.links


def test_a_nic_that_cannot_be_returned_is_an_error_and_is_retried() -> None:
    kernel = settled(demo())
    kernel.fail = {"router: move toswitch1 to host"}
    result = converge(without_underlay(demo()), kernel)
    assert not result.complete
    assert "toswitch1" in result.errors[0]
    kernel.fail = set()
    assert converge(without_underlay(demo()), kernel).clean
    assert kernel.addresses[Namespace.HOST, "toswitch1"] == [Address(ip_interface("192.168.11.3/24"))]


def test_a_kernel_that_never_settles_is_reported() -> None:
    class Forgetful(FakeKernel):
        rounds = 0

        def apply(self, step: Step) -> None:
            self.rounds += 1

    kernel = Forgetful()
    result = converge(state(), kernel)
    assert not result.complete
    assert "does not settle" in result.errors[0]
    assert kernel.rounds >= ROUNDS


def test_a_missing_optional_sysctl_is_ignored_and_a_missing_required_one_is_not() -> None:
    kernel = settled(state())
    kernel.sysctls["net.ipv6.conf.all.accept_untracked_na"] = None
    assert planned(state(), kernel).steps == ()
    kernel.sysctls["net.ipv4.conf.all.forwarding"] = None
    assert texts(planned(state(), kernel)) == ["router: sysctl net.ipv4.conf.all.forwarding=1"]


def test_an_external_bridge_that_is_no_bridge_is_refused() -> None:
    kernel = node()
    kernel.add(Namespace.HOST, Link(0, "br0", kind="dummy"))
    external = l2vni(vrf=None, master=HostMasterKind.EXTERNAL_BRIDGE, bridge="br0")
    (failure,) = planned(state(l2vnis=(external,)), kernel).failures
    assert "not a bridge but dummy" in failure.message


def test_a_nic_from_a_destroyed_namespace_is_restored_from_the_journal() -> None:
    kernel = settled(state())
    link = kernel.links.pop((Namespace.ROUTER, "toswitch1"))
    kernel.addresses.pop((Namespace.ROUTER, "toswitch1"))
    kernel.add(Namespace.HOST, replace(link, up=False))
    converge(without_underlay(state()), kernel)
    assert kernel.addresses[Namespace.HOST, "toswitch1"] == [Address(ip_interface("192.168.11.3/24"))]
    assert kernel.links[Namespace.HOST, "toswitch1"].up
    assert kernel.journal == {}


def test_a_device_of_ours_is_refused_as_a_nic() -> None:
    kernel = settled(demo())
    kernel.add(Namespace.HOST, Link(0, "toswitch2", kind=LinkKind.VETH, group=OWNED_GROUP))
    other = replace(demo(2).underlay, interfaces=("toswitch2",))  # type: ignore[type-var]
    found = planned(replace(demo(2), underlay=other), kernel)
    assert any("not a NIC" in failure.message for failure in found.failures)


def test_a_failed_resource_keeps_its_other_devices() -> None:
    kernel = settled(demo())
    key = (Namespace.ROUTER, "pe-e-100")
    kernel.links[key] = replace(kernel.links[key], group=0)
    before = set(kernel.links)
    result = converge(demo(), kernel)
    assert {failure.resource.name for failure in result.failures} == {"red", "blue"}
    assert set(kernel.links) == before


@pytest.mark.parametrize("first", ["in", "out"])
def test_reversing_the_configuration_after_any_step_loses_nothing(first: str) -> None:
    inside, outside = state(), without_underlay(state())
    going, back = (inside, outside) if first == "in" else (outside, inside)
    kernel = node()
    kernel.routes["toswitch1"] = [SavedRoute(Family.IPV4, "10.9.0.0/16", 254, gateway="192.168.11.2")]
    converge(back, kernel)
    total = len(planned(going, kernel).steps)
    assert total > 5
    for count in range(total + 1):
        cut = kernel.copy()
        observed = cut.observe(going)
        whole = plan(going, observed)
        apply_plan(replace(whole, steps=whole.steps[:count]), cut)
        for desired in (back, outside):
            assert converge(desired, cut).clean
        assert cut.addresses[Namespace.HOST, "toswitch1"] == [Address(ip_interface("192.168.11.3/24"))], count
        assert len(cut.routes["toswitch1"]) == 1, count
        assert cut.journal == {}
