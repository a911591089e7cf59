"""Signals are handled one after another; the tests send real ones to this process."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from supervisor.process.signals import handle_signals, request_reload
from supervisor.runtime.channel import Latest
from supervisor.runtime.tree import Supervisor
from tests.supervisor.runtime.trees import Diary, healthy, spec


@asynccontextmanager
async def handling(stops: list[str], reload: Latest[int]) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(handle_signals, stop=lambda: stops.append("stop"), reload=reload))
        yield
        nursery.cancel_scope.cancel()


async def delivered() -> None:
    """Wait until signals already sent were handled: the interpreter runs handlers on the way."""
    for _ in range(3):
        await wait_all_tasks_blocked()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_sigterm_and_sigint_stop(number: signal.Signals) -> None:
    stops: list[str] = []
    async with handling(stops, Latest("reload")):
        os.kill(os.getpid(), number)
        await delivered()
    assert stops == ["stop"]


async def test_a_second_stop_is_passed_on() -> None:
    stops: list[str] = []
    async with handling(stops, Latest("reload")):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            await delivered()
    assert stops == ["stop", "stop"]


async def test_a_storm_of_reloads_leaves_one_pending_and_stops_still_come_through() -> None:
    stops: list[str] = []
    reload: Latest[int] = Latest("reload")
    reader = reload.reader()
    async with handling(stops, reload):
        for _ in range(1000):
            os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await delivered()
    newest = reader.take()
    assert newest is not None
    assert 1 <= newest <= 1000
    assert not reader.pending
    assert stops == ["stop"]


async def test_a_reload_after_the_storm_was_read_is_a_new_one() -> None:
    reload: Latest[int] = Latest("reload")
    reader = reload.reader()
    async with handling([], reload):
        os.kill(os.getpid(), signal.SIGHUP)
        with trio.fail_after(60):
            assert await reader.receive() == 1
        os.kill(os.getpid(), signal.SIGHUP)
        with trio.fail_after(60):
            assert await reader.receive() == 2


def test_requests_are_numbered_from_one() -> None:
    reload: Latest[int] = Latest("reload")
    assert [request_reload(reload) for _ in range(3)] == [1, 2, 3]
    assert reload.peek() == 3


async def test_a_signal_stops_a_real_tree(autojump_clock: MockClock, diary: Diary) -> None:
    supervisor = Supervisor([spec("a", healthy(diary))])
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(handle_signals, stop=supervisor.stop, reload=Latest[int]("reload")))
        nursery.start_soon(lambda: trio.to_thread.run_sync(os.kill, os.getpid(), signal.SIGTERM))
        ending = await supervisor.run()
        nursery.cancel_scope.cancel()
    assert ending.exit_code == 0
