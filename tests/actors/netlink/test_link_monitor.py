"""Which notifications wake the loop."""

from __future__ import annotations

import socket
import struct

import pytest

from actors.netlink.link_monitor import Interest, drain


def link_message(index: int, name: str) -> bytes:
    """Return an RTM_NEWLINK datagram: header, ifinfomsg, IFLA_IFNAME."""
    text = name.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(text), 3) + text
    body = struct.pack("=BxHiII", 0, 1, index, 0, 0) + attribute
    body += b"\0" * (-len(body) % 4)
    return struct.pack("=IHHII", 16 + len(body), 16, 0, 0, 0) + body


def address_message(index: int) -> bytes:
    """Return an RTM_NEWADDR datagram: header and ifaddrmsg."""
    return struct.pack("=IHHII", 24, 20, 0, 0, 0) + struct.pack("=BBBBI", 10, 64, 0, 0, index)


INTEREST = Interest.of_host(["eth1"], [7])


@pytest.mark.parametrize("name", ["eth1", "host-e-100", "br-hs-100", "pt-host"])
def test_a_device_of_that_name_counts(name: str) -> None:
    assert INTEREST.counts(link_message(99, name))


def test_a_pods_device_does_not_count() -> None:
    assert not INTEREST.counts(link_message(99, "vethabcdef"))
    assert not INTEREST.counts(address_message(99))


def test_an_address_of_a_known_device_counts() -> None:
    assert INTEREST.counts(address_message(7))


def test_every_message_of_a_datagram_is_examined() -> None:
    assert INTEREST.counts(link_message(98, "vethabcdef") + address_message(99) + address_message(7))


def test_a_malformed_datagram_is_ignored() -> None:
    assert not INTEREST.counts(struct.pack("=IHHII", 0, 16, 0, 0, 0) + b"\0" * 64)
    assert not INTEREST.counts(b"\0" * 5)


def test_a_monitor_that_was_closed_during_a_pass_has_nothing_to_drop() -> None:
    one, other = socket.socketpair()
    one.setblocking(False)
    other.send(b"queued")
    drain(one)
    with one, other:
        pass
    drain(one)
