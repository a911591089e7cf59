"""``hostVRF``: a host that forwards joins the networks of its sessions, and does not when each has a VRF of its own.

VRF red: pe-e-100 ══ host-e-100   host (forwards)   host-e-200 ══ pe-e-200 in VRF blue
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from config.desired import DesiredState
from tests.actors.netlink.builders import l3vni, passthrough, session, state, without_underlay
from tests.kernel import frames
from tests.kernel.fabric import NET
from tests.kernel.frames import Port
from tests.kernel.node import Node, ip, ip_json

MARK, LAST = b"-must-not-arrive-", b"-must-arrive-"
RED = (("172.26.10.1/24", "172.26.10.2/24"), ("2001:db8:1::1/64", "2001:db8:1::2/64"))
BLUE = (("172.26.20.1/24", "172.26.20.2/24"), ("2001:db8:b::1/64", "2001:db8:b::2/64"))
LAN = {4: "198.51.100.9", 6: "2001:db8:99::9"}
FORWARDING = ("ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding")
SO_BINDTODEVICE = 25


def wanted(*, apart: bool) -> DesiredState:
    return state(
        l3vnis=(
            l3vni("red", 100, pairs=RED, host_vrf=apart),
            replace(l3vni("blue", 200), session=session(*BLUE, host_vrf=apart)),
        ),
        passthrough=passthrough(host_vrf=apart),
    )


@pytest.fixture
def forwarding(node: Node) -> Iterator[Node]:
    """Return a node that forwards, with a network of its own."""
    before = {NET / key: (NET / key).read_text() for key in FORWARDING}
    for path in before:
        path.write_text("1")
    ip("link", "add", "lan0", "type", "veth", "peer", "name", "lan1")
    for end in ("lan0", "lan1"):
        ip("link", "set", end, "up")
    ip("addr", "add", "198.51.100.7/24", "dev", "lan0")
    ip("addr", "add", "2001:db8:99::7/64", "dev", "lan0", "nodad")
    try:
        yield node
    finally:
        for path, value in before.items():
            path.write_text(value)


def neighbours(node: Node) -> None:
    """Make every next hop known, so that no packet waits for one."""
    for number, (pair4, pair6) in ((100, RED), (200, BLUE)):
        mac = str(node.link(f"pe-e-{number}")["address"])
        for router, _ in (pair4, pair6):
            ip("neigh", "replace", router.partition("/")[0], "lladdr", mac, "dev", f"host-e-{number}")
    for target in LAN.values():
        ip("neigh", "replace", target, "lladdr", str(node.link("lan1", router=False)["address"]), "dev", "lan0")


def arrived(node: Node, *, vrf: str) -> set[str]:
    """Let tenant red send to tenant blue and to the host's own network; return where that arrives."""
    neighbours(node)
    found = set()
    with ExitStack() as stack:
        red = stack.enter_context(Port(node.NETNS, "pe-e-100"))
        blue = stack.enter_context(Port(node.NETNS, "pe-e-200"))
        lan = stack.enter_context(Port(None, "lan1"))
        host = str(node.link("host-e-100", router=False)["address"])
        sources = [router.partition("/")[0] for router, _ in RED]
        for source, other, own in zip(sources, ("172.26.20.1", "2001:db8:b::1"), LAN.values(), strict=True):
            for target in (other, own):
                red.send(frames.ethernet(red.mac, host, *frames.udp(source, target, 9, MARK)))
        send("172.26.20.1", vrf)
        send(LAN[4], "")
        for name, port in (("blue", blue), ("lan", lan)):
            for frame in port.received_before(LAST):
                if MARK in frame:
                    found.add(f"{name} {'IPv6' if frame[12:14] == bytes.fromhex('86dd') else 'IPv4'}")
    return found


def send(target: str, device: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        if device:
            sender.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, device.encode())
        sender.sendto(LAST, (target, 9))


def rules() -> list[str]:
    """Return the host's rules but the kernel's own for VRFs, which comes with the first one and stays."""
    lines = (ip("-4", "rule") + ip("-6", "rule")).splitlines()
    return sorted(line for line in lines if "l3mdev-table" not in line)


