"""A session in a network that is in use fails alone, by name, with both networks."""

from __future__ import annotations

from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from actors.netlink.converge import converge
from actors.netlink.kernel import nameservers
from actors.netlink.planning.observed import Address, HostNetwork, Link, Namespace
from config.problems import Reason
from tests.actors.netlink.builders import l2vni, l3vni, passthrough, state
from tests.fakes.kernel import FakeKernel

GREEN = (("192.0.2.1/24", "192.0.2.2/24"),)
DESIRED = state(l3vnis=(l3vni(), l3vni("green", 200, pairs=GREEN)), l2vnis=(l2vni(vrf="green", gateways=()),))


def node(*networks: str) -> FakeKernel:
    kernel = FakeKernel()
    kernel.add(Namespace.HOST, Link(0, "toswitch1", up=True), Address(ip_interface("192.168.11.3/24")))
    kernel.host_networks = tuple(HostNetwork(ip_network(one), f"the host's route {one}") for one in networks)
    return kernel


@pytest.mark.parametrize("network", ["192.0.0.0/16", "192.0.2.0/24", "192.0.2.128/25", "192.0.2.53/32"])
def test_a_network_of_the_host_fails_the_session_and_what_is_in_its_vrf(network: str) -> None:
    kernel = node("10.0.0.0/8", "2001:db8:99::/48", network)
    first, second = converge(DESIRED, kernel).failures
    assert (first.resource, first.reason) == (DESIRED.l3vnis[1].resource, Reason.OVERLAY_ATTACHMENT_FAILED)
    assert first.message == f"host session 192.0.2.0/24 overlaps the host's route {network}"
    assert second.reason is Reason.DEPENDENCY_FAILED
    assert (Namespace.HOST, "host-e-100") in kernel.links
    assert (Namespace.HOST, "host-e-200") not in kernel.links


def test_what_is_in_force_does_not_lose_to_a_route() -> None:
    kernel = node()
    assert converge(DESIRED, kernel).clean
    kernel.host_networks = node("192.0.2.0/24").host_networks
    assert converge(DESIRED, kernel).clean


def test_a_subnet_of_the_underlays_nic() -> None:
    pairs = (("192.168.11.1/25", "192.168.11.2/25"),)
    kernel = node()
    for _ in range(2):
        (failure,) = converge(state(l3vnis=(l3vni(pairs=pairs),), passthrough=passthrough()), kernel).failures
        assert failure.message == (
            "host session 192.168.11.0/25 overlaps 192.168.11.3/24 of the underlay's interface toswitch1"
        )


def test_name_servers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text("# none\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver x\n")
    assert [str(one.network) for one in nameservers(path)] == ["192.0.2.53/32", "fe80::1/128"]
    assert list(nameservers(tmp_path / "none")) == []
