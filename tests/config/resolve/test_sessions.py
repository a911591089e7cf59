"""Sessions with nothing left to decide: families, timers, and FRR's special cases."""

from __future__ import annotations

from typing import Any

import pytest

from config.desired import Bfd, BGPFamily, FabricNeighbor, Family
from config.problems import Kind, Origin
from config.resources import Resource, Unusable

from ..samples import l2vni, l3vni, neighbor, passthrough, session, solve, underlay, unusable

V4, V6, EVPN = BGPFamily.IPV4_UNICAST, BGPFamily.IPV6_UNICAST, BGPFamily.EVPN
BY_V4: dict[str, Any] = {"asn": 64512, "address": "192.0.2.1"}
BY_V6: dict[str, Any] = {"asn": 64512, "address": "2001:db8::1"}
UNNUMBERED: dict[str, Any] = {"asn": 64512, "interface": "eth0"}
RANGE_V6: dict[str, Any] = {"asn": 64512, "listenRange": "2001:db8::/64"}


def session_of(spec: dict[str, Any], *others: Resource, **fields: Any) -> FabricNeighbor:
    """Return the one neighbour of an underlay without tunnel endpoint, unless ``fields`` give one."""
    state = solve(underlay(**({"neighbors": [spec], "tunnelEndpoint": None} | fields)), *others).desired
    assert state is not None
    assert state.underlay is not None
    return state.underlay.neighbors[0]


def both() -> Resource:
    return passthrough(ipv4="192.0.2.0/24", ipv6="2001:db8::/64")


def broken_passthrough() -> Resource:
    return Resource(Kind.L3PASSTHROUGH, "ns", "x", Origin(), Unusable(frozenset({Family.IPV6})))


@pytest.mark.parametrize(
    ("spec", "others", "cidrs", "families"),
    [
        (BY_V4, [], None, (V4,)),
        (BY_V6, [], None, (V6,)),
        (UNNUMBERED, [], None, (V4,)),
        (RANGE_V6, [], None, (V6,)),
        (BY_V4, [l3vni("red", 1)], None, (V4, EVPN)),
        (BY_V4, [l2vni("l2", 1)], None, (V4, EVPN)),
        # What is IPv6 in a VRF needs none in the fabric, where the NIC or the tunnel endpoint's device may have none.
        (BY_V4, [l3vni("red", 1, hostSession=session("192.0.2.0/24", "2001:db8::/64"))], ["100.65.0.0/24"], (V4, EVPN)),
        (BY_V4, [l3vni("red", 1), l2vni("l2", 2, "red", gatewayIPs=["2001:db8:1::1/64"])], None, (V4, EVPN)),
        (BY_V6, [l2vni("l2", 1)], None, (V4, V6, EVPN)),
        (UNNUMBERED, [l3vni("red", 1)], None, (V4, EVPN)),
        (BY_V4, [both()], None, (V4, V6)),
        (BY_V6, [passthrough()], None, (V4, V6)),
        (BY_V4, [], ["2001:db8::/64"], (V4, V6)),
        (BY_V6, [], ["100.65.0.0/24"], (V4, V6)),
        (BY_V6, [], ["2001:db8::/64"], (V6,)),
        (BY_V4, [unusable(Kind.L3VNI)], None, (V4, EVPN)),
        (BY_V4, [unusable(Kind.L2VNI)], None, (V4, EVPN)),
        (BY_V4, [broken_passthrough()], None, (V4, V6)),
        (BY_V4 | {"addressFamilies": [{"type": "ipv6unicast"}]}, [l3vni("red", 1)], None, (V6,)),
        (BY_V4 | {"addressFamilies": []}, [l3vni("red", 1)], None, (V4, EVPN)),
    ],
)
def test_families_come_from_what_is_configured(
    spec: dict[str, Any], others: list[Resource], cidrs: list[str] | None, families: tuple[BGPFamily, ...]
) -> None:
    fields = {"tunnelEndpoint": {"cidrs": cidrs}} if cidrs else {}
    assert session_of(spec, *others, **fields).families == families


