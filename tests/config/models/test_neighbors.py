"""Neighbours of the underlay: every field and every rule between fields."""

from __future__ import annotations

from typing import Any

import pytest

from config.desired import BGPFamily, EndpointKind, Family
from config.models import Neighbor

#: An address family in which the neighbour is a route reflector's client.
CLIENT: dict[str, Any] = {"type": "evpn", "properties": [{"type": "routeReflectorClient"}]}


def make(**fields: Any) -> Neighbor:
    base = {"asn": 64512, "address": "192.168.11.2"} | fields
    return Neighbor.model_validate({key: value for key, value in base.items() if value is not None})


@pytest.mark.parametrize(
    ("fields", "kind", "endpoint", "family"),
    [
        ({}, EndpointKind.ADDRESS, "192.168.11.2", Family.IPV4),
        ({"address": "2001:DB8:0:0::1"}, EndpointKind.ADDRESS, "2001:db8::1", Family.IPV6),
        ({"address": None, "interface": "eth0"}, EndpointKind.INTERFACE, "eth0", Family.IPV4),
        ({"address": None, "listenRange": "10.1.2.3/16"}, EndpointKind.LISTEN_RANGE, "10.1.0.0/16", Family.IPV4),
        ({"address": None, "listenRange": "2001:db8::/32"}, EndpointKind.LISTEN_RANGE, "2001:db8::/32", Family.IPV6),
    ],
)
def test_a_neighbour_is_found_in_one_of_three_ways(
    fields: dict[str, Any], kind: EndpointKind, endpoint: str, family: Family
) -> None:
    neighbor = make(**fields)
    assert (neighbor.endpoint_kind, neighbor.endpoint, neighbor.family) == (kind, endpoint, family)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"asn": None}, "exactly one of asn and type"),
        ({"type": "External"}, "exactly one of asn and type"),
        ({"asn": None, "type": "external"}, "External"),
        ({"asn": 4294967296}, "less than or equal"),
        ({"address": None}, "exactly one of address, interface and listenRange"),
        ({"interface": "eth0"}, "exactly one of address"),
        ({"listenRange": "10.0.0.0/8"}, "exactly one of address"),
        ({"address": None, "interface": "eth0", "listenRange": "10.0.0.0/8"}, "exactly one of address"),
        ({"address": "nonsense"}, "must be an IPv4 or IPv6 address"),
        ({"address": None, "interface": "a b"}, "an interface name may only contain"),
        ({"address": None, "interface": "a" * 16}, "at most 15 characters in Linux; this one has 16"),
        ({"address": None, "listenRange": "10.0.0.0"}, "prefix length"),
        ({"address": None, "listenRange": "fe80::/64"}, "link-local"),
        ({"port": 16385}, "less than or equal to 16384"),
        ({"port": -1}, "greater than or equal"),
        ({"password": "a b"}, "printable ASCII"),
        ({"password": "a", "passwordSecret": "b"}, "at most one of password and passwordSecret"),
        ({"passwordSecret": "../x"}, "pattern"),
        ({"passwordSecret": "a/b"}, "pattern"),
        ({"holdTimeSeconds": 9}, "both or neither"),
        ({"keepaliveTimeSeconds": 9}, "both or neither"),
        ({"holdTimeSeconds": 2, "keepaliveTimeSeconds": 1}, "0 or at least 3"),
        ({"holdTimeSeconds": 9, "keepaliveTimeSeconds": 10}, "must not exceed"),
        ({"connectTimeSeconds": 0}, "greater than or equal"),
        ({"connectTimeSeconds": 65536}, "less than or equal"),
        ({"properties": [{"type": "ebgpMultiHop", "ebgpMultiHop": {"ttl": 256}}]}, "less than or equal"),
        ({"properties": [{"type": "other"}]}, "ebgpMultiHop"),
        ({"properties": [{"type": "ebgpMultiHop"}], "ttlSecurityHops": 1}, "at most one of ttlSecurityHops and ebgp"),
        ({"ttlSecurityHops": 255}, "ttlSecurityHops"),
        ({"maximumPrefixes": 0}, "maximumPrefixes"),
        ({"properties": [{"type": "ebgpMultiHop"}] * 2}, "at most 1"),
        ({"bfd": {"receiveInterval": 9}}, "greater than or equal"),
        ({"bfd": {"transmitInterval": 60001}}, "less than or equal"),
        ({"bfd": {"detectMultiplier": 1}}, "greater than or equal"),
        ({"bfd": {"minimumTTL": 255}}, "less than or equal"),
        ({"bfd": {"sessionMode": "passive"}}, "Passive"),
        ({"addressFamilies": [{"type": "ipv4vpn"}]}, "not supported yet in this version"),
        ({"addressFamilies": [CLIENT]}, "a routeReflectorClient needs type: Internal"),
        ({"asn": None, "type": "External", "addressFamilies": [CLIENT]}, "a routeReflectorClient needs type: Internal"),
        ({"addressFamilies": [{"type": "evpn", "properties": [{"type": "other"}]}]}, "routeReflectorClient"),
        (
            {"asn": None, "type": "Internal", "addressFamilies": [{**CLIENT, "properties": CLIENT["properties"] * 2}]},
            "a property is listed twice",
        ),
        ({"addressFamilies": [{"type": "l2vpn"}]}, "ipv4unicast"),
        ({"addressFamilies": [{"type": "evpn"}] * 2}, "listed twice"),
    ],
)
def test_a_wrong_neighbour_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"holdTimeSeconds": 0, "keepaliveTimeSeconds": 0},
        {"holdTimeSeconds": 3, "keepaliveTimeSeconds": 3},
        {"port": 0},
        {"port": 16384},
        {"bfd": {}},
        {"asn": 4294967295},
        {"passwordSecret": "fabric.a-b"},
    ],
)
def test_edges_of_ranges_are_accepted(fields: dict[str, Any]) -> None:
    assert make(**fields).endpoint == "192.168.11.2"


def test_families_are_listed_in_the_usual_order() -> None:
    families = make(addressFamilies=[{"type": "evpn"}, {"type": "ipv4unicast"}]).explicit_families
    assert families == (BGPFamily.IPV4_UNICAST, BGPFamily.EVPN)


def test_a_client_of_the_route_reflector_is_one_in_the_families_that_say_so() -> None:
    client = make(asn=None, type="Internal", addressFamilies=[CLIENT, {"type": "ipv4unicast"}])
    assert client.reflected_families == (BGPFamily.EVPN,)
    assert make(addressFamilies=[{"type": "evpn", "properties": []}]).reflected_families == ()


def test_multihop_without_a_ttl_means_as_many_as_possible() -> None:
    assert make(properties=[{"type": "ebgpMultiHop"}]).properties[0].ebgp_multi_hop.ttl == 255


def test_a_numeric_password_is_what_was_written() -> None:
    password = make(password=12345).password
    assert password is not None
    assert password.reveal() == "12345"
