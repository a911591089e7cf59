"""Golden files show every stanza; properties show that no value can become a command and no secret gets out.

``GOLDEN_UPDATE=1 pytest tests/actors/frr/render`` writes the golden files again; read the difference before
committing it. Each of them is loaded into real FRR by ``tests/frr``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.frr.diff.difference import difference, intended, parse
from actors.frr.render.render import UnsafeToken, render, token
from config.desired import EndpointKind, Secret
from config.resolve.ipam import route_distinguisher

from ..cases import CASES, HOSTNAME, l3vni, neighbor, raw, state, underlay

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("name", CASES)
def test_the_configuration_of_each_case_equals_its_golden_file(name: str) -> None:
    golden = GOLDEN / f"{name}.conf"
    text = render(CASES[name], hostname=HOSTNAME).text
    if os.environ.get("GOLDEN_UPDATE"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_there_is_no_golden_file_without_a_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_rendered_configuration_read_back_unchanged_is_no_difference(name: str) -> None:
    rendered = render(CASES[name], hostname=HOSTNAME)
    assert not difference(intended(rendered), parse(rendered.text))


def test_the_listen_limit_can_be_chosen_and_is_absent_at_frrs_default() -> None:
    assert "bgp listen limit 1000\n" in render(CASES["listen_range"], hostname=HOSTNAME, listen_limit=1000).text
    assert "listen limit" not in render(CASES["listen_range"], hostname=HOSTNAME, listen_limit=100).text
    assert "listen limit" not in render(CASES["basic"], hostname=HOSTNAME, listen_limit=1000).text


def test_a_snippet_that_leaves_contexts_open_is_closed_before_the_next_one() -> None:
    desired = state(
        raw_frr=(
            raw("open", "router bgp 1\n address-family ipv4 unicast\n  network 10.0.0.0/8"),
            raw("next", "hostname x"),
        )
    )
    assert "network 10.0.0.0/8\n exit\nexit\n!\n!\nhostname x\n" in render(desired, hostname=HOSTNAME).text


def test_the_redacted_text_differs_only_in_the_secrets() -> None:
    rendered = render(CASES["timers_port_password"], hostname=HOSTNAME)
    assert rendered.text.replace("s3cret|?!#%&", "********") == rendered.redacted != rendered.text


def test_a_secret_in_a_raw_snippet_is_redacted() -> None:
    desired = state(raw_frr=(raw("pw", "router bgp 1\n neighbor 10.0.0.1 password topsecret\nexit"),))
    assert "topsecret" not in render(desired, hostname=HOSTNAME).redacted


def test_parts_of_a_rendered_configuration_do_not_show_themselves() -> None:
    assert "s3cret" not in repr(render(CASES["timers_port_password"], hostname=HOSTNAME))


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(WORDS)
def test_a_token_is_the_value_itself_or_refused(text: str) -> None:
    try:
        assert token(text) == text
    except UnsafeToken:
        return
    assert len(text.split()) == 1
    assert len(text.splitlines()) == 1


@given(interface=WORDS, vrf=WORDS, target=WORDS, hostname=WORDS)
def test_no_value_adds_a_line(interface: str, vrf: str, target: str, hostname: str) -> None:
    def build(interface: str, vrf: str, target: str, hostname: str) -> list[str]:
        desired = state(
            underlay=underlay(neighbor(interface, endpoint_kind=EndpointKind.INTERFACE)),
            l3vnis=(l3vni(vrf, import_rts=(target,)),),
        )
        return render(desired, hostname=hostname).text.splitlines()

    try:
        hostile = build(interface, vrf, target, hostname)
    except UnsafeToken:
        return
    plain = build("swp1", "red", "1:1", "node1")
    assert [line.split()[:1] for line in hostile] == [line.split()[:1] for line in plain]
    assert [len(line.split()) for line in hostile] == [len(line.split()) for line in plain]


@given(st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=8, max_size=40))
def test_a_password_is_in_the_text_and_never_in_the_redacted_text(password: str) -> None:
    desired = state(underlay=underlay(replace(neighbor(), password=Secret(f"pw{password}"))))
    if not password.isprintable() or password.split() != [password]:
        with pytest.raises(UnsafeToken) as refusal:
            render(desired, hostname=HOSTNAME)
        assert f"pw{password}" not in str(refusal.value)
        return
    rendered = render(desired, hostname=HOSTNAME)
    assert f" password pw{password}\n" in rendered.text
    # With the prefix: a password may be a word that stands there anyway.
    assert f"pw{password}" not in rendered.redacted


NODES = st.integers(0, 0xFFFFFF).map(lambda last: IPv4Address(0x0A000000 + last))
VNIS = st.integers(1, 0xFFFFFF) | st.integers(0xFFF0, 0x1000F)


@given(st.lists(st.tuples(NODES, VNIS), min_size=2, max_size=2, unique=True))
def test_a_route_distinguisher_belongs_to_one_vni_of_one_node(owners: list[tuple[IPv4Address, int]]) -> None:
    one, other = (encoded(route_distinguisher(*owner)) for owner in owners)
    assert one != other


def encoded(distinguisher: str) -> bytes:
    """Return the eight bytes of RFC 4364, 4.2, as FRR reads them."""
    left, _, right = distinguisher.partition(":")
    if "." in left:
        return b"\0\1" + IPv4Address(left).packed + int(right).to_bytes(2)
    return b"\0\0" + int(left).to_bytes(2) + int(right).to_bytes(4)


def test_only_a_vni_of_more_than_16_bits_leaves_the_usual_form() -> None:
    router_id = IPv4Address("10.1.2.3")
    assert route_distinguisher(router_id, 65535) == "10.1.2.3:65535"
    assert route_distinguisher(router_id, 70000) == f"{(1 << 8) + 2}:{(3 << 24) + 70000}"


@pytest.mark.parametrize(
    ("endpoint", "changes", "line"),
    [
        ("192.168.11.2", {"ebgp_multihop": 2}, "neighbor 192.168.11.2 ebgp-multihop 2"),
        ("192.168.11.2", {"ebgp_multihop": 1}, None),
        ("192.168.11.2", {"ebgp_multihop": 2, "ebgp": False, "remote_as": "internal"}, None),
        ("toswitch1", {"ebgp_multihop": 2, "endpoint_kind": EndpointKind.INTERFACE}, None),
    ],
)
def test_multihop_is_left_out_where_frr_does_not_take_it(
    endpoint: str, changes: dict[str, Any], line: str | None
) -> None:
    text = render(state(underlay=underlay(neighbor(endpoint, **changes))), hostname=HOSTNAME).text
    assert [found.strip() for found in text.splitlines() if "multihop" in found] == ([line] if line else [])
