"""A context records what its actor reports, and restores the state before."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from supervisor.runtime.actor import ActorContext


async def test_a_start_is_reported_once_and_counts_as_progress(autojump_clock: MockClock) -> None:
    calls: list[str] = []
    ctx = ActorContext("a", changed=lambda: calls.append("changed"))
    await trio.sleep(5)
    assert not ctx.has_started
    ctx.started()
    ctx.started()
    assert (ctx.has_started, calls, ctx.last_progress) == (True, ["changed"], 5)


async def test_idle_marks_the_wait_and_progress_at_both_ends(autojump_clock: MockClock) -> None:
    modes: list[str] = []
    ctx = ActorContext("a", changed=lambda: modes.append(ctx.mode))
    await trio.sleep(1)
    with ctx.idle():
        assert (ctx.mode, ctx.last_progress, modes) == ("idle", 1, ["idle"])
        await trio.sleep(10)
    assert (ctx.mode, ctx.last_progress) == ("busy", 11)


async def test_working_declares_activity_and_deadline_and_takes_them_back(autojump_clock: MockClock) -> None:
    ctx = ActorContext("a")
    with ctx.working("frr-reload", 60):
        assert (ctx.mode, ctx.activity, ctx.activity_deadline) == ("working", "frr-reload", 60)
        with ctx.working("vtysh", 10):
            assert (ctx.activity, ctx.activity_deadline) == ("vtysh", 10)
            await trio.sleep(1)
        assert (ctx.mode, ctx.activity, ctx.activity_deadline) == ("working", "frr-reload", 60)
    assert (ctx.mode, ctx.activity, ctx.activity_deadline, ctx.last_progress) == ("busy", None, None, 1)


async def test_a_declared_call_that_takes_too_long_is_cancelled(autojump_clock: MockClock) -> None:
    ctx = ActorContext("a")
    with pytest.raises(trio.TooSlowError), ctx.working("frr-reload", 60):
        await trio.sleep_forever()
    assert (trio.current_time(), ctx.mode, ctx.activity) == (60, "busy", None)


async def test_modes_are_restored_after_an_error(autojump_clock: MockClock) -> None:
    ctx = ActorContext("a")
    with pytest.raises(ZeroDivisionError), ctx.idle(), ctx.working("x", 1):
        _ = 1 / 0
    assert (ctx.mode, ctx.activity) == ("busy", None)


async def test_facts_merge_and_none_removes() -> None:
    ctx = ActorContext("a")
    ctx.note(vnis=3, underlay="eth1")
    ctx.note(vnis=4, underlay=None, absent=None)
    assert ctx.facts == {"vnis": 4}


async def test_a_busy_actor_freezes_when_its_progress_is_too_old(autojump_clock: MockClock) -> None:
    ctx = ActorContext("a")
    await trio.sleep(5)
    ctx.progress()
    await trio.sleep(5)
    assert ctx.frozen_at(60) == 65


async def test_an_idle_actor_never_freezes(autojump_clock: MockClock) -> None:
    ctx = ActorContext("a")
    with ctx.idle():
        await trio.sleep(10_000)
        assert ctx.frozen_at(60) > trio.current_time()


async def test_a_declared_call_freezes_only_well_beyond_its_deadline(autojump_clock: MockClock) -> None:
    ctx = ActorContext("a")
    with ctx.working("frr-reload", 300):
        await trio.sleep(200)
        assert ctx.frozen_at(60) == 360
        with ctx.idle():
            assert ctx.frozen_at(60) == 260
