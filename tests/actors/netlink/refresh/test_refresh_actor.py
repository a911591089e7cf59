"""Hours of virtual time with hosts that only ever answer, on a bridge in memory that forgets after 300 s."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.lib.frr.vtysh import FrrUnavailable
from actors.netlink.refresh import actor
from actors.netlink.refresh.hosts import Host, Look, Probe, Segment
from actors.netlink.refresh.missed import LocalMacs
from actors.netlink.wire.namespace import NamespaceMissing
from actors.netlink.wire.socket import KernelRefusal
from config.desired import DesiredL2VNI, IPAddress
from config.outcomes import KernelOutcome
from config.settings import Settings
from supervisor.process.change_events import LONGEST_SECONDS
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.netlink.builders import l2vni, state, underlay

AGEING = 300.0
HOUR = 3600.0
V4, V6 = ip_address("192.0.2.9"), ip_address("2001:db8::9")


@dataclass
class Bridges:
    """The router's bridges with their hosts; a host is there while it has an address in ``answering``."""

    last: dict[Host, float] = field(default_factory=dict)
    answering: dict[Host, set[IPAddress]] = field(default_factory=dict)
    waiting: list[tuple[Host, IPAddress]] = field(default_factory=list)
    asked: list[tuple[float, Probe]] = field(default_factory=list)
    looks: list[tuple[int, ...]] = field(default_factory=list)
    current: bool = True
    refusals: list[int] = field(default_factory=list)
    opened: bool = False
    #: What zebra misses, and for how long it does not answer.
    missing: set[Host] = field(default_factory=set)
    zebra_back: float = 0.0
    forgotten: list[tuple[float, Host]] = field(default_factory=list)
    questions: list[tuple[float, frozenset[int]]] = field(default_factory=list)

    def frame(self, host: Host, address: IPAddress) -> None:
        """Take a frame of a host that shows its address."""
        self.last[host] = trio.current_time()
        self.waiting.append((host, address))

    def age(self) -> None:
        self.last = {host: at for host, at in self.last.items() if trio.current_time() - at < AGEING}

    def look(self, segments: Iterable[Segment]) -> Look:
        if not self.current:
            raise NamespaceMissing("netns perouter missing")
        if self.refusals:
            raise KernelRefusal(self.refusals.pop())
        self.opened = True
        self.looks.append(tuple(segment.vni for segment in segments))
        self.age()
        seen, self.waiting = tuple(self.waiting), []
        silent = {host: trio.current_time() - at for host, at in self.last.items()}
        return Look(silent, {}, seen, dict.fromkeys(self.looks[-1], 7))

    def forget(self, hosts: Iterable[Host]) -> None:
        for host in hosts:
            del self.last[host]
            self.forgotten.append((trio.current_time(), host))

    async def zebra(self, _: Settings, vnis: Collection[int]) -> LocalMacs:
        """What zebra has: it takes each MAC that a bridge learns again after it was forgotten."""
        self.questions.append((trio.current_time(), frozenset(vnis)))
        if trio.current_time() < self.zebra_back:
            raise FrrUnavailable("FRR is not running")
        self.missing -= {host for _, host in self.forgotten}
        return {vni: {host.mac for host in self.last if host.vni == vni} - self._missed(vni) for vni in vnis}

    def _missed(self, vni: int) -> set[bytes]:
        return {host.mac for host in self.missing if host.vni == vni}

    def ask(self, probe: Probe) -> bool:
        self.asked.append((trio.current_time(), probe))
        if probe.address in self.answering.get(probe.host, ()):
            self.frame(probe.host, probe.address)
        return True

    def is_current(self) -> bool:
        return self.current or not self.opened

    def close(self) -> None:
        self.opened = False


@pytest.fixture
def autojump_clock() -> MockClock:
    return MockClock(autojump_threshold=0)


@pytest.fixture
def bridges(monkeypatch: pytest.MonkeyPatch) -> Bridges:
    async def at_once(function: partial[object], *, limiter: trio.CapacityLimiter) -> object:
        async with limiter:
            return function()

    # Threads take real time, in which the clock would jump.
    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    return Bridges()


