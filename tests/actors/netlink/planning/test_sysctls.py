"""Which devices have an IP stack, and what is written when."""

from __future__ import annotations

import pytest

from actors.netlink.converge import converge
from actors.netlink.planning.observed import Namespace
from actors.netlink.planning.sysctls import GATEWAY, LAYER_2_ONLY, device_writes, sysctl_key
from actors.netlink.planning.wanted import kernel_model
from config.desired import HostMasterKind
from tests.actors.netlink.builders import l2vni, l3vni, lines, node, state

LOOSE = state(l2vnis=(l2vni(vrf=None, gateways=()),))


def test_who_has_no_ip_stack() -> None:
    routed = l2vni("green", 120, master=HostMasterKind.NONE)
    desired = state(l3vnis=(l3vni(),), l2vnis=(l2vni(vrf=None, gateways=()), routed))
    model = kernel_model(desired, {"red": 10_000_100}, 1500)
    assert {link.name: link.sysctls for link in model.links if link.sysctls} == {
        "br-pe-110": LAYER_2_ONLY,
        "br-hs-110": LAYER_2_ONLY,
        "host-e-110": LAYER_2_ONLY,
        "br-pe-120": GATEWAY,
        "host-e-120": LAYER_2_ONLY,
    }


@pytest.mark.parametrize("device", ["host: set br-hs-110", "host: set host-e-110", "router: set br-pe-110"])
def test_the_sysctls_come_before_the_device_is_up(device: str) -> None:
    found = lines(LOOSE, node())
    up = next(number for number, line in enumerate(found) if line.startswith(device) and line.endswith(" up"))
    where, _, name = device.partition(": set ")
    writes = [
        number for number, line in enumerate(found) if line.startswith(f"{where}: sysctl") and f".{name}." in line
    ]
    assert len(writes) == len(LAYER_2_ONLY)
    assert max(writes) < up


def test_one_that_was_changed_is_written_again() -> None:
    kernel = node()
    assert converge(LOOSE, kernel).clean
    kernel.device_sysctls[Namespace.HOST, "br-hs-110"]["ipv6.disable_ipv6"] = "0"
    assert lines(LOOSE, kernel) == ["host: sysctl net.ipv6.conf.br-hs-110.disable_ipv6=1"]


def test_a_device_gets_its_ip_stack_back_and_the_mark_goes_last() -> None:
    kernel = node()
    assert converge(LOOSE, kernel).clean
    session = state(l3vnis=(l3vni(vni=110),))
    writes = [line for line in lines(session, kernel) if "sysctl" in line and "host-e-110" in line]
    assert writes == [
        "host: sysctl net.ipv6.conf.host-e-110.disable_ipv6=0",
        "host: sysctl net.ipv6.conf.host-e-110.accept_ra=1",
        "host: sysctl net.ipv4.conf.host-e-110.rp_filter=2",
        "host: sysctl net.ipv4.conf.host-e-110.forwarding=1",
        "host: sysctl net.ipv4.conf.host-e-110.arp_ignore=0",
    ]
    assert converge(session, kernel).clean
    assert not lines(session, kernel)


def test_what_this_kernel_lacks_is_left_out() -> None:
    found = {sysctl_key("default", "ipv4.arp_accept"): "0", sysctl_key("default", "ipv6.accept_untracked_na"): None}
    assert list(device_writes("br-pe-1", GATEWAY, found, created=True)) == [("net.ipv4.conf.br-pe-1.arp_accept", "2")]


@pytest.mark.parametrize(
    "key",
    ["net.ipv4.tcp_l3mdev_accept", "net.ipv4.udp_l3mdev_accept", "net.ipv6.conf.default.accept_ra",
     "net.ipv6.conf.default.accept_untracked_na", "net.ipv4.conf.all.arp_accept", "net.ipv4.conf.default.arp_accept"],
)  # fmt: skip
def test_what_keeps_a_vrfs_packets_from_the_routers_own_sockets_and_routes_is_repaired(key: str) -> None:
    kernel = node()
    assert converge(LOOSE, kernel).clean
    assert kernel.sysctls[key] == "0"
    kernel.sysctls[key] = "1"
    assert lines(LOOSE, kernel) == [f"router: sysctl {key}=0"]
