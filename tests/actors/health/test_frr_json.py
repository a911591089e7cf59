"""Reading FRR's answers: real samples, and whatever else may come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.health.frr_json import (
    BFD_PEERS,
    INSTANCES,
    INTERFACES,
    PEER_GROUPS,
    ROUTES_IPV4,
    ROUTES_IPV6,
    SUMMARY,
    VNIS,
    Observation,
    Peer,
    Vni,
    parse,
)
from tests.actors.health.examples import SAMPLES, observed, sample

COMMANDS = (BFD_PEERS, INSTANCES, INTERFACES, PEER_GROUPS, ROUTES_IPV4, ROUTES_IPV6, SUMMARY, VNIS)


def test_a_session_carries_the_prefix_counts_of_all_its_families() -> None:
    peer = observed("up").peers["default", "192.168.11.2"]
    assert peer == Peer(64512, "Established", 17, {"ipv4Unicast": 1, "l2VpnEvpn": 2})


def test_a_session_that_is_down_has_no_uptime_although_frr_gives_the_time_since() -> None:
    peer = observed("links_down").peers["default", "192.168.11.2"]
    assert (peer.state, peer.uptime_seconds) == ("Idle", 0)


def test_sessions_in_a_vrf_are_kept_apart_by_vrf() -> None:
    assert ("red", "192.170.10.2") in observed("up").peers
    assert ("default", "192.170.10.2") not in observed("up").peers


def test_a_peer_from_a_listen_range_is_dynamic_and_the_range_is_listed() -> None:
    seen = observed("dynamic_peer")
    assert seen.peers["default", "172.31.0.9"].dynamic
    assert not seen.peers["default", "192.168.11.2"].dynamic
    assert seen.listen_ranges == {"172.31.0.0/24"}


def test_l2_and_l3_vnis_are_read_although_frr_names_their_members_differently() -> None:
    assert observed("up").vnis == {
        100: Vni("L3", "red", "vni100", "br-pe-100", up=True),
        110: Vni("L2", "red", "vni110", "br-pe-110", remote_vteps=1),
        111: Vni("L2", "default", "vni111", "br-pe-111", remote_vteps=1),
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


def test_every_sample_can_be_read() -> None:
    names = [path.stem for path in SAMPLES.glob("*.json")]
    assert len(names) == 11
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


@given(st.sampled_from(["up", "dynamic_peer", "links_down"]), st.data())
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
