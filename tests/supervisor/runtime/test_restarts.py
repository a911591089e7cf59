"""Children are restarted one by one, with growing delays, and find their channels again."""

from __future__ import annotations

from itertools import pairwise

import trio
from trio.testing import MockClock

from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from supervisor.runtime.child import ChildState
from supervisor.runtime.faults import ConfigFault, KernelFault
from tests.supervisor.runtime.trees import Diary, failing, running, spec


async def test_restart_on_error(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", failing(diary, KernelFault("no device"), times=1))) as tree:
        await trio.sleep(5)
        assert diary.of("a") == [0, 0.5]
        status = tree["a"]
        assert (status.state, status.incarnation, status.restarts) == (ChildState.RUNNING, 2, 1)
        assert status.last_error == "no device"


async def test_a_permanent_child_that_returns_is_at_fault(autojump_clock: MockClock, diary: Diary) -> None:
    async def returning(ctx: ActorContext) -> None:
        diary.note(ctx.name, "start")
        ctx.started()

    async with running(spec("a", returning)) as tree:
        await trio.sleep(1)
        assert diary.of("a") == [0, 0.5]
        assert "returned although it must run" in tree["a"].last_error


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


async def test_backoff_starts_over_after_a_healthy_minute(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", failing(diary, KernelFault("x"), after=61))):
        await trio.sleep(300)
        assert diary.of("a") == [0, 61.5, 123, 184.5, 246]


async def test_backoff_continues_when_the_minute_was_not_complete(autojump_clock: MockClock, diary: Diary) -> None:
    async with running(spec("a", failing(diary, KernelFault("x"), after=59))):
        await trio.sleep(200)
        assert diary.of("a") == [0, 59.5, 119.5, 180.5]


async def test_a_channel_survives_its_reader_s_runs_and_replays_the_last_value(
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
