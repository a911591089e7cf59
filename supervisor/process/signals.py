"""One task that handles all signals, one after another.

SIGTERM and SIGINT stop, a second one stops without waiting for work in hand. SIGHUP requests a reload: requests are
numbered in a conflating cell, so that many of them leave one reload pending, the newest.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import trio

from ..logs.logger import get_logger
from ..runtime.channel import Latest

log = get_logger("signals")


def request_reload(requests: Latest[int]) -> int:
    """Request a reload, as SIGHUP does; return the number of the request, counted from 1."""
    number = (requests.peek() or 0) + 1
    requests.set(number)
    return number


async def handle_signals(
    *,
    stop: Callable[[], None],
    reload: Latest[int],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Handle signals indefinitely; ``task_status`` is started once none can be missed any more.

    ``stop`` is called for each SIGTERM and SIGINT.
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as arrivals:
        task_status.started()
        async for number in arrivals:
            if number == signal.SIGHUP:
                log.debug("reload requested by signal", reload=request_reload(reload))
            else:
                log.info("stop requested by signal", signal=signal.Signals(number).name)
                stop()
