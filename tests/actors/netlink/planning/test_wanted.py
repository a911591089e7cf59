"""Names and attributes of what a desired state means for the kernel (reference 4.1-4.9)."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from actors.netlink.planning.observed import LinkKind, Namespace, VxlanAttributes, gateway_mac, router_mac
from actors.netlink.planning.wanted import KernelModel, WantedLink, kernel_model, overhead_of, veth_mtu
from config.desired import DesiredState, HostMasterKind
from tests.actors.netlink.builders import UNDERLAY, demo, l2vni, l3vni, state, without_underlay

TABLES = {"red": 10_000_100}


def links(model: KernelModel) -> dict[str, WantedLink]:
    return {link.name: link for link in model.links}


def model_of(desired: DesiredState, mtu: int | None = 1500) -> KernelModel:
    return kernel_model(desired, TABLES, mtu)


def test_an_l3vni_means_vrf_bridge_vxlan_and_a_veth_pair() -> None:
    model = model_of(state(l3vnis=(l3vni(),)))
    assert [(link.namespace, link.name, link.kind) for link in model.links] == [
        (Namespace.ROUTER, "red", LinkKind.VRF),
        (Namespace.ROUTER, "br-pe-100", LinkKind.BRIDGE),
        (Namespace.ROUTER, "vni100", LinkKind.VXLAN),
        (Namespace.HOST, "host-e-100", LinkKind.VETH),
        (Namespace.ROUTER, "pe-e-100", LinkKind.VETH),
    ]
    found = links(model)
    assert found["vni100"].vxlan == VxlanAttributes(100, 4789, ip_address("100.65.0.0"), lower="lo", learning=False)
    assert (found["vni100"].neigh_suppress, found["vni100"].addr_gen_none) == (True, True)
    assert (found["br-pe-100"].master, found["br-pe-100"].addr_gen_none) == ("red", True)
    assert found["br-pe-100"].mac == "02:f3:64:41:00:00"
    assert (found["pe-e-100"].master, found["pe-e-100"].mtu, found["host-e-100"].mtu) == ("red", 1450, 1450)


def test_an_l2vni_has_its_gateway_on_the_bridge_and_no_addresses_on_its_veth() -> None:
    found = links(model_of(demo()))
    assert found["br-pe-110"].mac == "00:f3:00:00:00:6f"
    assert [str(address) for address in found["br-pe-110"].addresses or ()] == ["172.27.1.1/24", "2001:db8:2::1/64"]
    assert found["br-pe-110"].addr_gen_none is False
    assert (found["pe-e-110"].master, found["host-e-110"].master) == ("br-pe-110", "br-hs-110")
    assert found["host-e-110"].addresses == found["pe-e-110"].addresses == ()


def test_the_veth_follows_the_host_master() -> None:
    none = links(model_of(state(l2vnis=(l2vni(vrf=None, master=HostMasterKind.NONE),))))
    assert none["host-e-110"].master is None
    assert "br-hs-110" not in none
    external = model_of(state(l2vnis=(l2vni(vrf=None, master=HostMasterKind.EXTERNAL_BRIDGE, bridge="br0"),)))
    assert links(external)["host-e-110"].master == "br0"
    assert list(external.external_bridges.values()) == ["br0"]


def test_without_a_session_there_is_no_veth() -> None:
    assert set(links(model_of(state(l3vnis=(l3vni(pairs=()),))))) == {"red", "br-pe-100", "vni100"}


def test_without_an_underlay_nothing_is_wanted() -> None:
    model = model_of(without_underlay(demo()))
    assert (model.links, model.nics, model.loopback, model.tables) == ((), (), (), {})


@pytest.mark.parametrize(("mtu", "expected"), [(1500, 1500), (9000, 9000), (1200, 1280), (None, None)])
def test_the_passthrough_has_the_underlays_mtu(mtu: int | None, expected: int | None) -> None:
    found = links(model_of(demo(), mtu))
    assert (found["pt-host"].mtu, found["pt-ns"].mtu, found["pt-ns"].master) == (expected, expected, "")


def test_a_vrfs_networks_leave_room_for_the_largest_tunnel_among_them() -> None:
    """What comes from a host by IPv4 may leave by IPv6."""
    four, six = l3vni("red", 100), replace(l2vni(), vtep=ip_address("2001:db8::1"))
    alone = replace(l2vni(), vni=300, vrf=None, gateways=())
    found = links(model_of(state(l3vnis=(four,), l2vnis=(six, alone))))
    assert {name: link.mtu for name, link in found.items() if link.mtu is not None} == {
        **dict.fromkeys(("host-e-100", "pe-e-100", f"host-e-{six.vni}", f"pe-e-{six.vni}"), 1430),
        **dict.fromkeys(("host-e-300", "pe-e-300"), 1450),
    }


def test_an_ipv6_tunnel_of_the_l3vni_counts_for_its_segments_over_ipv4_and_for_no_other() -> None:
    six, segment = replace(l3vni("red", 100), vtep=ip_address("2001:db8::1")), l2vni(vrf="red")
    alone = replace(l2vni(), vni=300, vrf=None, gateways=())
    found = links(model_of(state(l3vnis=(six,), l2vnis=(segment, alone))))
    mtus = [found[f"host-e-{vni}"].mtu for vni in (100, segment.vni, 300)]
    assert mtus == [1430, 1430, 1450]


def test_the_host_decides_the_master_of_a_sessions_veth() -> None:
    found = links(model_of(demo()))
    assert (found["pt-host"].master, found["host-e-100"].master) == (None, None)


def test_two_l3vnis_in_one_vrf_create_it_once_and_the_second_depends_on_the_first() -> None:
    first, second = l3vni("red", 100), l3vni("red-too", 101, vrf="red", pairs=())
    model = model_of(state(l3vnis=(first, second)))
    assert [link.name for link in model.links].count("red") == 1
    assert model.parents == {second.resource: first.resource}


def test_an_l2vni_depends_on_the_l3vni_of_its_vrf() -> None:
    model = model_of(demo())
    assert model.parents == {l2vni().resource: l3vni().resource}
    assert model.underlay == UNDERLAY


@pytest.mark.parametrize(
    ("mtu", "vtep", "expected"),
    [
        (1500, "100.65.0.0", 1450),
        (1500, "2001:db8::1", 1430),
        (9000, "100.65.0.0", 8950),
        (1330, "100.65.0.0", 1500),
        (1331, "100.65.0.0", 1281),
        (1350, "2001:db8::1", 1500),
        (None, "100.65.0.0", None),
    ],
)
def test_a_veths_mtu_leaves_room_for_the_tunnel(mtu: int | None, vtep: str, expected: int | None) -> None:
    assert veth_mtu(mtu, overhead_of(ip_address(vtep))) == expected


@pytest.mark.parametrize(
    ("vni", "mac"), [(110, "00:f3:00:00:00:6f"), (255, "00:f3:00:00:01:00"), (16777215, "00:f3:01:00:00:00")]
)
def test_the_gateway_mac_is_vni_plus_one(vni: int, mac: str) -> None:
    assert gateway_mac(vni) == mac


@pytest.mark.parametrize(("vtep", "mac"), [("100.65.0.0", "02:f3:64:41:00:00"), ("100.65.0.255", "02:f3:64:41:00:ff")])
def test_the_router_mac_has_the_tunnel_endpoint(vtep: str, mac: str) -> None:
    assert router_mac(ip_address(vtep)) == mac


def test_the_router_mac_of_an_ipv6_endpoint_is_local_unicast_and_its_own() -> None:
    macs = [router_mac(ip_address(f"2001:db8::{number:x}")) for number in range(1000)]
    assert len(set(macs)) == len(macs)
    assert {mac[:3] for mac in macs} == {"06:"}
    assert {len(mac) for mac in macs} == {17}


def test_the_longest_name_fits_the_kernel() -> None:
    names = links(model_of(state(l2vnis=(l2vni(vni=16777215, vrf=None),))))
    assert max(len(name) for name in names) == 15
