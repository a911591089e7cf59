"""Pools of host sessions share the host's namespace."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.desired import DesiredProbe, Secret
from config.outcomes import NodeIdentity
from config.problems import Kind
from config.resolve.findings import Claim
from config.resolve.overlays import Pools
from config.resolve.sessions import HOST_MAXIMUM_PREFIXES

from ..samples import in_force, l3vni, messages_about, passthrough, raw, session, solve, underlay


def vni(name: str, number: int, ipv4: str | None = None, ipv6: str | None = None) -> object:
    return l3vni(name, number, hostSession=session(ipv4, ipv6))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("192.0.2.0/24", None), ("192.0.2.0/24", None)),
        (("192.0.0.0/16", None), ("192.0.2.0/24", None)),
        (("192.0.2.0/24", None), ("192.0.0.0/16", None)),
        (("192.0.2.9/24", None), ("192.0.2.128/25", None)),
        ((None, "2001:db8::/80"), ("192.0.2.0/24", "2001:db8::/64")),
    ],
)
def test_the_later_of_two_overlapping_sessions_fails_and_names_the_other(
    first: tuple[str | None, str | None], second: tuple[str | None, str | None]
) -> None:
    resolution = solve(
        underlay(),
        l3vni("b", 2, hostSession=session(*second)),
        l3vni("a", 1, hostSession=session(*first)),
        l3vni("c", 3, hostSession=session("198.51.100.0/24")),
    )
    assert in_force(resolution) == {"a", "c"}
    assert "of a host session of L3VNI a (f.yaml:1:1)" in messages_about(resolution, "b")


@pytest.mark.parametrize("listed", [["2001:db8::/64", "192.0.2.0/24"], ["192.0.2.0/24", "2001:db8::/64"]])
def test_both_forms_of_the_pools_give_the_same_addresses(listed: list[str]) -> None:
    spec = session(localCIDRs=listed)
    del spec["localCIDR"]
    node = NodeIdentity("node", 4)
    found = [
        solve(underlay(), l3vni("a", 1, hostSession=written), node=node).desired
        for written in (spec, session("192.0.2.0/24", "2001:db8::/64"))
    ]
    newer, older = (state.l3vnis[0].session for state in found if state is not None)
    assert newer == older
    assert newer is not None
    assert [(str(ends.router), str(ends.host)) for ends in newer.addresses] == [
        ("192.0.2.1/24", "192.0.2.6/24"),
        ("2001:db8::1/64", "2001:db8::6/64"),
    ]


def test_the_families_of_one_session_do_not_meet() -> None:
    assert in_force(solve(underlay(), l3vni("a", 1, hostSession=session("10.0.0.0/16", "a00::/64")))) == {"a"}


def test_a_passthrough_yields_to_an_l3vni() -> None:
    resolution = solve(
        underlay(), passthrough("a", ipv4="192.0.2.0/24"), l3vni("b", 1, hostSession=session("192.0.0.0/16"))
    )
    assert in_force(resolution) == {"b"}
    assert "of a host session of L3VNI b (f.yaml:1:1)" in messages_about(resolution, "a")


def test_an_index_beyond_a_sessions_pool_fails_that_session_only() -> None:
    resolution = solve(
        underlay(),
        l3vni("small", 1, hostSession=session("192.0.2.0/30")),
        l3vni("large", 2, hostSession=session("198.51.100.0/24")),
        raw("snippet"),
        node=NodeIdentity("node", 3),
    )
    assert in_force(resolution) == {"large"}
    assert messages_about(resolution, "small") == (
        "192.0.2.0/30 is too small for node index 3 (highest usable: 1); use at least a /29"
    )
    assert resolution.problems[0].field == "hostSession.localCIDR.ipv4"


_NETWORKS = st.builds(
    lambda base, length: str(ip_network((base, length), strict=False)), st.integers(0, 63), st.integers(26, 32)
)


@given(st.lists(_NETWORKS, max_size=12))
def test_overlap_is_found_exactly_when_there_is_one(networks: list[str]) -> None:
    pools = Pools()
    taken: list[str] = []
    for number, network in enumerate(networks):
        overlapping = any(ip_network(network).overlaps(ip_network(other)) for other in taken)
        owner = pools.overlapping(network)
        assert (owner is not None) == overlapping
        if not overlapping:
            resource = raw(str(number))
            assert resource.kind is Kind.RAW_FRR_CONFIG
            pools.add(network, Claim(resource))
            taken.append(network)


GUARDS: dict[str, Any] = {
    "password": "s3cret", "ttlSecurityHops": 1, "maximumPrefixes": 9,
    "allowedPrefixes": ["2001:db8::/32", "192.0.2.1/24", "10.0.0.0/8", "192.0.2.0/24"],
}  # fmt: skip


def test_what_guards_a_session_is_resolved_whichever_resource_it_is_of() -> None:
    resolution = solve(
        underlay(),
        l3vni("a", 1, hostSession=session("198.51.100.0/24", **GUARDS)),
        passthrough("b", ipv4="203.0.113.0/24", **GUARDS),
    )
    assert resolution.desired is not None
    assert resolution.desired.passthrough is not None
    for found in (resolution.desired.l3vnis[0].session, resolution.desired.passthrough.session):
        assert found is not None
        assert (found.password, found.ttl_security_hops, found.maximum_prefixes) == (Secret("s3cret"), 1, 9)
        networks = map(ip_network, ("10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32"))
        assert found.allowed_prefixes == tuple(networks)


def test_a_session_has_a_limit_of_prefixes_and_nothing_else_unless_it_is_written() -> None:
    resolution = solve(underlay(), l3vni("a", 1, hostSession=session("198.51.100.0/24")))
    assert resolution.desired is not None
    found = resolution.desired.l3vnis[0].session
    assert found is not None
    assert found.maximum_prefixes == HOST_MAXIMUM_PREFIXES
    assert (found.password, found.ttl_security_hops, found.allowed_prefixes) == (None, None, None)


@pytest.mark.parametrize(("written", "apart"), [({}, False), ({"hostVRF": False}, False), ({"hostVRF": True}, True)])
def test_the_hosts_end_is_in_a_vrf_only_if_that_is_written(written: dict[str, Any], apart: bool) -> None:
    state = solve(underlay(), l3vni("a", 1, hostSession=session("192.0.2.0/24") | written)).desired
    assert state is not None
    [found] = state.l3vnis
    assert found.session is not None
    assert found.session.host_vrf is apart


def test_a_probe_is_resolved_with_its_defaults_and_each_target_once() -> None:
    probe = {"targets": ["10.0.0.1", "2001:db8::1", "10.0.0.1"]}
    state = solve(underlay(), l3vni("a", 1, hostSession=session("192.0.2.0/24") | {"probe": probe})).desired
    assert state is not None
    [found] = state.l3vnis
    assert found.session is not None
    assert found.session.probe == DesiredProbe((ip_address("10.0.0.1"), ip_address("2001:db8::1")), 10, 3)


def test_sessions_with_vrfs_of_their_own_do_not_overlap_either() -> None:
    """Switching hostVRF off must not fail because of another session."""
    apart = session("192.0.2.0/24") | {"hostVRF": True}
    resolution = solve(underlay(), l3vni("a", 1, hostSession=apart), l3vni("b", 2, hostSession=apart))
    assert in_force(resolution) == {"a"}


def test_a_resource_without_the_field_has_the_digest_that_it_had() -> None:
    """Else an upgrade would take what is in force for changed."""
    resource = l3vni("a", 1, hostSession=session("192.0.2.0/24"))
    assert "host_vrf" not in resource.spec.host_session.model_dump(exclude_none=True)
