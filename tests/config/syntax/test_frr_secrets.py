"""Secrets of every daemon's grammar are hidden, and the rest stays readable."""

from __future__ import annotations

import time

import pytest

from config.syntax.frr_secrets import HIDDEN, redact
from tests.actors.frr.cases import raw, state


@pytest.mark.parametrize(
    "line",
    [
        " neighbor 10.0.0.1 password hush",
        "password hush",
        "enable password 8 hush",
        "no neighbor swp1 password hush hush",
        "Failed to execute configure router bgp 1 neighbor 10.0.0.1 password hush",
        "  key-string hush",
        " ip ospf authentication-key hush",
        " ip ospf message-digest-key 1 md5 hush",
        " isis password clear hush",
        " domain-password md5 hush",
        " area-password clear hush",
        " ip rip authentication string hush",
        " ip rip authentication  string hush",
        " neighbor 10.0.0.1 password community hush",
        "line 4: % Unknown command:  neighbor 10.0.0.1 PASSWORD hush",
        "snmp-server community hush",
        "  tcp-md5-auth hush",
        " neighbor 10.0.0.1 tcp-ao key hush",
        " neighbor 10.0.0.1 tcp-ao  key hush algorithm hmac-sha-1",
        " vrrp 5 authentication hush",
        " vrrp 5 authentication text hush",
        " ip nhrp authentication hush",
        " ipv6 ospf6 authentication key-id 1 hash-algo hmac-sha-256 key hush",
    ],
)
def test_a_secret_is_hidden(line: str) -> None:
    shown = redact(line)
    assert "hush" not in shown
    assert "********" in shown


@pytest.mark.parametrize(
    "line",
    [
        "router bgp 64514",
        " neighbor 10.0.0.1 remote-as 64512",
        "bgp community-list standard mine seq 5 permit 65000:1",
        " set community 65000:1 additive",
        " match community mine",
        " area 0.0.0.0 authentication message-digest",
        " vrrp 5 priority 200",
        " neighbor 10.0.0.1 tcp-ao keychain mine",
        " neighbor 10.0.0.1 send-community both",
        "ip prefix-list password seq 5",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    expected = line if "password seq" not in line else "ip prefix-list password ********"
    assert redact(line) == expected


def test_other_lines_stay_as_they_are() -> None:
    assert redact("a\n neighbor x password y\nb\n") == "a\n neighbor x password ********\nb\n"


def test_a_snippet_does_not_show_its_text_by_accident() -> None:
    desired = state(raw_frr=(raw("pw", "router bgp 1\n neighbor 10.0.0.1 password hush"),))
    assert "hush" not in repr(desired)


@pytest.mark.parametrize("unit", ["hmac-", "-hmac-", "-message-digest-key x", " vrrp -", " hash-algo -", "set-", "-"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_the_time_grows_no_faster_than_the_text(unit: str, end: str) -> None:
    """Of a quadratic search sixteen times the text takes 256 times as long."""

    def seconds(characters: int) -> float:
        text = (unit * (2048 // len(unit)) + end) * (characters // 2048)
        times = []
        for _ in range(3):
            before = time.process_time()
            redact(text)
            times.append(time.process_time() - before)
        return min(times)

    assert seconds(1 << 18) < 64 * max(seconds(1 << 14), 1e-4)


def test_a_long_line_is_read_to_its_end() -> None:
    plain = "x " * (1 << 16)
    assert redact(plain) == plain
    assert redact(f"{plain} password hush\ny") == f"{plain} password {HIDDEN}\ny"
    assert "hush" not in redact(" password " + "hush" * (1 << 16))
