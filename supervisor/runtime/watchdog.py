"""Notifies systemd's watchdog, but only while the daemon works.

A plain timer would keep a dead router alive. Here systemd is notified only while every critical child is idle, makes
progress or is inside a declared long call that is not overdue, and while the event loop keeps time. Otherwise the
notifications stop, the log says why, and systemd kills and restarts the process; the data plane stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import trio

from ..logs import message_ids
from ..logs.logger import get_logger
from .actor import ActorContext
from .child import ChildState, ChildStatus
from .wakeups import aligned

log = get_logger("watchdog")

#: Notifications per watchdog period: sd_watchdog_enabled(3) wants two or more; four lets one be late.
PER_PERIOD: Final = 4


def watchdog_period(environment: Mapping[str, str] = os.environ, pid: int | None = None) -> float | None:
    """Return the watchdog's period in seconds as systemd sets it in ``WATCHDOG_USEC``, or None.

    A ``WATCHDOG_PID`` of another process means that the period is not for this one.
    """
    text, own = environment.get("WATCHDOG_USEC", ""), str(pid or os.getpid())
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        return None
    return int(text) / 1_000_000 if environment.get("WATCHDOG_PID", own) == own else None


def complaint(children: Iterable[ChildStatus]) -> str | None:
    """Return which critical child does not work, and why; None when all do.

    Starting and waiting for a restart are fine: the tree bounds both, and ends when a critical child cannot live.
    """
    for child in children:
        if not child.critical:
            continue
        if child.stuck:
            return f"{child.name} does not end although it was cancelled"
        if child.state is ChildState.FAILED:
            return f"{child.name} failed: {child.last_error}"
        if child.frozen and child.mode == "working":
            return f"{child.name} is overdue in: {child.activity}"
        if child.frozen:
            return f"{child.name} made no progress for {child.progress_age:.0f} s"
    return None


async def run(
    ctx: ActorContext,
    *,
    notify: Callable[[], None],
    snapshot: Callable[[], Iterable[ChildStatus]],
    period: float | None,
) -> None:
    """Call ``notify`` about every quarter of ``period`` seconds, indefinitely; never when the period is None.

    ``snapshot`` is the tree's. The event loop may be late by another quarter before a notification is withheld.
    """
    ctx.started()
    if period is None:
        with ctx.idle():
            await trio.sleep_forever()
    nap = period / PER_PERIOD
    withheld: str | None = None
    late = 0.0
    while True:
        reason = f"the event loop was {late:.1f} s late" if late > nap else complaint(snapshot())
        if reason is None:
            notify()
        _log_change(withheld, reason)
        withheld = reason
        due = aligned(trio.current_time() + nap)
        with ctx.idle():
            await trio.sleep_until(due)
        late = trio.current_time() - due


def _log_change(before: str | None, now: str | None) -> None:
    if now is not None and before is None:
        log.error("no longer notifying systemd's watchdog", message_id=message_ids.UNHEALTHY, reason=now)
    elif now is None and before is not None:
        log.info("notifying systemd's watchdog again", reason=before)
