"""The supervisor starts in order, stops in reverse, gives up when it must, and can be watched."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from supervisor.runtime.actor import ActorContext
from supervisor.runtime.child import ChildState
from supervisor.runtime.child_run import UNWIND_SECONDS, ChildRun
from supervisor.runtime.faults import ConfigFault, DependencyFault, KernelFault
from supervisor.runtime.restarts import Child
from supervisor.runtime.tree import Ending, Supervisor
from tests.supervisor.runtime.trees import Diary, failing, healthy, running, spec, toiling


async def test_children_start_in_list_order_each_after_the_handshake_of_the_one_before(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def slow(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        await trio.sleep(3)
        diary.note(ctx.name, "ready")
        ctx.started()
        with ctx.idle():
            await trio.sleep_forever()

    async with running(*(spec(name, slow) for name in "abcd")) as tree:
        await tree.started()
        assert diary.events() == [f"{what} {who}" for who in "abcd" for what in ("start", "ready")]
        assert [status.state for status in tree.supervisor.snapshot()] == [ChildState.RUNNING] * 4


async def test_a_child_that_never_reports_its_start_fails_its_start_timeout_and_is_restarted(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def mute(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        await trio.sleep_forever()

    async with running(spec("mute", mute, start_timeout=10)) as tree:
        await trio.sleep(25)
        assert diary.of("mute") == [0, 10.5, 21.5]
        assert tree["mute"].last_error == "did not start within 10 s"


async def test_a_non_critical_child_that_fails_its_first_start_does_not_hold_up_the_next(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def mute(_ctx: ActorContext) -> None:
        await trio.sleep_forever()

    async with running(spec("mute", mute, start_timeout=10), spec("next", healthy(diary))) as tree:
        await trio.sleep(20)
        assert diary.of("next") == [10]
        assert tree["mute"].restarts == 1


async def test_a_critical_child_holds_up_the_next_until_it_has_started(autojump_clock: MockClock, diary: Diary) -> None:
    async def works_the_second_time(ctx: ActorContext) -> None:
        if ctx.incarnation == 1:
            raise DependencyFault("not yet")
        await healthy(diary)(ctx)

    async with running(spec("first", works_the_second_time, critical=True), spec("next", healthy(diary))) as tree:
        await tree.started()
        assert diary.of("first") == [0.5]
        assert diary.of("next") == [0.5]


async def test_a_critical_child_that_cannot_start_ends_the_tree_even_when_its_failures_are_slow(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def mute(_ctx: ActorContext) -> None:
        await trio.sleep_forever()

    async with running(spec("mute", mute, critical=True), spec("next", healthy(diary))) as tree:
        ending = await tree.end()
        assert ending.exit_code == 70
        assert "mute failed for good: did not start within 30 s" in ending.reason
        assert diary.of("next") == []


async def test_waiting_costs_no_inspections(
    autojump_clock: MockClock, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspections: list[float] = []
    really_inspect = Child._inspect

    def count(self: Child, run: ChildRun, now: float) -> float:
        inspections.append(now)
        return really_inspect(self, run, now)

    async def mute(_ctx: ActorContext) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Child, "_inspect", count)
    async with running(spec("mute", mute, start_timeout=1000, progress_deadline=1), spec("idle", healthy(diary))):
        await trio.sleep(900)
        assert len(inspections) < 10


async def test_stopping_before_the_start_starts_nothing(autojump_clock: MockClock, diary: Diary) -> None:
    supervisor = Supervisor([spec("a", healthy(diary))])
    supervisor.stop()
    assert (await supervisor.run()).exit_code == 0
    assert diary.entries == []


def test_names_are_unique(diary: Diary) -> None:
    with pytest.raises(ValueError, match="not unique"):
        Supervisor([spec("a", healthy(diary)), spec("a", healthy(diary))])


async def test_a_critical_child_past_its_intensity_ends_the_tree_with_the_exit_code_of_its_last_error(
    autojump_clock: MockClock,
    diary: Diary,
) -> None:
    async with running(
        spec("good", healthy(diary)), spec("bad", failing(diary, KernelFault("no")), critical=True)
    ) as tree:
        assert await tree.end() == Ending(71, "bad failed for good: no")
        assert len(diary.of("bad")) == 6
        assert diary.of("good", "end") == [15.5]
        assert tree["bad"].state is ChildState.FAILED


async def test_a_bug_of_a_critical_child_ends_the_tree_with_70(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("bad", failing(diary, ZeroDivisionError()), critical=True)) as tree:
        assert (await tree.end()).exit_code == 70


async def test_a_critical_child_may_fail_indefinitely_if_it_is_healthy_in_between(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async with running(spec("a", failing(diary, KernelFault("no"), after=61), critical=True)) as tree:
        await trio.sleep(24 * 3600)
        assert not tree.endings


async def test_a_critical_child_may_not_fail_slowly_without_a_healthy_minute(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async with running(spec("a", failing(diary, KernelFault("no"), after=59), critical=True)) as tree:
        assert (await tree.end()).exit_code == 71
        assert len(diary.of("a")) == 6


@pytest.mark.parametrize("worked", [0, 30])
async def test_a_critical_child_that_hangs_in_each_run_ends_the_tree(
    worked: float, autojump_clock: MockClock, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        with ctx.idle():
            await trio.sleep(worked)
        await trio.sleep_forever()

    caplog.set_level("INFO", logger="openperouter")
    async with running(spec("a", hang, critical=True)) as tree:
        with trio.move_on_after(3600):
            assert (await tree.end()).reason == "a failed for good: hung: no progress for 60 s"
        assert len(diary.of("a")) == 6
    assert "a is healthy again" not in caplog.messages


async def test_a_critical_child_may_hang_now_and_then_if_it_works_for_a_minute_in_between(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def hang(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        for _ in range(4):
            await trio.sleep(16)
            ctx.progress()
        await trio.sleep_forever()

    async with running(spec("a", hang, critical=True)) as tree:
        await trio.sleep(3600)
        assert not tree.endings
        assert diary.of("a")[:3] == [0, 124.5, 249]


async def test_a_failed_start_counts_as_a_failure_in_a_row(autojump_clock: MockClock, diary: Diary) -> None:
    async def works_once(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        if ctx.incarnation > 1:
            raise DependencyFault("cannot start")
        ctx.started()
        await trio.sleep(1)
        raise DependencyFault("fell over")

    async with running(spec("a", works_once, critical=True)) as tree:
        assert await tree.end() == Ending(69, "a failed for good: cannot start")
        assert len(diary.of("a")) == 6


async def test_a_configuration_fault_of_a_critical_child_ends_the_tree_when_it_lasts(
    autojump_clock: MockClock, diary: Diary
) -> None:
    error = ExceptionGroup("nursery", [ConfigFault("node-config.yaml:3: no such key")])
    async with running(spec("a", failing(diary, error), critical=True)) as tree:
        ending = await tree.end()
        assert ending == Ending(78, "a failed for good: node-config.yaml:3: no such key")
        # Long enough for a file that is being written.
        assert diary.of("a") == [0, 0.5, 1.5, 3.5, 7.5, 15.5]


async def test_children_stop_in_reverse_order(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(*(spec(name, healthy(diary)) for name in "abc")) as tree:
        await tree.started()
        tree.supervisor.stop()
        assert await tree.end() == Ending(0, "stop requested")
        assert diary.events()[3:] == ["end c", "end b", "end a"]
        assert {status.state for status in tree.supervisor.snapshot()} == {ChildState.STOPPED}
        assert tree.abandoned == []


async def test_a_stop_waits_for_the_unit_of_work_in_hand(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", toiling(diary, 3))) as tree:
        await trio.sleep(1)
        tree.supervisor.stop()
        await tree.end()
        assert diary.of("a", "done") == diary.of("a", "end") == [3]


async def test_a_stop_cancels_work_that_takes_longer_than_its_timeout(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", toiling(diary, 30), shutdown_timeout=5)) as tree:
        await trio.sleep(1)
        tree.supervisor.stop()
        await tree.end()
        assert diary.of("a", "done") == []
        assert diary.of("a", "end") == [6]


async def test_a_second_stop_does_not_wait_for_work_in_hand(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", toiling(diary, 30)), spec("b", toiling(diary, 30))) as tree:
        await trio.sleep(1)
        tree.supervisor.stop()
        await trio.sleep(1)
        tree.supervisor.stop()
        await tree.end()
        assert diary.of("a", "end") == diary.of("b", "end") == [2]


async def test_a_stuck_child_does_not_hold_up_the_stop_of_those_before_it_and_is_abandoned(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def stuck(ctx: ActorContext) -> None:
        ctx.started()
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    async with running(spec("a", healthy(diary)), spec("stuck", stuck, shutdown_timeout=3)) as tree:
        await trio.sleep(1)
        tree.supervisor.stop()
        await trio.sleep(20)
        assert diary.of("a", "end") == [1 + 3 + UNWIND_SECONDS]
        assert tree.abandoned == [0]


async def test_nothing_is_restarted_during_the_stop(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", failing(diary, KernelFault("x"), after=2)), spec("busy", toiling(diary, 4))) as tree:
        await trio.sleep(1)
        tree.supervisor.stop()
        await tree.end()
        assert diary.of("a") == [0]


async def test_a_stop_during_a_start_or_a_backoff_is_prompt(autojump_clock: MockClock, diary: Diary) -> None:
    async def mute(_ctx: ActorContext) -> None:
        await trio.sleep_forever()

    async with running(spec("backing off", failing(diary, KernelFault("x"))), spec("mute", mute)) as tree:
        await trio.sleep(20)
        before = trio.current_time()
        tree.supervisor.stop()
        assert (await tree.end()).exit_code == 0
        assert trio.current_time() - before < 0.1


async def test_changes_of_state_are_published(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", failing(diary, KernelFault("no"), times=1, after=1))) as tree:
        reader = tree.supervisor.statuses.reader()
        seen: list[ChildState] = []
        with trio.move_on_after(5):
            while True:
                state = (await reader.receive())[0].state
                seen.extend([] if seen[-1:] == [state] else [state])
        life = [ChildState.STARTING, ChildState.RUNNING, ChildState.BACKOFF, ChildState.STARTING, ChildState.RUNNING]
        assert seen == life


async def test_a_snapshot_shows_progress_activity_and_facts(autojump_clock: MockClock, diary: Diary) -> None:
    async def busy(ctx: ActorContext) -> None:
        ctx.started()
        ctx.note(vnis=3)
        with ctx.working("vtysh", 60):
            await trio.sleep_forever()

    async with running(spec("a", busy, critical=True)) as tree:
        await trio.sleep(10)
        status = tree["a"]
        assert (status.progress_age, status.mode, status.activity, status.frozen) == (10, "working", "vtysh", False)
        assert status.facts == {"vnis": 3}
        assert status.critical


async def test_recovery_after_a_healthy_minute_is_logged_once(
    autojump_clock: MockClock, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="openperouter")
    async with running(spec("a", failing(diary, KernelFault("no"), times=2, after=1))):
        await trio.sleep(300)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["a started", "a failed: no", "a is healthy again"]


async def test_a_child_that_fails_for_hours_does_not_flood_the_log(
    autojump_clock: MockClock, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="openperouter")
    async with running(spec("a", failing(diary, ZeroDivisionError()))):
        await trio.sleep(6 * 3600)
    assert 5 < len(caplog.records) < 40
