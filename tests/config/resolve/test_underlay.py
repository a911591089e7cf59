"""Which underlay a node has, and what happens while that is unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from config.desired import BGPFamily, Family, RouterIdScheme, Secret
from config.outcomes import NodeIdentity
from config.problems import Kind, Origin, Reason, Severity
from config.resources import Resource, UnknownContent

from ..samples import (
    NODE,
    from_api,
    ids_in_force,
    in_force,
    l3vni,
    messages_about,
    neighbor,
    raw,
    solve,
    underlay,
    unusable,
)

UNKNOWN = Resource(Kind.UNDERLAY, "ns", "unknown", Origin("bad.yaml"), UnknownContent())


def test_of_two_underlays_the_first_by_name_is_used_and_both_have_a_message() -> None:
    resolution = solve(underlay("b"), underlay("a"), l3vni("red", 1))
    assert resolution.desired is not None
    assert resolution.desired.underlay is not None
    assert resolution.desired.underlay.resource.name == "a"
    refused = "only one underlay per node, and Underlay a (f.yaml:1:1) is used"
    assert messages_about(resolution, "b") == refused
    assert (
        messages_about(resolution, "a") == f"Underlay b (f.yaml:1:1) conflicts with this one and is ignored: {refused}"
    )
    assert [problem.severity for problem in resolution.problems if problem.name == "a"] == [Severity.WARNING]


def test_the_underlay_in_force_stays_whatever_comes() -> None:
    first = solve(from_api(underlay("z")))
    for newcomer in (underlay("a"), from_api(underlay("a")), from_api(unusable(Kind.UNDERLAY, "a"))):
        both = solve(newcomer, from_api(underlay("z")), standing=first.standing)
        assert both.desired is not None
        assert first.desired is not None
        assert both.desired.underlay == first.desired.underlay


def test_the_underlay_in_force_does_not_make_way_when_it_becomes_invalid() -> None:
    first = solve(from_api(underlay("z")))
    resolution = solve(underlay("a"), from_api(unusable(Kind.UNDERLAY, "z")), standing=first.standing)
    assert resolution.desired is None
    assert resolution.standing == first.standing


def test_a_files_underlay_comes_before_the_apis() -> None:
    for other in (from_api(underlay("a")), from_api(unusable(Kind.UNDERLAY, "a"))):
        assert ids_in_force(solve(other, underlay("z"))) == {underlay("z").id}


def test_the_underlay_of_a_deleted_object_is_really_gone() -> None:
    first = solve(from_api(underlay("z")), l3vni("red", 1))
    resolution = solve(l3vni("red", 1), standing=first.standing)
    assert resolution.desired is not None
    assert resolution.desired.underlay is None
    assert set(resolution.standing) == {l3vni("red", 1).id}


def test_another_underlay_takes_over_from_a_deleted_one() -> None:
    first = solve(from_api(underlay("a")), from_api(underlay("b")))
    assert ids_in_force(first) == {from_api(underlay("a")).id}
    assert ids_in_force(solve(from_api(underlay("b")), standing=first.standing)) == {from_api(underlay("b")).id}


def test_an_invalid_underlay_leaves_everything_as_it_is() -> None:
    assert solve(unusable(Kind.UNDERLAY), l3vni("red", 1)).desired is None


def test_an_invalid_second_underlay_counts_as_a_second_one() -> None:
    assert solve(underlay("a"), unusable(Kind.UNDERLAY)).desired is None


def test_a_file_that_cannot_be_read_may_hold_the_underlay() -> None:
    resolution = solve(UNKNOWN, l3vni("red", 1))
    assert resolution.desired is None
    assert [problem.reason for problem in resolution.problems] == [Reason.UNDERLAY_FAILED]


def test_an_underlay_in_force_that_may_be_in_an_unreadable_file_does_not_make_way() -> None:
    first = solve(underlay("a"))
    assert solve(UNKNOWN, from_api(underlay("b", asn=1)), standing=first.standing).desired is None
    assert solve(UNKNOWN, from_api(underlay("b", asn=1))).desired is not None


def test_a_file_that_cannot_be_read_does_not_disturb_an_underlay_that_is_there() -> None:
    assert in_force(solve(UNKNOWN, underlay(), l3vni("red", 1))) == {"red"}


def test_no_underlay_keeps_nothing_but_raw_snippets() -> None:
    resolution = solve(l3vni("red", 1), raw("snippet", "! hello"))
    assert resolution.desired is not None
    assert resolution.desired.underlay is None
    assert in_force(resolution) == set()
    assert [snippet.text for snippet in resolution.desired.raw_frr] == ["! hello"]
    assert "no underlay is configured" in messages_about(resolution, "red")


def test_nothing_at_all_is_a_valid_configuration() -> None:
    resolution = solve()
    assert resolution.desired is not None
    assert resolution.problems == ()


def test_an_index_beyond_a_pool_is_the_underlays_fault() -> None:
    far = NodeIdentity("node", 300)
    resolution = solve(underlay(), node=far)
    assert resolution.desired is None
    assert messages_about(resolution, "underlay") == (
        "no router ID for this node: the default 10.0.0.0/24 is too small for node index 300 (highest usable: 254); "
        "use at least a /23"
    )
    resolution = solve(underlay(routerIDCIDR="10.0.0.0/8"), node=far)
    assert resolution.problems[0].field == "tunnelEndpoint.cidrs"


def test_the_router_id_follows_the_nodes_scheme() -> None:
    expected_ids: dict[RouterIdScheme, str] = {"v1": "10.0.0.4", "v2": "10.0.0.3"}
    for scheme, expected in expected_ids.items():
        state = solve(underlay(), node=replace(NODE, index=3, router_id_scheme=scheme)).desired
        assert state is not None
        assert state.underlay is not None
        assert (str(state.underlay.router_id), state.underlay.router_id_scheme) == (expected, scheme)


def test_tunnel_endpoints_are_ordered_by_family() -> None:
    state = solve(underlay(tunnelEndpoint={"cidrs": ["2001:db8::/64", "100.65.0.0/24"]})).desired
    assert state is not None
    assert state.underlay is not None
    assert [str(vtep) for vtep in state.underlay.vteps] == ["100.65.0.0/32", "2001:db8::/128"]
    assert str(state.underlay.vtep(Family.IPV6)) == "2001:db8::/128"


def ranged(network: str, **fields: object) -> dict[str, object]:
    return {"asn": 64512, "listenRange": network} | fields


@pytest.mark.parametrize(
    ("network", "fields", "expected"),
    [
        ("192.0.2.0/24", {"password": "s3cret"}, []),
        ("10.0.0.0/8", {"password": "s3cret"}, []),
        ("2001:db8::/32", {"password": "s3cret"}, []),
        ("192.0.2.7/24", {}, ["every speaker with an address in 192.0.2.0/24 gets a session"]),
        ("0.0.0.0/0", {"password": "s3cret"}, ["0.0.0.0/0 is more than a fabric has: use ranges of /8 or longer"]),
        ("2001::/16", {"password": "s3cret"}, ["use ranges of /32 or longer"]),
        ("0.0.0.0/0", {}, ["0.0.0.0/0 is more than a fabric has", "every speaker with an address in 0.0.0.0/0"]),
    ],
)
def test_an_open_listen_range_has_a_warning_and_stays(
    network: str, fields: dict[str, object], expected: list[str]
) -> None:
    resolution = solve(underlay(neighbors=[neighbor(), ranged(network, **fields)]))
    assert resolution.desired is not None
    assert resolution.desired.underlay is not None
    assert {problem.severity for problem in resolution.problems} <= {Severity.WARNING}
    assert {problem.field for problem in resolution.problems} <= {"neighbors[1].listenRange"}
    messages = sorted(problem.message for problem in resolution.problems)
    assert len(messages) == len(expected)
    assert all(wanted in message for wanted, message in zip(sorted(expected), messages, strict=True))
    assert "s3cret" not in str(resolution.problems)


@pytest.mark.parametrize(
    "found_by",
    [{}, {"address": None, "interface": "eth1"}, {"address": None, "listenRange": "192.0.2.0/24"}],
    ids=["address", "interface", "listen range"],
)
def test_what_guards_a_neighbours_session_is_resolved(found_by: dict[str, object]) -> None:
    guards = {"password": "s3cret", "ttlSecurityHops": 2, "maximumPrefixes": 9}
    written = {key: value for key, value in (neighbor() | found_by).items() if value is not None}
    state = solve(underlay(neighbors=[written | guards, neighbor(address="198.51.100.1")])).desired
    assert state is not None
    assert state.underlay is not None
    guarded, plain = sorted(state.underlay.neighbors, key=lambda one: one.password is None)
    assert (guarded.password, guarded.ttl_security_hops, guarded.maximum_prefixes) == (Secret("s3cret"), 2, 9)
    assert (plain.password, plain.ttl_security_hops, plain.maximum_prefixes) == (None, None, None)


@pytest.mark.parametrize("source", [lambda one: one, from_api], ids=["file", "API"])
def test_a_route_reflector_has_its_cluster_and_clients_in_the_families_that_say_so(
    source: Callable[[Resource], Resource],
) -> None:
    client = neighbor(
        asn=None,
        type="Internal",
        addressFamilies=[
            {"type": "evpn", "properties": [{"type": "routeReflectorClient"}]},
            {"type": "ipv4unicast", "properties": []},
        ],
    )
    written = underlay(neighbors=[client], routeReflector={"clusterID": "198.51.100.1"})
    resolution = solve(source(written))
    assert resolution.desired is not None
    desired = resolution.desired.underlay
    assert desired is not None
    assert str(desired.cluster_id) == "198.51.100.1"
    [reflected] = desired.neighbors
    assert (reflected.ebgp, reflected.reflected_families) == (False, (BGPFamily.EVPN,))
