"""Tunnel endpoints that would take a network of the machine: refused when new, kept with a warning when in force."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from config.problems import Severity
from config.resolve.host_networks import HostNetwork, Surroundings, ranges
from config.resolve.resolution import Resolution, resolve

from ..samples import NODE, OPEN, interface, l3vni, underlay

FIELD = "tunnelEndpoint.cidrs[0]"


def used(network: str, *, learned: bool = False, of: str = "") -> HostNetwork:
    what = f"{network}, the subnet of interface {of}" if of else f"the host's route {network}"
    return HostNetwork(ip_network(network), what, learned, of)


def judged(surroundings: Surroundings, *cidrs: str) -> Resolution:
    fabric = underlay(tunnelEndpoint={"cidrs": list(cidrs)}, interfaces=[interface("eth1")])
    return resolve((fabric, l3vni("red", 1)), NODE, grants=OPEN, surroundings=surroundings)


@pytest.mark.parametrize(
    ("cidr", "network"),
    [
        ("100.65.0.0/24", "100.65.0.0/24"),
        ("100.64.0.0/10", "100.65.3.0/24"),
        ("100.64.0.0/10", "100.65.3.7/32"),
        ("2001:db8::/48", "2001:db8:0:5::/64"),
        # With host bits, as upstream takes it.
        ("100.65.0.9/16", "100.65.3.0/24"),
    ],
)
def test_a_new_range_that_contains_a_network_of_the_host_is_refused_with_both(cidr: str, network: str) -> None:
    other = {"100": "fd00:65::/64", "200": "100.66.0.0/24"}[cidr[:3]]
    resolution = judged(Surroundings((used(network),)), cidr, other)
    assert resolution.desired is None
    (problem,) = resolution.problems
    own = ip_network(cidr, strict=False)
    assert (problem.message, problem.field) == (f"{own} contains the host's route {network}", FIELD)
    assert problem.severity is Severity.ERROR


@pytest.mark.parametrize("network", ["100.64.0.0/10", "100.65.1.0/24", "::/1", "2001:db8::/48"])
def test_a_summary_route_loses_nothing(network: str) -> None:
    assert judged(Surroundings((used(network),)), "100.65.0.0/24").problems == ()


def test_what_the_host_has_learned_may_be_the_same_range() -> None:
    assert judged(Surroundings((used("100.65.0.0/24", learned=True),)), "100.65.0.0/24").problems == ()


@pytest.mark.parametrize("network", ["100.65.0.0/24", "100.65.0.128/25", "100.64.0.0/10"])
def test_the_subnet_of_an_interface_of_the_underlay_must_not_overlap(network: str) -> None:
    (problem,) = judged(Surroundings((used(network, of="eth1"),)), "100.65.0.0/24").problems
    relation = "is part of" if network.endswith("/10") else "contains"
    assert problem.message == f"100.65.0.0/24 {relation} {network}, the subnet of interface eth1"


def test_a_range_within_the_subnet_of_another_interface_takes_nothing() -> None:
    assert judged(Surroundings((used("100.64.0.0/10", of="eth0"),)), "100.65.0.0/24").problems == ()


@pytest.mark.parametrize("in_force", [None, {"100.65.0.0/24"}, {"100.64.0.0/10"}])
def test_a_range_in_force_stays_with_a_warning_that_names_both(in_force: set[str] | None) -> None:
    before = None if in_force is None else frozenset(map(ip_network, in_force))
    resolution = judged(Surroundings((used("100.65.0.7/32"),), before), "100.65.0.0/24")
    assert resolution.desired is not None
    assert [str(vni.vtep) for vni in resolution.desired.l3vnis] == ["100.65.0.0"]
    (problem,) = resolution.problems
    assert (problem.severity, problem.field) == (Severity.WARNING, FIELD)
    assert problem.message == "100.65.0.0/24 contains the host's route 100.65.0.7/32; since it is in force it stays"


def test_a_wider_range_than_the_one_in_force_is_new() -> None:
    before = frozenset({ip_network("100.65.0.0/24")})
    assert judged(Surroundings((used("100.65.3.0/24"),), before), "100.65.0.0/16").desired is None


def test_the_ranges_of_resources_are_those_of_all_usable_underlays() -> None:
    found = ranges((underlay(), underlay("other", tunnelEndpoint={"cidrs": ["fd00::9/64"]}), l3vni("red", 1)))
    assert {str(one) for one in found} == {"100.65.0.0/24", "fd00::/64"}
