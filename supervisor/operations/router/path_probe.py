"""The path to an address, hop by hop: UDP packets with a growing hop limit, and the ICMP errors that they cause.

    packet with hop limit n -> "time exceeded" of the router n hops away, or "port unreachable" of the target

The kernel hands such errors to the socket that sent the packet (``IP_RECVERR``, ip(7)), so no raw socket is needed. The
ports are traceroute's, where nothing listens.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from ..exit_codes import UNAVAILABLE, CommandError

PROBES: Final = 3
#: How long to wait for one answer, seconds; a silent hop costs three times this.
ANSWER_SECONDS: Final = 1.0
FIRST_PORT: Final = 33434
#: Constants that Python does not define (linux/in.h, linux/in6.h, linux/errqueue.h).
IP_RECVERR: Final = 11
IPV6_RECVERR: Final = 25
_ORIGINS_ICMP: Final = frozenset({2, 3})
#: ``struct sock_extended_err``: errno, origin, type, code, padding, info, data; the sender's address follows.
_EXTENDED: Final = struct.Struct("=IBBBBII")
#: ICMP and ICMPv6 "time exceeded", by family.
_TIME_EXCEEDED: Final = {socket.AF_INET: 11, socket.AF_INET6: 3}
#: Errors of a send: pending from an earlier packet, or because there is no route.
_UNREACHABLE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNREFUSED, errno.EACCES})


@dataclass(frozen=True, slots=True)
class IcmpAnswer:
    """One ICMP error: who sent it, after how many seconds; ``final``: no larger hop limit gets further."""

    sender: str
    seconds: float
    final: bool = False
    reached: bool = False


@dataclass(frozen=True, slots=True)
class Hop:
    """The answers for one hop limit; None for a packet without an answer."""

    number: int
    answers: tuple[IcmpAnswer | None, ...]

    @property
    def reached(self) -> bool:
        """Whether the target itself answered."""
        return any(answer.reached for answer in self.answers if answer)

    @property
    def final(self) -> bool:
        """Whether a larger hop limit would lead nowhere else."""
        return any(answer.final for answer in self.answers if answer)

    def __str__(self) -> str:
        words, last = [], ""
        for answer in self.answers:
            if answer is None:
                words.append("*")
                continue
            words += [answer.sender] if answer.sender != last else []
            words.append(f"{answer.seconds * 1000:.3f} ms")
            last = answer.sender
        unreachable = "  unreachable" if self.final and not self.reached else ""
        return f"{self.number:2}  {'  '.join(words)}{unreachable}"


def hops(target: IPv4Address | IPv6Address, vrf: str, most: int) -> Iterator[Hop]:
    """Yield the hops of the calling thread's namespace, until the target or another end is reached.

    Raises :class:`CommandError` when there is no route, ``OSError`` for a VRF that does not exist.
    """
    for number in range(1, most + 1):
        port = FIRST_PORT + (number - 1) * PROBES
        hop = Hop(number, tuple(_probe(target, vrf, number, port + probe) for probe in range(PROBES)))
        yield hop
        if hop.final:
            return


def _probe(target: IPv4Address | IPv6Address, vrf: str, limit: int, port: int) -> IcmpAnswer | None:
    family = socket.AF_INET if target.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        if vrf:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, vrf.encode())
        if family == socket.AF_INET:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, limit)
            probe.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        else:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, limit)
            probe.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        began = time.monotonic()
        try:
            probe.connect((str(target), port))
            probe.send(b"openperouter trace")
        except OSError as error:
            if error.errno not in _UNREACHABLE:
                raise
            where = f" in VRF {vrf}" if vrf else ""
            raise CommandError(f"no route to {target}{where}: {error.strerror}", UNAVAILABLE) from None
        return _answer(probe, family, began, target)


def _answer(
    probe: socket.socket, family: socket.AddressFamily, began: float, target: IPv4Address | IPv6Address
) -> IcmpAnswer | None:
    waiting = select.poll()
    waiting.register(probe, select.POLLIN)
    if not waiting.poll(ANSWER_SECONDS * 1000):
        return None
    seconds = time.monotonic() - began
    try:
        _, control, _, _ = probe.recvmsg(512, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    except BlockingIOError:
        # No error but an answer: the target has a service on that port.
        return IcmpAnswer(str(target), seconds, final=True, reached=True)
    for _level, _kind, data in control:
        answer = parse_error(data, family, seconds)
        if answer is not None:
            return answer
    return None


def parse_error(data: bytes, family: int, seconds: float) -> IcmpAnswer | None:
    """Return the answer in a control message; None for what is not ICMP's: the kernel's own errors have no sender."""
    if len(data) < _EXTENDED.size + 8:
        return None
    number, origin, kind, _code, _, _, _ = _EXTENDED.unpack_from(data)
    if origin not in _ORIGINS_ICMP:
        return None
    address = data[_EXTENDED.size :]
    packed = address[4:8] if family == socket.AF_INET else address[8:24]
    exceeded = kind == _TIME_EXCEEDED[socket.AddressFamily(family)]
    return IcmpAnswer(str(ip_address(packed)), seconds, final=not exceeded, reached=number == errno.ECONNREFUSED)
