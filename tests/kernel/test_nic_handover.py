"""A NIC moves into the router and back on a real kernel, with a crash between any two steps."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.desired import DesiredState
from config.problems import Reason
from tests.actors.netlink.builders import state, underlay, without_underlay
from tests.frr.harness import eventually
from tests.kernel.nic import CONF, SYSCTLS, furnish, outside
from tests.kernel.node import Node, ip, ip_json

INSIDE = state()
OUTSIDE = without_underlay(INSIDE)


@pytest.fixture
def furnished(node: Node) -> Node:
    furnish()
    ip("route", "add", "default", "via", "192.168.11.1", "metric", "300")
    return node


def test_a_nic_keeps_its_addresses_inside_and_loses_noprefixroute(furnished: Node) -> None:
    assert furnished.converge(INSIDE).clean
    expected = {"192.168.11.3/24", "192.168.12.3/24", "192.168.13.3/24", "10.255.0.1/32", "10.0.0.5/32"}
    expected |= {"2001:db8:11::3/64"}
    assert furnished.addresses(Node.NIC) == expected
    link = furnished.link(Node.NIC)
    assert (link["mtu"], link["group"]) == (9000, "4242")
    assert "UP" in link["flags"]
    routes = furnished.router("route", "show")
    assert "192.168.12.0/24" in routes
    # The host's static routes are the host's; the router's come from FRR.
    assert "10.9.0.0/16" not in routes
    assert "10.0.0.1" not in routes


def test_a_hosts_strict_filter_is_not_the_fabrics(furnished: Node) -> None:
    """A fabric may send back over another NIC. A new namespace inherits the host's default, and so does a NIC in it."""
    ip("netns", "exec", Node.NETNS, "sysctl", "-qw", "net.ipv4.conf.default.rp_filter=1")
    assert furnished.converge(INSIDE).clean
    assert furnished.sysctl(f"ipv4.conf.{Node.NIC}.rp_filter") == "2"


def test_a_returned_nic_is_as_it_was(furnished: Node) -> None:
    before = outside()
    furnished.converge(INSIDE)
    furnished.crash()
    assert furnished.converge(OUTSIDE).clean
    assert outside() == before
    assert furnished.converge(OUTSIDE).writes == 0
    assert furnished.plan(OUTSIDE)[0].journal == {}


def test_a_route_with_a_source_that_the_kernel_would_first_check_for_duplicates_is_returned(furnished: Node) -> None:
    ip("addr", "add", "2001:db8:12::3/64", "dev", Node.NIC)
    eventually("no address is checked any more", lambda: "tentative" not in ip("addr", "show", "dev", Node.NIC))
    ip("-6", "route", "add", "2001:db8:77::/48", "via", "2001:db8:12::1", "src", "2001:db8:12::3")
    before = outside()
    assert furnished.converge(INSIDE).clean
    assert furnished.converge(OUTSIDE).clean
    assert outside() == before


def test_a_mac_that_was_changed_in_the_router_is_restored(furnished: Node) -> None:
    before = outside()
    furnished.converge(INSIDE)
    furnished.router("link", "set", Node.NIC, "address", "52:54:00:aa:bb:ff")
    assert furnished.converge(OUTSIDE).clean
    assert outside() == before


def test_a_nic_that_was_down_is_returned_down(node: Node) -> None:
    ip("addr", "add", "192.168.11.3/24", "dev", Node.NIC)
    ip("link", "set", Node.NIC, "down", "group", "7")
    before = outside()
    node.converge(INSIDE)
    assert "UP" in node.link(Node.NIC)["flags"]
    assert node.converge(OUTSIDE).clean
    assert outside() == before


def test_a_changed_interface_list_swaps_the_nics(furnished: Node) -> None:
    furnished.add_nic("toswitch2", "leaf2")
    before = outside()
    furnished.converge(INSIDE)
    assert furnished.converge(state(underlay=underlay("toswitch2"))).clean
    assert outside() == before
    assert "toswitch2" in furnished.names()


