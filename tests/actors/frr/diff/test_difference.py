"""What counts as a difference between intent and running configuration, and whose fault it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.frr.diff.difference import (
    KNOWN_BLOCKS,
    _KnownBlocks,
    _parse_block,
    difference,
    intended,
    lacking,
    parse,
    part,
    show,
)
from actors.frr.render.render import render
from config.desired import Bfd, DesiredRawFRR, EndpointKind, Secret
from config.problems import Kind

from ..cases import CASES, GUARDED, HOSTNAME, PASSTHROUGH, l3vni, neighbor, raw, state, underlay

UNICAST = ("router bgp 64514 vrf red", "address-family ipv4 unicast")
RED_EVPN = ("router bgp 64514 vrf red", "address-family l2vpn evpn")
DEFAULT = ("router bgp 64514",)
#: Generated lines of which FRR keeps more than one on a subject.
ADORNED = state(
    underlay=underlay(
        neighbor(hold_time=9, keepalive_time=3, connect_time=7, bfd=Bfd(100), extended_nexthop=True),
        neighbor("10.9.0.0/16", endpoint_kind=EndpointKind.LISTEN_RANGE),
    ),
    l3vnis=(l3vni(host=GUARDED, import_rts=("64514:100",), export_rts=("64514:100",)),),
)

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


def test_an_empty_vrf_stanza_is_no_difference_and_a_vni_in_it_is() -> None:
    rendered = render(CASES["basic"], hostname=HOSTNAME)
    assert not difference(intended(rendered), parse(rendered.text + "vrf gone\nexit-vrf\n"))
    assert difference(intended(rendered), parse(rendered.text + "vrf gone\n vni 9\nexit-vrf\n"))


MAP = "route-map M permit 1\n match tag 5\n set community 1:1\nexit\n"


@pytest.mark.parametrize(
    ("bgpd", "mgmtd", "expected"), [
        (MAP, MAP, []),
        ("", MAP, ["route-map M permit 1", "match tag 5", "set community 1:1"]),
        (MAP, "", ["route-map M permit 1", "match tag 5", "set community 1:1"]),
        # Each has lines that the other does not take, and some that it lacks.
        (MAP, "route-map M permit 1\n match tag 5\n set src 10.0.0.1\nexit\n", []),
        (MAP, "route-map M permit 1\n set src 10.0.0.1\nexit\n", ["match tag 5"]),
        ("ip prefix-list P seq 5 deny any", "", ["ip prefix-list P seq 5 deny any"]),
        ("", "ipv6 access-list A seq 5 deny any", ["ipv6 access-list A seq 5 deny any"]),
        ("router bgp 1\nexit\nbgp community-list standard C permit 1:1", "vrf red\n vni 1\nexit-vrf", []),
    ],
)  # fmt: skip
def test_a_policy_counts_as_running_once_both_daemons_show_it(bgpd: str, mgmtd: str, expected: list[str]) -> None:
    text = part("bfdd", "") + part("bgpd", bgpd) + part("mgmtd", mgmtd) + part("zebra", "")
    found = lacking(text)
    assert sorted(line for _, line in found) == sorted(expected)
    assert found <= parse(text)


def test_a_text_without_parts_lacks_nothing() -> None:
    assert not lacking(MAP)
    assert not lacking(part("bgpd", MAP))


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


def test_a_line_belongs_to_the_first_generated_section_that_has_it_and_else_to_the_last_snippet() -> None:
    same = "router bgp 64514\n bgp router-id 10.0.0.1\nexit\nip prefix-list mine seq 5 permit any\n"
    snippets = (raw("first", same), raw("second", same, 10))
    intent = intended(render(state(underlay=underlay(), passthrough=PASSTHROUGH, raw_frr=snippets), hostname=HOSTNAME))
    bgp = ("router bgp 64514",)
    owners = {
        (bgp, bgp[0]): Kind.UNDERLAY,
        (bgp, "bgp router-id 10.0.0.1"): Kind.UNDERLAY,
        (bgp, "neighbor 192.168.11.2 remote-as 64512"): Kind.UNDERLAY,
        (bgp, "neighbor 172.27.10.2 remote-as 64515"): Kind.L3PASSTHROUGH,
        ((*bgp, "address-family ipv4 unicast"), "network 172.27.10.2/32"): Kind.L3PASSTHROUGH,
    }
    sources = {entry: section.source for entry, section in intent.sections.items()}
    assert {entry: sources[entry].resource.kind for entry in owners} == owners  # type: ignore[union-attr]
    assert sources[(), "ip prefix-list mine seq 5 permit any"] == snippets[1]


def in_context(path: tuple[str, ...], line: str) -> DesiredRawFRR:
    return raw("mine", "\n".join([*path, line, *["exit"] * len(path)]))


@pytest.mark.parametrize(
    ("path", "line", "required", "optional"), [
        (UNICAST, "neighbor 172.27.10.2 route-map mine out", "neighbor 172.27.10.2 route-map allowed-in-red in",
         "neighbor 172.27.10.2 route-map allowall out"),
        (UNICAST, "neighbor 172.27.10.2 route-map mine in", "neighbor 172.27.10.2 route-map allowall out",
         "neighbor 172.27.10.2 route-map allowed-in-red in"),
        (DEFAULT, "neighbor 192.168.11.2 timers connect 8", "neighbor 192.168.11.2 timers 3 9",
         "neighbor 192.168.11.2 timers connect 7"),
        (DEFAULT, "neighbor 192.168.11.2 timers 5 15", "neighbor 192.168.11.2 timers connect 7",
         "neighbor 192.168.11.2 timers 3 9"),
        (DEFAULT, "neighbor 192.168.11.2 bfd profile mine", "neighbor 192.168.11.2 bfd",
         "neighbor 192.168.11.2 bfd profile neighbor-192.168.11.2"),
        (DEFAULT, "neighbor 192.168.11.2 bfd check-control-plane-failure", "neighbor 192.168.11.2 bfd", ""),
        (DEFAULT, "neighbor 192.168.11.2 capability dynamic", "neighbor 192.168.11.2 capability extended-nexthop", ""),
        (DEFAULT, "bgp default local-preference 200", "no bgp default ipv4-unicast", ""),
        (DEFAULT, "bgp default ipv4-unicast", "", "no bgp default ipv4-unicast"),
        (DEFAULT, "bgp listen range 10.7.0.0/24 peer-group mine",
         "bgp listen range 10.9.0.0/16 peer-group 10.9.0.0/16", ""),
        (RED_EVPN, "route-target import 1:1", "route-target import 64514:100", ""),
        (RED_EVPN, "route-target export 1:1", "route-target export 64514:100", ""),
        ((), "ip prefix-list allowed-in-red seq 99 permit 10.9.0.0/16",
         "ip prefix-list allowed-in-red seq 5 permit 10.0.0.0/8 le 32", ""),
        ((), "ip prefix-list allowed-in-red seq 5 permit 10.9.0.0/16", "",
         "ip prefix-list allowed-in-red seq 5 permit 10.0.0.0/8 le 32"),
        (("route-map allowed-in-red permit 1",), "match ip next-hop prefix-list mine",
         "match ip address prefix-list allowed-in-red", ""),
    ],
)  # fmt: skip
def test_a_snippets_line_makes_optional_only_what_it_takes_the_place_of(
    path: tuple[str, ...], line: str, required: str, optional: str
) -> None:
    intent = intended(render(replace(ADORNED, raw_frr=(in_context(path, line),)), hostname=HOSTNAME))
    assert not required or (path, required) in intent.required
    assert not optional or (path, optional) in intent.optional


def test_a_negated_subject_makes_all_of_its_lines_optional() -> None:
    snippet = in_context(DEFAULT, "no neighbor 192.168.11.2 bfd")
    intent = intended(render(replace(ADORNED, raw_frr=(snippet,)), hostname=HOSTNAME))
    assert (DEFAULT, "neighbor 192.168.11.2 bfd profile neighbor-192.168.11.2") in intent.optional
    assert not {(path, text) for path, text in intent.required if text.startswith("neighbor 192.168.11.2 bfd")}


def test_differences_are_printable_and_never_show_a_secret() -> None:
    rendered = render(state(underlay=underlay(neighbor(password=Secret("topsecret")))), hostname=HOSTNAME)
    found = difference(intended(rendered), parse("router bgp 64514\n neighbor 192.168.11.2 password other\nexit\n"))
    text = f"{found} {found!r} {found.summary()} {[show(entry) for entry in found.missing]}"
    assert "password ********" in text
    assert "topsecret" not in text
    assert "other" not in text
    assert found.summary(1).endswith("more")


_ANY_LINES = st.lists(
    st.sampled_from(
        ["vrf red", " vni 100", "exit-vrf", "router bgp 1 vrf red", " neighbor 10.0.0.1 remote-as 2", "exit", " exit",
         " address-family ipv4 unicast", "  network 10.0.0.0/8", " exit-address-family", "!", "end", "log syslog",
         "address-family l2vpn evpn", "exit-address-family", "route-map a permit 1", " exiting", "interface x vrf y"]
    ),
    max_size=30,
)  # fmt: skip


@given(texts=st.lists(_ANY_LINES, min_size=1, max_size=4), turn=st.booleans())
def test_known_blocks_change_nothing(texts: list[list[str]], turn: bool) -> None:
    for lines in texts:
        text = "".join(f"{line}\n" for line in lines)
        assert parse(text) == _parse_block(text)[0]
        if turn:
            KNOWN_BLOCKS.turn()


def test_a_block_that_is_in_no_text_any_more_is_forgotten() -> None:
    known = _KnownBlocks()
    kept, gone = "vrf kept\n vni 1\nexit-vrf\n", "vrf gone\n vni 2\nexit-vrf\n"
    first = {text: known.read(text) for text in (kept, gone)}
    known.turn()
    assert known.read(kept) is first[kept]
    known.turn()
    assert known.read(kept) is first[kept]
    assert known.read(gone) is not first[gone]
    assert known.read(gone) == (first[gone])


def test_a_pass_that_reads_no_text_forgets_none() -> None:
    known = _KnownBlocks()
    block = "vrf kept\n vni 1\nexit-vrf\n"
    first = known.read(block)
    for _ in range(3):
        known.turn()
    assert known.read(block) is first
