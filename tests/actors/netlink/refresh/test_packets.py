"""What a probe looks like on the wire, and what is read from hosts' frames."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest

from actors.netlink.refresh.hosts import Host, Probe
from actors.netlink.refresh.packets import FILTER, LONGEST, link_local, question, sender_of

MAC, OWN = bytes.fromhex("020000000009"), bytes.fromhex("00f30000006f")
HOST = Host(110, MAC)


def arp(sender: str, *, mac: bytes = MAC, inside: bytes = MAC, operation: int = 2) -> bytes:
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + inside + ip_address(sender).packed
    return OWN + mac + b"\x08\x06" + body + OWN + ip_address("192.0.2.1").packed


def discovery(kind: int, source: str, target: str, *, hop_limit: int = 255) -> bytes:
    message = struct.pack("!BBHI", kind, 0, 0, 0) + ip_address(target).packed
    header = struct.pack("!IHBB", 6 << 28, len(message), 58, hop_limit) + ip_address(source).packed
    return OWN + MAC + b"\x86\xdd" + header + ip_address("ff02::1").packed + message


def test_an_arp_question_goes_to_the_host_alone_and_claims_no_address() -> None:
    frame = question(Probe(HOST, ip_address("192.0.2.9")), OWN)
    assert frame[:14] == MAC + OWN + b"\x08\x06"
    assert frame[14:22] == bytes.fromhex("0001080006040001")
    assert frame[22:] == OWN + bytes(4) + bytes(6) + ip_address("192.0.2.9").packed


def test_where_there_is_a_gateway_the_question_is_its_own() -> None:
    frame = question(Probe(HOST, ip_address("192.0.2.9"), ip_address("192.0.2.1")), OWN)
    assert frame[28:32] == ip_address("192.0.2.1").packed


@pytest.mark.parametrize("sender", [None, "2001:db8::1"])
def test_a_question_of_neighbour_discovery(sender: str | None) -> None:
    target = ip_address("2001:db8::9")
    frame = question(Probe(HOST, target, None if sender is None else ip_address(sender)), OWN)
    assert frame[:14] == MAC + OWN + b"\x86\xdd"
    source, destination, message = frame[22:38], frame[38:54], frame[54:]
    assert ip_address(source) == ip_address(sender or "fe80::2f3:ff:fe00:6f")
    assert destination == message[8:24] == target.packed
    assert frame[20:22] == bytes((58, 255))
    assert (message[0], message[24:]) == (135, b"\x01\x01" + OWN)
    words = struct.unpack("!36H", source + destination + struct.pack("!II", len(message), 58) + message)
    assert sum(words) % 0xFFFF == 0


def test_a_link_local_address_is_that_of_the_mac() -> None:
    assert link_local(MAC) == ip_address("fe80::ff:fe00:9")


def test_the_address_of_a_host_is_read_from_what_it_asks_and_answers() -> None:
    address = ip_address("192.0.2.9")
    assert sender_of(110, arp("192.0.2.9")) == sender_of(110, arp("192.0.2.9", operation=1)) == (HOST, address)
    address = ip_address("2001:db8::9")
    assert sender_of(110, discovery(136, "fe80::9", "2001:db8::9")) == (HOST, address)
    assert sender_of(110, discovery(135, "2001:db8::9", "2001:db8::1")) == (HOST, address)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        arp("0.0.0.0"),
        arp("224.0.0.1"),
        arp("127.0.0.1"),
        arp("192.0.2.9", inside=OWN),
        arp("192.0.2.9", mac=b"\x01" + MAC[1:], inside=b"\x01" + MAC[1:]),
        arp("192.0.2.9")[:40],
        discovery(135, "::", "2001:db8::9"),
        discovery(136, "fe80::9", "ff02::1"),
        discovery(136, "fe80::9", "2001:db8::9", hop_limit=254),
        discovery(136, "fe80::9", "2001:db8::9")[:60],
    ],
)
def test_a_frame_that_does_not_say_is_left_out(frame: bytes) -> None:
    assert sender_of(110, frame) is None


def passes(frame: bytes) -> int:
    """Run the filter as the kernel does; reading beyond the frame's end drops it."""
    accumulator, at = 0, 0
    while True:
        code, yes, no, constant = FILTER[at]
        at += 1
        if code == 0x06:
            return constant
        if code in (0x28, 0x30):
            size = 2 if code == 0x28 else 1
            if constant + size > len(frame):
                return 0
            accumulator = int.from_bytes(frame[constant : constant + size], "big")
        else:
            assert code == 0x15
            at += yes if accumulator == constant else no


def test_the_filter_passes_what_is_read_and_nothing_else() -> None:
    wanted = [arp("192.0.2.9"), discovery(135, "fe80::9", "::1"), discovery(136, "fe80::9", "::1")]
    assert [passes(frame) for frame in wanted] == [LONGEST] * 3
    ipv4 = OWN + MAC + b"\x08\x00" + bytes(60)
    udp = bytearray(discovery(136, "fe80::9", "::1"))
    udp[20] = 17
    assert [passes(bytes(f)) for f in (ipv4, udp, discovery(134, "fe80::9", "::1"), b"short")] == [0] * 4
