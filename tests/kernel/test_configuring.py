"""A demo-like state on a real kernel: every name and attribute, and no writes after that."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from actors.netlink.link_monitor import drain, open_monitor
from actors.netlink.planning.observed import NIC_GROUP, OWNED_GROUP
from config.desired import HostMasterKind
from tests.actors.netlink.builders import demo, l2vni, l3vni, passthrough, state, underlay, without_underlay
from tests.kernel.node import Node, ip


def info(link: dict[str, object]) -> dict[str, object]:
    found = link["linkinfo"]
    assert isinstance(found, dict)
    data = found["info_data"]
    assert isinstance(data, dict)
    return data


def test_an_l3vni_has_upstreams_devices(node: Node) -> None:
    result = node.converge(demo())
    assert result.clean, (result.failures, result.errors)
    vrf, bridge, vxlan = node.link("red"), node.link("br-pe-100"), node.link("vni100")
    assert info(vrf)["table"] == 10_000_100
    assert (bridge["master"], bridge["inet6_addr_gen_mode"]) == ("red", "none")
    assert vxlan["master"] == "br-pe-100"
    assert vxlan["inet6_addr_gen_mode"] == "none"
    attributes = info(vxlan)
    assert (attributes["id"], attributes["port"], attributes["local"]) == (100, 4789, "100.65.0.0")
    assert (attributes["link"], attributes["learning"]) == ("lo", False)
    assert vxlan["linkinfo"]["info_slave_data"]["neigh_suppress"] is True
    for link in (vrf, bridge, vxlan):
        assert "UP" in link["flags"]
        assert link["group"] == str(OWNED_GROUP)


def test_a_session_has_a_veth_with_both_families(node: Node) -> None:
    node.converge(demo())
    router, host = node.link("pe-e-100"), node.link("host-e-100", router=False)
    assert (router["master"], router["mtu"], host["mtu"]) == ("red", 1450, 1450)
    assert node.addresses("pe-e-100") == {"172.26.10.1/24", "2001:db8:1::1/64"}
    assert node.addresses("host-e-100", router=False) == {"172.26.10.2/24", "2001:db8:1::2/64"}
    assert host["ifalias"] == "openperouter: L3VNI red"
    assert "UP" in router["flags"]
    assert "UP" in host["flags"]


def test_an_l2vni_has_its_gateway_and_its_managed_bridge(node: Node) -> None:
    node.converge(demo())
    bridge = node.link("br-pe-110")
    assert (bridge["address"], bridge["master"]) == ("00:f3:00:00:00:6f", "red")
    assert node.addresses("br-pe-110") == {"172.27.1.1/24", "2001:db8:2::1/64"}
    assert node.link("vni110")["master"] == "br-pe-110"
    assert node.link("pe-e-110")["master"] == "br-pe-110"
    assert node.link("host-e-110", router=False)["master"] == "br-hs-110"
    managed = node.link("br-hs-110", router=False)
    assert managed["linkinfo"]["info_kind"] == "bridge"
    assert managed["linkinfo"]["info_data"]["stp_state"] == 0
    assert "UP" in managed["flags"]


def test_passthrough_is_a_plain_veth_of_1500(node: Node) -> None:
    node.converge(demo())
    assert (node.link("pt-ns")["mtu"], node.link("pt-host", router=False)["mtu"]) == (1500, 1500)
    assert "master" not in node.link("pt-ns")
    assert node.addresses("pt-ns") == {"192.168.40.1/24", "2001:db8:40::1/64"}
    assert node.addresses("pt-host", router=False) == {"192.168.40.2/24", "2001:db8:40::2/64"}


def test_the_underlay_is_inside_with_vtep_and_sysctls(node: Node) -> None:
    ip("addr", "add", "192.168.11.3/24", "dev", "toswitch1")
    node.converge(demo())
    nic = node.link("toswitch1")
    assert nic["group"] == str(NIC_GROUP)
    assert "UP" in nic["flags"]
    assert node.addresses("toswitch1") == {"192.168.11.3/24"}
    assert "100.65.0.0/32" in node.addresses("lo")
    wanted = {
        "net.ipv4.conf.all.forwarding": "1",
        "net.ipv6.conf.all.forwarding": "1",
        "net.ipv4.conf.default.arp_accept": "0",
    }
    assert node.kernel.router.read_sysctls(wanted) == wanted


def test_sysctls_of_the_host_are_never_touched(node: Node) -> None:
    key = Path("/proc/sys/net/ipv4/conf/all/arp_accept")
    before = key.read_text()
    node.converge(demo())
    assert key.read_text() == before == "0\n"


def test_a_second_pass_writes_nothing_and_makes_no_event(node: Node) -> None:
    assert node.converge(demo()).writes > 0
    host = open_monitor()
    router = node.kernel.router.call(lambda _: open_monitor())
    with host, router:
        settle(node)
        drain(host)
        drain(router)
        again = node.converge(demo(2))
        assert (again.writes, again.steps, again.failures) == (0, "", ())
        for monitor in (host, router):
            with pytest.raises(BlockingIOError):
                monitor.recv(65536)


def settle(node: Node) -> None:
    """Wait until no address is tentative: duplicate address detection changes them until then."""
    for _ in range(200):
        found = json.dumps(node.router_json("addr")) + ip("-j", "addr")
        if "tentative" not in found:
            return
        ip("link", "show")
    raise AssertionError("addresses stay tentative")


def test_a_restarted_process_writes_nothing(node: Node) -> None:
    node.converge(demo())
    node.crash()
    assert node.converge(demo()).writes == 0


def test_the_mtu_follows_the_smallest_nic_and_the_vteps_family(node: Node) -> None:
    node.add_nic("toswitch2", "leaf2")
    ip("link", "set", "toswitch1", "mtu", "9000")
    ip("link", "set", "toswitch2", "mtu", "8000")
    nics = underlay("toswitch1", "toswitch2", vteps=("100.65.0.0/32", "2001:db8:ffff::/128"))
    four, six = l3vni("red", 100), l3vni("green", 101, vtep="2001:db8:ffff::", pairs=(("10.1.1.1/24", "10.1.1.2/24"),))
    wanted = state(underlay=nics, l3vnis=(four, six), passthrough=passthrough())
    result = node.converge(wanted)
    assert result.plan.model.mtu == 8000
    assert node.link("pt-ns")["mtu"] == node.link("pt-host", router=False)["mtu"] == 8000
    assert node.link("pe-e-100")["mtu"] == 7950
    assert node.link("pe-e-101")["mtu"] == node.link("host-e-101", router=False)["mtu"] == 7930
    assert info(node.link("vni101"))["local6"] == "2001:db8:ffff::"
    node.converge(replace(wanted, l2vnis=(l2vni(vtep="2001:db8:ffff::"),)))
    assert node.link("pe-e-100")["mtu"] == node.link("pe-e-110")["mtu"] == 7930


def test_a_result_of_1280_leaves_the_mtu_alone(node: Node) -> None:
    ip("link", "set", "toswitch1", "mtu", "1330")
    node.converge(state(l3vnis=(l3vni(),)))
    assert node.link("pe-e-100")["mtu"] == 1500


def test_removing_the_underlay_removes_all_devices_of_ours(node: Node) -> None:
    ip("addr", "add", "192.168.11.3/24", "dev", "toswitch1")
    host, router = node.names(router=False), node.names()
    node.converge(demo())
    result = node.converge(without_underlay(demo(2)))
    assert result.clean
    assert node.names(router=False) == host
    assert node.names() == router
    assert "100.65.0.0/32" not in node.addresses("lo")
    assert node.addresses("toswitch1", router=False) == {"192.168.11.3/24"}
    for family in ("-4", "-6"):
        assert "10000100" not in node.router(family, "route", "show", "table", "all")


def test_a_vrf_never_falls_through_to_the_underlay(node: Node) -> None:
    node.converge(demo())
    node.router("route", "add", "default", "via", "192.168.11.2", "dev", "toswitch1", "onlink")
    node.router("-6", "route", "add", "default", "via", "fe80::1", "dev", "toswitch1")
    for family, target in (("-4", "203.0.113.1"), ("-6", "2001:db8:99::1")):
        # "vrf" makes the lookup start in the VRF's table, as a packet from its members does.
        found = _lookup(node, family, target)
        assert "toswitch1" not in found, found
        assert "No route to host" in found, found


def _lookup(node: Node, family: str, target: str) -> str:
    command = ["ip", "-n", node.NETNS, family, "route", "get", target, "vrf", "red"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    return result.stdout + result.stderr


def test_an_l2vni_without_master_leaves_its_veth_free(node: Node) -> None:
    node.converge(state(l2vnis=(l2vni(vrf=None, gateways=(), master=HostMasterKind.NONE),)))
    assert "master" not in node.link("host-e-110", router=False)
    assert "br-hs-110" not in node.names(router=False)
    assert node.link("br-pe-110")["address"] != "00:f3:00:00:00:6f"
