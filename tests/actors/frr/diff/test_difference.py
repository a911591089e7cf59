"""What counts as a difference between intent and running configuration, and whose fault it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.frr.diff.difference import blamed, difference, explained, intended, parse, rewritten, show
from actors.frr.render.render import render
from config.desired import Secret

from ..cases import CASES, HOSTNAME, neighbor, raw, state, underlay

HEADER = """\
Building configuration...

Current configuration:
!
frr version 10.3
frr defaults traditional
hostname other
no ip forwarding
no ipv6 forwarding
service integrated-vtysh-config
!
"""


@pytest.mark.parametrize("name", CASES)
def test_what_frr_prints_around_a_configuration_is_no_difference(name: str) -> None:
    rendered = render(CASES[name], hostname=HOSTNAME)
    assert not difference(intended(rendered), parse(f"{HEADER}{rendered.text}end\n"))


@given(st.data())
def test_every_lost_and_every_added_line_is_a_difference(data: st.DataObject) -> None:
    rendered = render(CASES["several_neighbors"], hostname=HOSTNAME)
    intent = intended(rendered)
    lost = data.draw(st.sampled_from(sorted(intent.required)))
    added = (("router bgp 64514",), "neighbor 9.9.9.9 remote-as 9")
    found = difference(intent, (intent.required - {lost}) | {added})
    assert found.missing == (lost,)
    assert found.extra == (added,)
    assert not explained(found, intent)


def test_an_empty_vrf_stanza_is_no_difference_and_a_vni_in_it_is() -> None:
    rendered = render(CASES["basic"], hostname=HOSTNAME)
    assert not difference(intended(rendered), parse(rendered.text + "vrf gone\nexit-vrf\n"))
    assert difference(intended(rendered), parse(rendered.text + "vrf gone\n vni 9\nexit-vrf\n"))


def test_frrs_words_for_defaults_and_levels_are_no_difference() -> None:
    assert parse("log syslog debugging") == parse("log syslog")
    many = "router bgp 1\n neighbor a ebgp-multihop{}\n"
    assert parse(many.format(" 255")) == parse(many.format("")) != parse(many.format(" 4"))
    assert parse("interface a vrf b\n description x\n") == parse("interface a\n description x\n")


def test_what_an_interface_neighbor_does_to_its_interface_is_no_difference() -> None:
    rendered = render(CASES["unnumbered"], hostname=HOSTNAME)
    extra = "interface {}\n ipv6 nd ra-interval 10\n no ipv6 nd suppress-ra\nexit\n"
    assert not difference(intended(rendered), parse(rendered.text + extra.format("toswitch1")))
    assert difference(intended(rendered), parse(rendered.text + extra.format("other")))


def test_turning_off_the_default_route_lookup_is_a_difference() -> None:
    rendered = render(CASES["basic"], hostname=HOSTNAME)
    assert difference(intended(rendered), parse(rendered.text + "no ip nht resolve-via-default\n"))


LOOSE = raw("loose", "ip prefix-list loose permit 10.0.0.0/8")


def test_a_snippets_line_in_other_words_is_explained_and_blamed() -> None:
    rendered = render(state(underlay=underlay(), raw_frr=(LOOSE,)), hostname=HOSTNAME)
    intent = intended(rendered)
    found = difference(intent, parse(rendered.generated + "ip prefix-list loose seq 5 permit 10.0.0.0/8\n"))
    assert list(blamed(found, intent)) == [LOOSE]
    assert explained(found, intent)
    assert rewritten(found, intent)


def test_a_snippets_line_that_is_gone_is_explained_but_not_as_rewritten() -> None:
    rendered = render(state(underlay=underlay(), raw_frr=(LOOSE,)), hostname=HOSTNAME)
    found = difference(intended(rendered), parse(rendered.generated))
    assert explained(found, intended(rendered))
    assert not rewritten(found, intended(rendered))


def test_a_lost_line_of_ours_is_never_explained_by_a_snippet() -> None:
    rendered = render(state(underlay=underlay(), raw_frr=(LOOSE,)), hostname=HOSTNAME)
    intent = intended(rendered)
    running = parse(rendered.text.replace("  advertise-all-vni\n", ""))
    assert not explained(difference(intent, running), intent)


def test_a_snippet_that_repeats_a_generated_line_is_not_blamed_for_it() -> None:
    snippet = raw("same", "router bgp 64514\n bgp router-id 10.0.0.1\nexit")
    intent = intended(render(state(underlay=underlay(), raw_frr=(snippet,)), hostname=HOSTNAME))
    assert not intent.snippets


def test_differences_are_printable_and_never_show_a_secret() -> None:
    rendered = render(state(underlay=underlay(neighbor(password=Secret("topsecret")))), hostname=HOSTNAME)
    found = difference(intended(rendered), parse("router bgp 64514\n neighbor 192.168.11.2 password other\nexit\n"))
    text = f"{found} {found!r} {found.summary()} {[show(entry) for entry in found.missing]}"
    assert "password ********" in text
    assert "topsecret" not in text
    assert "other" not in text
    assert found.summary(1).endswith("more")
