"""From resources to the desired state: numbers, order, and isolation of failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from config.desired import DesiredRawFRR, HostMasterKind, Secret
from config.outcomes import NodeIdentity
from config.problems import Kind, errors
from config.resolve.ipam import session_addresses
from config.resolve.resolution import Resolution, resolve
from config.resources import Resource
from config.sources.static_files import read_directory
from config.store.last_good import LastGood

from ..samples import (
    NODE,
    RED_FILE,
    UNDERLAY_FILE,
    in_force,
    l2vni,
    l3vni,
    make,
    messages_about,
    neighbor,
    passthrough,
    raw,
    session,
    solve,
    underlay,
    unusable,
)


def test_upstreams_own_sample_resolves_for_the_first_node(tmp_path: Path) -> None:
    (tmp_path / "openpe_underlay.yaml").write_text(UNDERLAY_FILE)
    (tmp_path / "openpe_red.yaml").write_text(RED_FILE)
    read = read_directory(tmp_path, "node", LastGood())
    assert read.problems == ()
    resolution = resolve(read.resources, NODE)
    assert resolution.problems == ()
    state = resolution.desired
    assert state is not None
    assert (state.node_name, state.node_index) == ("node", 0)
    fabric = state.underlay
    assert fabric is not None
    assert (fabric.asn, fabric.interfaces, fabric.router_id) == (64514, ("toswitch1",), IPv4Address("10.0.0.1"))
    assert [str(vtep) for vtep in fabric.vteps] == ["100.65.0.0/32"]
    assert [(one.endpoint, one.remote_as, one.families) for one in fabric.neighbors] == [
        ("192.168.11.2", 64512, ("ipv4unicast", "evpn"))
    ]
    assert fabric.advertise_evpn
    assert fabric.resource.name == "static-node-underlay-0"
    (red,) = state.l3vnis
    assert (red.vrf, red.vni, red.vxlan_port, red.asn, str(red.vtep)) == ("red", 100, 4789, 64514, "100.65.0.0")
    assert red.resource.name == "static-node-red"
    assert red.session is not None
    assert (red.session.remote_as, red.session.ebgp) == (64515, True)
    assert [(str(ends.router), str(ends.host)) for ends in red.session.addresses] == [
        ("172.27.10.1/24", "172.27.10.2/24"),
        ("2001:db9:1::1/64", "2001:db9:1::2/64"),
    ]
    assert str(red.origin) == f"{tmp_path}/openpe_red.yaml:2:5"


def test_without_a_session_the_vrf_has_the_underlays_as() -> None:
    state = solve(
        underlay(asn=65001), l3vni("a", 1), l3vni("b", 2, hostSession=session("10.0.0.0/24", asn=65002))
    ).desired
    assert state is not None
    assert [vni.asn for vni in state.l3vnis] == [65001, 65002]


def test_external_to_the_host_means_another_as_than_the_vrfs() -> None:
    """The host's AS equals the underlay's, which says nothing about the VRF's own instance."""
    fields = session("10.0.0.0/24", asn=65002, hostASN=65001)
    state = solve(underlay(asn=65001), l3vni("a", 1, hostSession=fields)).desired
    assert state is not None
    assert state.l3vnis[0].session is not None
    assert state.l3vnis[0].session.ebgp


def test_gateways_of_all_segments_of_a_vrf_are_merged_masked_and_sorted() -> None:
    state = solve(
        underlay(), l3vni("red", 1), l3vni("blue", 2),
        l2vni("x", 11, "red", gatewayIPs=["10.2.0.1/24", "2001:db8::1/64"]),
        l2vni("y", 12, "red", gatewayIPs=["10.1.0.1/24"]), l2vni("z", 13, "blue", gatewayIPs=["10.1.0.1/24"]),
    ).desired  # fmt: skip
    assert state is not None
    assert {vni.vrf: vni.gateway_networks for vni in state.l3vnis} == {
        "red": ("10.1.0.0/24", "10.2.0.0/24", "2001:db8::/64"),
        "blue": ("10.1.0.0/24",),
    }


def test_a_segment_keeps_its_gateways_as_addresses_ipv4_first() -> None:
    state = solve(
        underlay(), l3vni("red", 1), l2vni("x", 2, "red", gatewayIPs=["2001:db8::9/64", "10.2.0.9/24"])
    ).desired
    assert state is not None
    assert [str(gateway) for gateway in state.l2vnis[0].gateways] == ["10.2.0.9/24", "2001:db8::9/64"]


