"""Hours of virtual time with hosts that answer or do not: when each address is pinged, and what is reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address

import trio
from trio.testing import MockClock

from actors.netlink.probes import actor
from actors.netlink.probes.schedule import PingResult, ProbeTarget, targets_of
from actors.netlink.wire.namespace import NamespaceMissing
from config.desired import DesiredL3VNI, DesiredProbe, DesiredState, ResourceFailure
from config.outcomes import KernelOutcome, ProbeHealth, ProbeReport
from config.problems import Reason
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.netlink.builders import DUAL, l3vni, passthrough, session, state

PROBE = DesiredProbe((ip_address("10.0.0.1"),), interval=10, count=3)
HOSTS = tuple(str(one.host.ip) for one in session(*DUAL).addresses)


@dataclass
class Hosts:
    """Addresses that answer, after a tenth of a second; the others cost the whole second."""

    answering: set[str] = field(default_factory=set)
    pings: list[tuple[float, str, str]] = field(default_factory=list)
    most: int = 0
    present: bool = True

    async def ping(self, targets: Sequence[ProbeTarget]) -> list[PingResult]:
        if not self.present:
            raise NamespaceMissing("netns perouter missing")
        self.most = max(self.most, len(targets))
        self.pings += ((trio.current_time(), one.vrf, str(one.address)) for one in targets)
        up = [str(one.address) in self.answering for one in targets]
        await trio.sleep(0.1 if all(up) else 1.0)
        return [PingResult(0.1) if answers else PingResult() for answers in up]


@dataclass
class Bench:
    hosts: Hosts = field(default_factory=Hosts)
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    out: Latest[ProbeReport] = field(default_factory=lambda: Latest("probes"))
    context: ActorContext = field(default_factory=lambda: ActorContext("probes"))

    def apply(self, desired: DesiredState) -> None:
        self.kernel.set(KernelOutcome(desired, applied=True))

    def health(self) -> dict[str, ProbeHealth]:
        report = self.out.peek()
        return {} if report is None else {probe.target: probe for probe in report.probes}


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    # Each address is pinged in the middle of its interval, so that no ping is under way when a test changes something.
    middle = partial(float, 0.5)
    body = partial(
        actor.run, settings=Settings(), kernel=bench.kernel.reader(), out=bench.out, pinger=bench.hosts, chance=middle
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(body, bench.context)
        yield bench
        nursery.cancel_scope.cancel()


def tenant(name: str, vni: int, probe: DesiredProbe | None) -> DesiredL3VNI:
    return replace(l3vni(name, vni), session=replace(session(*DUAL), probe=probe))


def probed(probe: DesiredProbe | None = PROBE) -> DesiredState:
    return state(l3vnis=(tenant("red", 100, probe),))


def test_the_hosts_ends_and_the_targets_of_each_session_are_pinged_in_their_vrfs() -> None:
    through = passthrough()
    through = replace(through, session=replace(through.session, probe=DesiredProbe()))
    found = targets_of(KernelOutcome(replace(probed(), passthrough=through), applied=True))
    assert [(one.vrf, str(one.address), one.role) for one in found] == [
        *(("red", host, "host") for host in HOSTS),
        ("red", "10.0.0.1", "target"),
        *(("", str(one.host.ip), "host") for one in through.session.addresses),
    ]


def test_what_the_kernel_has_refused_is_not_pinged() -> None:
    desired = probed()
    refused = ResourceFailure(desired.l3vnis[0].resource, Reason.OVERLAY_ATTACHMENT_FAILED, "no")
    assert targets_of(KernelOutcome(desired, applied=True, failures=(refused,))) == ()


async def test_each_address_is_pinged_at_its_interval(autojump_clock: MockClock) -> None:
    async with running(Bench(Hosts({"10.0.0.1", *HOSTS}))) as bench:
        bench.apply(probed())
        await trio.sleep(1000)
        counts = Counter(address for _, _, address in bench.hosts.pings)
        assert all(90 <= count <= 112 for count in counts.values()), counts
        assert {probe.state for probe in bench.health().values()} == {"up"}
        assert bench.health()["10.0.0.1"].rtt_seconds == 0.1
        assert bench.health()["10.0.0.1"].lost == 0


async def test_an_address_is_down_after_as_many_pings_as_configured_and_up_after_one(
    autojump_clock: MockClock,
) -> None:
    async with running(Bench(Hosts({"10.0.0.1"}))) as bench:
        bench.apply(probed())
        await trio.sleep(60)
        assert bench.health()["10.0.0.1"].state == "up"
        bench.hosts.answering.clear()
        sent = bench.health()["10.0.0.1"].sent
        reports = bench.out.reader()
        while (await reports.receive()) and bench.health()["10.0.0.1"].state == "up":
            pass
        found = bench.health()["10.0.0.1"]
        assert (found.state, found.detail, found.sent - sent) == ("down", "no answer to 3 pings in a row", 3)
        detail = found.detail
        await trio.sleep(100)
        assert bench.health()["10.0.0.1"].detail == detail
        bench.hosts.answering.add("10.0.0.1")
        await trio.sleep(15)
        assert (bench.health()["10.0.0.1"].state, bench.health()["10.0.0.1"].detail) == ("up", "")


async def test_a_change_keeps_the_numbers_of_what_stays(autojump_clock: MockClock) -> None:
    async with running(Bench(Hosts({"10.0.0.1"}))) as bench:
        bench.apply(probed())
        await trio.sleep(60)
        before = bench.health()["10.0.0.1"].sent
        bench.apply(replace(probed(), generation=9, node_name="other"))
        await trio.sleep(0.01)
        assert bench.health()["10.0.0.1"].sent == before
        bench.apply(probed(None))
        await trio.sleep(0.01)
        assert bench.health() == {}
        pings = len(bench.hosts.pings)
        await trio.sleep(100)
        assert len(bench.hosts.pings) == pings
        assert bench.context.mode == "idle"


async def test_a_state_that_is_not_in_force_changes_nothing(autojump_clock: MockClock) -> None:
    async with running(Bench(Hosts({"10.0.0.1"}))) as bench:
        bench.apply(probed())
        await trio.sleep(60)
        bench.kernel.set(KernelOutcome(probed(None), applied=False, error="not started"))
        await trio.sleep(60)
        assert "10.0.0.1" in bench.health()


async def test_many_silent_addresses_are_pinged_in_rounds_of_limited_size(autojump_clock: MockClock) -> None:
    targets = tuple(ip_address("10.1.0.0") + number for number in range(16))
    vnis = tuple(tenant(f"v{number}", number, DesiredProbe(targets, 1, 3)) for number in range(1, 31))
    async with running(Bench()) as bench:
        bench.apply(state(l3vnis=vnis))
        await trio.sleep(200)
        assert bench.hosts.most == actor.MOST
        report = bench.out.peek()
        assert report is not None
        # None is left out indefinitely, though a second is too short for all.
        assert {probe.state for probe in report.probes} == {"down"}


async def test_without_the_routers_namespace_nothing_is_counted(autojump_clock: MockClock) -> None:
    async with running(Bench(Hosts({"10.0.0.1"}, present=False))) as bench:
        bench.apply(probed())
        await trio.sleep(100)
        assert bench.health()["10.0.0.1"].sent == 0
        bench.hosts.present = True
        await trio.sleep(20)
        assert bench.health()["10.0.0.1"].state == "up"
