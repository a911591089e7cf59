"""Periodic work of several actors happens at the same times."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from supervisor.runtime.wakeups import GRID_SECONDS, aligned


@pytest.mark.parametrize(("seconds", "expected"), [(15.0, 15.0), (12.4, 10.0), (12.6, 15.0), (72.0, 70.0)])
async def test_distant_deadlines_move_to_the_nearest_common_time(
    mock_clock: MockClock, seconds: float, expected: float
) -> None:
    assert aligned(trio.current_time() + seconds) == expected
    mock_clock.jump(0.3)
    assert aligned(trio.current_time() + seconds - 0.3) == expected


@pytest.mark.parametrize("seconds", [0.0, 0.2, 5.0, 2 * GRID_SECONDS - 0.01])
async def test_near_deadlines_stay_exact(mock_clock: MockClock, seconds: float) -> None:
    mock_clock.jump(3.3)
    deadline = trio.current_time() + seconds
    assert aligned(deadline) == deadline


async def test_work_that_repeats_itself_keeps_its_interval(autojump_clock: MockClock) -> None:
    times = []
    for _ in range(4):
        await trio.sleep_until(aligned(trio.current_time() + 15))
        times.append(trio.current_time())
        await trio.sleep(0.4)
    assert times == [15, 30, 45, 60]
