"""Which notifications wake the loop."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
import trio.testing

from actors.netlink.link_monitor import PAUSE_SECONDS, Interest, drain, watch


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


INTEREST = Interest.of_host([b"eth1"], [7])


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
    with pytest.raises(BlockingIOError):
        one.recv(1)
    with one, other:
        pass
    drain(one)
    assert one.fileno() == -1


@dataclass
class Watched:
    """A monitor's writing end, how often the watcher called, and the lock of passes."""

    sender: socket.socket
    monitor: socket.socket
    passing: trio.Lock
    calls: int = 0

    def changed(self) -> None:
        self.calls += 1

    def send(self, count: int, datagram: bytes = link_message(7, "vni100")) -> None:
        for _ in range(count):
            self.sender.send(datagram)


@asynccontextmanager
async def watched(interest: Interest | None = None) -> AsyncIterator[Watched]:
    monitor, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    monitor.setblocking(False)
    with monitor, sender:
        async with trio.open_nursery() as nursery:
            found = Watched(sender, monitor, trio.Lock())
            nursery.start_soon(watch, monitor, lambda: interest, found.changed, found.passing)
            yield found
            nursery.cancel_scope.cancel()


async def test_many_notifications_are_one_reason(autojump_clock: trio.testing.MockClock) -> None:
    async with watched(INTEREST) as found:
        found.send(50)
        await trio.sleep(10 * PAUSE_SECONDS)
        assert found.calls == 1
        found.send(1)
        await trio.sleep(10 * PAUSE_SECONDS)
        assert found.calls == 2


async def test_notifications_that_do_not_count_are_read_together(autojump_clock: trio.testing.MockClock) -> None:
    async with watched(INTEREST) as found:
        found.send(50, link_message(99, "vethabcdef"))
        await trio.sleep(PAUSE_SECONDS / 2)
        with pytest.raises(BlockingIOError):
            found.monitor.recv(1)
        assert found.calls == 0
        found.send(1)
        await trio.sleep(2 * PAUSE_SECONDS)
        assert found.calls == 1


async def test_nothing_is_read_during_a_pass_and_nothing_is_missed_after_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with watched() as found:
        async with found.passing:
            found.send(20)
            await trio.sleep(1)
            assert found.calls == 0
            drain(found.monitor)
            # This one came after the pass's observation began.
            found.send(1)
        await trio.sleep(2 * PAUSE_SECONDS)
        assert found.calls == 1
