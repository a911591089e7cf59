"""Crafted Ethernet frames: sent and captured through packet sockets inside named network namespaces.

A packet socket belongs to the namespace of the thread that opened it, so a thread enters the namespace, opens the
socket and ends. All devices of the tests are veths and bridges, which deliver in the order of sending: a frame that has
not arrived before a later one on the same way does not arrive at all.
"""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from types import TracebackType
from typing import Self

from actors.netlink.wire.namespace import enter

ETH_P_ALL, ETH_P_IP, ETH_P_ARP, ETH_P_IPV6 = 0x0003, 0x0800, 0x0806, 0x86DD
IPPROTO_UDP, IPPROTO_ICMPV6 = 17, 58
VXLAN_PORT = 4789
BROADCAST = "ff:ff:ff:ff:ff:ff"
#: How long a frame may take that must arrive.
ARRIVAL_SECONDS = 20.0


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def ethernet(source: str, target: str, kind: int, payload: bytes) -> bytes:
    """Return a frame, padded to Ethernet's minimum."""
    return (_mac(target) + _mac(source) + struct.pack("!H", kind) + payload).ljust(60, b"\0")


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip_packet(source: str, target: str, protocol: int, payload: bytes) -> tuple[int, bytes]:
    """Return the EtherType and the packet; the payload's own checksum is not touched."""
    one, other = ip_address(source), ip_address(target)
    if isinstance(one, IPv4Address):
        header = struct.pack(
            "!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0, one.packed, other.packed
        )
        return ETH_P_IP, header[:10] + struct.pack("!H", _checksum(header)) + header[12:] + payload
    hops = 255 if protocol == IPPROTO_ICMPV6 else 64
    return ETH_P_IPV6, struct.pack(
        "!IHBB16s16s", 6 << 28, len(payload), protocol, hops, one.packed, other.packed
    ) + payload


def with_checksum(source: str, target: str, protocol: int, payload: bytes, offset: int) -> bytes:
    """Return a transport payload with its checksum at an offset, over the pseudo-header of either IP version."""
    one, other = ip_address(source), ip_address(target)
    if isinstance(one, IPv6Address):
        pseudo = one.packed + other.packed + struct.pack("!II", len(payload), protocol)
    else:
        pseudo = one.packed + other.packed + struct.pack("!HH", protocol, len(payload))
    value = _checksum(pseudo + payload) or 0xFFFF
    return payload[:offset] + struct.pack("!H", value) + payload[offset + 2 :]


def udp(source: str, target: str, port: int, data: bytes, *, from_port: int = 50000) -> tuple[int, bytes]:
    """Return the EtherType and a UDP packet."""
    datagram = struct.pack("!HHHH", from_port, port, 8 + len(data), 0) + data
    return ip_packet(source, target, IPPROTO_UDP, with_checksum(source, target, IPPROTO_UDP, datagram, 6))


def vxlan(source: str, target: str, vni: int, inner: bytes, *, port: int = VXLAN_PORT) -> tuple[int, bytes]:
    """Return the EtherType and a VXLAN packet (RFC 7348) around a frame."""
    return udp(source, target, port, struct.pack("!II", 0x08 << 24, vni << 8) + inner)


def arp_request(mac: str, source: str, target: str) -> bytes:
    """Return a frame that asks for the MAC of an IPv4 address."""
    body = struct.pack("!HHBBH", 1, ETH_P_IP, 6, 4, 1) + _mac(mac) + ip_address(source).packed
    return ethernet(mac, BROADCAST, ETH_P_ARP, body + bytes(6) + ip_address(target).packed)


def router_advertisement(mac: str, source: str, prefix: str) -> bytes:
    """Return a frame that offers a default route and a /64 for addresses (RFC 4861)."""
    option = struct.pack("!BBBBIII16s", 3, 4, 64, 0xC0, 1800, 1800, 0, IPv6Address(prefix).packed)
    lower = struct.pack("!BB6s", 1, 1, _mac(mac))
    message = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + option + lower
    message = with_checksum(source, "ff02::1", IPPROTO_ICMPV6, message, 2)
    return ethernet(mac, "33:33:00:00:00:01", *ip_packet(source, "ff02::1", IPPROTO_ICMPV6, message))


def echo_request(mac: str, to_mac: str, source: str, target: str) -> bytes:
    """Return a frame with an ICMPv6 echo request."""
    message = with_checksum(source, target, IPPROTO_ICMPV6, struct.pack("!BBHHH", 128, 0, 0, 7, 7) + b"ping", 2)
    return ethernet(mac, to_mac, *ip_packet(source, target, IPPROTO_ICMPV6, message))


def link_local(mac: str) -> str:
    """Return the IPv6 link-local address that a MAC gives (EUI-64)."""
    raw = _mac(mac)
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + bytes((raw[0] ^ 2,)) + raw[1:3] + b"\xff\xfe" + raw[3:]))


class Port:
    """A packet socket on one device of a namespace (None: the machine's own)."""

    def __init__(self, namespace: str | None, device: str) -> None:
        def opened() -> tuple[socket.socket, str]:
            if namespace is not None:
                enter(Path("/run/netns") / namespace)
            plain = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            plain.bind((device, ETH_P_ALL))
            return plain, ":".join(f"{byte:02x}" for byte in plain.getsockname()[4])

        # A thread of its own, which ends: it could not be trusted to leave the namespace.
        with ThreadPoolExecutor(max_workers=1) as one:
            self._socket, self.mac = one.submit(opened).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self._socket.send(frame)

    def received_before(self, last: bytes) -> list[bytes]:
        """Return the frames that came in until one with this text, which must come."""
        self._socket.settimeout(ARRIVAL_SECONDS)
        found: list[bytes] = []
        while True:
            frame, origin = self._socket.recvfrom(65536)
            if origin[2] == socket.PACKET_OUTGOING:
                continue
            if last in frame:
                return found
            found.append(frame)
