"""A session in a network that the host uses is not set up; one that is in force does not lose to a later route."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.netlink import kernel, preview
from tests.actors.netlink.builders import l2vni, l3vni, passthrough, state
from tests.kernel.node import Node, ip
from tests.kernel.test_actor import settings_of


def test_a_route_of_the_host(node: Node) -> None:
    segment = l2vni(vrf=None, gateways=())
    desired = state(passthrough=passthrough(), l2vnis=(segment,))
    ip("link", "add", "lan0", "type", "veth", "peer", "name", "lan1")
    ip("link", "set", "lan0", "up")
    ip("link", "set", "lan1", "up")
    ip("addr", "add", "198.51.100.7/24", "dev", "lan0")
    ip("route", "add", "default", "via", "198.51.100.1")
    for route in (("192.168.40.128/25", "via", "198.51.100.1"), ("2001:db8:40::/48", "dev", "lan0")):
        ip("route", "add", *route)
        (failure,) = node.converge(desired).failures
        assert failure.resource == passthrough().resource
        assert f"overlaps the host's route {route[0]} dev lan0" in failure.message
        assert "pt-host" not in node.names(router=False)
        assert "br-hs-110" in node.names(router=False)
        ip("route", "del", *route)
    ip("route", "add", "blackhole", "192.168.0.0/16")
    (failure,) = node.converge(desired).failures
    assert "overlaps the host's route 192.168.0.0/16" in failure.message
    ip("route", "del", "blackhole", "192.168.0.0/16")
    assert not node.converge(desired).failures
    ip("route", "add", "192.168.40.128/25", "via", "198.51.100.1")
    assert not node.converge(desired).failures


def test_a_server_of_the_host(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desired, resolv = state(passthrough=passthrough()), tmp_path / "resolv.conf"
    monkeypatch.setattr(kernel, "RESOLV_CONF", resolv)
    resolv.write_text("nameserver 192.168.40.53\n")
    (failure,) = node.converge(desired).failures
    assert f"host session 192.168.40.0/24 overlaps name server 192.168.40.53 of {resolv}" in failure.message
    resolv.write_text("")
    node.kernel.api_server = "2001:db8:40::10"
    (failure,) = node.converge(desired).failures
    assert "host session 2001:db8:40::/64 overlaps the API server 2001:db8:40::10" in failure.message
    assert "pt-host" not in node.names(router=False)
    node.kernel.api_server = ""
    assert not node.converge(desired).failures


def test_a_gateway_that_the_host_would_learn(node: Node) -> None:
    segment = l2vni(gateways=("172.27.1.1/24",))
    desired = state(l3vnis=(l3vni(),), l2vnis=(segment,))
    ip("link", "add", "lan0", "type", "veth", "peer", "name", "lan1")
    ip("link", "set", "lan0", "up")
    ip("link", "set", "lan1", "up")
    ip("addr", "add", "172.27.1.7/25", "dev", "lan0")
    ip("route", "add", "172.27.0.0/16", "dev", "lan0")
    (failure,) = node.converge(desired).failures
    assert failure.resource == segment.resource
    assert "172.27.1.0/24 contains the host's route 172.27.1.0/25 dev lan0" in failure.message
    ip("addr", "del", "172.27.1.7/25", "dev", "lan0")
    ip("route", "add", "172.27.1.0/26", "dev", "lan0", "proto", "bgp")
    assert node.converge(desired).clean
    ip("addr", "add", "172.27.1.7/25", "dev", "lan0")
    assert node.converge(desired).writes == 0


def test_what_tunnel_endpoints_must_not_take_is_the_same_when_the_nic_has_moved(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "RESOLV_CONF", tmp_path / "none")
    ip("addr", "add", "192.168.11.3/24", "dev", Node.NIC)
    ip("addr", "add", "2001:db8:11::3/64", "dev", Node.NIC, "nodad")
    ip("route", "add", "198.51.100.0/25", "dev", Node.NIC, "proto", "static")
    ip("route", "add", "203.0.113.0/24", "dev", Node.NIC, "proto", "bgp")
    # Without the second copies of state files, which tests of whole actors leave in the default directory.
    settings = settings_of(node, run_dir=tmp_path)
    before = preview.host_networks(settings)
    subnets = {one.network for one in before if one.interface == Node.NIC}
    assert {str(one) for one in subnets} == {"192.168.11.0/24", "2001:db8:11::/64"}
    assert "the host's route 198.51.100.0/25 dev toswitch1" in [one.what for one in before]
    assert not [one for one in before if "203.0.113" in one.what]
    assert node.converge(state(l3vnis=(l3vni(),))).clean
    assert Node.NIC not in node.names(router=False)
    assert preview.host_networks(settings) == before
