"""One rtnetlink socket of one namespace: requests in bulk that return typed errors, and complete dumps.

A socket belongs to the namespace in which it was opened, and to the thread that opened it (:mod:`.namespace`).

The kernel handles rtnetlink requests in the thread that sends them: when ``send`` returns, every answer is in the
receive buffer. So many requests go out in one datagram, and their answers are collected without waiting; each has its
request's sequence number. The kernel continues after a refused request, so requests of one datagram must not depend on
one another, unless a later one cannot do harm after an earlier one was refused.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from supervisor.runtime.faults import KernelFault

from .message import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkRequest, as_text, attributes

#: socket(7): like SO_RCVBUF, beyond rmem_max, with CAP_NET_ADMIN.
SO_RCVBUFFORCE = 33
#: One VXLAN and bridge pair emits 17.5 KiB of notifications; this holds those of several hundred.
RECEIVE_BUFFER = 16 << 20
#: linux/netlink.h
SOL_NETLINK = 270
NETLINK_CAP_ACK = 10
NETLINK_EXT_ACK = 11
NETLINK_GET_STRICT_CHK = 12
NLMSG_ERROR = 2
NLMSG_DONE = 3
NLM_F_DUMP_INTR = 0x10
NLM_F_CAPPED = 0x100
NLM_F_ACK_TLVS = 0x200
NLMSGERR_ATTR_MSG = 1
#: A dump that the kernel marks as inconsistent is repeated after a pause, in seconds, which doubles each time, to 2.6 s
#: together: hundreds of new IPv6 addresses end their detection of duplicates one by one within two seconds.
DUMP_ATTEMPTS = 10
DUMP_PAUSE = 0.005
#: Why a dump ended without having been read to its end, and why no other one can begin on the socket then.
_STUCK: Final = frozenset({errno.ENOBUFS, errno.EBUSY})
#: The most that goes out in one datagram, bytes: a small part of a send buffer, whose default is 208 KiB.
DATAGRAM = 1 << 15
#: The kernel fills at most 32 KiB of a dump at a time.
READ_SIZE = 1 << 16
#: Answers per datagram that a receive buffer of the default size holds, too: an answer with a link takes 4 KiB of it.
MOST_REQUESTS = 48
#: Far below the last number of 32 bits.
LAST_SEQUENCE = 1 << 31

_HEADER: Final = struct.Struct("=IHHII")
_ERROR: Final = struct.Struct("=i")


class KernelRefusal(KernelFault):
    """The kernel answered a request with an error. ``errno`` is positive."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or os.strerror(number))
        self.errno = number


#: What a request came to: the messages that answer it (none for one that is only acknowledged), or the refusal.
Answer = list[bytes] | KernelRefusal


def enlarge_buffer(endpoint: Any) -> None:
    """Give a socket a large receive buffer, as large as allowed for a process without CAP_NET_ADMIN."""
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except PermissionError:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)


