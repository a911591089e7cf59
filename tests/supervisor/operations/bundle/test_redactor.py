"""No known secret survives in any notation, nothing that looks like one does, and what helps stays readable."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from supervisor.operations.bundle import Redactor

SECRET = "s3cret/w'ord\"x"


@pytest.mark.parametrize(
    "text",
    [
        f"peer refused: {SECRET}",
        f" neighbor 192.0.2.1 password {SECRET}",
        json.dumps({"said": f"a {SECRET} b"}),
        yaml.safe_dump({"said": SECRET}, default_style="'"),
        yaml.safe_dump({"said": SECRET}, default_style='"'),
        repr(SECRET),
        f"https://user:{quote(SECRET, safe='')}@host/",
        f"data: {base64.b64encode(SECRET.encode()).decode()}",
        f"bytes {SECRET.encode().hex()} end",
        f"two on a line {SECRET}{SECRET}",
    ],
)
def test_a_known_secret_goes_in_every_notation(text: str) -> None:
    shown = Redactor([SECRET]).clean(text)
    forms = (SECRET, quote(SECRET, safe=""), json.dumps(SECRET)[1:-1], base64.b64encode(SECRET.encode()).decode())
    assert not [form for form in (*forms, SECRET.encode().hex()) if form in shown]


def test_a_secret_with_its_line_end_goes_from_base64_as_well() -> None:
    encoded = base64.b64encode(f"{SECRET}\n".encode()).decode()
    assert encoded.rstrip("=") not in Redactor([SECRET]).clean(f"content {encoded}")


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("neighbor 10.0.0.9 password topsecret", "topsecret"),
        (" neighbor LEAF password 8 0a1b2c", "0a1b2c"),
        ("Nov 21 host bgpd[1]: neighbor 10.0.0.9 password topsecret", "topsecret"),
        ("    password: topsecret # for the fabric", "topsecret"),
        ('{"peer": 1, "bgpPassword": "topsecret"}', "topsecret"),
        ('{"passwordSecret": "name", "password": "topsecret"}', "topsecret"),
        ("Environment=API_TOKEN=topsecret", "topsecret"),
        ("net.ipv6.conf.eth0.stable_secret = topsecret", "topsecret"),
        ("net.ipv4.tcp_fastopen_key = 01020304-05060708-090a0b0c-0d0e0f10", "01020304"),
        ("net.core.netdev_rss_key = 6d:5a:56:da:25:5b", "6d:5a"),
        ("password: |\n  topsecret\n\n  more\nnext: 1", "topsecret"),
        ("password: >-\n  topsecret\nnext: 1", "topsecret"),
        ("client-key-data: dG9wc2VjcmV0", "dG9wc2VjcmV0"),
        ("Authorization: Bearer abcdef.ghijkl", "abcdef.ghijkl"),
        ("token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.c2ln in the log", "eyJpc3MiOiJr"),
        ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\n-----END EC PRIVATE KEY-----\nafter", "MHcCAQ"),
        ("-----BEGIN PRIVATE KEY-----\nMHcCAQ", "MHcCAQ"),
        ("fetching https://joe:topsecret@host/x", "topsecret"),
        ("snmp-server community topsecret RO", "topsecret"),
    ],
)
def test_what_looks_like_a_secret_goes_unknown_as_it_is(text: str, hidden: str) -> None:
    shown = Redactor([]).clean(text)
    assert hidden not in shown
    assert "********" in shown


def test_a_block_ends_where_its_indent_ends() -> None:
    shown = Redactor([]).clean("a:\n  password: |\n    one\n    two\n  vni: 100\n")
    assert shown == "a:\n  password: ********\n  vni: 100\n"


@pytest.mark.parametrize(
    "text",
    [
        "passwordSecret: fabric",
        "passwordSecret: {name: fabric, key: tor-1}",
        "passwordSecret:\n  name: fabric\n  key: password",
        " neighbor 192.168.11.2 remote-as 64512",
        "route 10.0.0.0/8 via 192.0.2.1 dev toswitch1 proto bgp metric 20",
        "router: create vxlan vni100 id 100 dev lo local 100.65.0.0 dstport 4789 nolearning",
        "2026-11-21T04:00:00 node openperouter[42]: the kernel is configured generation=4 writes=31",
        " set community 65000:1",
        "net.ipv4.conf.all.forwarding = 1",
        "net.ipv4.tcp_fastopen = 1",
        "net.ipv4.tcp_fastopen_blackhole_timeout_sec = 0",
    ],
)
def test_what_helps_stays(text: str) -> None:
    assert Redactor(["hunter2hunter2"]).clean(text) == text


@pytest.mark.parametrize("indent", [None, 1])
def test_json_stays_json(indent: int | None) -> None:
    document = {"secrets": 2, "on": {"token": 'a " b, c', "password": None}, "peer": {"passwords": True, "up": 1}}
    shown = Redactor([]).clean(json.dumps(document, indent=indent))
    hidden = "********"
    assert json.loads(shown) == {
        "secrets": hidden,
        "on": {"token": hidden, "password": hidden},
        "peer": {"passwords": hidden, "up": 1},
    }


def test_what_only_begins_like_json_goes_to_the_end_of_its_line() -> None:
    for text in ('"token": "never closed, more', '"password": abc def', '"secret": ["a", "b"]', '"token": "a" "b"'):
        assert Redactor([]).clean(text) == f"{text.partition(':')[0]}: ********"


def test_many_assignments_on_one_line_take_time_in_proportion_to_it() -> None:
    text = json.dumps([{"token": "abc"}] * 100_000)
    assert "abc" not in Redactor([]).clean(text)


def test_a_short_secret_goes_as_a_word_and_leaves_the_rest() -> None:
    assert Redactor(["ab"]).clean("password is ab, about abba") == "password ********"
    assert Redactor(["ab"]).clean("ask ab about abba") == "ask ******** about abba"


def test_of_two_secrets_the_longer_one_counts() -> None:
    assert Redactor(["hunter", "hunter2hunter"]).clean("x hunter2hunter y") == "x ******** y"


def test_its_repr_shows_no_secret() -> None:
    assert SECRET not in repr(Redactor([SECRET]))


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=40), st.text(max_size=60))
def test_no_printable_secret_survives_anywhere(secret: str, around: str) -> None:
    shown = Redactor([secret]).clean(f"{around}{secret}{around}\nline {secret}\n")
    # Stars are what a secret becomes, so a secret of stars cannot be distinguished from them.
    assert secret.strip("*") == "" or secret not in shown.replace("********", "\x00")
