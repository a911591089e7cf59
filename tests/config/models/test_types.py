"""The scalar grammars, above all what keeps configuration text in one piece."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from config.desired import Secret
from config.models.types import (
    Address,
    Asn,
    Cidr,
    Ipv4Cidr,
    Ipv4Subnet,
    Ipv6Cidr,
    Ipv6Subnet,
    Pool,
    RouteTarget,
    SecretText,
    Subnet,
    UdpPort,
    Vni,
    check_password,
    check_route_target,
)


def accepts(kind: object, value: object) -> bool:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [(Asn, 1, 4294967295), (Vni, 1, 16777215), (UdpPort, 1, 65535)],
)
def test_numbers_have_exact_bounds_and_are_numbers(kind: object, lowest: int, highest: int) -> None:
    assert accepts(kind, lowest)
    assert accepts(kind, highest)
    for wrong in (lowest - 1, highest + 1, str(lowest), True, 1.0, None):
        assert not accepts(kind, wrong)


@pytest.mark.parametrize("text", ["192.0.2.1", "2001:db8::1", "fe80::1", "::1"])
def test_addresses_are_accepted(text: str) -> None:
    assert accepts(Address, text)


@pytest.mark.parametrize(
    "text",
    ["", "192.0.2", "192.0.2.256", "192.0.2.01", "fe80::1%eth0", "::ffff:192.0.2.1", "host", "192.0.2.1/24", "1\n"],
)
def test_what_is_no_plain_address_is_refused(text: str) -> None:
    assert not accepts(Address, text)


@pytest.mark.parametrize(
    "text", ["192.0.2.0/24", "192.0.2.7/24", "0.0.0.0/0", "192.0.2.1/32", "2001:db8::1/64", "::/0"]
)
def test_networks_are_accepted_with_host_bits(text: str) -> None:
    assert accepts(Cidr, text)
    assert accepts(Ipv4Cidr, text) != accepts(Ipv6Cidr, text)


@pytest.mark.parametrize("text", ["10.0.0.0/16", "192.0.2.7/32", "fd00::/64", "2001:db8::1/128", "223.255.0.0/16"])
def test_subnets_are_accepted(text: str) -> None:
    assert accepts(Subnet, text)
    assert accepts(Pool, text)
    assert accepts(Ipv4Subnet, text) != accepts(Ipv6Subnet, text)


@pytest.mark.parametrize("text", ["10.0.0.0/8", "172.16.0.0/12", "10.0.0.0/15", "2001:db8::/32", "fd00::/63"])
def test_a_link_has_a_longer_prefix_than_a_pool(text: str) -> None:
    assert not accepts(Subnet, text)
    assert accepts(Pool, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.0.0.0/0", "overlaps 0.0.0.0/8"),
        ("128.0.0.0/1", "overlaps 169.254.0.0/16"),
        ("127.0.0.0/8", "is in 127.0.0.0/8"),
        ("169.0.0.0/8", "overlaps 169.254.0.0/16"),
        ("224.0.0.0/24", "is in 224.0.0.0/3"),
        ("255.255.255.255/32", "is in 224.0.0.0/3"),
        ("::/0", "overlaps ::/96"),
        ("::1/128", "is in ::/96"),
        ("fe80::/64", "is in fe80::/10"),
        ("ff02::/64", "is in ff00::/8"),
        ("10.0.0.0/7", "at least 8 is needed, this is 7"),
        ("fd00::/31", "at least 32 is needed, this is 31"),
    ],
)
def test_where_no_router_can_be(text: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        TypeAdapter(Pool).validate_python(text)
    assert not accepts(Subnet, text)


@pytest.mark.parametrize(
    "text",
    ["192.0.2.0", "192.0.2.0/33", "192.0.2.0/255.255.255.0", "2001:db8::/129", "::ffff:10.0.0.0/104", "10.0.0.0/24\n",
     " 10.0.0.0/24", "10.0.0.0/-1", "10.0.0.0/2٤", "fe80::%1/64", "", "/24"],
)  # fmt: skip
def test_what_is_no_network_is_refused(text: str) -> None:
    assert not accepts(Cidr, text)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("64514:100", True), ("0:0", True), ("65535:4294967295", True), ("65535:4294967296", False),
        ("65536:65535", True), ("65536:65536", False), ("4294967295:1", True), ("4294967296:1", False),
        ("192.0.2.1:65535", True), ("192.0.2.1:65536", False), ("192.0.2.256:1", False), ("192.0.2:1", False),
        ("64514", False), ("64514:", False), (":1", False), ("1:2:3", False), ("a:1", False), ("1:b", False),
        ("0x1:1", False), ("1:0x1", False), ("*:1", False), ("-1:1", False), ("1: 1", False), ("1:1\n", False),
        ("٣:1", False), ("RT:1", False), ("255.255.255.255:65535", True),
    ],
)  # fmt: skip
def test_route_targets_follow_their_grammar(text: str, valid: bool) -> None:
    assert accepts(RouteTarget, text) is valid


@pytest.mark.parametrize(
    ("written", "shown"),
    [("064514:0100", "64514:100"), ("10.0.0.1:07", "10.0.0.1:7"), ("4200000001:00", "4200000001:0")],
)
def test_route_targets_are_read_as_frr_shows_them(written: str, shown: str) -> None:
    assert check_route_target(written) == shown


def test_a_password_is_hidden_in_every_form() -> None:
    adapter = TypeAdapter[Secret](SecretText)
    secret = adapter.validate_python("hunter2")
    assert secret.reveal() == "hunter2"
    assert "hunter2" not in f"{secret!r} {secret}"
    assert json.loads(adapter.dump_json(secret)) == "********"


@given(st.text(max_size=140))
def test_a_refused_password_is_never_quoted(text: str) -> None:
    secret = "s3cret " + text
    with pytest.raises(ValueError) as caught:
        check_password(secret)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "a b", "a\n", "a\tb", "x" * 129, "pässword", "a\u2028b"])
def test_a_password_is_printable_ascii_without_spaces(text: str) -> None:
    with pytest.raises(ValueError):
        check_password(text)


def test_the_longest_password_is_accepted() -> None:
    assert check_password("!" * 128)
