"""What goes before a reload, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from actors.frr.diff.commands import Pass, additions, corrections, passes, residue
from actors.frr.diff.difference import Difference, difference, intended, parse
from actors.frr.render.render import render
from config.desired import DesiredState, Secret

from ..cases import CASES, HOSTNAME, RED, l2vni, l3vni, neighbor, state, underlay


def steps(before: DesiredState, after: DesiredState) -> list[str]:
    return [step.commands for step in _passes(before, after)]


def _passes(before: DesiredState, after: DesiredState) -> list[Pass]:
    running = parse(render(before, hostname=HOSTNAME).text)
    return passes(difference(intended(render(after, hostname=HOSTNAME)), running), running)


def test_an_addition_removes_nothing() -> None:
    assert steps(CASES["empty"], CASES["several_neighbors"]) == []


def test_a_changed_vni_is_taken_out_first_and_the_instance_stays() -> None:
    assert steps(CASES["basic"], state(underlay=underlay(), l3vnis=(l3vni(vni=101, host=RED.session),))) == [
        "vrf red\nno vni 100\nexit-vrf\n"
    ]


def test_a_vrfs_vni_is_removed_first_and_then_its_instance() -> None:
    first, second = _passes(CASES["two_l3vnis"], CASES["basic"])
    assert first.commands == "vrf blue\nno vni 200\nexit-vrf\n"
    assert first.gone == {(("vrf blue",), "vni 200")}
    assert second.commands == "no router bgp 64520 vrf blue\n"
    assert second.gone == {(("router bgp 64520 vrf blue",), "router bgp 64520 vrf blue")}


def test_another_asn_of_the_default_instance_takes_all_instances_down_before_it() -> None:
    assert steps(CASES["basic"], state(underlay=underlay(asn=64600), l3vnis=(RED,))) == [
        "vrf red\nno vni 100\nexit-vrf\n",
        "no router bgp 64514 vrf red\n",
        "no router bgp 64514\n",
    ]


def test_another_asn_of_a_vrfs_instance_takes_its_unchanged_vni_out_too() -> None:
    assert steps(CASES["basic"], state(underlay=underlay(), l3vnis=(l3vni(asn=64999, host=RED.session),))) == [
        "vrf red\nno vni 100\nexit-vrf\n",
        "no router bgp 64514 vrf red\n",
    ]


def test_passwords_are_replaced_or_removed_before_anything_else() -> None:
    def locked(word: str) -> DesiredState:
        return state(underlay=underlay(neighbor(password=Secret(word))))

    bgp = "router bgp 64514\n{}\nexit\n"
    assert steps(locked("old"), locked("new")) == [bgp.format("neighbor 192.168.11.2 password new")]
    assert steps(locked("old"), state(underlay=underlay())) == [bgp.format("no neighbor 192.168.11.2 password")]
    assert "old" not in repr(_passes(locked("old"), locked("new")))


def test_only_empty_vrfs_absent_from_the_intent_are_residue() -> None:
    rendered = render(CASES["basic"], hostname=HOSTNAME)
    text = rendered.text + "vrf gone\nexit-vrf\nvrf used\n ip route 10.0.0.0/8 blackhole\nexit-vrf\n"
    assert residue(text, difference(intended(rendered), parse(text)), intended(rendered)) == ["gone"]
    assert residue("vrf red\nexit-vrf\n", difference(intended(rendered), frozenset()), intended(rendered)) == []


def corrected(before: str, after: DesiredState, *, thorough: bool = False) -> str:
    return corrections(difference(intended(render(after, hostname=HOSTNAME)), parse(before)), thorough=thorough)


def basic_with(old: str, new: str) -> str:
    text = render(CASES["basic"], hostname=HOSTNAME).text
    assert old in text
    return text.replace(old, new, 1)


def test_an_unwanted_line_is_negated_in_its_context() -> None:
    before = basic_with("  advertise-all-vni\n", "  advertise-all-vni\n  advertise-default-gw\n")
    assert corrected(before, CASES["basic"]) == (
        "router bgp 64514\naddress-family l2vpn evpn\nno advertise-default-gw\nexit\nexit\n"
    )


def test_an_unwanted_negation_is_taken_back() -> None:
    assert (
        corrected(basic_with("!", "no ip nht resolve-via-default\n!"), CASES["basic"]) == "ip nht resolve-via-default\n"
    )


def test_an_unwanted_context_is_removed_whole_without_its_lines() -> None:
    before = basic_with("!", "!\nroute-map odd permit 5\n match metric 1\nexit\n!")
    assert corrected(before, CASES["basic"]) == "no route-map odd permit 5\n"


def test_a_line_with_a_successor_is_removed_only_when_thorough() -> None:
    before = basic_with("remote-as 64512", "remote-as 64999")
    assert corrected(before, CASES["basic"]) == ""
    assert "no neighbor 192.168.11.2 remote-as 64999" in corrected(before, CASES["basic"], thorough=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rd 10.0.0.1:100", "rd 10.0.0.1:200"),
        ("bgp router-id 10.0.0.1", "bgp router-id 10.0.0.2"),
        ("bgp graceful-restart restart-time 7", "bgp graceful-restart restart-time 8"),
    ],
)
def test_a_value_is_replaced_and_never_absent(old: str, new: str) -> None:
    path = ("router bgp 64514",)
    assert corrections(Difference(missing=((path, new),), extra=((path, old),)), thorough=False) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bgp graceful-restart stalepath-time 180", "bgp graceful-restart restart-time 7"),
        ("bgp listen range fd00:2::/64 peer-group a", "bgp listen range 10.0.0.0/24 peer-group b"),
        ("bgp listen limit 9", "bgp listen range 10.0.0.0/24 peer-group b"),
        ("route-target import 1:1", "route-target import 1:2"),
    ],
)
def test_a_line_that_another_does_not_replace_is_removed(old: str, new: str) -> None:
    path = ("router bgp 64514",)
    found = Difference(missing=((path, new),), extra=((path, old),))
    assert corrections(found, thorough=False) == f"router bgp 64514\nno {old}\nexit\n"


def test_only_missing_lines_are_added_in_the_order_of_the_text() -> None:
    rendered = render(CASES["basic"], hostname=HOSTNAME)
    bgp = ("router bgp 64514",)
    missing = [
        (bgp, "neighbor 192.168.11.2 remote-as 64512"),
        ((*bgp, "address-family l2vpn evpn"), "advertise-all-vni"),
    ]
    assert additions(rendered.text, reversed(missing)) == (
        "router bgp 64514\nneighbor 192.168.11.2 remote-as 64512\nexit\n"
        "router bgp 64514\naddress-family l2vpn evpn\nadvertise-all-vni\nexit\nexit\n"
    )


def added_to_red(*missing: str, export_rts: tuple[str, ...] = (), asn: int = 64514) -> list[str]:
    """Return what is sent inside the EVPN family of VRF red, whose VNI is 100."""
    rendered = render(state(underlay=underlay(), l3vnis=(l3vni(export_rts=export_rts, asn=asn),)), hostname=HOSTNAME)
    path = (f"router bgp {asn} vrf red", "address-family l2vpn evpn")
    sent = additions(rendered.text, [(path, line) for line in missing]).splitlines()
    return [line for line in sent if line not in (*path, "exit")]


def test_a_route_distinguisher_replaces_another_since_frr_ignores_one_that_it_has_derived() -> None:
    assert added_to_red("rd 10.0.0.1:100") == ["rd 0:0", "rd 10.0.0.1:100"]


@pytest.mark.parametrize(("asn", "derived"), [(64514, "64514:100"), (64514 + 65536, "64514:100")])
def test_the_route_target_that_frr_derives_is_added_beside_another(asn: int, derived: str) -> None:
    line = f"route-target export {derived}"
    sent = ["route-target export 0:0", line, "no route-target export 0:0"]
    assert added_to_red(line, export_rts=(derived,), asn=asn) == sent
    assert added_to_red(line, export_rts=(derived, "0:0"), asn=asn) == sent[:2]


def test_the_derived_route_target_is_added_again_after_each_other_one() -> None:
    targets = ("64514:100", "64514:7")
    other, derived = "route-target export 64514:7", "route-target export 64514:100"
    assert added_to_red(other, export_rts=targets) == [other, derived]
    assert added_to_red(other, export_rts=targets[1:]) == [other]


@pytest.mark.parametrize("asn", [64514, 64514 + 65536])
def test_the_route_target_that_frr_derives_of_a_segment_is_added_as_in_a_vrf(asn: int) -> None:
    derived, other = "route-target import 64514:210", "route-target import 64514:7"
    segment = replace(l2vni(210, None, ()), import_rts=("64514:210", "64514:7"), rd="10.0.0.1:210")
    text = render(state(underlay=underlay(asn=asn), l2vnis=(segment,)), hostname=HOSTNAME).text
    path = (f"router bgp {asn}", "address-family l2vpn evpn", "vni 210")

    def sent(*missing: str) -> list[str]:
        commands = additions(text, [(path, line) for line in missing]).splitlines()
        return [line for line in commands if line not in (*path, "exit")]

    assert sent(derived) == ["route-target import 0:0", derived, "no route-target import 0:0"]
    assert sent(other) == [other, derived]
    assert sent("rd 10.0.0.1:210") == ["rd 0:0", "rd 10.0.0.1:210"]


def test_a_segment_without_values_of_its_own_goes_as_a_whole_and_one_that_loses_some_keeps_the_rest() -> None:
    """``no vni`` has FRR derive all of them again."""
    segment = replace(l2vni(210, None, ()), import_rts=("64514:1", "64514:2"), rd="10.0.0.1:210")
    running = parse(render(state(underlay=underlay(), l2vnis=(segment,)), hostname=HOSTNAME).text)

    def removed(**fields: Any) -> str:
        now = state(underlay=underlay(), l2vnis=(replace(segment, **fields),))
        return corrections(difference(intended(render(now, hostname=HOSTNAME)), running), thorough=False)

    inside = "router bgp 64514\naddress-family l2vpn evpn\n"
    assert removed(import_rts=(), rd=None) == f"{inside}no vni 210\nexit\nexit\n"
    one = f"{inside}vni 210\nno route-target import 64514:2\nexit\nexit\nexit\n"
    assert removed(import_rts=("64514:1",)) == one
    assert "no vni" not in removed(rd=None)


def test_additions_alone_build_the_whole_configuration() -> None:
    for name, desired in CASES.items():
        rendered = render(desired, hostname=HOSTNAME)
        wanted = intended(rendered)
        assert not difference(wanted, parse(additions(rendered.text, wanted.required))).missing, name
