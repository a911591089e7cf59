"""No error of a child affects its siblings; one that freezes is restarted, one that is stuck is reported."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from supervisor.runtime.actor import ActorContext
from supervisor.runtime.child import ChildState
from supervisor.runtime.child_run import ChildRun
from supervisor.runtime.faults import KernelFault
from supervisor.runtime.restarts import Child
from supervisor.runtime.tree import Supervisor
from tests.supervisor.runtime.trees import Diary, failing, healthy, running, spec


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("x"),
        ExceptionGroup("nursery", [ValueError("x"), KeyError("y")]),
        SystemExit(3),
        trio.TooSlowError(),
        AssertionError(),
    ],
    ids=repr,
)
async def test_restart_on_a_bug_of_any_kind_without_harm_to_others(
    autojump_clock: MockClock, diary: Diary, error: BaseException
) -> None:
    async with running(spec("bad", failing(diary, error, times=3)), spec("good", healthy(diary))) as tree:
        await trio.sleep(10)
        assert tree["bad"].restarts == 3
        assert tree["bad"].state is ChildState.RUNNING
        assert diary.of("good") == [0]


async def test_an_error_beside_the_cancellation_of_an_inner_nursery_is_contained(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def messy(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep(1)
            raise KernelFault("inside a nursery")

    async with running(spec("messy", messy)) as tree:
        await trio.sleep(2)
        assert tree["messy"].last_error == "inside a nursery"
        assert diary.of("messy") == [0, 1.5]


async def test_a_child_that_ends_badly_while_being_cancelled_does_not_break_the_stop(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def clumsy(ctx: ActorContext) -> None:
        ctx.started()
        try:
            with ctx.idle():
                await trio.sleep_forever()
        finally:
            raise ValueError("in cleanup")

    async with running(spec("good", healthy(diary)), spec("clumsy", clumsy)) as tree:
        await tree.started()
        tree.supervisor.stop()
        assert (await tree.end()).exit_code == 0
        assert diary.of("good", "end") == [0]


async def test_cancellation_of_the_whole_tree_passes_through_even_beside_an_error(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def clumsy(ctx: ActorContext) -> None:
        ctx.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("in cleanup")

    with trio.move_on_after(5) as scope:
        await Supervisor([spec("clumsy", clumsy), spec("good", healthy(diary))]).run()
    assert scope.cancelled_caught
    assert diary.of("good", "end") == [5]


async def test_ctrl_c_is_not_swallowed(autojump_clock: MockClock, diary: Diary) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await Supervisor([spec("a", failing(diary, KeyboardInterrupt()))]).run()
    assert caught.group_contains(KeyboardInterrupt)


async def test_a_frozen_child_is_cancelled_and_restarted(autojump_clock: MockClock, diary: Diary) -> None:
    async def freeze(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        with ctx.idle():
            await trio.sleep(100)
        if ctx.incarnation == 1:
            await trio.sleep_forever()
        with ctx.idle():
            await trio.sleep_forever()

    async with running(spec("a", freeze, progress_deadline=20)) as tree:
        await trio.sleep(500)
        assert diary.of("a") == [0, 120.5]
        assert tree["a"].last_error == "hung: no progress for 20 s"


async def test_a_child_that_freezes_after_a_long_call_is_cancelled_as_soon_as_any(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def freeze(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        with ctx.working("frr-reload", 600):
            await trio.sleep(10)
        with ctx.idle():
            await trio.sleep(1)
        await trio.sleep_forever()

    async with running(spec("a", freeze, progress_deadline=20)):
        await trio.sleep(40)
        assert diary.of("a") == [0, 31.5]


async def test_a_child_that_hangs_right_after_a_long_call_is_cancelled_as_soon_as_any(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def freeze(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        with ctx.working("frr-reload", 600):
            await trio.sleep(10)
        await trio.sleep_forever()

    async with running(spec("a", freeze, progress_deadline=20)):
        await trio.sleep(40)
        assert diary.of("a") == [0, 30.5]


async def test_a_child_that_is_idle_now_and_then_does_not_wake_the_loop(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    inspect = Child._inspect

    def counted(child: Child, run: ChildRun, now: float) -> float:
        looks.append(now)
        return inspect(child, run, now)

    monkeypatch.setattr(Child, "_inspect", counted)

    async def poll(ctx: ActorContext) -> None:
        ctx.started()
        while True:
            with ctx.idle():
                await trio.sleep(0.5)

    async with running(spec("a", poll, progress_deadline=20)):
        await trio.sleep(100)
        assert len(looks) < 10


async def test_progress_keeps_a_busy_child_alive(autojump_clock: MockClock, diary: Diary) -> None:
    async def toil(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        while True:
            await trio.sleep(19)
            ctx.progress()

    async with running(spec("a", toil, progress_deadline=20)):
        await trio.sleep(1000)
        assert diary.of("a") == [0]


async def test_a_declared_long_call_is_no_freeze_and_its_own_deadline_ends_it(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def long_call(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        with ctx.working("frr-reload", 300):
            await trio.sleep_forever()

    async with running(spec("a", long_call, progress_deadline=20)) as tree:
        await trio.sleep(299)
        assert tree["a"].activity == "frr-reload"
        await trio.sleep(2)
        assert diary.of("a") == [0, 300.5]
        assert tree["a"].last_error == "TooSlowError"


async def test_a_declared_long_call_that_ignores_its_deadline_is_a_freeze(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def uninterruptible(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        with ctx.working("netlink", 30), trio.CancelScope(shield=True):
            await trio.sleep(52)

    async with running(spec("a", uninterruptible, progress_deadline=20)) as tree:
        await trio.sleep(51)
        assert tree["a"].state is ChildState.STOPPING
        await trio.sleep(3)
        assert tree["a"].last_error == "hung: no progress for 20 s"
        assert diary.of("a") == [0, 52.5]


async def test_a_stuck_child_is_never_run_twice_at_once_and_is_restarted_when_it_ends(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def stuck(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        if ctx.incarnation == 1:
            with trio.CancelScope(shield=True):
                await trio.sleep(500)
        with ctx.idle():
            await trio.sleep_forever()

    async with running(spec("a", stuck, progress_deadline=20)) as tree:
        await trio.sleep(400)
        assert tree["a"].stuck
        assert diary.of("a") == [0]
        await trio.sleep(200)
        assert diary.of("a") == [0, 500.5]
        assert not tree["a"].stuck


async def test_a_stuck_critical_child_ends_the_tree_which_abandons_it(autojump_clock: MockClock, diary: Diary) -> None:
    async def stuck(ctx: ActorContext) -> None:
        ctx.started()
        with trio.CancelScope(shield=True):
            await trio.sleep(500)

    async with running(spec("good", healthy(diary)), spec("a", stuck, progress_deadline=20, critical=True)) as tree:
        ending = await tree.end()
        assert ending.exit_code == 70
        assert "does not end" in ending.reason
        assert tree.abandoned == [70]
        assert diary.of("good", "end")[0] < 40
