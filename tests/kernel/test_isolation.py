"""What may not get through: crafted packets from a segment, a VRF or the fabric's side, under hostile sysctl defaults.

    tenant-NNN: eth0 == tNNN in br-hs-NNN == host-e-NNN ══ pe-e-NNN in br-pe-NNN        toswitch1 ══ leaf in test-leaf

110 and 120 are segments without routing domain, 130 is routed by VRF red, 140 by VRF blue. Each test ends with a frame
that must arrive on the same way as the one that must not.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from config.desired import DesiredState
from tests.actors.netlink.builders import l2vni, l3vni, state, underlay
from tests.kernel import frames
from tests.kernel.fabric import EACH_DEVICE, FABRIC, LEAF, NET, SEGMENTS
from tests.kernel.frames import Port
from tests.kernel.node import Node, ip

MARK, LAST = b"-must-not-arrive-", b"-must-arrive-"
SENDER = "02:00:00:00:00:66"

FAMILIES = ("ipv4", "ipv6")
VTEP = {"ipv4": "100.65.0.0", "ipv6": "2001:db8:ffff::1"}
GATEWAYS = {130: ("172.27.1.1/24", "2001:db8:2::1/64"), 140: ("172.27.4.1/24", "2001:db8:4::1/64")}
INSIDE = {"ipv4": {130: "172.27.1.9", 140: "172.27.4.9"}, "ipv6": {130: "2001:db8:2::9", 140: "2001:db8:4::9"}}
SPOOFED = {
    "ipv4": ("192.168.11.2", "10.66.0.1", "100.65.0.0"),
    "ipv6": ("2001:db8:11::2", "2001:db8:66::1", VTEP["ipv6"]),
}


def wanted(family: str) -> DesiredState:
    vtep = VTEP[family]
    loose = tuple(l2vni(f"loose{vni}", vni, vrf=None, gateways=(), vtep=vtep) for vni in (110, 120))
    routed = tuple(
        l2vni(vrf, vni, vrf=vrf, gateways=GATEWAYS[vni], vtep=vtep) for vrf, vni in (("red", 130), ("blue", 140))
    )
    l3vnis = tuple(replace(l3vni(vrf, vni, pairs=(), vtep=vtep)) for vrf, vni in (("red", 100), ("blue", 200)))
    length = 32 if family == "ipv4" else 128
    return state(underlay=underlay(Node.NIC, vteps=(f"{vtep}/{length}",)), l3vnis=l3vnis, l2vnis=(*loose, *routed))


def build(node: Node, family: str) -> dict[int, Port]:
    """Converge, attach a tenant to each segment, and make every next hop known; return the tenants' ports."""
    for name in ("tcp_l3mdev_accept", "udp_l3mdev_accept"):
        ip("netns", "exec", node.NETNS, "sysctl", "-qw", f"net.ipv4.{name}=1")
    assert node.converge(wanted(family)).clean
    assert node.converge(wanted(family)).writes == 0
    for number in SEGMENTS:
        port, namespace = f"t{number}", f"tenant-{number}"
        ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("-n", namespace, "link", "set", "eth0", "up")
        ip("link", "set", port, "master", f"br-hs-{number}", "up")
    lladdr = ip("-n", LEAF, "-br", "link", "show", "leaf").split()[2]
    for _, there in FABRIC.values():
        node.router("neigh", "replace", there, "lladdr", lladdr, "dev", node.NIC)
    ports = {number: Port(f"tenant-{number}", "eth0") for number in SEGMENTS}
    for inside in INSIDE.values():
        for number, address in inside.items():
            node.router("neigh", "replace", address, "lladdr", ports[number].mac, "dev", f"br-pe-{number}")
    return ports


def to_bridge(node: Node, tenant: Port, number: int, packet: tuple[int, bytes]) -> bytes:
    """Return a frame from a tenant to the router's bridge of its segment."""
    return frames.ethernet(tenant.mac, str(node.link(f"br-pe-{number}")["address"]), *packet)


