"""One task that takes all signals, one after another.

SIGTERM and SIGINT stop, a second one stops without waiting for work in hand. SIGHUP asks for a reload: requests are
numbered in a conflating cell, so that a storm of them leaves one reload pending, the newest.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Protocol

import trio

from ..logs.logger import get_logger
from ..runtime.channel import Latest

log = get_logger("signals")


class Started(Protocol):
    """What a nursery gives to a task that it waits for."""

    def started(self) -> None:
        """Say that the task is ready."""


def request_reload(requests: Latest[int]) -> int:
    """Ask for a reload, as SIGHUP does; return the number of the request, counted from 1."""
    number = (requests.peek() or 0) + 1
    requests.set(number)
    return number


async def handle_signals(
    *,
    stop: Callable[[], None],
    reload: Latest[int],
    task_status: Started = trio.TASK_STATUS_IGNORED,
) -> None:
    """Handle signals indefinitely; ``task_status`` is started once none can be missed any more.

    ``stop`` is called for each SIGTERM and SIGINT; the tree's hurries when it is asked again.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as arrivals:
        task_status.started()
        async for number in arrivals:
            if number == signal.SIGHUP:
                log.debug("reload requested by signal", reload=request_reload(reload))
            else:
                log.info("stop requested by signal", signal=signal.Signals(number).name)
                stop()
