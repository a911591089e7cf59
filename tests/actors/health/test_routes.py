"""Which faults of a VNI are seen in FRR's own state, on answers of the real one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.health.frr_json import EvpnRoute, NextHop, Observation, Routes
from actors.health.routes import VniFault, announced_networks
from actors.health.vnis import faults_of
from config.desired import DesiredRawFRR, DesiredState
from config.problems import Kind, Origin, ResourceId
from tests.actors.health.examples import BLUE_L2, RED, RED_L2, fabric, observed

NONE: frozenset[ResourceId] = frozenset()
TARGET = frozenset({"64512:100"})
MAC = "02:00:00:00:41:01"


def faults(seen: Observation, state: DesiredState | None = None) -> dict[ResourceId, VniFault]:
    return faults_of(state or fabric(), NONE, seen)


def routes(seen: Observation) -> Routes:
    assert seen.evpn is not None
    return seen.evpn


@pytest.mark.parametrize("sample", ["fabric_up", "fabric_no_peer", "fabric_bounced"])
def test_a_vni_that_works_has_no_fault_whether_or_not_there_is_a_peer(sample: str) -> None:
    assert faults(observed(sample)) == {}


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("fabric_vxlan_down", {RED: "down: vni100 is down", RED_L2: "down: vni110 is down"}),
        (
            "fabric_no_bridge",
            {
                RED_L2: "vni110 is in no bridge",
                BLUE_L2: "zebra has the tunnel endpoint 100.65.0.9, not 100.65.0.1",
            },
        ),
        (
            "fabric_not_announced",
            dict.fromkeys((RED, RED_L2, BLUE_L2), "bgpd announces no VNI: advertise-all-vni is missing"),
        ),
        ("fabric_bridge_outside", {RED: "bridge br-pe-100 is in VRF default, not in red"}),
        ("fabric_leak", {RED: "its route 172.27.10.2/32 is in the default VRF"}),
    ],
)
def test_a_fault_of_the_kernel_or_the_configuration_is_named_and_not_bounced(
    sample: str, expected: dict[ResourceId, str]
) -> None:
    found = faults(observed(sample))
    assert {resource: fault.text for resource, fault in found.items()} == expected
    assert not any(fault.in_frr for fault in found.values())


@pytest.mark.parametrize("sample", ["fabric_stale_bridge", "fabric_stale_vxlan", "fabric_bridge_back"])
def test_a_route_that_frr_only_shows_to_be_in_the_kernel_is_found_and_bounced(sample: str) -> None:
    text = "the route to 10.50.0.0/24 is not in the kernel, although zebra shows it as installed"
    assert faults(observed(sample)) == {RED: VniFault(text, in_frr=True, passing=True)}


@pytest.mark.parametrize("shown", [1, 0])
def test_a_next_hop_that_two_sessions_bring_is_in_the_kernel_once(shown: int) -> None:
    """zebra 10.3 may take either of them for installed, or one of another tunnel endpoint."""
    seen = observed("fabric_up")

    def twice(found: tuple[NextHop, ...]) -> tuple[NextHop, ...]:
        return tuple(replace(hop, installed=number == shown) for hop in found for number in range(2))

    tables = routes(seen).zebra
    zebra = {vrf: {prefix: twice(found) for prefix, found in table.items()} for vrf, table in tables.items()}
    assert zebra["red"]["10.50.0.0/24"]
    assert faults(replace(seen, evpn=replace(routes(seen), zebra=zebra))) == {}


def shown(*found: NextHop) -> dict[ResourceId, VniFault]:
    """Return the faults of a fabric whose VRF has one route with these next hops."""
    seen = observed("fabric_up")
    table = routes(seen).zebra | {"red": {"10.50.0.0/24": found}}
    return faults(replace(seen, evpn=replace(routes(seen), zebra=table)))


def test_a_route_that_was_lost_while_two_sessions_bring_it_is_bounced() -> None:
    """zebra shows the first next hop as before, and the second as not active."""
    hop = NextHop("100.64.0.1", "br-pe-100", "", installed=True)
    text = "the route to 10.50.0.0/24 is not in the kernel, although zebra shows it as installed"
    assert shown(hop, replace(hop, installed=False)) == {}
    assert shown(hop, replace(hop, installed=False, lost=True)) == {RED: VniFault(text, in_frr=True, passing=True)}


def test_a_route_that_the_kernel_has_refused_is_named_as_that_and_bounced() -> None:
    """It also refuses one while a device is down, and zebra does not try again."""
    hop = NextHop("100.64.0.1", "br-pe-100", "", installed=False, refused=True)
    text = "the kernel has refused the route to 10.50.0.0/24"
    assert shown(hop) == {RED: VniFault(text, in_frr=True, passing=True)}


def test_a_router_mac_that_differs_between_the_daemons_is_bounced() -> None:
    seen = observed("fabric_up")
    assert seen.bgp_vnis is not None
    stale = replace(seen.bgp_vnis[100], router_mac="02:00:00:00:41:ff")
    found = faults(replace(seen, bgp_vnis={**seen.bgp_vnis, 100: stale}))
    assert found == {RED: VniFault(f"bgpd announces the router MAC 02:00:00:00:41:ff, not {MAC}", in_frr=True)}


def test_an_l3vni_without_a_router_mac_is_bounced() -> None:
    seen = observed("fabric_up")
    without = replace(seen.vnis[100], router_mac="00:00:00:00:00:00")
    found = faults(replace(seen, vnis={**seen.vnis, 100: without}))
    assert found == {RED: VniFault("zebra has no router MAC for it", in_frr=True)}


def test_a_vni_that_only_zebra_has_is_named() -> None:
    seen = observed("fabric_up")
    assert seen.bgp_vnis is not None
    found = faults(replace(seen, bgp_vnis={100: seen.bgp_vnis[100]}))
    assert {fault.text for fault in found.values()} == {"zebra has it, but bgpd has not"}
    assert found.keys() == {RED_L2, BLUE_L2}


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ((), "bgpd announces no type-5 route for 172.27.10.2/32"),
        (
            (EvpnRoute("10.0.0.1:100", "172.27.10.2/32", "100.65.0.1", True, TARGET, "02:00:00:00:41:ff"),),
            f"the type-5 route for 172.27.10.2/32 has the router MAC 02:00:00:00:41:ff, not {MAC}",
        ),
        (
            (EvpnRoute("10.0.0.1:100", "172.27.10.2/32", "100.65.0.9", True, TARGET, MAC),),
            "the type-5 route for 172.27.10.2/32 has the next hop 100.65.0.9, not 100.65.0.1",
        ),
    ],
)
def test_our_own_type_5_routes_are_checked(own: tuple[EvpnRoute, ...], text: str) -> None:
    seen = observed("fabric_up")
    remote = tuple(route for route in routes(seen).type5 if not route.own)
    found = faults(replace(seen, evpn=replace(routes(seen), type5=(*own, *remote))))
    assert found == {RED: VniFault(text, in_frr=True, passing=True)}


def test_a_vrf_with_nothing_to_announce_needs_no_type_5_route() -> None:
    state = fabric()
    silent = replace(state, l3vnis=(replace(state.l3vnis[0], session=None),))
    seen = observed("fabric_up")
    found = faults(replace(seen, evpn=replace(routes(seen), type5=())), silent)
    assert found == {}
    assert announced_networks(replace(state.l3vnis[0], gateway_networks=("10.9.0.0/24",))) == {
        "172.27.10.2/32",
        "10.9.0.0/24",
    }


def test_an_l2vni_without_its_own_type_3_route_is_named() -> None:
    seen = observed("fabric_up")
    kept = tuple(route for route in routes(seen).type3 if route.rd != "10.0.0.1:3")
    assert faults(replace(seen, evpn=replace(routes(seen), type3=kept))) == {
        RED_L2: VniFault("bgpd announces no type-3 route for it", passing=True)
    }


def test_a_tunnel_endpoint_that_zebra_does_not_flood_to_is_named() -> None:
    seen = observed("fabric_up")
    deaf = replace(seen.vnis[111], flooded=frozenset())
    assert faults(replace(seen, vnis={**seen.vnis, 111: deaf})) == {
        BLUE_L2: VniFault("zebra does not flood to 100.64.0.1, which has this VNI", passing=True)
    }


def remote(prefix: str, target: str = "64512:100", mac: str = "02:00:00:00:40:01") -> EvpnRoute:
    return EvpnRoute("10.0.0.200:4", prefix, "100.64.0.1", False, frozenset({target}), mac)


def with_type5(seen: Observation, *more: EvpnRoute) -> Observation:
    return replace(seen, evpn=replace(routes(seen), type5=(*routes(seen).type5, *more)))


def test_a_prefix_of_the_fabric_that_zebra_lacks_is_bounced() -> None:
    seen = with_type5(observed("fabric_up"), remote("10.51.0.0/24"), remote("10.52.0.0/24"))
    text = "zebra lacks the route to 10.51.0.0/24 and others, which the fabric announces"
    assert faults(seen) == {RED: VniFault(text, in_frr=True, passing=True)}


def test_a_prefix_of_another_as_is_imported_by_a_target_that_frr_derives() -> None:
    state, seen = fabric(), with_type5(observed("fabric_up"), remote("10.51.0.0/24"))
    assert seen.bgp_vnis is not None
    seen = replace(
        seen, bgp_vnis=seen.bgp_vnis | {100: replace(seen.bgp_vnis[100], import_rts=frozenset({"64514:100"}))}
    )
    assert faults(seen) == {}
    derived = replace(state, l3vnis=(replace(state.l3vnis[0], import_rts=(), export_rts=()),))
    text = "zebra lacks the route to 10.51.0.0/24, which the fabric announces"
    assert faults(seen, derived) == {RED: VniFault(text, in_frr=True, passing=True)}


@pytest.mark.parametrize(
    "route",
    [
        remote("10.51.0.0/24", target="64512:999"),
        remote("10.51.0.0/24", mac=""),
        remote("172.27.10.2/32"),
    ],
    ids=["not imported", "without a router MAC", "announced by us as well"],
)
def test_a_prefix_that_need_not_be_in_the_vrf_is_no_fault(route: EvpnRoute) -> None:
    assert faults(with_type5(observed("fabric_up"), route)) == {}


def test_a_prefix_to_which_zebra_has_a_better_route_is_no_fault() -> None:
    seen = with_type5(observed("fabric_up"), remote("10.51.0.0/24"))
    table = {**routes(seen).zebra["red"], "10.51.0.0/24": ()}
    assert faults(replace(seen, evpn=replace(routes(seen), zebra={"red": table}))) == {}


def test_a_next_hop_without_a_router_mac_is_bounced() -> None:
    seen = observed("fabric_up")
    assert faults(replace(seen, evpn=replace(routes(seen), next_hops={}))) == {
        RED: VniFault("zebra has no router MAC for the next hop 100.64.0.1", in_frr=True, passing=True)
    }


def test_a_route_to_the_host_is_no_tunnels() -> None:
    seen = observed("fabric_up")
    host = (NextHop("172.27.10.2", "pe-100", "", False),)
    table = {**routes(seen).zebra["red"], "10.60.0.0/24": host}
    assert faults(replace(seen, evpn=replace(routes(seen), zebra={"red": table}))) == {}


def test_what_was_not_read_is_unknown_and_no_fault() -> None:
    assert faults(replace(observed("fabric_stale_bridge"), evpn=None)) == {}


def test_with_raw_snippets_that_may_filter_or_leak_no_route_is_judged() -> None:
    snippet = DesiredRawFRR(
        ResourceId(Kind.RAW_FRR_CONFIG, "x", "raw", "raw"), Origin(), 0, "ip nht resolve-via-default"
    )
    assert faults(observed("fabric_leak"), replace(fabric(), raw_frr=(snippet,))) == {}


def test_a_vni_that_is_left_out_is_not_looked_at() -> None:
    assert faults_of(fabric(), frozenset({RED, RED_L2}), observed("fabric_vxlan_down")) == {}