@asynccontextmanager
async def refresher(bridges: Bridges, *vnis: DesiredL2VNI, probes: int = 500) -> AsyncIterator[Latest[KernelOutcome]]:
    kernel: Latest[KernelOutcome] = Latest("kernel")
    kernel.set(outcome(1, *vnis))
    settings = Settings(silent_host_probes=probes)
    context = ActorContext("refresh")

    def opened(_: Path) -> Bridges:
        return bridges

    async with trio.open_nursery() as nursery:
        run = partial(actor.run, context, settings=settings, kernel=kernel.reader(), opened=opened, zebra=bridges.zebra)
        nursery.start_soon(run)
        yield kernel
        nursery.cancel_scope.cancel()


def outcome(generation: int, *vnis: DesiredL2VNI, applied: bool = True) -> KernelOutcome:
    return KernelOutcome(replace(state(underlay=underlay(), l2vnis=vnis), generation=generation), applied=applied)


LOOSE = l2vni("loose", 110, vrf=None, gateways=())


@pytest.mark.parametrize("address", [V4, V6], ids=["ipv4", "ipv6"])
async def test_a_host_that_only_ever_answers_stays_known_for_an_hour_without_a_gateway(
    autojump_clock: MockClock, bridges: Bridges, address: IPAddress
) -> None:
    silent, talkative, gone = (Host(110, bytes((2, 0, 0, 0, 0, number))) for number in range(3))
    bridges.answering = {silent: {address}, talkative: {address}}
    async with refresher(bridges, LOOSE):
        for host in (silent, gone):
            bridges.frame(host, address)
        for _ in range(int(HOUR / 10)):
            bridges.frame(talkative, address)
            await trio.sleep(10)
            bridges.age()
            assert silent in bridges.last
    asked = [probe.host for _, probe in bridges.asked]
    assert talkative not in asked
    # One question per period while it answers; no answer, no entry.
    assert HOUR / 60 <= asked.count(silent) <= HOUR / 30
    assert gone not in bridges.last
    assert asked.count(gone) <= AGEING / 12
    assert max(at for at, probe in bridges.asked if probe.host == gone) <= AGEING + 1


async def test_reconciles_do_not_delay_a_look(autojump_clock: MockClock, bridges: Bridges) -> None:
    host = Host(110, b"\x02" + bytes(5))
    bridges.answering = {host: {V4}}
    async with refresher(bridges, LOOSE) as kernel:
        bridges.frame(host, V4)
        for generation in range(2, int(HOUR)):
            kernel.set(outcome(generation, LOOSE, applied=bool(generation % 3)))
            await trio.sleep(1)
            bridges.age()
            assert host in bridges.last
    assert len(bridges.looks) <= HOUR / 12


async def test_a_new_segment_is_looked_at_at_once_and_a_removed_one_no_more(
    autojump_clock: MockClock, bridges: Bridges
) -> None:
    green = l2vni("green", 140, vrf=None, gateways=())
    async with refresher(bridges, LOOSE) as kernel:
        await trio.sleep(1)
        kernel.set(outcome(2, LOOSE, green))
        await trio.sleep(1)
        assert bridges.looks == [(110,), (110, 140)]
        kernel.set(outcome(3, green, applied=False))
        await trio.sleep(20)
        assert set(bridges.looks[-1]) == {110, 140}
        kernel.set(outcome(4, green))
        await trio.sleep(1)
        assert bridges.looks[-1] == (140,)
        kernel.set(outcome(5))
        await trio.sleep(HOUR)
        assert bridges.looks[-1] == (140,)
        assert not bridges.opened


async def test_thousands_of_hosts_are_asked_at_the_rate_that_is_set_and_all_stay(
    autojump_clock: MockClock, bridges: Bridges
) -> None:
    hosts = [Host(110 + number % 2, b"\x02" + number.to_bytes(5, "big")) for number in range(2000)]
    bridges.answering = {host: {V4} for host in hosts}
    async with refresher(bridges, LOOSE, l2vni("other", 111, vrf=None, gateways=()), probes=100):
        for host in hosts:
            bridges.frame(host, V4)
        await trio.sleep(3 * AGEING)
        bridges.age()
        assert len(bridges.last) == len(hosts)
    times = [at for at, _ in bridges.asked]
    for start in range(0, len(times) - 100, 100):
        assert times[start + 100] - times[start] >= 0.89


