"""The health actor: when it polls, what it publishes, and that FRR's failures never end it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.health import actor
from actors.health.entries import READ_SECONDS
from actors.health.repair import LASTING_SECONDS, PAUSES
from actors.lib.tunnel_entries import TunnelEntries
from config.desired import DesiredState, ResourceFailure
from config.outcomes import (
    PROBE_DOWN,
    PROBE_UP,
    Bounce,
    FrrOutcome,
    HealthReport,
    KernelOutcome,
    ProbeHealth,
    ProbeReport,
)
from config.problems import Reason
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from tests.actors.health.examples import ENTRIES, SampledFrr, desired, fabric


@dataclass
class Bench:
    """A running health actor, an FRR that can be put into any sampled situation, and the channels around both."""

    frr: SampledFrr = field(default_factory=lambda: SampledFrr("up"))
    entries: TunnelEntries = ENTRIES
    context: ActorContext = field(default_factory=lambda: ActorContext("health"))
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    outcomes: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    probes: Latest[ProbeReport] = field(default_factory=lambda: Latest("probes"))
    out: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))

    def apply(self, state: DesiredState) -> None:
        self.desired.set(state)
        self.outcomes.set(FrrOutcome(state, applied=True, changed=True))
        self.kernel.set(KernelOutcome(state, applied=True, changed=True))

    async def read_entries(self, bridges: Collection[str], vxlans: Collection[str]) -> TunnelEntries:
        return self.entries

    async def start(self) -> None:
        await actor.HealthActor(
            self.context,
            self.frr,
            read_entries=self.read_entries,
            desired=self.desired.reader(),
            frr=self.outcomes.reader(),
            kernel=self.kernel.reader(),
            probes=self.probes.reader(),
            out=self.out,
        ).serve()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        bench = Bench()
        nursery.start_soon(bench.start)
        yield bench
        nursery.cancel_scope.cancel()


async def until_verified(reports: LatestReader[HealthReport]) -> HealthReport:
    while True:
        report = await reports.receive()
        if report.verified:
            return report


async def test_it_has_started_before_there_is_any_input(bench: Bench, autojump_clock: MockClock) -> None:
    await trio.testing.wait_all_tasks_blocked()
    assert bench.context.has_started
    assert bench.context.mode == "idle"


async def test_frr_is_polled_at_once_after_a_new_outcome(bench: Bench, autojump_clock: MockClock) -> None:
    reports = bench.out.reader()
    started = trio.current_time()
    bench.apply(desired(3))
    assert (await until_verified(reports)).generation == 3
    assert trio.current_time() == started


async def test_frr_is_left_alone_while_the_kernel_follows_but_not_for_longer_than_the_interval(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.apply(desired(3))
    await until_verified(bench.out.reader())
    before, started, state = bench.frr.polls, trio.current_time(), desired(4)
    bench.desired.set(state)
    bench.outcomes.set(FrrOutcome(state, applied=True, changed=True))
    await trio.sleep(actor.INTERVAL_SECONDS * 3 - 1)
    assert bench.frr.polls - before == 2
    reports = bench.out.reader()
    bench.kernel.set(KernelOutcome(state, applied=True, changed=True))
    assert (await until_verified(reports)).generation == 4
    assert trio.current_time() == started + actor.INTERVAL_SECONDS * 3 - 1


async def test_frr_is_left_alone_while_it_carries_out_a_state_but_not_indefinitely(
    bench: Bench, autojump_clock: MockClock
) -> None:
    """A poll would find both states missing: each network that is being removed would be a warning."""
    bench.apply(desired(3))
    await until_verified(bench.out.reader())
    await trio.sleep(actor.INTERVAL_SECONDS - 1)
    before = bench.frr.polls
    bench.desired.set(desired(4))
    await trio.sleep(actor.CHANGE_SECONDS - actor.INTERVAL_SECONDS)
    assert bench.frr.polls == before
    await trio.sleep(2)
    assert bench.frr.polls == before + 1
    await trio.sleep(actor.CHANGE_SECONDS / 2)
    bench.outcomes.set(FrrOutcome(desired(4), applied=True, changed=True))
    await trio.sleep(actor.INTERVAL_SECONDS - 1)
    assert bench.frr.polls == before + 1
    await trio.sleep(2)
    assert bench.frr.polls == before + 2


async def test_what_a_poll_saw_while_a_new_state_came_is_not_reported(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.apply(desired(3))
    await until_verified(bench.out.reader())
    version, before = bench.out.version, bench.frr.polls

    def removed() -> None:
        bench.frr.situation = "links_down"
        bench.desired.set(desired(4))

    bench.frr.meanwhile = removed
    await trio.sleep(actor.INTERVAL_SECONDS + 1)
    assert bench.frr.polls == before + 1
    assert bench.out.version == version
    assert not caplog.records
    bench.frr.situation = "up"
    reports = bench.out.reader()
    reports.take()
    bench.apply(desired(4))
    assert (await until_verified(reports)).generation == 4


async def test_frr_is_left_alone_while_devices_are_moved(bench: Bench, autojump_clock: MockClock) -> None:
    """Each poll takes time from what interrupts a tenant."""
    bench.apply(desired(3))
    await until_verified(bench.out.reader())
    state = desired(4)
    withdrawn = frozenset({state.l3vnis[0].vni})
    before = bench.frr.polls
    bench.desired.set(state)
    bench.outcomes.set(FrrOutcome(state, applied=True, changed=True))
    await trio.testing.wait_all_tasks_blocked()
    # The kernel's request before FRR has answered it, and the kernel's answer to FRR.
    reports = bench.out.reader()
    reports.take()
    for asked, answered in ((withdrawn, frozenset[int]()), (frozenset[int](), withdrawn)):
        bench.outcomes.set(FrrOutcome(state, applied=True, changed=True, withdrawn=answered))
        bench.kernel.set(KernelOutcome(state, applied=not asked, changed=True, withdraw=asked))
        await trio.sleep(1)
    assert bench.frr.polls == before
    bench.outcomes.set(FrrOutcome(state, applied=True, changed=True))
    started = trio.current_time()
    assert (await until_verified(reports)).generation == 4
    assert trio.current_time() == started


async def test_frr_is_polled_while_it_has_not_applied_a_state(bench: Bench, autojump_clock: MockClock) -> None:
    bench.outcomes.set(FrrOutcome(desired(3), applied=False, error="FRR does not run"))
    await trio.sleep(1)
    assert bench.frr.polls > 2


async def test_a_router_not_yet_as_configured_is_polled_with_back_off(bench: Bench, autojump_clock: MockClock) -> None:
    bench.frr.situation = "empty"
    bench.apply(desired())
    reports, times = bench.out.reader(), []
    for _ in range(9):
        await reports.receive()
        times.append(trio.current_time())
    waits = [round(later - earlier, 3) for earlier, later in pairwise(times)]
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


async def test_it_becomes_verified_without_any_further_outcome(bench: Bench, autojump_clock: MockClock) -> None:
    bench.frr.situation = "empty"
    bench.apply(desired())
    reports = bench.out.reader()
    assert not (await reports.receive()).verified
    bench.frr.situation = "up"
    assert (await until_verified(reports)).verified


async def test_a_healthy_router_is_polled_once_an_interval(bench: Bench, autojump_clock: MockClock) -> None:
    bench.apply(desired())
    await until_verified(bench.out.reader())
    before = bench.frr.polls
    await trio.sleep(10 * actor.INTERVAL_SECONDS + 1)
    assert bench.frr.polls - before == 10


async def test_a_healthy_router_that_breaks_is_noticed_and_watched_closely(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.apply(desired())
    reports = bench.out.reader()
    await until_verified(reports)
    broken_at = trio.current_time()
    bench.frr.situation = "links_down"
    while not (await reports.receive()).failures:
        pass
    assert trio.current_time() - broken_at <= actor.INTERVAL_SECONDS
    bench.frr.situation = "up"
    while (await reports.receive()).failures:
        pass
    assert trio.current_time() - broken_at <= actor.INTERVAL_SECONDS + 1


async def test_failures_are_named_only_once_frr_had_time_to_settle(bench: Bench, autojump_clock: MockClock) -> None:
    bench.frr.situation = "empty"
    bench.apply(desired())
    reports = bench.out.reader()
    started = trio.current_time()
    while not (await reports.receive()).failures:
        pass
    assert trio.current_time() - started >= actor.SETTLE_SECONDS


async def test_what_never_works_is_waited_for_only_while_frr_settles(bench: Bench, autojump_clock: MockClock) -> None:
    bench.frr.situation = "no_bgp"
    bench.apply(desired(2, reload_id=5))
    started = trio.current_time()
    report = await until_verified(bench.out.reader())
    assert actor.SETTLE_SECONDS <= trio.current_time() - started <= actor.SETTLE_SECONDS + actor.RETRY_LONGEST_SECONDS
    assert (report.generation, report.reload_id) == (2, 5)
    assert report.failures


async def test_a_daemon_that_has_just_started_gets_time_for_its_configuration(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.apply(desired())
    reports = bench.out.reader()
    await until_verified(reports)
    await trio.sleep(actor.SETTLE_SECONDS)
    bench.frr.situation = "bgpd_gone"
    while (await reports.receive()).verified:
        pass
    bench.frr.situation = "no_bgp"
    report = await reports.receive()
    assert report.daemons["bgpd"]
    assert (report.verified, report.failures) == (False, ())
    assert (await until_verified(reports)).failures


async def test_a_repeated_outcome_without_changes_gives_no_new_grace(bench: Bench, autojump_clock: MockClock) -> None:
    bench.frr.situation = "empty"
    state = desired()
    bench.apply(state)
    await trio.sleep(actor.SETTLE_SECONDS + 6)
    bench.kernel.set(KernelOutcome(state, applied=True, changed=True))
    bench.kernel.set(KernelOutcome(state, applied=True))
    await trio.testing.wait_all_tasks_blocked()
    report = bench.out.peek()
    assert report is not None
    assert report.failures


async def test_an_unresponsive_frr_is_reported_and_polled_again(bench: Bench, autojump_clock: MockClock) -> None:
    bench.frr.situation = "unresponsive"
    bench.apply(desired())
    reports = bench.out.reader()
    assert (await reports.receive()).summary.startswith("waiting for FRR: FRR does not answer")
    bench.frr.situation = "up"
    assert (await until_verified(reports)).generation == 1


async def test_a_restarted_actor_sees_the_current_state_again(bench: Bench, autojump_clock: MockClock) -> None:
    bench.apply(desired(5))
    await until_verified(bench.out.reader())
    second = Bench(SampledFrr("up"), desired=bench.desired, outcomes=bench.outcomes, kernel=bench.kernel)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.start)
        assert (await until_verified(second.out.reader())).generation == 5
        nursery.cancel_scope.cancel()


async def settled(bench: Bench, state: DesiredState) -> LatestReader[HealthReport]:
    """Return the reports of a fabric that works and has had its time."""
    bench.frr.situation = "fabric_up"
    bench.apply(state)
    reports = bench.out.reader()
    await until_verified(reports)
    await trio.sleep(actor.SETTLE_SECONDS)
    return reports


async def failing(reports: LatestReader[HealthReport]) -> HealthReport:
    while True:
        report = await reports.receive()
        if report.failures:
            return report


async def test_routes_that_are_missing_for_a_moment_only_are_no_failure(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.frr.situation = "fabric_up"
    bench.apply(fabric())
    reports = bench.out.reader()
    await until_verified(reports)
    bench.frr.situation = "fabric_stale_bridge"
    for _ in range(5):
        report = await reports.receive()
        assert (report.verified, report.failures, report.bounce) == (True, (), frozenset())
    bench.frr.situation = "fabric_up"
    await trio.sleep(3 * actor.INTERVAL_SECONDS)
    report = await reports.receive()
    assert (report.verified, report.failures, report.bounce) == (True, (), frozenset())


async def test_a_stale_l3vni_is_bounced_and_then_left_alone(bench: Bench, autojump_clock: MockClock) -> None:
    state = fabric()
    reports = await settled(bench, state)
    broken_at = trio.current_time()
    bench.frr.situation = "fabric_stale_bridge"
    report = await failing(reports)
    assert trio.current_time() - broken_at <= actor.INTERVAL_SECONDS + LASTING_SECONDS + actor.RETRY_LONGEST_SECONDS
    assert (report.verified, report.bounce) == (True, frozenset({Bounce(100, 1)}))
    bench.outcomes.set(FrrOutcome(state, applied=True, changed=True, bounced=report.bounce))
    report = await reports.receive()
    assert (report.verified, len(report.failures), report.bounce) == (True, 1, frozenset())
    bench.frr.situation = "fabric_bounced"
    report = await reports.receive()
    assert (report.verified, report.failures, report.bounce) == (True, (), frozenset())


async def test_an_l3vni_whose_router_mac_the_kernel_has_lost_is_bounced(
    bench: Bench, autojump_clock: MockClock
) -> None:
    state = fabric()
    reports = await settled(bench, state)
    broken_at, bench.entries = trio.current_time(), replace(ENTRIES, endpoints=frozenset())
    report = await failing(reports)
    latest = READ_SECONDS + actor.INTERVAL_SECONDS + LASTING_SECONDS + actor.RETRY_LONGEST_SECONDS
    assert trio.current_time() - broken_at <= latest
    assert "no bridge entry for the router MAC 02:00:00:00:40:01" in report.failures[0].message
    assert report.bounce == frozenset({Bounce(100, 1)})
    bench.entries = ENTRIES
    bench.outcomes.set(FrrOutcome(state, applied=True, changed=True, bounced=report.bounce))
    report = await reports.receive()
    assert (report.verified, report.failures, report.bounce) == (True, (), frozenset())


async def test_a_daemon_that_hangs_now_and_then_gives_a_vni_no_further_bounces(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.frr.situation = "fabric_stale_bridge"
    state = fabric()
    bench.apply(state)
    bounced: frozenset[Bounce] = frozenset()
    for _ in range(20):
        for _ in range(30):
            await trio.sleep(5)
            report = bench.out.peek()
            if report is not None and report.bounce - bounced:
                bounced |= report.bounce
                bench.outcomes.set(FrrOutcome(state, applied=True, changed=True, bounced=report.bounce))
        bench.frr.silent = "bgpd"
        await trio.sleep(60)
        bench.frr.silent = ""
    assert len(bounced) == len(PAUSES)


async def test_a_vni_that_does_not_work_is_a_failure_although_another_program_causes_drift_all_the_time(
    bench: Bench, autojump_clock: MockClock
) -> None:
    state = desired()
    bench.apply(state)
    await until_verified(bench.out.reader())
    bench.frr.situation = "empty"
    for _ in range(30):
        await trio.sleep(2)
        bench.kernel.set(KernelOutcome(state, applied=True, changed=True))
    report = bench.out.peek()
    assert report is not None
    assert report.failures


async def test_an_l3vni_that_frr_has_let_go_of_for_the_kernel_is_no_fault_and_not_in_force(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.frr.situation = "fabric_not_announced"
    state = replace(fabric(), l2vnis=())
    bench.apply(state)
    bench.outcomes.set(FrrOutcome(state, applied=True, changed=True, withdrawn=frozenset({100})))
    reports = bench.out.reader()
    await trio.sleep(2 * actor.SETTLE_SECONDS)
    report = await reports.receive()
    assert (report.verified, report.failures, report.vnis) == (False, (), ())
    assert "L3VNI red: FRR has it again once its devices are moved" in report.summary
    bench.frr.situation = "fabric_up"
    bench.outcomes.set(FrrOutcome(state, applied=True, changed=True))
    report = await until_verified(reports)
    assert [vni.vni for vni in report.vnis] == [100]


async def test_an_l3vni_whose_devices_the_kernel_refuses_to_move_is_not_waited_for(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.frr.situation = "fabric_not_announced"
    state = replace(fabric(), l2vnis=())
    [red] = state.l3vnis
    bench.apply(state)
    bench.outcomes.set(FrrOutcome(state, applied=True, changed=True, withdrawn=frozenset({100})))
    refused = ResourceFailure(red.resource, Reason.OVERLAY_ATTACHMENT_FAILED, "refused", red.origin)
    bench.kernel.set(KernelOutcome(state, applied=True, failures=(refused,), withdraw=frozenset({100})))
    report = await until_verified(bench.out.reader())
    assert (report.failures, report.vnis) == ((), ())


async def test_while_frr_settles_a_missing_route_delays_verification(bench: Bench, autojump_clock: MockClock) -> None:
    bench.frr.situation = "fabric_stale_bridge"
    bench.apply(fabric())
    reports = bench.out.reader()
    report = await reports.receive()
    assert (report.verified, report.failures) == (False, ())
    assert "10.50.0.0/24" in report.summary


async def test_a_host_that_answers_no_ping_is_a_failure_at_once_and_nothing_else(
    bench: Bench, autojump_clock: MockClock
) -> None:
    state = desired()
    [red, *_] = state.l3vnis
    up = ProbeHealth(red.resource, red.vrf, "10.0.0.1", "target", PROBE_UP, sent=3)
    bench.probes.set(ProbeReport((up,)))
    bench.apply(state)
    reports = bench.out.reader()
    assert (await until_verified(reports)).probes == (up,)
    await trio.sleep(50)
    reports.take()
    polls, began = bench.frr.polls, trio.current_time()
    bench.probes.set(ProbeReport((replace(up, sent=4),)))
    await trio.sleep(0.1)
    assert bench.frr.polls == polls
    down = replace(up, state=PROBE_DOWN, sent=7, lost=3, detail="no answer to 3 pings in a row")
    gone = replace(down, vrf="green")
    bench.probes.set(ProbeReport((down, gone)))
    report = await reports.receive()
    assert trio.current_time() - began < 1
    [failure] = report.failures
    assert (failure.resource, failure.reason) == (red.resource, Reason.PROBE_FAILED)
    assert "target 10.0.0.1 in VRF red: no answer to 3 pings in a row" in failure.message
    assert report.verified
    assert all(vni.ok for vni in report.vnis)
    assert not report.bounce
    bench.probes.set(ProbeReport((up,)))
    assert not (await reports.receive()).failures