def test_host_masters_are_named() -> None:
    def master(**linux: str) -> dict[str, Any]:
        return {"hostMaster": {"type": "LinuxBridge", "linuxBridge": linux}}

    state = solve(
        underlay(), l2vni("a", 1), l2vni("b", 2, **master(lifecycle="Managed")),
        l2vni("c", 3, **master(lifecycle="External", name="br0")),
    ).desired  # fmt: skip
    assert state is not None
    assert [(vni.host_master, vni.bridge) for vni in state.l2vnis] == [
        (HostMasterKind.NONE, None),
        (HostMasterKind.MANAGED_BRIDGE, "br-hs-2"),
        (HostMasterKind.EXTERNAL_BRIDGE, "br0"),
    ]


def test_raw_snippets_come_by_priority() -> None:
    state = solve(raw("a", "late", 5), raw("b", "early", 1), raw("c", "also late", 5)).desired
    assert state is not None
    assert [snippet.text for snippet in state.raw_frr] == ["early", "late", "also late"]


def test_a_snippet_that_leaves_configuration_mode_is_refused_alone() -> None:
    resolution = solve(raw("a", "ip route 192.0.2.0/24 reject\nqui\ncopy /etc/shadow running-config"), raw("b", "good"))
    assert resolution.desired is not None
    assert [snippet.text for snippet in resolution.desired.raw_frr] == ["good"]
    (problem,) = errors(resolution.problems)
    assert (problem.resource and problem.resource.name, problem.field) == ("a", "rawConfig")
    assert problem.message.startswith("line 2: 'qui', which FRR may take for 'quit',")
    assert "shadow" not in str(problem)


def test_evpn_is_advertised_for_a_tunnel_endpoint_or_an_evpn_neighbour() -> None:
    def advertises(**fields: Any) -> bool:
        state = solve(underlay(**fields)).desired
        assert state is not None
        assert state.underlay is not None
        return state.underlay.advertise_evpn

    assert advertises()
    assert not advertises(tunnelEndpoint=None)
    assert advertises(tunnelEndpoint=None, neighbors=[neighbor(addressFamilies=[{"type": "evpn"}])])


def test_graceful_restart_is_resolved() -> None:
    state = solve(underlay(gracefulRestart={"restartTimeSeconds": 60})).desired
    assert state is not None
    assert state.underlay is not None
    assert state.underlay.graceful_restart is not None
    assert (state.underlay.graceful_restart.restart_time, state.underlay.graceful_restart.stale_path_time) == (60, 360)


_VNIS = st.integers(1, 6)
_POOLS = st.sampled_from([None, "10.0.0.0/24", "10.0.0.0/16", "10.1.0.0/24", "10.2.0.0/30"])
_FAMILIES = st.sampled_from([{}, {"underlayAddressFamily": "IPv6"}])
_GATEWAYS = st.sampled_from([[], ["10.0.0.1/24"], ["10.7.0.1/24"], ["10.8.0.1/24"]])


@st.composite
def _l3vnis(draw: st.DrawFn) -> Resource:
    pool = draw(_POOLS)
    fields = draw(_FAMILIES) | ({"hostSession": session(pool)} if pool else {})
    return make(
        Kind.L3VNI, draw(st.sampled_from("abcdef")), {"vrf": draw(st.sampled_from("rst")), "vni": draw(_VNIS)} | fields
    )


@st.composite
def _l2vnis(draw: st.DrawFn) -> Resource:
    domain = draw(st.sampled_from([None, *"abcdef"]))
    fields = {"gatewayIPs": draw(_GATEWAYS)} if domain else {}
    return l2vni(draw(st.sampled_from("abcdef")), draw(_VNIS), domain, **fields)


def _unique(resources: list[Resource]) -> list[Resource]:
    return list({(resource.kind, resource.name): resource for resource in resources}.values())


_SETS = st.lists(st.one_of(_l3vnis(), _l2vnis(), st.just(passthrough(ipv4="10.2.0.0/24"))), max_size=9).map(_unique)


@given(_SETS, st.randoms(use_true_random=False))
def test_the_order_of_resources_means_nothing(resources: list[Resource], random: Any) -> None:
    shuffled = [underlay(), *resources]
    random.shuffle(shuffled)
    assert resolve(shuffled, NODE) == resolve([underlay(), *resources], NODE)


