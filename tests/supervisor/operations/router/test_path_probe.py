"""The path to an address: ICMP errors as they were captured from the kernel, and the path to this machine."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from supervisor.operations.router.path_probe import Hop, IcmpAnswer, hops, parse_error

#: Linux 6.1, from three namespaces in a row: two routers' time exceeded, a target's port unreachable, each family.
CAPTURED = [
    (socket.AF_INET, "71000000020b00000000000000000000020000000a0901020000000000000000", "10.9.1.2", False),
    (socket.AF_INET, "6f000000020303000000000000000000020000000a0902030000000000000000", "10.9.2.3", True),
    (
        socket.AF_INET6,
        "710000000303000000000000000000000a00000000000000fd01000000000000000000000000000200000000",
        "fd01::2",
        False,
    ),
    (
        socket.AF_INET6,
        "6f0000000301040000000000000000000a00000000000000fd02000000000000000000000000000300000000",
        "fd02::3",
        True,
    ),
]


@pytest.mark.parametrize(("family", "data", "sender", "reached"), CAPTURED)
def test_an_error_names_its_sender(family: int, data: str, sender: str, reached: bool) -> None:
    assert parse_error(bytes.fromhex(data), family, 0.5) == IcmpAnswer(sender, 0.5, final=reached, reached=reached)


def test_another_unreachable_ends_the_way_without_reaching_the_target() -> None:
    # Host unreachable (EHOSTUNREACH; type 3, code 1).
    data = "71000000020301000000000000000000020000000a0901020000000000000000"
    answer = parse_error(bytes.fromhex(data), socket.AF_INET, 0.001)
    assert answer == IcmpAnswer("10.9.1.2", 0.001, final=True)
    assert str(Hop(3, (answer, None, None))) == " 3  10.9.1.2  1.000 ms  *  *  unreachable"


def test_what_is_not_an_icmp_error_is_no_answer() -> None:
    own = "71000000010301000000000000000000020000000a0901020000000000000000"
    assert parse_error(bytes.fromhex(own), socket.AF_INET, 0.0) is None
    assert parse_error(b"\0" * 8, socket.AF_INET, 0.0) is None


def test_a_hop_is_one_line_with_each_sender_once() -> None:
    hop = Hop(1, (IcmpAnswer("192.0.2.1", 0.0005), None, IcmpAnswer("192.0.2.1", 0.002)))
    assert str(hop) == " 1  192.0.2.1  0.500 ms  *  2.000 ms"
    assert not hop.final


@pytest.mark.parametrize("target", ["127.0.0.1", "::1"])
def test_the_way_to_this_machine_has_one_hop(target: str) -> None:
    [hop] = hops(ip_address(target), "", 5)
    assert hop.reached
    assert {answer.sender for answer in hop.answers if answer} == {target}
