"""Which tunnel endpoint a VNI uses."""

from __future__ import annotations

import pytest

from config.problems import Reason

from ..samples import in_force, l2vni, l3vni, messages_about, session, solve, underlay

V4, V6 = "100.65.0.0/24", "2001:db8::/64"


@pytest.mark.parametrize(
    ("cidrs", "wanted", "vtep"),
    [
        ([V4], None, "100.65.0.0"),
        ([V6], None, "2001:db8::"),
        ([V6, V4], None, "100.65.0.0"),
        ([V4, V6], "IPv6", "2001:db8::"),
        ([V4, V6], "IPv4", "100.65.0.0"),
    ],
)
def test_a_vni_uses_ipv4_unless_ipv6_is_wanted_or_alone(cidrs: list[str], wanted: str | None, vtep: str) -> None:
    fields = {"underlayAddressFamily": wanted} if wanted else {}
    state = solve(
        underlay(tunnelEndpoint={"cidrs": cidrs}), l3vni("red", 1, **fields), l2vni("l2", 2, **fields)
    ).desired
    assert state is not None
    assert [str(state.l3vnis[0].vtep), str(state.l2vnis[0].vtep)] == [vtep, vtep]


@pytest.mark.parametrize(("cidr", "wanted"), [(V4, "IPv6"), (V6, "IPv4")])
def test_a_missing_family_fails_only_the_vni_that_asks_for_it(cidr: str, wanted: str) -> None:
    resolution = solve(
        underlay(tunnelEndpoint={"cidrs": [cidr]}), l3vni("bad", 1, underlayAddressFamily=wanted), l3vni("good", 2)
    )
    assert in_force(resolution) == {"good"}
    assert messages_about(resolution, "bad") == f"the underlay's tunnelEndpoint has no {wanted} network"


def test_vnis_without_any_tunnel_endpoint_fail_one_by_one() -> None:
    resolution = solve(underlay(tunnelEndpoint=None), l3vni("red", 1), l2vni("l2", 2))
    assert in_force(resolution) == set()
    assert [problem.reason for problem in resolution.problems] == [Reason.VALIDATION_FAILED] * 2


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"hostSession": session("100.65.0.0/25")}, "hostSession.localCIDR.ipv4"),
        ({"hostSession": session("100.65.0.0/16")}, "hostSession.localCIDR.ipv4"),
        ({"hostSession": session("192.0.2.0/24", "fd00:65::/64")}, "hostSession.localCIDR.ipv6"),
    ],
)
def test_a_session_within_the_tunnel_endpoints_is_refused(spec: dict[str, object], field: str) -> None:
    pools = {"cidrs": ["100.65.0.0/24", "fd00:65::/112"]}
    resolution = solve(underlay(tunnelEndpoint=pools), l3vni("red", 1, **spec), l3vni("blue", 2))
    assert in_force(resolution) == {"blue"}
    (problem,) = resolution.problems
    assert problem.field == field
    assert "the tunnelEndpoint of Underlay" in problem.message


def test_a_gateway_within_the_tunnel_endpoints_is_refused() -> None:
    segment = l2vni("green", 3, domain="red", gatewayIPs=["100.65.0.1/24"])
    resolution = solve(underlay(), l3vni("red", 1), segment, l2vni("loose", 4))
    assert in_force(resolution) == {"red", "loose"}
    assert "100.65.0.0/24 overlaps 100.65.0.0/24, the tunnelEndpoint of Underlay" in messages_about(resolution, "green")