def test_the_last_vnis_becoming_invalid_resets_no_session() -> None:
    good = session_of(BY_V4, l3vni("red", 1), tunnelEndpoint={"cidrs": ["100.65.0.0/24"]})
    conflict = session_of(
        BY_V4, l3vni("red", 1, underlayAddressFamily="IPv6"), tunnelEndpoint={"cidrs": ["100.65.0.0/24"]}
    )
    assert conflict == good == session_of(BY_V4, unusable(Kind.L3VNI), tunnelEndpoint={"cidrs": ["100.65.0.0/24"]})


@pytest.mark.parametrize(
    ("remote", "remote_as", "external"),
    [
        ({"asn": 64512}, 64512, True),
        ({"asn": 64514}, 64514, False),
        ({"type": "External"}, "external", True),
        ({"type": "Internal"}, "internal", False),
    ],
)
def test_external_follows_from_relation_or_number(remote: dict[str, Any], remote_as: object, external: bool) -> None:
    session = session_of({"address": "192.0.2.1"} | remote)
    assert (session.remote_as, session.ebgp) == (remote_as, external)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (BY_V4, False),
        (BY_V6, True),
        (BY_V6 | {"asn": 64514}, False),
        (BY_V6 | {"properties": [{"type": "ebgpMultiHop"}]}, False),
        (BY_V6 | {"addressFamilies": [{"type": "ipv4unicast"}]}, False),
        (UNNUMBERED | {"addressFamilies": [{"type": "ipv6unicast"}]}, False),
        (RANGE_V6, False),
        (BY_V4 | {"addressFamilies": [{"type": "ipv6unicast"}]}, True),
    ],
)
def test_the_connected_check_goes_for_external_ipv6_by_address(spec: dict[str, Any], expected: bool) -> None:
    assert session_of(spec).disable_connected_check is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (BY_V4, False),
        (UNNUMBERED, True),
        (BY_V6, False),
        (BY_V6 | {"addressFamilies": [{"type": "ipv4unicast"}]}, True),
        (RANGE_V6 | {"addressFamilies": [{"type": "ipv4unicast"}, {"type": "ipv6unicast"}]}, True),
    ],
)
def test_ipv4_over_ipv6_needs_the_extended_next_hop(spec: dict[str, Any], expected: bool) -> None:
    assert session_of(spec).extended_nexthop is expected


def test_graceful_restart_shortens_the_connect_time_unless_one_is_given() -> None:
    assert session_of(BY_V4).connect_time is None
    assert session_of(BY_V4, gracefulRestart={}).connect_time == 5
    assert session_of(BY_V4 | {"connectTimeSeconds": 30}, gracefulRestart={}).connect_time == 30


def test_values_equal_to_frrs_defaults_are_left_to_frr() -> None:
    bfd = {"receiveInterval": 300, "transmitInterval": 300, "detectMultiplier": 3, "sessionMode": "Active"}
    session = session_of(BY_V4 | {"port": 179, "bfd": bfd})
    assert session.port is None
    assert session.bfd == Bfd()
    assert not Bfd().has_profile


def test_bfd_is_off_unless_written_and_keeps_what_differs() -> None:
    assert session_of(BY_V4).bfd is None
    bfd = {"receiveInterval": 100, "sessionMode": "Passive", "minimumTTL": 9}
    assert session_of(BY_V4 | {"bfd": bfd}).bfd == Bfd(receive_interval=100, passive=True, minimum_ttl=9)


def test_timers_ports_and_multihop_reach_the_session() -> None:
    fields = {"holdTimeSeconds": 9, "keepaliveTimeSeconds": 3, "port": 1179}
    multihop = [{"type": "ebgpMultiHop", "ebgpMultiHop": {"ttl": 3}}]
    session = session_of(neighbor(properties=multihop, **fields))
    assert (session.hold_time, session.keepalive_time, session.port, session.ebgp_multihop) == (9, 3, 1179, 3)