def _opened() -> socket.socket:
    """Return a bound socket of the calling thread's namespace."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    try:
        for option in (NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK):
            opened.setsockopt(SOL_NETLINK, option, 1)
        enlarge_buffer(opened)
        opened.bind((0, 0))
    except BaseException:
        opened.close()
        raise
    return opened


class RouteSocket:
    """A socket for requests and dumps, without subscriptions, so its buffer holds answers only."""

    def __init__(self) -> None:
        self._socket = _opened()
        self._sequence = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, requests: Sequence[NetlinkRequest]) -> list[Answer]:
        """Carry out requests in order; return each one's answer. A tolerated error is an empty answer."""
        answers: list[Answer] = []
        for part in _datagrams(requests):
            answers += self._exchange(part)
        return answers

    def request(self, request: NetlinkRequest) -> list[bytes]:
        """Carry out one request and return the messages that answer it; KernelRefusal when the kernel refuses it."""
        [answer] = self.send((request,))
        if isinstance(answer, KernelRefusal):
            raise answer
        return answer

    def _numbers(self, count: int) -> int:
        """Return the first of as many new sequence numbers, which have 32 bits."""
        first = self._sequence + 1 if self._sequence < LAST_SEQUENCE else 1
        self._sequence = first + count - 1
        return first

    def _exchange(self, requests: Sequence[NetlinkRequest]) -> list[Answer]:
        first = self._numbers(len(requests))
        pieces: list[bytes] = []
        for number, request in enumerate(requests, start=first):
            length = _HEADER.size + len(request.body)
            pieces += (_HEADER.pack(length, request.kind, request.flags, number, 0), request.body)
        self._socket.send(b"".join(pieces))
        found: dict[int, list[bytes]] = {number: [] for number in range(first, first + len(requests))}
        open_ones, refused = set(found), dict[int, KernelRefusal]()
        while open_ones:
            try:
                messages = list(self._read())
            except KernelRefusal as lost:
                refused |= dict.fromkeys(open_ones, lost)
                break
            for kind, flags, number, body in messages:
                if number not in open_ones:
                    continue
                if kind == NLMSG_ERROR:
                    refusal = _refusal(flags, body)
                    if refusal is not None and refusal.errno not in requests[number - first].tolerated:
                        refused[number] = refusal
                    open_ones.discard(number)
                else:
                    found[number].append(body)
                    if not requests[number - first].flags & NLM_F_ACK:
                        open_ones.discard(number)
        return [refused.get(number, answer) for number, answer in found.items()]

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """Return all objects of a kind, each as its message without the header; ``body`` is what to ask for."""
        for attempt in range(DUMP_ATTEMPTS):
            if attempt:
                # In a namespace's own thread (:mod:`.namespace`), for which the event loop does not wait.
                time.sleep(DUMP_PAUSE * 2 ** (attempt - 1))
            try:
                found = self._dump(kind, body)
            except KernelRefusal as refusal:
                if refusal.errno in _STUCK:
                    self._renew()
                raise
            if found is not None:
                return found
        raise KernelRefusal(errno.EINTR, f"{DUMP_ATTEMPTS} dumps in a row were interrupted by changes")

    def _renew(self) -> None:
        """Use another socket, if there is one: a dump without an end keeps the kernel from beginning another."""
        with suppress(OSError):
            old, self._socket = self._socket, _opened()
            old.close()

    def _dump(self, kind: int, body: bytes) -> list[bytes] | None:
        """Return None when the dump was interrupted by a change. It is read to its end all the same."""
        wanted, found, consistent = self._numbers(1), list[bytes](), True
        header = _HEADER.pack(_HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, wanted, 0)
        self._socket.send(header + body)
        while True:
            for answer, flags, number, message in self._read():
                if number != wanted:
                    continue
                consistent = consistent and not flags & NLM_F_DUMP_INTR
                if answer in (NLMSG_ERROR, NLMSG_DONE):
                    refusal = _refusal(flags, message)
                    if refusal is not None:
                        raise refusal
                    return found if consistent else None
                found.append(message)

    def _read(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield the type, flags, sequence number and body of each message of one datagram.

        Nothing is waited for: an answer that is not there was lost, and what the request did is unknown.
        """
        data = b""
        while not data:
            try:
                data = self._socket.recv(READ_SIZE, socket.MSG_DONTWAIT)
            except BlockingIOError as error:
                raise KernelRefusal(errno.ENOBUFS, "the kernel's answer was lost: no buffer space") from error
            except OSError as error:
                # Some answers were lost; those that were not are still there.
                if error.errno != errno.ENOBUFS:
                    raise
        at, end = 0, len(data)
        while at + _HEADER.size <= end:
            length, kind, flags, number, _ = _HEADER.unpack_from(data, at)
            if not _HEADER.size <= length <= end - at:
                return
            yield kind, flags, number, data[at + _HEADER.size : at + length]
            at += (length + 3) & ~3


def _datagrams(requests: Sequence[NetlinkRequest]) -> Iterator[Sequence[NetlinkRequest]]:
    """Yield the requests in parts that fit into one datagram each."""
    start, size = 0, 0
    for at, request in enumerate(requests):
        length = _HEADER.size + len(request.body)
        if at > start and (size + length > DATAGRAM or at - start == MOST_REQUESTS):
            yield requests[start:at]
            start, size = at, 0
        size += length
    if requests:
        yield requests[start:]


def _refusal(flags: int, body: bytes) -> KernelRefusal | None:
    """Return the error of an acknowledgement or of a dump's end, with the kernel's own words if it sent some."""
    number = -_ERROR.unpack_from(body)[0] if len(body) >= _ERROR.size else 0
    if number <= 0:
        return None
    words = ""
    if flags & NLM_F_ACK_TLVS and flags & NLM_F_CAPPED:
        words = as_text(attributes(body, _ERROR.size + _HEADER.size).get(NLMSGERR_ATTR_MSG))
    return KernelRefusal(number, words)
