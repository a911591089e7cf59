"""VNIs beside each other: which wins, what each message says, and what dependents do."""

from __future__ import annotations

from typing import Any

import pytest

from config.problems import Kind, Reason
from config.resources import Resource

from ..samples import in_force, interface, l2vni, l3vni, messages_about, session, solve, underlay, unusable


def bridged(name: str, vni: int, bridge: str | None = None) -> Resource:
    linux = {"lifecycle": "External", "name": bridge} if bridge else {"lifecycle": "Managed"}
    return l2vni(name, vni, hostMaster={"type": "LinuxBridge", "linuxBridge": linux})


def routed(name: str, vni: int, domain: str, *gateways: str) -> Resource:
    return l2vni(name, vni, domain, gatewayIPs=list(gateways))


def test_the_first_by_name_keeps_a_vni_among_l3vnis() -> None:
    resolution = solve(underlay(), l3vni("b", 1), l3vni("a", 1))
    assert in_force(resolution) == {"a"}
    assert messages_about(resolution, "b") == "VNI 1 is also used by L3VNI a (f.yaml:1:1); change one of them"


def test_an_l3vni_keeps_a_vni_before_any_l2vni() -> None:
    resolution = solve(underlay(), l2vni("a", 1), l3vni("z", 1), l2vni("c", 2), l2vni("b", 2))
    assert in_force(resolution) == {"z", "b"}
    assert messages_about(resolution, "a") == "VNI 1 is also used by L3VNI z (f.yaml:1:1); change one of them"
    used = "VNI 2 is also used by L2VNI b (f.yaml:1:1); change one of them"
    assert messages_about(resolution, "c") == used
    assert messages_about(resolution, "b") == f"L2VNI c (f.yaml:1:1) conflicts with this one and is ignored: {used}"


def test_a_route_distinguisher_belongs_to_one_network() -> None:
    resolution = solve(
        underlay(),
        l3vni("red", 100),
        l2vni("b", 2, rd="64514:7"),
        l2vni("a", 1, rd="64514:7"),
        l2vni("c", 3, rd="10.0.0.1:100"),
    )
    assert in_force(resolution) == {"red", "a"}
    assert messages_about(resolution, "b") == "route distinguisher 64514:7 is also that of L2VNI a (f.yaml:1:1)"
    assert messages_about(resolution, "c") == "route distinguisher 10.0.0.1:100 is also that of L3VNI red (f.yaml:1:1)"


def test_a_segment_has_the_targets_that_were_written_and_none_otherwise() -> None:
    fields: dict[str, Any] = {"importRTs": ["64514:1"], "exportRTs": ["64514:2"], "rd": "064514:3"}
    found = solve(underlay(), l2vni("a", 1, **fields), l2vni("b", 2)).desired
    assert found is not None
    values = [(one.import_rts, one.export_rts, one.rd) for one in found.l2vnis]
    assert values == [(("64514:1",), ("64514:2",), "64514:3"), ((), (), None)]


def test_one_vrf_belongs_to_one_l3vni() -> None:
    resolution = solve(underlay(), l3vni("a", 1, vrf="red"), l3vni("b", 2, vrf="red"))
    assert in_force(resolution) == {"a"}
    assert messages_about(resolution, "b") == "VRF red already belongs to L3VNI a (f.yaml:1:1)"


def test_one_that_fails_blocks_no_other() -> None:
    """Each of ``a`` to ``c`` loses for a reason of its own; ``d`` would lose to any of them."""
    resolution = solve(
        underlay(),
        l3vni("0", 9, vrf="taken"),
        l3vni("a", 9, vrf="red"),
        l3vni("b", 5, vrf="taken"),
        l3vni("c", 5, vrf="red", underlayAddressFamily="IPv6"),
        l3vni("d", 5, vrf="red"),
    )
    assert in_force(resolution) == {"0", "d"}


def test_a_vrf_must_not_have_the_name_of_an_underlay_interface() -> None:
    resolution = solve(underlay(interfaces=[interface("red")]), l3vni("red", 1))
    assert messages_about(resolution, "red") == "VRF red has the name of an underlay interface"


