"""Netlink messages as bytes: attributes out of values, values out of attributes (linux/netlink.h).

Numbers are in the machine's byte order but for those that the kernel calls big-endian. Written by hand rather than with
a library's message classes because a node with 500 VNIs has 2,500 devices, which are read for each change: this decodes
one in a few microseconds, and differs between no two releases.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

#: linux/netlink.h
NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_DUMP = 0x300
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
#: Bits of an attribute's type beside its number: NLA_F_NESTED, which newer kinds of nests must have, and
#: NLA_F_NET_BYTEORDER.
NESTED = 0x8000
NUMBER = 0x3FFF

REQUEST = NLM_F_REQUEST | NLM_F_ACK
CREATE = REQUEST | NLM_F_CREATE | NLM_F_EXCL

ATTRIBUTE: Final = struct.Struct("=HH")
_U32: Final = struct.Struct("=I")

Attributes = dict[int, bytes]


@dataclass(frozen=True, slots=True)
class NetlinkRequest:
    """One request without its header. An error of ``tolerated`` means that the kernel already is as requested."""

    kind: int
    flags: int
    body: bytes
    tolerated: tuple[int, ...] = ()


def attribute(kind: int, *parts: bytes) -> bytes:
    """Return an attribute with its padding; several parts are a nest's attributes, or a structure and attributes."""
    payload = b"".join(parts)
    return ATTRIBUTE.pack(4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def u8(kind: int, value: int) -> bytes:
    """Return an attribute of one byte."""
    return attribute(kind, bytes((value,)))


def u32(kind: int, value: int) -> bytes:
    """Return an attribute of 32 bits."""
    return attribute(kind, _U32.pack(value))


def text(kind: int, value: str) -> bytes:
    """Return an attribute of text, which ends with a zero."""
    return attribute(kind, value.encode(), b"\0")


def address(kind: int, value: str) -> bytes:
    """Return an attribute with an IPv4 or IPv6 address."""
    return attribute(kind, inet_pton(AF_INET6 if ":" in value else AF_INET, value))


def pairs(data: bytes, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the number and payload of each attribute from an offset on; what is cut off ends them."""
    end = len(data)
    while at + 4 <= end:
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if not 4 <= length <= end - at:
            return
        yield kind & NUMBER, data[at + 4 : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes | None, at: int = 0) -> Attributes:
    """Return the attributes by number; none for None, so that absent nests can be asked like present ones."""
    return {} if data is None else dict(pairs(data, at))


def as_int(payload: bytes | None) -> int:
    """Return a number of any width; 0 when it is absent."""
    return 0 if payload is None else int.from_bytes(payload, sys.byteorder)


def as_text(payload: bytes | None) -> str:
    """Return a text without its final zero; empty when it is absent."""
    return "" if payload is None else payload.rstrip(b"\0").decode(errors="replace")


def as_address(payload: bytes | None) -> str:
    """Return an IPv4 or IPv6 address as text; empty when it is absent."""
    return "" if not payload else inet_ntop(AF_INET if len(payload) == 4 else AF_INET6, payload)
