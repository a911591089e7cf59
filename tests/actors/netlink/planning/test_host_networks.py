"""A session in a network that is in use fails alone, by name, with both networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from actors.netlink.converge import converge
from actors.netlink.kernel import nameservers
from actors.netlink.planning.host_networks import machine_networks
from actors.netlink.planning.observed import (
    NIC_GROUP,
    OWNED_GROUP,
    Address,
    Link,
    Namespace,
    NamespaceView,
    NicPhase,
    NicRecord,
    SavedRoute,
)
from config.desired import DesiredState, Family
from config.problems import Reason
from config.resolve.host_networks import HostNetwork
from tests.actors.netlink.builders import l2vni, l3vni, passthrough, state, underlay
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


ROUTED = l2vni("web", 300, vrf="green", gateways=("198.51.100.1/24", "2001:db8:2::1/64"))


def routed(*, host_vrf: bool = False) -> DesiredState:
    return state(l3vnis=(l3vni("green", 200, pairs=GREEN, host_vrf=host_vrf),), l2vnis=(ROUTED,))


@pytest.mark.parametrize("network", ["198.51.100.0/24", "198.51.100.53/32", "2001:db8:2::53/128"])
def test_gateways_that_the_host_would_learn_do_not_contain_its_networks(network: str) -> None:
    (failure,) = converge(routed(), node(network)).failures
    assert failure.resource == ROUTED.resource
    own = "2001:db8:2::/64" if ":" in network else "198.51.100.0/24"
    assert failure.message == f"gateway network {own} contains the host's route {network}, and is announced to the host"


@pytest.mark.parametrize("network", ["198.51.0.0/16", "198.0.0.0/8"])
def test_gateways_may_be_part_of_a_summary_route(network: str) -> None:
    assert converge(routed(), node(network)).clean


def test_gateways_in_force_do_not_lose_to_a_route() -> None:
    kernel = node()
    assert converge(routed(), kernel).clean
    kernel.host_networks = node("198.51.100.0/24").host_networks
    assert converge(routed(), kernel).writes == 0


def test_gateways_that_the_host_does_not_learn_are_free() -> None:
    kernel = node("198.51.100.0/24")
    assert converge(routed(host_vrf=True), kernel).clean
    silent = state(l3vnis=(l3vni("green", 200, pairs=()),), l2vnis=(ROUTED,))
    assert converge(silent, node("198.51.100.0/24")).clean


def test_what_the_host_has_learned_may_be_the_same_network() -> None:
    kernel = node()
    network = ip_network("198.51.100.0/24")
    kernel.host_networks = (HostNetwork(network, "the host's route 198.51.100.0/24 dev eth0", learned=True),)
    assert converge(routed(), kernel).clean


def through(*, host_vrf: bool = False) -> DesiredState:
    fabric = replace(underlay("toswitch1"), vtep_pools=("100.65.0.0/16",))
    return state(underlay=fabric, l3vnis=(l3vni(),), passthrough=passthrough(host_vrf=host_vrf))


def test_a_passthrough_does_not_announce_tunnel_endpoints_that_contain_the_hosts_networks() -> None:
    kernel = node("100.65.3.0/24")
    (failure,) = converge(through(), kernel).failures
    assert failure.resource == passthrough().resource
    assert failure.message == (
        "the tunnelEndpoint 100.65.0.0/16 of Underlay underlay contains the host's route 100.65.3.0/24, "
        "and is announced to the host"
    )
    # The rest of the node has its network.
    assert kernel.addresses[Namespace.ROUTER, "lo"]
    assert (Namespace.HOST, "host-e-100") in kernel.links
    assert converge(through(host_vrf=True), node("100.65.3.0/24")).clean


def test_a_passthrough_in_force_stays() -> None:
    kernel = node()
    assert converge(through(), kernel).clean
    kernel.host_networks = node("100.65.3.0/24").host_networks
    assert converge(through(), kernel).clean


ROUTE = "198.51.100.0/25"


def before_and_after() -> Iterator[tuple[NamespaceView, NamespaceView, dict[str, NicRecord], tuple[HostNetwork, ...]]]:
    """A node whose NIC is still in the host, and the same when the router has it."""
    nic, veth = Link(1, "eth1", up=True), Link(2, "host-e-100", group=OWNED_GROUP)
    held = (Address(ip_interface("192.168.11.3/24")), Address(ip_interface("fe80::1/64")))
    ours = {"host-e-100": (Address(ip_interface("192.0.2.2/24")),), "lo": (Address(ip_interface("127.0.0.1/8")),)}
    lo, lan = Link(3, "lo"), Link(4, "eth0")
    stay = ours | {"eth0": (Address(ip_interface("203.0.113.9/24")),)}
    routes = [HostNetwork(ip_network(one), f"the host's route {one} dev {name}", learned)
              for one, name, learned in (("203.0.113.0/24", "eth0", False), ("10.0.0.0/8", "eth0", False),
                                         ("10.9.0.0/16", "eth0", True))]  # fmt: skip
    through = [
        HostNetwork(ip_network(one), f"the host's route {one} dev eth1")
        for one in ("192.168.11.0/24", ROUTE, "fe80::/64")
    ]
    host = {"host-e-100": veth, "lo": lo, "eth0": lan}
    yield NamespaceView(host | {"eth1": nic}, stay | {"eth1": held}), NamespaceView(), {}, (*routes, *through)
    routes_saved = ((ROUTE, 254, 4), ("0.0.0.0/0", 254, 16), ("10.7.0.0/16", 254, 186), ("10.8.0.0/16", 99, 3))
    saved = tuple(SavedRoute(Family.IPV4, one, table, protocol=protocol) for one, table, protocol in routes_saved)
    record = NicRecord("eth1", NicPhase.INSIDE, 1500, "", up=True, addresses=held, routes=saved)
    inside = NamespaceView({"eth1": replace(nic, group=NIC_GROUP)}, {"eth1": held})
    yield NamespaceView(host, stay), inside, {"eth1": record}, tuple(routes)


def test_tunnel_endpoints_are_judged_alike_before_and_after_the_nic_has_moved() -> None:
    found = [machine_networks(*arguments) for arguments in before_and_after()]
    assert found[0] == found[1]
    assert [(str(one.network), one.interface) for one in found[0]] == [
        ("192.168.11.0/24", "eth1"), ("203.0.113.0/24", "eth0"), ("10.0.0.0/8", ""), (ROUTE, ""),
    ]  # fmt: skip


def test_name_servers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text("# none\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver x\n")
    assert [str(one.network) for one in nameservers(path)] == ["192.0.2.53/32", "fe80::1/128"]
    assert list(nameservers(tmp_path / "none")) == []