def test_a_segment_is_in_its_domains_vrf() -> None:
    state = solve(underlay(), l3vni("red", 1, vrf="vrfred"), l2vni("l2", 2, "red")).desired
    assert state is not None
    assert state.l2vnis[0].vrf == "vrfred"


@pytest.mark.parametrize(
    "domain",
    [
        [],
        [unusable(Kind.L3VNI, "red")],
        [l3vni("red", 1, underlayAddressFamily="IPv6")],
        [l3vni("a", 1), l3vni("red", 1)],
        [l3vni("a", 1, hostSession=session("10.9.0.0/16")), l3vni("red", 3, hostSession=session("10.9.0.0/24"))],
    ],
    ids=["missing", "invalid", "no such family", "duplicate", "overlapping session"],
)
def test_a_segment_fails_with_its_domain(domain: list[Resource]) -> None:
    resolution = solve(underlay(), l2vni("l2", 2, "red"), l2vni("free", 4), *domain)
    assert "l2" not in in_force(resolution)
    assert "free" in in_force(resolution)
    problem = next(problem for problem in resolution.problems if problem.name == "l2")
    why = "is not in force; its own error says why" if domain else "not found"
    assert (problem.reason, problem.message) == (Reason.DEPENDENCY_FAILED, f'referenced L3VNI "red" {why}')


@pytest.mark.parametrize(
    ("pool", "first", "second"),
    [
        (None, ["10.0.0.1/24"], ["10.0.0.2/24"]),
        (None, ["10.0.0.1/16"], ["10.0.9.1/24"]),
        (None, ["2001:db8::1/64"], ["2001:db8::2/64", "10.0.0.1/24"]),
        ("172.16.0.0/24", ["10.0.0.1/25"], ["10.0.0.1/24"]),
    ],
)
def test_a_segment_whose_subnet_overlaps_another_ones_is_refused_alone(
    pool: str | None, first: list[str], second: list[str]
) -> None:
    fields: dict[str, Any] = {"hostSession": session(pool)} if pool else {}
    resolution = solve(
        underlay(), l3vni("red", 1, **fields), routed("b", 2, "red", *second), routed("a", 3, "red", *first),
        l3vni("blue", 4), routed("c", 5, "blue", *second), l2vni("d", 6),
    )  # fmt: skip
    assert in_force(resolution) == {"red", "a", "blue", "c", "d"}
    assert messages_about(resolution, "b").endswith("(f.yaml:1:1) in VRF red")
    assert "L2VNI b (f.yaml:1:1) conflicts with this one" in messages_about(resolution, "a")
    assert {problem.reason for problem in resolution.problems} == {Reason.VALIDATION_FAILED}


def test_a_segment_gives_way_to_its_networks_own_session() -> None:
    resolution = solve(
        underlay(), l3vni("red", 1, hostSession=session("10.0.0.0/24")), routed("a", 2, "red", "10.0.0.1/25"),
        routed("b", 3, "red", "11.0.0.1/24"),
    )  # fmt: skip
    assert in_force(resolution) == {"red", "b"}
    assert messages_about(resolution, "a") == "10.0.0.0/25 overlaps 10.0.0.0/24 of L3VNI red (f.yaml:1:1) in VRF red"


def test_segments_may_share_a_users_bridge() -> None:
    assert in_force(solve(underlay(), bridged("a", 1, "br0"), bridged("b", 2, "br0"))) == {"a", "b"}


def test_a_users_bridge_and_a_managed_one_must_not_have_one_name() -> None:
    resolution = solve(underlay(), bridged("a", 5), bridged("b", 6, "br-hs-5"))
    assert in_force(resolution) == {"a"}
    assert "is created by the router for L2VNI a" in messages_about(resolution, "b")
    resolution = solve(underlay(), bridged("b", 5), bridged("a", 6, "br-hs-5"))
    assert in_force(resolution) == {"a"}
    assert "L2VNI a (f.yaml:1:1) uses bridge br-hs-5 as an external one" in messages_about(resolution, "b")


def test_a_bridge_must_not_be_the_nic_that_leaves_the_host() -> None:
    resolution = solve(underlay(), bridged("a", 1, "toswitch1"))
    assert messages_about(resolution, "a") == "bridge toswitch1 has the name of an underlay interface"