def arrived(port: Port, last: bytes = LAST, mark: bytes = MARK) -> list[bytes]:
    return [frame for frame in port.received_before(last) if mark in frame]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_packet_of_a_tenant_gets_out_of_its_network(fabric: Node, family: str) -> None:
    node = fabric
    with ExitStack() as stack:
        tenants = {n: stack.enter_context(port) for n, port in build(node, family).items()}
        leaf = stack.enter_context(Port(LEAF, "leaf"))
        found: dict[str, list[Any]] = {
            f"{way.__name__} from {number}": way(node, family, number, tenants, leaf)
            for number in (110, 130)
            for way in (to_the_underlay, into_another_vni, to_another_vrf)
        }
        attack(tenants[110], [VTEP["ipv4"], FABRIC["ipv4"][0]], str(node.link("br-pe-110")["address"]))
        with Port(None, "br-hs-110") as outside:
            outside.send(frames.ethernet(outside.mac, tenants[110].mac, 0x88B5, LAST))
        found["answers to 110"] = answers(tenants[110].received_before(LAST), tenants[110].mac)
        assert {what: len(got) for what, got in found.items() if got} == {}


def to_the_underlay(node: Node, family: str, number: int, tenants: dict[int, Port], leaf: Port) -> list[bytes]:
    here, there = FABRIC[family]
    for source in (*SPOOFED[family], INSIDE[family].get(number, here)):
        for target in (there, here):
            tenants[number].send(to_bridge(node, tenants[number], number, frames.udp(source, target, 9, MARK)))
    with Port(node.NETNS, node.NIC) as inside:
        inside.send(frames.ethernet(inside.mac, leaf.mac, *frames.udp(here, there, 9, LAST)))
    return arrived(leaf)


def into_another_vni(node: Node, family: str, number: int, tenants: dict[int, Port], leaf: Port) -> list[bytes]:
    there = FABRIC[family][1]
    inner = {text: frames.ethernet(SENDER, frames.BROADCAST, 0x88B5, text) for text in (MARK, LAST)}
    for source in (*SPOOFED[family], INSIDE[family].get(number, there)):
        packet = frames.vxlan(source, VTEP[family], 120, inner[MARK])
        tenants[number].send(to_bridge(node, tenants[number], number, packet))
    # The same from the fabric is what the tunnel is for.
    nic = str(node.link(node.NIC)["address"])
    leaf.send(frames.ethernet(leaf.mac, nic, *frames.vxlan(there, VTEP[family], 120, inner[LAST])))
    return arrived(tenants[120])


def to_another_vrf(node: Node, family: str, number: int, tenants: dict[int, Port], leaf: Port) -> list[bytes]:
    inside = INSIDE[family]
    for source in (*SPOOFED[family], inside[130], inside[140]):
        tenants[number].send(to_bridge(node, tenants[number], number, frames.udp(source, inside[140], 9, MARK)))
    with Port(node.NETNS, "br-pe-140") as router:
        router.send(frames.ethernet(router.mac, tenants[140].mac, *frames.udp(inside[130], inside[140], 9, LAST)))
    return arrived(tenants[140])


def attack(tenant: Port, addresses: list[str], target: str) -> None:
    """Ask for the MAC of addresses, and ping what the target's MAC gives away."""
    mine = frames.link_local(tenant.mac)
    for address in addresses:
        tenant.send(frames.arp_request(tenant.mac, "10.66.0.1", address))
    tenant.send(frames.echo_request(tenant.mac, target, mine, frames.link_local(target)))
    tenant.send(frames.echo_request(tenant.mac, "33:33:00:00:00:01", mine, "ff02::1"))
    tenant.send(frames.router_advertisement(tenant.mac, mine, "2001:db8:bad::"))


def answers(received: list[bytes], mac: str) -> list[str]:
    """Return the frames to a MAC, which only the attacked host sends, in hexadecimal."""
    return [frame.hex() for frame in received if frame[:6] == bytes.fromhex(mac.replace(":", ""))]