@pytest.mark.parametrize("first", [INSIDE, OUTSIDE], ids=["in", "out"])
@pytest.mark.parametrize("then", [INSIDE, OUTSIDE], ids=["then in", "then out"])
def test_a_crash_between_any_two_steps_loses_nothing(furnished: Node, first: DesiredState, then: DesiredState) -> None:
    before = outside()
    start = OUTSIDE if first is INSIDE else INSIDE
    furnished.converge(start)
    total = len(furnished.plan(first)[1].steps)
    assert total > 8
    for count in range(total + 1):
        furnished.converge(start)
        furnished.apply_prefix(first, count)
        furnished.crash()
        assert furnished.converge(then).clean, count
        furnished.crash()
        assert furnished.converge(OUTSIDE).clean, count
        assert outside() == before, count


def test_a_nic_that_is_already_inside_is_adopted_and_can_be_returned(node: Node) -> None:
    ip("link", "set", Node.NIC, "netns", Node.NETNS)
    node.router("addr", "add", "192.168.11.3/24", "dev", Node.NIC)
    assert node.converge(INSIDE).clean
    assert node.link(Node.NIC)["group"] == "4242"
    assert node.converge(OUTSIDE).clean
    assert node.addresses(Node.NIC, router=False) == {"192.168.11.3/24"}


@pytest.mark.parametrize("kind", ["bridge", "bond"])
def test_a_nic_with_a_foreign_master_is_refused(node: Node, kind: str) -> None:
    ip("link", "add", "master0", "type", kind)
    ip("link", "set", Node.NIC, "down")
    ip("link", "set", Node.NIC, "master", "master0")
    (failure,) = node.converge(INSIDE).failures
    assert failure.reason is Reason.UNDERLAY_FAILED
    assert "master0" in failure.message
    assert node.link(Node.NIC, router=False)["master"] == "master0"
    ip("link", "set", Node.NIC, "nomaster")
    assert node.converge(INSIDE).clean


@pytest.mark.parametrize("kind", [("vlan", "id", "7"), ("macvlan", "mode", "private")])
def test_a_bond_is_refused_and_an_interface_on_it_carries_traffic(node: Node, kind: tuple[str, ...]) -> None:
    """As docs/troubleshooting.md advises: the bond stays in the host, which no kernel lets it leave."""
    ip("link", "add", "bond0", "type", "bond", "mode", "active-backup", "miimon", "10")
    ip("link", "set", Node.NIC, "down")
    ip("link", "set", Node.NIC, "master", "bond0")
    ip("link", "set", "bond0", "up")
    with pytest.raises(subprocess.CalledProcessError):
        ip("link", "set", "bond0", "netns", Node.NETNS)
    (failure,) = node.converge(state(underlay=underlay("bond0"))).failures
    assert "create a VLAN or macvlan interface on bond0" in failure.message
    ip("link", "add", "link", "bond0", "name", "fabric0", "type", *kind)
    ip("addr", "add", "192.168.11.3/24", "dev", "fabric0")
    ip("netns", "add", "leaf")
    try:
        ip("link", "set", "leaf", "netns", "leaf", "up")
        far = "leaf"
        if kind[0] == "vlan":
            ip("-n", "leaf", "link", "add", "link", "leaf", "name", "far", "type", *kind)
            far = "far"
        ip("-n", "leaf", "addr", "add", "192.168.11.2/24", "dev", far)
        ip("-n", "leaf", "link", "set", far, "up")
        assert node.converge(state(underlay=underlay("fabric0"))).clean
        assert "fabric0" in node.names()
        node.router("link", "show", "fabric0")
        ip("netns", "exec", Node.NETNS, "ping", "-c", "1", "-w", "10", "192.168.11.2")
        assert node.converge(OUTSIDE).clean
        assert node.addresses("fabric0", router=False) == {"192.168.11.3/24"}
    finally:
        ip("netns", "del", "leaf")


def test_a_misspelt_nic_costs_nothing_and_its_correction_nothing_either(furnished: Node) -> None:
    before = outside()
    furnished.converge(INSIDE)
    addresses = furnished.addresses(Node.NIC)
    result = furnished.converge(state(underlay=underlay("toswich1")))
    assert "until then the router keeps toswitch1" in result.failures[0].message
    assert result.writes == 0
    assert furnished.converge(INSIDE).writes == 0
    assert furnished.addresses(Node.NIC) == addresses
    furnished.add_nic("toswitch2", "leaf2")
    assert furnished.converge(state(underlay=underlay("toswitch2"))).clean
    assert "toswitch2" in furnished.names()
    assert outside() == before


