"""Requests in bulk over one socket: whose answer is whose, and what happens to answers that are lost."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator

import pytest

from actors.netlink.wire.message import NLM_F_REQUEST, REQUEST, NetlinkRequest, text
from actors.netlink.wire.socket import (
    DATAGRAM,
    DUMP_ATTEMPTS,
    LAST_SEQUENCE,
    MOST_REQUESTS,
    NLM_F_ACK_TLVS,
    NLM_F_CAPPED,
    NLM_F_DUMP_INTR,
    NLMSG_DONE,
    NLMSG_ERROR,
    KernelRefusal,
    RouteSocket,
)

Sent = tuple[int, int, bytes]


def message(kind: int, number: int, body: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, number, 0) + body


def acknowledgement(number: int, error: int = 0, words: str = "") -> bytes:
    flags = NLM_F_CAPPED | (NLM_F_ACK_TLVS if words else 0)
    body = struct.pack("=i", -error) + bytes(16) + (text(1, words) if words else b"")
    return message(NLMSG_ERROR, number, body, flags)


def requests_in(datagram: bytes) -> Iterator[Sent]:
    at = 0
    while at < len(datagram):
        length, kind, _, number, _ = struct.unpack_from("=IHHII", datagram, at)
        yield kind, number, datagram[at + 16 : at + length]
        at += length


class Wire:
    """A netlink socket whose kernel is a function of one request; an OSError among the answers is raised."""

    def __init__(self, kernel: Callable[[Sent], list[bytes | OSError]]) -> None:
        self._kernel = kernel
        self._queue: list[bytes | OSError] = []
        self.datagrams: list[bytes] = []
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def send(self, datagram: bytes) -> None:
        self.datagrams.append(datagram)
        for request in requests_in(datagram):
            self._queue += self._kernel(request)

    def recv(self, size: int, flags: int) -> bytes:
        if not self._queue:
            raise BlockingIOError
        answer = self._queue.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


def over(wire: Wire) -> RouteSocket:
    route = object.__new__(RouteSocket)
    route._socket = wire  # type: ignore[assignment]
    route._sequence = 0
    return route


def change(name: str, *tolerated: int) -> NetlinkRequest:
    return NetlinkRequest(16, REQUEST, name.encode().ljust(8, b"\0"), tolerated)


def test_each_request_has_its_own_answer() -> None:
    def kernel(sent: Sent) -> list[bytes | OSError]:
        kind, number, body = sent
        if kind == 18:
            return [message(16, number, b"link" + body)]
        error = {b"missing": errno.ENODEV, b"gone": errno.ENODEV, b"busy": errno.EBUSY}.get(body.rstrip(b"\0"), 0)
        return [acknowledgement(number, error, "Device is used" if error == errno.EBUSY else "")]

    wire = Wire(kernel)
    look = NetlinkRequest(18, NLM_F_REQUEST, b"name")
    answers = over(wire).send([change("one"), change("missing"), look, change("gone", errno.ENODEV), change("busy")])
    assert [str(answer) for answer in answers] == ["[]", "No such device", "[b'linkname']", "[]", "Device is used"]
    assert len(wire.datagrams) == 1


def test_many_requests_take_several_datagrams_of_limited_size() -> None:
    wire = Wire(lambda sent: [acknowledgement(sent[1])])
    large = NetlinkRequest(16, REQUEST, bytes(DATAGRAM // 3))
    answers = over(wire).send([change(str(number)) for number in range(MOST_REQUESTS + 1)] + [large] * 5)
    assert answers == [[]] * (MOST_REQUESTS + 6)
    assert [len(list(requests_in(datagram))) for datagram in wire.datagrams] == [MOST_REQUESTS, 3, 2, 1]
    assert max(map(len, wire.datagrams)) <= DATAGRAM


def test_an_answer_that_was_lost_is_a_refusal_of_its_request_and_the_others_count() -> None:
    def kernel(sent: Sent) -> list[bytes | OSError]:
        return [OSError(errno.ENOBUFS, "")] if sent[2].startswith(b"lost") else [acknowledgement(sent[1])]

    route = over(Wire(kernel))
    first, lost, last = route.send([change("one"), change("lost"), change("two")])
    assert (first, last) == ([], [])
    assert isinstance(lost, KernelRefusal)
    assert lost.errno == errno.ENOBUFS


def test_a_late_answer_belongs_to_no_later_request() -> None:
    late: list[bytes | OSError] = [acknowledgement(99, errno.EPERM)]
    assert over(Wire(lambda sent: [*late, acknowledgement(sent[1])])).request(change("one")) == []


def test_sequence_numbers_begin_again() -> None:
    wire = Wire(lambda sent: [acknowledgement(sent[1])])
    route = over(wire)
    route._sequence = LAST_SEQUENCE
    assert route.send([change("one"), change("two")]) == [[], []]
    assert [number for _, number, _ in requests_in(wire.datagrams[0])] == [1, 2]


def test_an_interrupted_dump_is_read_to_its_end_and_repeated() -> None:
    attempts: list[int] = []

    def kernel(sent: Sent) -> list[bytes | OSError]:
        attempts.append(sent[1])
        flags = NLM_F_DUMP_INTR if len(attempts) == 1 else 0
        done = message(NLMSG_DONE, sent[1], struct.pack("=i", 0), flags)
        return [message(16, sent[1], b"one1", flags) + message(16, sent[1], b"two2"), done]

    assert over(Wire(kernel)).dump(18, b"") == [b"one1", b"two2"]
    assert len(attempts) == 2


def test_a_dump_that_is_always_interrupted_or_refused_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("actors.netlink.wire.socket.time.sleep", pauses.append)

    def changing(sent: Sent) -> list[bytes | OSError]:
        return [message(NLMSG_DONE, sent[1], struct.pack("=i", 0), NLM_F_DUMP_INTR)]

    with pytest.raises(KernelRefusal, match=f"{DUMP_ATTEMPTS} dumps"):
        over(Wire(changing)).dump(18, b"")
    # Longer than the detection of duplicates takes, which ends with a change for each IPv6 address (RFC 4862).
    assert len(pauses) == DUMP_ATTEMPTS - 1
    assert 2.0 < sum(pauses) < 3.0
    assert pauses == sorted(pauses)
    with pytest.raises(KernelRefusal, match="not permitted"):
        over(Wire(lambda sent: [acknowledgement(sent[1], errno.EPERM)])).dump(18, b"")
    lost = struct.pack("=i", -errno.ENOENT)
    with pytest.raises(KernelRefusal, match="No such file"):
        over(Wire(lambda sent: [message(NLMSG_DONE, sent[1], lost)])).dump(18, b"")
    assert len(pauses) == DUMP_ATTEMPTS - 1


def test_after_a_dump_that_was_lost_another_socket_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel allows one dump at a time on a socket, and one whose answers are lost never ends."""
    stuck = Wire(lambda sent: [])
    fine = Wire(lambda sent: [message(NLMSG_DONE, sent[1], struct.pack("=i", 0))])
    monkeypatch.setattr("actors.netlink.wire.socket._opened", lambda: fine)
    route = over(stuck)
    with pytest.raises(KernelRefusal, match="answer was lost"):
        route.dump(18, b"")
    assert stuck.closed
    assert route.dump(18, b"") == []
    assert len(stuck.datagrams) == len(fine.datagrams) == 1


def test_a_socket_that_cannot_be_replaced_is_replaced_later(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = OSError(errno.EMFILE, "Too many open files")
    answers: list[Wire | OSError] = [refusal, Wire(lambda sent: [message(NLMSG_DONE, sent[1], struct.pack("=i", 0))])]

    def opened() -> Wire:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr("actors.netlink.wire.socket._opened", opened)
    route = over(Wire(lambda sent: []))
    for why in ("answer was lost", "answer was lost"):
        with pytest.raises(KernelRefusal, match=why):
            route.dump(18, b"")
    assert route.dump(18, b"") == []
