"""Children are restarted as their specs say, alone or with the rest of their group, and find their channels again."""

from __future__ import annotations

from itertools import pairwise

import trio
from trio.testing import MockClock

from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from supervisor.runtime.child import ChildState
from supervisor.runtime.faults import ConfigFault, DependencyFault, KernelFault
from supervisor.runtime.restart_policy import Restart
from tests.supervisor.runtime.trees import Diary, failing, healthy, running, spec


async def test_restart_on_error(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", failing(diary, KernelFault("no device"), times=1))) as tree:
        await trio.sleep(5)
        assert diary.of("a") == [0, 0.5]
        status = tree["a"]
        assert (status.state, status.incarnation, status.restarts) == (ChildState.RUNNING, 2, 1)
        assert (status.causes, status.last_error) == ({"fault": 1}, "no device")


async def test_a_permanent_child_that_returns_is_at_fault(autojump_clock: MockClock, diary: Diary) -> None:
    async def returning(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()

    async with running(spec("a", returning)) as tree:
        await trio.sleep(1)
        assert diary.of("a") == [0, 0.5]
        assert tree["a"].causes == {"returned": 2}
        assert "never should" in tree["a"].last_error


async def test_a_transient_child_is_restarted_after_a_failure_and_not_after_its_work(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def work(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()
        if ctx.incarnation == 1:
            raise DependencyFault("not yet")

    async with running(spec("work", work, restart=Restart.TRANSIENT), spec("next", healthy(diary))) as tree:
        await trio.sleep(100)
        assert diary.of("work") == [0, 0.5]
        assert tree["work"].state is ChildState.FINISHED


async def test_a_temporary_child_is_never_restarted(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(
        spec("once", failing(diary, KernelFault("no")), restart=Restart.TEMPORARY), spec("next", healthy(diary))
    ) as tree:
        await trio.sleep(100)
        assert diary.of("once") == [0]
        assert tree["once"].state is ChildState.FAILED
        assert tree["next"].state is ChildState.RUNNING


async def test_backoff_doubles_up_to_its_limit_and_a_non_critical_child_never_gives_up(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async with running(spec("a", failing(diary, ConfigFault("wrong")))) as tree:
        await trio.sleep(3600)
        starts = diary.of("a")
        gaps = [round(later - sooner, 3) for sooner, later in pairwise(starts)]
        assert gaps[:8] == [0.5, 1, 2, 4, 8, 16, 30, 30]
        assert set(gaps[6:]) == {30}
        assert tree["a"].state is ChildState.BACKOFF
        assert not tree.endings


async def test_backoff_starts_afresh_after_a_healthy_minute(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", failing(diary, KernelFault("x"), after=61))):
        await trio.sleep(300)
        assert diary.of("a") == [0, 61.5, 123, 184.5, 246]


async def test_backoff_goes_on_when_the_minute_was_not_complete(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", failing(diary, KernelFault("x"), after=59))):
        await trio.sleep(200)
        assert diary.of("a") == [0, 59.5, 119.5, 180.5]


async def test_a_channel_survives_its_reader_s_incarnations_and_replays_the_last_value(
    autojump_clock: MockClock, diary: Diary
) -> None:
    cell: Latest[int] = Latest("numbers")

    async def consume(ctx: ActorContext) -> None:
        ctx.started()
        reader = cell.reader()
        while True:
            with ctx.idle():
                value = await reader.receive()
            diary.note(ctx.name, f"got {value}")
            if ctx.incarnation == 1 and value == 2:
                raise KernelFault("crash after receiving, before acting")

    async with running(spec("consumer", consume)):
        for value in (1, 2):
            cell.set(value)
            await trio.sleep(0.1)
        await trio.sleep(10)
    assert [event for _, _, event in diary.entries] == ["got 1", "got 2", "got 2"]


async def test_a_group_s_failure_stops_its_tail_in_reverse_and_restarts_it_in_order(
    autojump_clock: MockClock, diary: Diary
) -> None:
    bad = failing(diary, KernelFault("x"), times=1, after=5)
    async with running(
        spec("a", healthy(diary), group="g"),
        spec("b", bad, group="g"),
        spec("other", healthy(diary)),
        spec("c", healthy(diary), group="g"),
        spec("d", healthy(diary), group="g"),
    ) as tree:
        await trio.sleep(20)
        first = [f"start {name}" for name in ("a", "b", "other", "c", "d")]
        assert diary.events() == [*first, "end d", "end c", "start b", "start c", "start d"]
        assert diary.of("c", "end") == [5]
        assert diary.of("d") == [0, 5.5]
        assert [tree[name].restarts for name in ("a", "b", "c", "d", "other")] == [0, 1, 1, 1, 0]
        assert tree["c"].causes == {}


async def test_an_earlier_member_that_fails_during_a_later_one_s_backoff_is_mended_first(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async with running(
        spec("a", failing(diary, KernelFault("x"), times=1, after=10), group="g"),
        spec("b", failing(diary, KernelFault("x"), times=5), group="g"),
        spec("c", healthy(diary), group="g"),
    ) as tree:
        await trio.sleep(100)
        assert diary.of("a") == [0, 10.5]
        assert diary.of("b") == [0, 0.5, 1.5, 3.5, 7.5, 15.5]
        assert tree["c"].state is ChildState.RUNNING


async def test_an_earlier_member_that_fails_during_a_later_one_s_start_takes_it_down(
    autojump_clock: MockClock, diary: Diary
) -> None:
    async def slow(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        await trio.sleep(10)
        await healthy(diary)(ctx)

    async with running(
        spec("a", failing(diary, KernelFault("x"), times=1, after=5), group="g"), spec("b", slow, group="g")
    ) as tree:
        await trio.sleep(30)
        assert diary.of("b") == [0, 5.5, 15.5]
        assert tree["b"].state is ChildState.RUNNING
        assert tree["b"].causes == {}


async def test_a_member_that_finished_its_work_is_not_run_again(autojump_clock: MockClock, diary: Diary) -> None:
    async def once(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()

    async with running(
        spec("a", failing(diary, KernelFault("x"), times=1, after=5), group="g"),
        spec("b", once, group="g", restart=Restart.TRANSIENT),
        spec("c", healthy(diary), group="g"),
    ):
        await trio.sleep(30)
        assert diary.of("b") == [0]
        assert diary.of("c") == [0, 5.5]
