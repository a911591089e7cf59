"""What plans rely on a kernel to do: checked on the fake in the unit tests and on the real one in tests/kernel.

Each function takes a kernel with two namespaces in which only ``lo`` and, in the host, a NIC named ``toswitch1`` exist.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from ipaddress import ip_address, ip_interface

import pytest

from actors.netlink.kernel import Kernel
from actors.netlink.planning.observed import (
    IFA_F_PERMANENT,
    OWNED_GROUP,
    Address,
    Link,
    LinkKind,
    Namespace,
    NicPhase,
    NicRecord,
    Observed,
    SavedRoute,
    VxlanAttributes,
    owned_address,
)
from actors.netlink.planning.steps import (
    AddAddress,
    AddRoute,
    AddUnreachable,
    ChangeLink,
    CreateLink,
    DeleteLinks,
    ForgetNic,
    MoveLink,
    RemoveAddress,
    RemoveUnreachable,
    SaveNic,
    SaveTables,
    SetNicSysctls,
    SetSysctl,
    Step,
)
from actors.netlink.planning.sysctls import LAYER_2_ONLY, sysctl_key
from actors.netlink.planning.wanted import WantedLink
from actors.netlink.wire.socket import KernelRefusal
from config.desired import Family
from tests.actors.netlink.builders import UNDERLAY, state, underlay

HOST, ROUTER = Namespace.HOST, Namespace.ROUTER
NIC = "toswitch1"
VXLAN4 = VxlanAttributes(100, 4789, ip_address("100.65.0.0"))
VXLAN6 = VxlanAttributes(101, 4790, ip_address("2001:db8::1"))


def see(kernel: Kernel) -> Observed:
    return kernel.observe(state(underlay=underlay(NIC)))


def link(kernel: Kernel, namespace: Namespace, name: str) -> Link | None:
    return see(kernel).view(namespace).links.get(name)


def refused(kernel: Kernel, step: Step) -> int:
    with pytest.raises(KernelRefusal) as caught:
        kernel.apply(step)
    return caught.value.errno


def wanted(name: str, kind: LinkKind, namespace: Namespace = ROUTER, **fields: object) -> CreateLink:
    return CreateLink(WantedLink(namespace, name, kind, UNDERLAY, **fields))  # type: ignore[arg-type]


def created_devices_have_their_attributes_and_our_mark(kernel: Kernel) -> None:
    kernel.apply(wanted("red", LinkKind.VRF, table=10_000_100))
    kernel.apply(wanted("br-pe-100", LinkKind.BRIDGE))
    kernel.apply(wanted("vni100", LinkKind.VXLAN, vxlan=VXLAN4))
    kernel.apply(wanted("vni101", LinkKind.VXLAN, vxlan=VXLAN6))
    links = see(kernel).router.links
    assert links["red"].kind == LinkKind.VRF
    assert links["red"].table == 10_000_100
    assert links["br-pe-100"].kind == LinkKind.BRIDGE
    assert links["vni100"].vxlan == VXLAN4
    assert links["vni101"].vxlan == VXLAN6
    for name in ("red", "br-pe-100", "vni100", "vni101"):
        assert links[name].group == OWNED_GROUP
        assert not links[name].up
        assert links[name].master == ""


def a_veth_is_created_with_an_end_in_each_namespace(kernel: Kernel) -> None:
    kernel.apply(wanted("host-e-100", LinkKind.VETH, HOST, peer="pe-e-100", mtu=1450))
    host, router = link(kernel, HOST, "host-e-100"), link(kernel, ROUTER, "pe-e-100")
    assert host is not None
    assert router is not None
    assert (host.mtu, host.group) == (router.mtu, router.group) == (1450, OWNED_GROUP)
    assert (host.peer_index, router.peer_index) == (router.index, host.index)
    kernel.apply(DeleteLinks(HOST, ("host-e-100",)))
    assert link(kernel, ROUTER, "pe-e-100") is None


def creating_what_exists_is_refused(kernel: Kernel) -> None:
    kernel.apply(wanted("br-pe-100", LinkKind.BRIDGE))
    assert refused(kernel, wanted("br-pe-100", LinkKind.BRIDGE)) == errno.EEXIST
    kernel.apply(wanted("vni100", LinkKind.VXLAN, vxlan=VXLAN4))
    assert refused(kernel, wanted("other", LinkKind.VXLAN, vxlan=VXLAN4)) == errno.EEXIST


def changing_a_missing_device_is_refused(kernel: Kernel) -> None:
    assert refused(kernel, ChangeLink(ROUTER, "vni100", up=True)) == errno.ENODEV
    kernel.apply(wanted("br-pe-100", LinkKind.BRIDGE))
    assert refused(kernel, ChangeLink(ROUTER, "br-pe-100", master="red")) == errno.ENODEV


def one_change_sets_all_attributes(kernel: Kernel) -> None:
    kernel.apply(wanted("br-pe-100", LinkKind.BRIDGE))
    kernel.apply(wanted("vni100", LinkKind.VXLAN, vxlan=VXLAN4))
    kernel.apply(SetSysctl(ROUTER, "net.ipv6.conf.vni100.addr_gen_mode", "1"))
    kernel.apply(ChangeLink(ROUTER, "vni100", master="br-pe-100", neigh_suppress=True, alias="x", up=True))
    kernel.apply(ChangeLink(ROUTER, "br-pe-100", mac="00:f3:00:00:00:65", up=True))
    vxlan, bridge = link(kernel, ROUTER, "vni100"), link(kernel, ROUTER, "br-pe-100")
    assert vxlan is not None
    assert bridge is not None
    assert (vxlan.master, vxlan.neigh_suppress, vxlan.addr_gen_none, vxlan.up) == ("br-pe-100", True, True, True)
    assert (vxlan.alias, bridge.alias) == ("x", "")
    assert (bridge.mac, bridge.up, bridge.master) == ("00:f3:00:00:00:65", True, "")
    kernel.apply(ChangeLink(ROUTER, "vni100", master=""))
    vxlan = link(kernel, ROUTER, "vni100")
    assert vxlan is not None
    assert vxlan.master == ""


def deletion_is_by_name_and_ignores_missing_devices(kernel: Kernel) -> None:
    kernel.apply(wanted("br-pe-100", LinkKind.BRIDGE))
    kernel.apply(wanted("br-pe-101", LinkKind.BRIDGE))
    kernel.apply(wanted("vni100", LinkKind.VXLAN, vxlan=VXLAN4))
    kernel.apply(ChangeLink(ROUTER, "vni100", master="br-pe-100", neigh_suppress=True, up=True))
    kernel.apply(DeleteLinks(ROUTER, ("br-pe-100", "not-there")))
    vxlan = link(kernel, ROUTER, "vni100")
    assert vxlan is not None
    assert (vxlan.master, vxlan.neigh_suppress) == ("", False)
    assert link(kernel, ROUTER, "br-pe-100") is None
    assert link(kernel, ROUTER, "br-pe-101") is not None
    kernel.apply(DeleteLinks(ROUTER, ("br-pe-101",), batch=False))
    kernel.apply(DeleteLinks(ROUTER, ("br-pe-101",), batch=False))
    assert link(kernel, ROUTER, "br-pe-101") is None


def addresses_are_added_with_our_mark_and_removed(kernel: Kernel) -> None:
    four, six = ip_interface("100.65.0.0/32"), ip_interface("2001:db8::1/128")
    for interface in (four, six):
        kernel.apply(AddAddress(ROUTER, "lo", owned_address(interface)))
        kernel.apply(AddAddress(ROUTER, "lo", owned_address(interface)))
    found = {address.interface: address for address in see(kernel).router.addresses["lo"]}
    assert found[four].ours
    assert found[six].ours
    assert found[four].flags & IFA_F_PERMANENT
    for interface in (four, six):
        kernel.apply(RemoveAddress(ROUTER, "lo", interface))
        kernel.apply(RemoveAddress(ROUTER, "lo", interface))
    assert not {four, six} & see(kernel).router.interfaces("lo")
    assert refused(kernel, AddAddress(ROUTER, "not-there", owned_address(four))) == errno.ENODEV


def addresses_keep_broadcast_and_label(kernel: Kernel) -> None:
    usual, none, odd = (ip_interface(f"192.168.{third}.3/24") for third in (11, 12, 13))
    kernel.apply(AddAddress(HOST, NIC, Address(usual)))
    kernel.apply(AddAddress(HOST, NIC, Address(none, broadcast="", label=f"{NIC}:1")))
    kernel.apply(AddAddress(HOST, NIC, Address(odd, broadcast="192.168.13.0")))
    found = {address.interface: address for address in see(kernel).host.addresses[NIC]}
    assert (found[usual].broadcast, found[usual].label) == (None, "")
    assert (found[none].broadcast, found[none].label) == ("", f"{NIC}:1")
    assert found[odd].broadcast == "192.168.13.0"


def enslaving_to_a_vrf_drops_ipv6_addresses_of_an_up_device(kernel: Kernel) -> None:
    four, six = ip_interface("172.26.10.1/24"), ip_interface("2001:db8:1::1/64")
    kernel.apply(wanted("red", LinkKind.VRF, table=10_000_100))
    kernel.apply(wanted("br-pe-100", LinkKind.BRIDGE))
    kernel.apply(ChangeLink(ROUTER, "red", up=True))
    kernel.apply(ChangeLink(ROUTER, "br-pe-100", up=True))
    kernel.apply(AddAddress(ROUTER, "br-pe-100", owned_address(four)))
    kernel.apply(AddAddress(ROUTER, "br-pe-100", owned_address(six)))
    kernel.apply(ChangeLink(ROUTER, "br-pe-100", master="red"))
    assert four in see(kernel).router.interfaces("br-pe-100")
    assert six not in see(kernel).router.interfaces("br-pe-100")


def unreachable_defaults_are_added_and_removed(kernel: Kernel) -> None:
    for family in Family:
        kernel.apply(AddUnreachable(family, 10_000_100))
        kernel.apply(AddUnreachable(family, 10_000_100))
    assert see(kernel).unreachable == {(Family.IPV4, 10_000_100), (Family.IPV6, 10_000_100)}
    for family in Family:
        kernel.apply(RemoveUnreachable(family, 10_000_100))
        kernel.apply(RemoveUnreachable(family, 10_000_100))
    assert see(kernel).unreachable == frozenset()
    kernel.apply(wanted("host-v-100", LinkKind.VRF, HOST, table=10_000_100))
    kernel.apply(AddUnreachable(Family.IPV6, 10_000_100, HOST))
    assert see(kernel).host_unreachable == {(Family.IPV6, 10_000_100)}
    assert see(kernel).unreachable == frozenset()
    kernel.apply(RemoveUnreachable(Family.IPV6, 10_000_100, HOST))
    assert see(kernel).host_unreachable == frozenset()


def sysctls_are_read_and_written_in_the_router(kernel: Kernel) -> None:
    key = "net.ipv4.conf.all.arp_accept"
    assert see(kernel).sysctls[key] == "0"
    kernel.apply(SetSysctl(ROUTER, key, "1"))
    assert see(kernel).sysctls[key] == "1"


def a_device_without_an_ip_stack_shows_its_sysctls(kernel: Kernel) -> None:
    for namespace in Namespace:
        name = f"br-{namespace}"
        kernel.apply(CreateLink(WantedLink(namespace, name, LinkKind.BRIDGE, UNDERLAY)))
        for key, value in LAYER_2_ONLY:
            kernel.apply(SetSysctl(namespace, sysctl_key(name, key), value))
        found = see(kernel).sysctls_of(namespace)
        assert {key: found[sysctl_key(name, key)] for key, _ in LAYER_2_ONLY} == dict(LAYER_2_ONLY)
        kernel.apply(DeleteLinks(namespace, (name,)))
        assert refused(kernel, SetSysctl(namespace, sysctl_key(name, "ipv4.forwarding"), "0")) == errno.ENOENT
        assert sysctl_key(name, "ipv4.arp_ignore") not in see(kernel).sysctls_of(namespace)


def a_moved_nic_loses_addresses_and_routes_and_is_down(kernel: Kernel) -> None:
    address = ip_interface("192.168.11.3/24")
    route = SavedRoute(Family.IPV4, "10.9.0.0/16", 254, gateway="192.168.11.2")
    kernel.apply(AddAddress(HOST, NIC, Address(address)))
    kernel.apply(ChangeLink(HOST, NIC, up=True))
    kernel.apply(AddRoute(NIC, route))
    kernel.apply(AddRoute(NIC, route))
    assert see(kernel).nic_routes[NIC] == (route,)
    kernel.apply(MoveLink(NIC, HOST, ROUTER))
    inside = link(kernel, ROUTER, NIC)
    assert inside is not None
    assert not inside.up
    assert address not in see(kernel).router.interfaces(NIC)
    assert link(kernel, HOST, NIC) is None
    assert refused(kernel, MoveLink(NIC, HOST, ROUTER)) == errno.ENODEV
    kernel.apply(MoveLink(NIC, ROUTER, HOST))
    assert see(kernel).nic_routes[NIC] == ()


def a_moved_nic_loses_its_own_sysctls(kernel: Kernel) -> None:
    own = (("ipv4.arp_ignore", "1"), ("ipv6.accept_ra", "0"))
    assert see(kernel).nic_sysctls[NIC] == ()
    kernel.apply(SetNicSysctls(NIC, own))
    assert see(kernel).nic_sysctls[NIC] == own
    kernel.apply(MoveLink(NIC, HOST, ROUTER))
    assert refused(kernel, SetNicSysctls(NIC, own)) in {errno.ENODEV, errno.ENOENT}
    kernel.apply(MoveLink(NIC, ROUTER, HOST))
    assert see(kernel).nic_sysctls[NIC] == ()


def a_route_needs_its_nic_up(kernel: Kernel) -> None:
    kernel.apply(ChangeLink(HOST, NIC, up=False))
    kernel.apply(AddAddress(HOST, NIC, Address(ip_interface("192.168.11.3/24"))))
    route = SavedRoute(Family.IPV4, "10.9.0.0/16", 254, gateway="192.168.11.2")
    assert refused(kernel, AddRoute(NIC, route)) in {errno.ENETDOWN, errno.ENETUNREACH}


def a_gateway_must_be_reachable_first(kernel: Kernel) -> None:
    kernel.apply(AddAddress(HOST, NIC, Address(ip_interface("10.0.0.5/32"))))
    kernel.apply(ChangeLink(HOST, NIC, up=True))
    route_to_gateway = SavedRoute(Family.IPV4, "10.0.0.1/32", 254, scope=253)
    default = SavedRoute(Family.IPV4, "0.0.0.0/0", 254, gateway="10.0.0.1")
    assert refused(kernel, AddRoute(NIC, default)) in {errno.ENETUNREACH, errno.EINVAL}
    kernel.apply(AddRoute(NIC, route_to_gateway))
    kernel.apply(AddRoute(NIC, default))
    kernel.apply(AddRoute(NIC, SavedRoute(Family.IPV4, "10.1.0.0/16", 254, gateway="172.31.0.1", flags=4)))


def state_is_kept(kernel: Kernel) -> None:
    record = NicRecord(NIC, NicPhase.MOVING, 1500, "02:00:00:00:00:01", up=True)
    kernel.apply(SaveNic(record))
    kernel.apply(SaveTables({"red": 10_000_100}))
    assert see(kernel).journal == {NIC: record}
    assert see(kernel).tables == {"red": 10_000_100}
    kernel.apply(ForgetNic(NIC))
    assert see(kernel).journal == {}


def each_step_of_a_batch_has_its_own_result(kernel: Kernel) -> None:
    batch = (
        wanted("red", LinkKind.VRF, table=10_000_100),
        ChangeLink(ROUTER, "missing", up=True),
        SetSysctl(ROUTER, "net.ipv4.conf.all.forwarding", "1"),
        CreateLink(WantedLink(HOST, "host-e-100", LinkKind.VETH, UNDERLAY, peer="pe-e-100")),
        AddAddress(ROUTER, "missing", owned_address(ip_interface("192.0.2.1/24"))),
        AddAddress(ROUTER, "lo", owned_address(ip_interface("100.65.0.0/32"))),
        wanted("br-pe-100", LinkKind.BRIDGE),
    )
    results = [refusal and getattr(refusal, "errno", None) for refusal in kernel.apply_all(batch)]
    assert results == [None, errno.ENODEV, None, None, errno.ENODEV, None, None]
    seen = see(kernel)
    assert {"red", "pe-e-100", "br-pe-100"} <= set(seen.router.links)
    assert "host-e-100" in seen.host.links
    assert seen.sysctls["net.ipv4.conf.all.forwarding"] == "1"
    assert ip_interface("100.65.0.0/32") in seen.router.interfaces("lo")
    assert kernel.apply_all(()) == []


def a_batch_may_be_larger_than_a_datagram(kernel: Kernel) -> None:
    names = [f"br-pe-{number}" for number in range(1, 151)]
    kernel.apply_all([wanted(name, LinkKind.BRIDGE) for name in names[::2]])
    results = kernel.apply_all([wanted(name, LinkKind.BRIDGE) for name in names])
    assert [refusal and getattr(refusal, "errno", None) for refusal in results] == [errno.EEXIST, None] * 75
    alias = "openperouter: " + "a" * 200
    assert kernel.apply_all([ChangeLink(ROUTER, name, alias=alias, up=True) for name in names]) == [None] * 150
    links = see(kernel).router.links
    assert all((links[name].alias, links[name].up) == (alias, True) for name in names)
    kernel.apply(DeleteLinks(ROUTER, tuple(names)))
    assert not set(names) & set(see(kernel).router.links)


def an_observation_has_what_changed_since_the_last(kernel: Kernel) -> None:
    kernel.apply_all([wanted("red", LinkKind.VRF, table=10_000_100), wanted("blue", LinkKind.VRF, table=10_000_101)])
    kernel.apply(wanted("br-pe-100", LinkKind.BRIDGE))
    kernel.apply(ChangeLink(ROUTER, "br-pe-100", master="red", up=True))
    kernel.apply(AddAddress(ROUTER, "br-pe-100", owned_address(ip_interface("192.0.2.1/24"))))
    before = see(kernel).router
    assert see(kernel).router.links["red"] == before.links["red"]
    kernel.apply(ChangeLink(ROUTER, "br-pe-100", master="blue"))
    kernel.apply(RemoveAddress(ROUTER, "br-pe-100", ip_interface("192.0.2.1/24")))
    assert see(kernel).router.links["br-pe-100"].master == "blue"
    assert not see(kernel).router.interfaces("br-pe-100") & {ip_interface("192.0.2.1/24")}
    kernel.apply(DeleteLinks(ROUTER, ("blue",)))
    assert see(kernel).router.links["br-pe-100"].master == ""


CONTRACT: tuple[Callable[[Kernel], None], ...] = (
    created_devices_have_their_attributes_and_our_mark,
    a_veth_is_created_with_an_end_in_each_namespace,
    creating_what_exists_is_refused,
    changing_a_missing_device_is_refused,
    one_change_sets_all_attributes,
    deletion_is_by_name_and_ignores_missing_devices,
    addresses_are_added_with_our_mark_and_removed,
    addresses_keep_broadcast_and_label,
    enslaving_to_a_vrf_drops_ipv6_addresses_of_an_up_device,
    unreachable_defaults_are_added_and_removed,
    sysctls_are_read_and_written_in_the_router,
    a_device_without_an_ip_stack_shows_its_sysctls,
    a_moved_nic_loses_addresses_and_routes_and_is_down,
    a_moved_nic_loses_its_own_sysctls,
    a_route_needs_its_nic_up,
    a_gateway_must_be_reachable_first,
    state_is_kept,
    each_step_of_a_batch_has_its_own_result,
    a_batch_may_be_larger_than_a_datagram,
    an_observation_has_what_changed_since_the_last,
)
