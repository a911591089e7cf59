"""Reading FRR's answers: real samples, and whatever else may come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.health.frr_json import (
    BFD_COUNTERS,
    BFD_PEERS,
    BGP_IPV4,
    BGP_IPV6,
    EVPN_VNIS,
    INSTANCES,
    INTERFACES,
    NEXT_HOPS,
    PEER_GROUPS,
    ROUTES_IPV4,
    ROUTES_IPV6,
    SUMMARY,
    TYPE_3,
    TYPE_5,
    VNIS,
    BgpVni,
    EvpnRoute,
    NextHop,
    Observation,
    Peer,
    Routes,
    Vni,
    parse,
    parse_evpn,
)
from tests.actors.health.examples import SAMPLES, observed, sample

POLLED = (
    *(BFD_COUNTERS, BFD_PEERS, EVPN_VNIS, INSTANCES, INTERFACES, PEER_GROUPS),
    *(ROUTES_IPV4, ROUTES_IPV6, SUMMARY, VNIS),
)
ROUTE_COMMANDS = (BGP_IPV4, BGP_IPV6, NEXT_HOPS, TYPE_3, TYPE_5)
COMMANDS = (*POLLED, *ROUTE_COMMANDS)
LEAF = frozenset({"100.64.0.1"})


def test_a_session_carries_the_prefix_counts_of_all_its_families() -> None:
    peer = observed("up").peers["default", "192.168.11.2"]
    assert peer == Peer(64512, "Established", 17, {"ipv4Unicast": 1, "l2VpnEvpn": 2})


def test_a_session_that_is_down_has_no_uptime_although_frr_gives_the_time_since() -> None:
    peer = observed("links_down").peers["default", "192.168.11.2"]
    assert (peer.state, peer.uptime_seconds) == ("Idle", 0)


def test_sessions_in_a_vrf_are_kept_apart_by_vrf() -> None:
    assert ("red", "172.27.10.2") in observed("up").peers
    assert ("default", "172.27.10.2") not in observed("up").peers


def test_a_peer_from_a_listen_range_is_listed_and_so_is_the_range() -> None:
    seen = observed("dynamic_peer")
    assert {"172.31.0.9", "192.168.11.2"} <= {address for _, address in seen.peers}
    assert seen.listen_ranges == {"172.31.0.0/24"}


def test_l2_and_l3_vnis_are_read_although_frr_names_their_members_differently() -> None:
    assert observed("fabric_up").vnis == {
        100: Vni("L3", "red", "vni100", "br-pe-100", up=True, vtep="100.65.0.1", router_mac="02:00:00:00:41:01"),
        110: Vni("L2", "red", "vni110", "br-pe-110", vtep="100.65.0.1", remote_vteps=1, flooded=LEAF),
        111: Vni("L2", "default", "vni111", "br-pe-111", vtep="100.65.0.1", remote_vteps=1, flooded=LEAF),
    }


def test_bgpds_own_l3vni_is_lost_while_zebra_keeps_the_entry_of_a_downed_device() -> None:
    assert observed("up").l3vnis["red"] == 100
    assert observed("links_down").l3vnis["red"] == 0
    assert observed("links_down").vnis[100].up is False


def test_interfaces_are_up_down_or_absent() -> None:
    assert observed("up").interfaces["toswitch1"] is True
    assert observed("links_down").interfaces["toswitch1"] is False
    assert "toswitch1" not in observed("nic_gone").interfaces


def test_bfd_states_are_read_and_empty_when_bfdd_is_gone() -> None:
    assert observed("up").bfd == {("default", "192.168.11.2"): "up"}
    assert observed("links_down").bfd == {("default", "192.168.11.2"): "down"}
    assert observed("bfdd_gone").bfd == {}


def test_only_routes_that_bgp_has_installed_are_counted() -> None:
    assert observed("dynamic_peer").routes == {"default": 1, "red": 0}


@pytest.mark.parametrize("name", ["empty", "no_bgp"])
def test_an_frr_without_bgp_has_no_peers_and_no_vnis(name: str) -> None:
    seen = observed(name)
    assert (seen.peers, seen.vnis, seen.l3vnis) == ({}, {}, {})


def test_bgpds_vnis_are_read_from_among_its_global_settings() -> None:
    vnis = observed("fabric_up").bgp_vnis
    assert vnis is not None
    assert sorted(vnis) == [100, 110, 111]
    assert vnis[100] == BgpVni("10.0.0.1:100", "100.65.0.1", frozenset({"64512:100"}), "02:00:00:00:41:01")


def test_routes_of_both_sides_are_read_with_where_they_lead() -> None:
    evpn = observed("fabric_up").evpn
    assert evpn is not None
    target = frozenset({"64512:100"})
    assert evpn.type5 == (
        EvpnRoute("10.0.0.1:100", "172.27.10.2/32", "100.65.0.1", True, target, "02:00:00:00:41:01"),
        EvpnRoute("10.0.0.200:4", "10.50.0.0/24", "100.64.0.1", False, target, "02:00:00:00:40:01"),
    )
    assert [(route.next_hop, route.own) for route in evpn.type3] == [
        ("100.65.0.1", True), ("100.65.0.1", True), ("100.64.0.1", False), ("100.64.0.1", False)
    ]  # fmt: skip
    assert evpn.zebra["red"] == {"10.50.0.0/24": (NextHop("100.64.0.1", "br-pe-100", "", True),)}
    assert "100.64.0.1" in evpn.next_hops[100]


def test_an_ipv4_next_hop_of_an_ipv6_route_is_an_ipv4_address() -> None:
    hop = {"ip": "::ffff:100.64.0.1", "interfaceName": "br-pe-100", "fib": True}
    answers = {BGP_IPV6: {"red": {"2001:db8::/64": [{"selected": True, "nexthops": [hop]}]}}}
    assert parse_evpn(answers).zebra["red"]["2001:db8::/64"][0].address == "100.64.0.1"


@pytest.mark.parametrize("is_well", [True, False])
def test_what_zebra_shows_of_a_next_hop_that_two_sessions_bring(*, is_well: bool) -> None:
    first = {"ip": "100.64.0.1", "interfaceName": "br-pe-100", "fib": True, "active": True}
    second = {"ip": "100.64.0.1", "interfaceName": "br-pe-100", "duplicate": True} | (
        {"active": True} if is_well else {}
    )
    entry = {"selected": True, "nexthops": [first, second]} | ({} if is_well else {"failed": True})
    found = parse_evpn({BGP_IPV4: {"red": {"10.50.0.0/24": [entry]}}}).zebra["red"]["10.50.0.0/24"]
    assert [hop.installed for hop in found] == [True, False]
    assert [hop.lost for hop in found] == [False, not is_well]
    assert [hop.refused for hop in found] == [not is_well, not is_well]


def test_a_type_3_route_leads_to_its_originator() -> None:
    path = {"valid": True, "bestpath": True, "routeType": 3, "ip": "100.64.0.1", "nexthops": [{"ip": "100.64.0.9"}]}
    [route] = parse_evpn({TYPE_3: {"10.0.0.200:2": {"[3]": {"paths": [[path]]}}}}).type3
    assert route.next_hop == "100.64.0.1"


def test_routes_are_counted_without_being_read() -> None:
    seen = observed("fabric_up")
    assert (seen.evpn_size, seen.table_size) == (11, 13)


def test_a_peer_that_answers_no_bfd_packet_is_found_by_the_counters() -> None:
    assert observed("fabric_one_sided_bfd").bfd_unanswered == {("default", "192.168.11.2")}
    few = [{"vrf": "default", "peer": "192.168.11.2", "control-packet-output": 3, "control-packet-input": 0}]
    assert parse(frozenset(), {BFD_COUNTERS: few}).bfd_unanswered == frozenset()


def test_every_sample_can_be_read() -> None:
    names = [path.stem for path in SAMPLES.glob("*.json")]
    assert len(names) == 23
    for name in names:
        assert "zebra" in observed(name).daemons


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(COMMANDS), JSON))
def test_no_answer_whatever_its_shape_breaks_the_reader(answers: dict[str, object]) -> None:
    assert isinstance(parse(frozenset(), answers), Observation)
    assert isinstance(parse_evpn(answers), Routes)


@given(st.sampled_from(["up", "dynamic_peer", "links_down", "fabric_up"]), st.data())
def test_a_real_answer_with_one_member_replaced_by_anything_does_not_break_the_reader(
    name: str, data: st.DataObject
) -> None:
    daemons, answers = sample(name)
    node: object = answers
    while isinstance(node, dict | list) and node:
        places = list(node) if isinstance(node, dict) else list(range(len(node)))
        place = data.draw(st.sampled_from(places))
        inner = node[place]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            node[place] = data.draw(JSON)
            break
        node = inner
    assert isinstance(parse(daemons, answers), Observation)
