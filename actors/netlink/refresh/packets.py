"""The frames of probes, and the addresses in hosts' frames. Pure.

A probe goes to the host's MAC only, out of the port that leads to it: nothing of it gets into the fabric. Where the
segment has a gateway in the host's subnet, it is an ordinary request from that gateway, and the answer also confirms
the IP stack's neighbour. Elsewhere it must not claim an address of the segment: ARP then has the sender 0.0.0.0 (a
probe, RFC 5227), which enters no cache, and neighbour discovery the link-local address of our MAC (by RFC 4862 hosts
take a solicitation from :: for a duplicate of their own address).
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from config.desired import IPAddress

from .hosts import Host, Probe

ETH_P_ARP = 0x0806
ETH_P_IPV6 = 0x86DD
ARP_REQUEST = 1
ICMPV6 = 58
NEIGHBOR_SOLICITATION = 135
NEIGHBOR_ADVERTISEMENT = 136
SOURCE_LINK_LAYER_ADDRESS = 1
#: RFC 4861: a packet of neighbour discovery comes from the same link if and only if it has this hop limit.
HOP_LIMIT = 255
#: Bytes of a frame that are read: Ethernet, IPv6, and a neighbour advertisement's target.
LONGEST = 78

_ETHERNET: Final = struct.Struct("!6s6sH")
_ARP: Final = struct.Struct("!HHBBH6s4s6s4s")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_ARP_KIND: Final = (1, 0x0800, 6, 4)

#: Classic BPF (linux/filter.h): code, jump if true, jump if false, constant. Passes ARP, and of IPv6 neighbour
#: solicitations and advertisements directly after the header. All other frames cost these few instructions.
FILTER: Final = (
    (0x28, 0, 0, 12),
    (0x15, 6, 0, ETH_P_ARP),
    (0x15, 0, 6, ETH_P_IPV6),
    (0x30, 0, 0, 20),
    (0x15, 0, 4, ICMPV6),
    (0x30, 0, 0, 54),
    (0x15, 1, 0, NEIGHBOR_SOLICITATION),
    (0x15, 0, 1, NEIGHBOR_ADVERTISEMENT),
    (0x06, 0, 0, LONGEST),
    (0x06, 0, 0, 0),
)


def question(probe: Probe, own_mac: bytes) -> bytes:
    """Return the frame of a probe."""
    if isinstance(probe.address, IPv4Address):
        sender = IPv4Address(0) if probe.sender is None else probe.sender
        body = _ARP.pack(*_ARP_KIND, ARP_REQUEST, own_mac, sender.packed, bytes(6), probe.address.packed)
        return _ETHERNET.pack(probe.host.mac, own_mac, ETH_P_ARP) + body
    source = (link_local(own_mac) if probe.sender is None else probe.sender).packed
    target = probe.address.packed
    option = struct.pack("!BB6s", SOURCE_LINK_LAYER_ADDRESS, 1, own_mac)
    message = struct.pack("!BBHI", NEIGHBOR_SOLICITATION, 0, 0, 0) + target + option
    checksum = _checksum(source + target + struct.pack("!II", len(message), ICMPV6) + message)
    message = message[:2] + struct.pack("!H", checksum) + message[4:]
    header = _IPV6.pack(6 << 28, len(message), ICMPV6, HOP_LIMIT, source, target)
    return _ETHERNET.pack(probe.host.mac, own_mac, ETH_P_IPV6) + header + message


def link_local(mac: bytes) -> IPv6Address:
    """Return the link-local address of a MAC (RFC 4291, appendix A)."""
    return IPv6Address(b"\xfe\x80" + bytes(6) + bytes((mac[0] ^ 2,)) + mac[1:3] + b"\xff\xfe" + mac[3:])


def sender_of(vni: int, frame: bytes) -> tuple[Host, IPAddress] | None:
    """Return the host that sent a frame and the address that it uses; None for a frame without them.

    A host that only checks whether an address is free does not have it yet.
    """
    if len(frame) < _ETHERNET.size:
        return None
    _, mac, kind = _ETHERNET.unpack_from(frame)
    address: IPAddress | None = None
    if kind == ETH_P_ARP and len(frame) >= _ETHERNET.size + _ARP.size:
        *form, _, sender_mac, sender, _, _ = _ARP.unpack_from(frame, _ETHERNET.size)
        if tuple(form) == _ARP_KIND and sender_mac == mac:
            address = IPv4Address(sender)
    elif kind == ETH_P_IPV6 and len(frame) >= LONGEST:
        _, _, following, hop_limit, source, _ = _IPV6.unpack_from(frame, _ETHERNET.size)
        at = _ETHERNET.size + _IPV6.size
        if (following, hop_limit) == (ICMPV6, HOP_LIMIT):
            advertised = frame[at] == NEIGHBOR_ADVERTISEMENT
            address = IPv6Address(frame[at + 8 : at + 24] if advertised else source)
    if mac[0] & 1 or address is None or address.is_unspecified or address.is_multicast or address.is_loopback:
        return None
    return Host(vni, mac), address


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
