"""No snippet leaves configuration mode or names a file, however it is written; what it means otherwise stays."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.syntax.frr_grammar import scan, walk
from config.syntax.frr_snippets import MAX_LINE_BYTES, SnippetError, canonical

#: Contexts in which each command is tried.
CONTEXTS = (
    "", "router bgp 64514\n", "router bgp 64514\n address-family ipv4 unicast\n", "vrf red\n", "interface lo\n",
    "route-map x permit 1\n", "bfd\n profile x\n", "line vty\n", "rpki\n",
)  # fmt: skip
#: Commands that are refused with each of their abbreviations, down to the length that is given.
COMMANDS = {
    "quit": 1, "exit": 1, "end": 1, "copy /etc/shadow running-config": 1, "write memory": 1, "output file /tmp/x": 1,
    "do write memory": 2, "configure terminal": 2, "enable": 1, "disable": 3, "find x": 2, "list": 2, "show version": 2,
    "start-shell": 3, "ping 192.0.2.1": 2, "traceroute 192.0.2.1": 3, "ssh x": 2, "telnet x": 2, "terminal monitor": 2,
    "log file /tmp/x": 2, "log commands": 2, "log stdout": 2, "dump bgp all /tmp/x": 2, "clear bgp *": 2,
    "mgmt save-config running /tmp/x": 2, "mgmt set-config /frr-interface:lib x": 2, "banner motd file /etc/shadow": 2,
    "zebra on-rib-process script x": 2, "netns /run/netns/x": 4, "service integrated-vtysh-config": 3,
    "username x nopassword": 2, "password x": 4, "rpki cache ssh 192.0.2.1 22 x /root/.ssh/id 1 preference 1": 2,
    "XFRR_end_configuration": 3, "match script x": 3,
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_command_that_is_not_for_snippets_is_refused_in_every_context_and_abbreviation(
    command: str, context: str
) -> None:
    first, space, rest = command.partition(" ")
    for before, length in product(("", "no ", "\t ", "   "), range(COMMANDS[command], len(first) + 1)):
        written = f"{context}ip route 192.0.2.0/24 blackhole\n{before}{first[:length]}{space}{rest}\n"
        if first[:length] == "exit" and context and not before.strip():
            continue
        with pytest.raises(SnippetError, match=f"line {context.count(chr(10)) + 2}"):
            canonical(written)


@pytest.mark.parametrize(
    "text",
    ["exit", "vrf red\nexit\nexit", "vrf red\nexit-address-family", "router bgp 1\nexit-vrf", "vrf red\nexit-v",
     "vrf red\nexit vrf", "vrf red\nend", "vrf red\nexit\nexit-vrf"],
)  # fmt: skip
def test_only_what_the_snippet_has_opened_may_be_closed(text: str) -> None:
    with pytest.raises(SnippetError, match=r"line [123]"):
        canonical(text)


@pytest.mark.parametrize(
    "text", ["rou bgp 1", "router-map x", "route bgp 1", "int lo", "vr red", "router bgp 1\n address ipv4 unicast"]
)
def test_what_opens_a_context_is_written_in_full(text: str) -> None:
    if text == "router-map x":
        assert canonical(text) == "router-map x\n"
        return
    with pytest.raises(SnippetError, match="in full"):
        canonical(text)


@pytest.mark.parametrize("character", [chr(code) for code in (*range(9), *range(11, 32), 127, 0x85, 0xA0, 0x2028)])
def test_a_character_that_does_not_print_is_refused(character: str) -> None:
    with pytest.raises(SnippetError, match="line 1 has a character that does not print"):
        canonical(f"description a{character}quit\nip route 192.0.2.0/24 blackhole")


def test_a_line_that_vtysh_reads_as_two_is_refused() -> None:
    longest = "description " + "x" * (MAX_LINE_BYTES - 12)
    assert canonical(longest) == f"{longest}\n"
    for longer in (f"{longest}x", longest[:-1] + "é"):
        with pytest.raises(SnippetError, match="longer than"):
            canonical(longer)


def test_the_message_has_neither_the_line_nor_a_secret() -> None:
    with pytest.raises(SnippetError) as refused:
        canonical("password hush")
    assert str(refused.value) == "line 1: 'password' is about access to FRR's shells, not about routing"


SAMPLE = """\
! a comment; quit
# copy /etc/shadow running-config
router bgp 64514\r
  neighbor 192.0.2.1   remote-as 64512
\taddress-family ipv4 unicast
  neighbor 192.0.2.1 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor 192.0.2.1 activate
vrf red
 ip route 192.0.2.0/24 blackhole
exit-vrf
log syslog errors
no log timestamp
route-map x permit 10
 continue
"""
CANONICAL = """\
router bgp 64514
 neighbor 192.0.2.1 remote-as 64512
 address-family ipv4 unicast
  neighbor 192.0.2.1 activate
 exit
 address-family ipv6 unicast
  neighbor 192.0.2.1 activate
 exit
exit
vrf red
 ip route 192.0.2.0/24 blackhole
exit
log syslog errors
no log timestamp
route-map x permit 10
 continue
exit
"""


def test_the_canonical_form_closes_every_context_and_has_no_comments() -> None:
    assert canonical(SAMPLE) == CANONICAL


@pytest.mark.parametrize(
    "text",
    ["router isis 1\n net 49.0001.0000.0000.0001.00\n segment-routing on\nexit\n",
     "interface lo\n link-params\n  enable\n exit\nexit\n", "router rip\n route 192.0.2.0/24\nexit\n",
     "router isis 1\n flex-algo 128\n exit\nexit\n", "rpki\n rpki cache tcp 192.0.2.1 3323 preference 1\nexit\n",
     "no router bgp 64514\n", "debug bgp updates\n", "bgp as-path access-list a seq 5 permit _65000_|^$\n"],
)  # fmt: skip
def test_configuration_stays_what_it_is(text: str) -> None:
    assert canonical(text) == text


WORDS = st.sampled_from([
    *" \t!#", "route-map a permit 1", "exit", "quit", "end", "no", "do", "router bgp 1", "address-family ipv4 unicast",
    "vrf red", "vni 5", "interface lo", "exit-vrf", "exit-address-family", "x", "description", "write", "log", "file",
])  # fmt: skip
LINES = st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=4).map(" ".join)


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_the_canonical_form_means_the_same_and_returns_to_the_top_level(text: str) -> None:
    try:
        written = canonical(text)
    except SnippetError:
        return
    assert canonical(written) == written
    assert list(scan(written)) == list(scan(text))
    assert [0, *(depth for depth, _ in walk(written))][-1] == 0