def test_a_host_that_forwards_joins_tenants_unless_they_have_vrfs(forwarding: Node) -> None:
    node = forwarding
    everywhere = {f"{where} {version}" for where in ("blue", "lan") for version in ("IPv4", "IPv6")}
    for _ in range(2):
        assert node.converge(wanted(apart=False)).clean
        assert arrived(node, vrf="") == everywhere
        assert node.converge(wanted(apart=True)).clean
        assert node.converge(wanted(apart=True)).writes == 0
        assert arrived(node, vrf="host-v-200") == set()
        for name, pairs in (("host-e-100", RED), ("host-e-200", BLUE)):
            assert node.addresses(name, router=False) == {host for _, host in pairs}
    assert node.link("pt-host", router=False)["master"] == "pt-vrf"


def test_a_connection_of_a_socket_in_the_vrf(forwarding: Node) -> None:
    """A BGP speaker's socket is bound to the VRF."""
    node = forwarding
    assert node.converge(wanted(apart=True)).clean
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b"host-v-100")
        server.bind(("172.26.10.2", 179))
        server.listen()
        script = "import socket; socket.create_connection(('172.26.10.2', 179), 20, ('172.26.10.1', 0))"
        ip("netns", "exec", node.NETNS, "ip", "vrf", "exec", "red", "python3", "-c", script)
        server.settimeout(frames.ARRIVAL_SECONDS)
        connection, _ = server.accept()
        connection.close()


def test_the_hosts_own_vrfs_rules_and_tables_stay(forwarding: Node) -> None:
    node = forwarding
    ip("link", "add", "mgmt", "type", "vrf", "table", "10000200")
    ip("link", "set", "mgmt", "up")
    ip("rule", "add", "fwmark", "7", "lookup", "10000000")
    ip("-6", "route", "add", "blackhole", "2001:db8:77::/48", "table", "10000100")
    try:
        before = rules()
        assert node.converge(wanted(apart=True)).clean
        tables = {
            vrf["ifname"]: vrf["linkinfo"]["info_data"]["table"] for vrf in ip_json("link", "show", "type", "vrf")
        }
        assert tables == {
            "mgmt": 10_000_200, "host-v-100": 26_777_316, "host-v-200": 26_777_416, "pt-vrf": 26_777_216
        }  # fmt: skip
        assert node.converge(wanted(apart=True)).writes == 0
        assert node.converge(without_underlay(wanted(apart=True))).clean
        assert rules() == before
        assert [link["ifname"] for link in ip_json("link", "show", "type", "vrf")] == ["mgmt"]
        routes = ip("-4", "route", "show", "table", "all") + ip("-6", "route", "show", "table", "all")
        assert "unreachable" not in routes
        assert "blackhole 2001:db8:77::/48" in routes
    finally:
        ip("rule", "del", "fwmark", "7", "lookup", "10000000")
        ip("-6", "route", "del", "blackhole", "2001:db8:77::/48", "table", "10000100")


def test_what_others_do_to_it_is_repaired(forwarding: Node) -> None:
    node, desired = forwarding, wanted(apart=True)
    assert node.converge(desired).clean
    for change in (
        ("link", "set", "host-e-100", "nomaster"),
        ("link", "del", "host-v-100"),
        ("link", "set", "host-v-100", "down"),
        ("-4", "route", "del", "unreachable", "default", "metric", "4278198272", "table", "10000100"),
        ("-6", "route", "del", "unreachable", "default", "metric", "4278198272", "table", "10000100"),
    ):
        ip(*change)
        assert node.converge(desired).clean, change
        assert node.converge(desired).writes == 0, change
        assert arrived(node, vrf="host-v-200") == set(), change
        assert node.addresses("host-e-100", router=False) == {host for _, host in RED}


def test_what_a_killed_process_left_is_removed(forwarding: Node) -> None:
    node, desired = forwarding, wanted(apart=True)
    assert node.converge(desired).clean
    node.crash()
    # Deleted by others while no process ran: the routes stay.
    for name in ("host-v-100", "host-v-200", "pt-vrf"):
        ip("link", "del", name)
    assert "unreachable" in ip("-4", "route", "show", "table", "all")
    assert node.converge(wanted(apart=False)).clean
    assert "unreachable" not in ip("-4", "route", "show", "table", "all")
    assert node.converge(wanted(apart=False)).writes == 0


def test_without_ipv6_in_the_host(forwarding: Node) -> None:
    node, key = forwarding, NET / "ipv6/conf/all/disable_ipv6"
    key.write_text("1")
    try:
        desired = state(l3vnis=(l3vni("red", 100, pairs=RED[:1], host_vrf=True),))
        assert node.converge(desired).clean
        assert node.converge(desired).writes == 0
        assert Path("/sys/class/net/host-v-100").exists()
    finally:
        key.write_text("0")