@given(_SETS, st.sampled_from([Kind.L3VNI, Kind.L2VNI, Kind.L3PASSTHROUGH, Kind.RAW_FRR_CONFIG]), st.sampled_from("am"))
def test_an_invalid_resource_changes_nothing_for_others(resources: list[Resource], kind: Kind, name: str) -> None:
    others = [resource for resource in resources if not (resource.kind is kind and resource.name == name)]
    without = solve(underlay(), *others)
    beside = solve(underlay(), *others, unusable(kind, name))
    assert _overlays(beside) == _overlays(without)
    # A segment of an invalid network is refused as that of a missing one is, with another message.
    refused = [[(one.resource, one.field, one.reason) for one in found.problems] for found in (beside, without)]
    assert refused[0] == refused[1]


@given(_SETS)
def test_a_refused_resource_blocks_no_other(resources: list[Resource]) -> None:
    resolution = solve(underlay(), *resources)
    for problem in errors(resolution.problems):
        rest = [one for one in resources if one.id != problem.resource]
        assert in_force(resolution) <= in_force(solve(underlay(), *rest))
        assert _overlays(solve(underlay(), *rest)) == _overlays(resolution)


def _overlays(resolution: Resolution) -> tuple[object, ...]:
    state = resolution.desired
    assert state is not None
    return state.l3vnis, state.l2vnis, state.passthrough


def _texts(value: object) -> Iterator[str]:
    """Yield every text inside a desired state, but for raw snippets, which are verbatim."""
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list | frozenset):
        for item in value:
            yield from _texts(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, DesiredRawFRR):
        for field in dataclasses.fields(value):
            if field.name not in ("problems", "origin"):
                yield from _texts(getattr(value, field.name))


_WORDS = st.text(alphabet="ab1.:/ \n\r\t!\u2028-_%", max_size=12)


@settings(max_examples=300)
@given(
    st.sampled_from(["vrf", "exportRTs", "interface", "address", "listenRange", "password", "nic", "bridge"]), _WORDS
)
def test_no_token_of_a_desired_state_can_break_a_line(place: str, word: str) -> None:
    resources = [underlay()]
    try:
        match place:
            case "vrf":
                resources.append(l3vni("red", 1, vrf=word))
            case "exportRTs":
                resources.append(l3vni("red", 1, exportRTs=[word]))
            case "bridge":
                bridge = {"lifecycle": "External", "name": word}
                resources.append(l2vni("l2", 1, hostMaster={"type": "LinuxBridge", "linuxBridge": bridge}))
            case "nic":
                device = {"type": "NetworkDevice", "networkDevice": {"interfaceName": word}}
                resources = [underlay(interfaces=[device])]
            case "password":
                resources = [underlay(neighbors=[neighbor(password=word)])]
            case _:
                resources = [underlay(neighbors=[{"asn": 1, place: word}])]
    except ValueError:
        return
    state = resolve(resources, NODE).desired
    assert state is not None
    secrets = word if place == "password" else ""
    for text in _texts(state):
        assert text.isprintable()
        assert not any(character.isspace() for character in text)
        assert "!" not in text or text == secrets


def test_names_in_problems_are_those_of_resources() -> None:
    resolution = solve(underlay(), l3vni("a", 1), l3vni("b", 1), node=NodeIdentity("node", 2))
    assert messages_about(resolution, "b").startswith("VNI 1 is also used by")
    assert errors(resolution.problems)[0].kind is Kind.L3VNI


def test_addresses_of_networks_that_are_gone_are_not_kept_for_long() -> None:
    def resolved(first: int) -> int:
        networks = [
            l3vni(f"x{number}", number, hostSession=session(ipv4=f"10.{number >> 8}.{number & 255}.0/24"))
            for number in range(first, first + 10)
        ]
        state = solve(underlay(), *networks).desired
        assert state is not None
        return len(state.l3vnis)

    session_addresses.cache_clear()
    for change in range(1, 700):
        assert resolved(change) == 10
        assert session_addresses.cache_info().currsize <= 100 + 3 * 11
    misses = session_addresses.cache_info().misses
    assert resolved(699) == 10
    assert session_addresses.cache_info().misses == misses