async def test_a_namespace_that_is_gone_is_let_go_and_the_next_one_is_used(
    autojump_clock: MockClock, bridges: Bridges
) -> None:
    async with refresher(bridges, LOOSE):
        await trio.sleep(5)
        assert bridges.opened
        bridges.current = False
        await trio.sleep(LONGEST_SECONDS + 1)
        assert not bridges.opened
        await trio.sleep(HOUR)
        bridges.current, before = True, len(bridges.looks)
        await trio.sleep(20)
        assert len(bridges.looks) > before


async def test_a_namespace_that_goes_while_thousands_of_hosts_are_asked_is_let_go_at_once(
    autojump_clock: MockClock, bridges: Bridges
) -> None:
    hosts = [Host(110, b"\x02" + number.to_bytes(5, "big")) for number in range(2000)]
    bridges.answering = {host: {V4} for host in hosts}
    async with refresher(bridges, LOOSE, probes=100):
        for host in hosts:
            bridges.frame(host, V4)
        for _ in range(60):
            await trio.sleep(0 if bridges.asked else 1)
        bridges.current = False
        gone = trio.current_time()
        await trio.sleep(1)
        # Its sockets would keep the namespace alive, with the NIC in it.
        assert not bridges.opened
        await trio.sleep(30)
    assert max(at for at, _ in bridges.asked) <= gone


async def test_a_table_that_cannot_be_read_costs_a_look_and_no_memory(
    autojump_clock: MockClock, bridges: Bridges
) -> None:
    host = Host(110, b"\x02" + bytes(5))
    bridges.answering = {host: {V4}}
    async with refresher(bridges, LOOSE):
        bridges.frame(host, V4)
        await trio.sleep(20)
        bridges.refusals = [errno.EINTR] * 3
        await trio.sleep(AGEING)
        bridges.age()
        assert host in bridges.last
        assert not bridges.refusals


async def test_a_socket_that_is_not_allowed_ends_the_actor(autojump_clock: MockClock, bridges: Bridges) -> None:
    bridges.refusals = [errno.EPERM]
    kernel: Latest[KernelOutcome] = Latest("kernel")
    kernel.set(outcome(1, LOOSE))

    def opened(_: Path) -> Bridges:
        return bridges

    with pytest.raises(KernelRefusal):
        await actor.run(ActorContext("refresh"), settings=Settings(), kernel=kernel.reader(), opened=opened)


async def test_zero_means_never(autojump_clock: MockClock) -> None:
    kernel: Latest[KernelOutcome] = Latest("kernel")
    kernel.set(outcome(1, LOOSE))

    def opened(_: Path) -> Bridges:
        raise AssertionError("nothing is opened")

    with trio.move_on_after(HOUR) as scope:
        settings = Settings(silent_host_seconds=0)
        await actor.run(ActorContext("refresh"), settings=settings, kernel=kernel.reader(), opened=opened)
    assert scope.cancelled_caught


async def test_a_host_that_zebra_has_missed_is_forgotten_and_asked_so_that_it_announces_itself_again(
    autojump_clock: MockClock, bridges: Bridges
) -> None:
    known, missed = (Host(110, bytes((2, 0, 0, 0, 0, number))) for number in range(2))
    bridges.answering = {known: {V4}, missed: {V6}}
    bridges.missing = {missed}
    # Until zebra answers, nothing is forgotten.
    bridges.zebra_back = 100.0
    async with refresher(bridges, LOOSE):
        bridges.frame(known, V4)
        bridges.frame(missed, V6)
        await trio.sleep(HOUR)
    [(at, host)] = bridges.forgotten
    assert host == missed
    assert 100 <= at <= 120
    # It is not left to the host when it sends its next frame.
    assert (at, Probe(missed, V6)) in bridges.asked
    assert missed not in bridges.missing
    assert missed in bridges.last
    # And once it has all of them, zebra is left alone.
    assert max(asked for asked, _ in bridges.questions) <= at + 40


def test_gateways_come_from_the_segment() -> None:
    routed = l2vni("red", 130, vrf="red", gateways=("192.0.2.1/24",))
    segment = Segment(130, (ip_interface("192.0.2.1/24"),))
    assert actor.followed({}, outcome(1, routed)) == {130: segment}
    # Until a state is in force, its gateways are not.
    assert actor.followed({130: Segment(130)}, outcome(2, routed, applied=False)) == {130: Segment(130)}
    assert actor.followed({130: Segment(130)}, outcome(2, routed)) == {130: segment}