@pytest.mark.parametrize("master", ["bridge", "none"])
def test_a_tenant_does_not_reach_the_hosts_stack(fabric: Node, defaults: str, master: str) -> None:
    node, host = fabric, "198.51.100.7"
    ip("link", "add", "lan0", "type", "veth", "peer", "name", "lan1")
    ip("link", "set", "lan0", "up")
    ip("link", "set", "lan1", "up")
    ip("addr", "add", f"{host}/24", "dev", "lan0")
    ip("route", "add", "default", "via", "198.51.100.1")
    with ExitStack() as stack:
        tenants = {n: stack.enter_context(port) for n, port in build(node, "ipv4").items()}
        if master == "bridge":
            device, tenant = "br-hs-110", tenants[110]
        else:
            # The VNI's other side, as a tenant on another node: frames through the router's bridge.
            ip("link", "set", "host-e-110", "nomaster")
            device, tenant = "host-e-110", stack.enter_context(Port(node.NETNS, "pe-e-110"))
        for key, value in EACH_DEVICE.get(defaults, {}).items():
            (NET / f"ipv4/conf/{device}/{key}").write_text(value)
        target = str(node.link(device, router=False)["address"])
        server = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        server.bind(("", 7777))
        attack(tenant, [host], target)
        for source in ("10.66.0.1", "198.51.100.9", host, "127.0.0.1"):
            for address in (host, "127.0.0.1"):
                packet = frames.udp(source, address, 7777, MARK)
                tenant.send(frames.ethernet(tenant.mac, target, *packet))
        outside = stack.enter_context(Port(None, device))
        outside.send(frames.ethernet(outside.mac, tenant.mac, 0x88B5, LAST))
        assert answers(tenant.received_before(LAST), tenant.mac) == []
        server.sendto(LAST, (host, 7777))
        server.settimeout(frames.ARRIVAL_SECONDS)
        assert server.recv(2048) == LAST
    assert "2001:db8:bad" not in ip("-6", "addr", "show") + ip("-6", "route", "show", "table", "all")
    assert "proto ra" not in ip("-6", "route", "show", "default")


def test_the_advertisement_of_a_router_in_a_routed_segment_changes_neither_router_nor_host(fabric: Node) -> None:
    node = fabric
    with ExitStack() as stack:
        tenants = {n: stack.enter_context(port) for n, port in build(node, "ipv6").items()}
        router = stack.enter_context(Port(node.NETNS, "br-pe-130"))
        host = stack.enter_context(Port(None, "br-hs-130"))
        tenant = tenants[130]
        source = frames.link_local(tenant.mac)
        tenant.send(frames.router_advertisement(tenant.mac, source, "2001:db8:bad::"))
        tenant.send(frames.ethernet(tenant.mac, frames.BROADCAST, 0x88B5, LAST))
        # Who has the frame after it has had the advertisement.
        for port in (router, host):
            assert [frame for frame in port.received_before(LAST) if frame[:6] == bytes.fromhex("333300000001")]
    for show in (("-6", "addr", "show"), ("-6", "route", "show", "table", "all")):
        for shown in (ip(*show), node.router(*show)):
            assert "2001:db8:bad" not in shown
            assert "proto ra" not in shown


@pytest.mark.parametrize("defaults", ["kernel"], indirect=True)
def test_sysctls_of_a_segment_are_repaired(fabric: Node) -> None:
    node = fabric
    assert node.converge(wanted("ipv4")).clean
    for key in ("net.ipv6.conf.br-pe-110.disable_ipv6=0", "net.ipv4.conf.br-pe-110.rp_filter=0"):
        ip("netns", "exec", node.NETNS, "sysctl", "-qw", key)
    for device in ("br-hs-110", "host-e-110"):
        (NET / f"ipv6/conf/{device}/disable_ipv6").write_text("0")
        (NET / f"ipv4/conf/{device}/arp_ignore").write_text("0")
    assert node.converge(wanted("ipv4")).writes
    assert node.converge(wanted("ipv4")).writes == 0
    assert (NET / "ipv6/conf/br-hs-110/disable_ipv6").read_text() == "1\n"
    assert (NET / "ipv4/conf/host-e-110/arp_ignore").read_text() == "8\n"


@pytest.mark.parametrize("defaults", ["kernel"], indirect=True)
def test_a_segment_that_becomes_routed_and_back(fabric: Node) -> None:
    node = fabric
    loose = wanted("ipv4")
    routed = replace(
        loose,
        l2vnis=tuple(
            l2vni("loose110", 110, vrf="red", gateways=("172.27.9.1/24", "2001:db8:9::1/64")) if one.vni == 110 else one
            for one in loose.l2vnis
        ),
    )
    assert node.converge(loose).clean
    for _ in range(2):
        assert node.converge(routed).clean
        assert node.converge(routed).writes == 0
        assert node.addresses("br-pe-110") == {"172.27.9.1/24", "2001:db8:9::1/64"}
        assert node.sysctl("ipv4.conf.br-pe-110.forwarding") == "1"
        assert node.sysctl("ipv4.conf.br-pe-110.arp_accept") == "2"
        assert node.converge(loose).clean
        assert node.converge(loose).writes == 0
        assert node.addresses("br-pe-110") == set()
        assert node.sysctl("ipv6.conf.br-pe-110.disable_ipv6") == "1"