def test_one_missing_nic_does_not_hold_up_the_other(furnished: Node) -> None:
    both = state(underlay=underlay("toswitch7", "toswitch1"))
    (failure,) = furnished.converge(both).failures
    assert "toswitch7" in failure.message
    assert "toswitch1" in furnished.names()


def test_a_journal_of_another_boot_is_ignored(furnished: Node) -> None:
    furnished.converge(INSIDE)
    furnished.crash()
    journal = furnished.state / "nic-journal.json"
    text = journal.read_text()
    boot = text.partition('"boot": "')[2].partition('"')[0]
    journal.write_text(text.replace(boot, "another-boot"))
    assert furnished.plan(INSIDE)[0].journal == {}


def test_a_name_taken_in_the_host_is_reported_and_retried(furnished: Node) -> None:
    before = outside()
    furnished.converge(INSIDE)
    ip("link", "add", Node.NIC, "type", "dummy")
    result = furnished.converge(OUTSIDE)
    assert not result.complete
    assert Node.NIC in result.errors[0]
    ip("link", "del", Node.NIC)
    assert furnished.converge(OUTSIDE).clean
    assert outside() == before


def test_an_address_lost_in_the_router_is_restored(furnished: Node) -> None:
    furnished.converge(INSIDE)
    furnished.router("link", "set", Node.NIC, "down")
    furnished.router("addr", "flush", "dev", Node.NIC)
    furnished.converge(replace(INSIDE, generation=2))
    assert "2001:db8:11::3/64" in furnished.addresses(Node.NIC)
    assert "UP" in furnished.link(Node.NIC)["flags"]


def saved(node: Node) -> tuple[Path, dict[str, Any]]:
    """Return the journal's file and what is in it; the process, which would not read it again, has ended."""
    node.crash()
    file = node.state / "nic-journal.json"
    return file, json.loads(file.read_text())


def test_a_journal_with_routes_in_the_kernels_order_is_restored(furnished: Node) -> None:
    before = outside()
    furnished.converge(INSIDE)
    file, content = saved(furnished)
    content["nics"][Node.NIC]["routes"].sort(key=lambda route: not route["gateway"])
    file.write_text(json.dumps(content))
    assert furnished.converge(OUTSIDE).clean
    assert outside() == before


def test_a_route_that_cannot_be_restored_is_named_and_the_others_are_restored(furnished: Node) -> None:
    before = outside()
    furnished.converge(INSIDE)
    file, content = saved(furnished)
    routes = content["nics"][Node.NIC]["routes"]
    impossible = {**routes[0], "destination": "10.77.0.0/16", "gateway": "203.0.113.1"}
    impossible |= {"table": 254, "flags": 0, "scope": 0}
    content["nics"][Node.NIC]["routes"] = [impossible, *routes]
    file.write_text(json.dumps(content))
    [error] = furnished.converge(OUTSIDE).errors
    assert "10.77.0.0/16 via 203.0.113.1" in error
    assert outside() == before
    ip("route", "add", "203.0.113.1", "dev", Node.NIC)
    assert furnished.converge(OUTSIDE).clean
    assert "10.77.0.0/16 via 203.0.113.1" in ip("route", "show")
    assert not saved(furnished)[1]["nics"]


def test_a_nic_without_ipv6_is_returned_without_it(node: Node) -> None:
    ip("addr", "add", "192.168.11.3/24", "dev", Node.NIC)
    (CONF / "ipv6/conf" / Node.NIC / "disable_ipv6").write_text("1")
    before = outside()
    node.converge(INSIDE)
    assert node.converge(OUTSIDE).clean
    assert outside() == before
    assert not [one for one in ip_json("addr", "show", "dev", Node.NIC)[0]["addr_info"] if one["family"] == "inet6"]


def test_only_sysctls_set_for_this_nic_are_recorded(furnished: Node) -> None:
    furnished.converge(INSIDE)
    found = saved(furnished)[1]["nics"][Node.NIC]["sysctls"]
    assert found == {key.replace("/conf/{}/", "."): value for key, value in SYSCTLS.items()}
