"""What counts as the same form to FRR's grammar, and what has to be checked again."""

from __future__ import annotations

import pytest

from actors.frr.checked_forms import MOST_FORMS, CheckedForms, form
from actors.frr.render.render import Section, Source, render

from .cases import CASES, HOSTNAME, l3vni, raw

RED = l3vni("red", 100)


def section(text: str, source: Source = RED) -> Section:
    return Section(source, text)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("rd 10.0.0.1:100", "rd <ipv4>:000"),
        ("network 10.1.0.0/24", "network <ipv4>/"),
        ("network 2001:db8::/64", "network <ipv6>/"),
        ("neighbor fe80::1 remote-as 64515", "neighbor <ipv6> remote-as 00000"),
        ("route-target export 64514:100", "route-target export 00000:000"),
        ("vrf red", "vrf <vrf>"),
        ("route-map allowed-in-red in", "route-map <policy> in"),
        # A word is a value as a whole, or stays as it is.
        ("neighbor 10.0.0.1 password r3d:red", "neighbor <ipv4> password r3d:red"),
        ("hostname node1", "hostname node1"),
        ("neighbor eth1 interface", "neighbor eth1 interface"),
    ],
)
def test_values_are_replaced_by_their_kinds(text: str, kinds: str) -> None:
    assert form(section(f" {text}\nexit\n")) == f" {kinds}\nexit\n"


@pytest.mark.parametrize(
    "other",
    [" network 10.1.0.0\n", " network 2001:db8::/24\n", " network 10.1.0.0/24 route-map x\n", "network 10.1.0.0/24\n"],
)
def test_another_form_is_checked(other: str) -> None:
    forms = CheckedForms()
    forms.learn([section(" network 10.0.0.0/8\n")])
    assert forms.unchecked([section(" network 10.1.0.0/24\n")]) == ()
    assert forms.unchecked([section(other)]) == (section(other),)


def test_a_number_with_more_digits_is_checked() -> None:
    forms = CheckedForms()
    forms.learn([section("vni 999\n")])
    assert forms.unchecked([section("vni 100\n"), section("vni 1000\n")]) == (section("vni 1000\n"),)


def test_a_snippet_is_always_checked() -> None:
    snippet = section("ip prefix-list p seq 5 permit any\n", raw("a", "ip prefix-list p seq 5 permit any"))
    forms = CheckedForms()
    forms.learn([snippet])
    assert forms.unchecked([snippet]) == (snippet,)


def test_what_is_remembered_has_a_limit() -> None:
    forms = CheckedForms()
    for number in range(MOST_FORMS + 1):
        forms.learn([section(f"hostname n{number}\n")])
    assert forms.unchecked([section("hostname n0\n")])
    assert not forms.unchecked([section(f"hostname n{MOST_FORMS}\n")])


@pytest.mark.parametrize("name", CASES)
def test_each_section_of_a_configuration_has_passed_once_it_was_checked(name: str) -> None:
    sections = render(CASES[name], hostname=HOSTNAME).sections
    forms = CheckedForms()
    forms.learn(sections)
    assert all(one.raw for one in forms.unchecked(sections))
