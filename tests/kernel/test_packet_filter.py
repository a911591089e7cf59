"""VXLAN packets from the host's end of the passthrough: delivered and forwarded to no tunnel endpoint.

It needs no VRF, but a kernel with nftables for IP, which User-Mode Linux is not.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace

import pytest

from config.desired import DesiredState
from supervisor.operations.teardown import nothing
from tests.actors.netlink.builders import l2vni, passthrough, state, underlay
from tests.kernel import frames
from tests.kernel.fabric import FABRIC, LEAF, filters
from tests.kernel.frames import Port
from tests.kernel.node import Node, ip
from tests.kernel.test_isolation import FAMILIES, LAST, MARK, SENDER, VTEP, arrived

HOST = {"ipv4": "192.168.40.2", "ipv6": "2001:db8:40::2"}

pytestmark = pytest.mark.skipif(not filters(), reason="needs nft and a kernel with nftables for IP")


def desired(family: str) -> DesiredState:
    vtep = VTEP[family]
    segment = l2vni(vni=120, vrf=None, gateways=(), vtep=vtep)
    length = 32 if family == "ipv4" else 128
    plain = state(underlay=underlay(Node.NIC, vteps=(f"{vtep}/{length}",)), l2vnis=(segment,))
    return replace(plain, passthrough=passthrough())


def listing(node: Node, *what: str) -> str:
    return ip("netns", "exec", node.NETNS, "nft", "-j", "list", *what)


@pytest.mark.parametrize("defaults", ["kernel"], indirect=True)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_host_sends_into_no_tunnel(fabric: Node, family: str) -> None:
    node, (_, there) = fabric, FABRIC[family]
    assert not node.converge(desired(family)).failures
    ip("link", "add", "t120", "type", "veth", "peer", "name", "eth0", "netns", "tenant-120")
    ip("-n", "tenant-120", "link", "set", "eth0", "up")
    ip("link", "set", "t120", "master", "br-hs-120", "up")
    with ExitStack() as stack:
        tenant = stack.enter_context(Port("tenant-120", "eth0"))
        leaf = stack.enter_context(Port(LEAF, "leaf"))
        host = stack.enter_context(Port(None, "pt-host"))
        node.router("neigh", "replace", there, "lladdr", leaf.mac, "dev", node.NIC)
        router, nic = str(node.link("pt-ns")["address"]), str(node.link(node.NIC)["address"])
        inner = {text: frames.ethernet(SENDER, frames.BROADCAST, 0x88B5, text) for text in (MARK, LAST)}
        for source in (HOST[family], there):
            for target in (VTEP[family], there):
                host.send(frames.ethernet(host.mac, router, *frames.vxlan(source, target, 120, inner[MARK])))
        # Other packets of the host reach the fabric, and VXLAN packets of the fabric the tenant.
        host.send(frames.ethernet(host.mac, router, *frames.udp(HOST[family], there, 9, LAST)))
        leaf.send(frames.ethernet(leaf.mac, nic, *frames.vxlan(there, VTEP[family], 120, inner[LAST])))
        assert not arrived(leaf)
        assert not arrived(tenant)


@pytest.mark.parametrize("defaults", ["kernel"], indirect=True)
def test_the_table_is_repaired_and_others_are_left_alone(fabric: Node) -> None:
    node = fabric
    nft = ("netns", "exec", node.NETNS, "nft")
    ip(*nft, "add", "table", "inet", "theirs")
    assert not node.converge(desired("ipv4")).failures
    assert node.converge(desired("ipv4")).writes == 0
    before = listing(node, "table", "inet", "openperouter").count('"drop"')
    assert before == 2
    for command in (("flush", "table"), ("delete", "table")):
        ip(*nft, *command, "inet", "openperouter")
        assert node.converge(desired("ipv4")).writes == 1
        assert listing(node, "table", "inet", "openperouter").count('"drop"') == before
    node.crash()
    assert node.converge(nothing()).complete
    tables = json.loads(listing(node, "tables"))["nftables"]
    assert [one["table"]["name"] for one in tables if "table" in one] == ["theirs"]
