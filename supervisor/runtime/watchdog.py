"""Petting systemd's watchdog, honestly.

A timer that pets would pet a dead router. Here systemd is petted only while every critical child is idle, makes
progress or is inside a declared long call that is not overdue, and while the event loop keeps time. Otherwise the
petting stops, the log says once why, and systemd kills and restarts the process; the data plane stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import trio

from ..logs import message_ids
from ..logs.logger import get_logger
from .actor import ActorContext
from .child import ChildState, ChildStatus

log = get_logger("watchdog")

#: Pets per watchdog period: sd_watchdog_enabled(3) wants two or more; four lets one be late.
PETS_PER_PERIOD: Final = 4


class Pet(Protocol):
    """The part of :class:`supervisor.process.sd_notify.Notifier` that is used here."""

    def watchdog(self) -> None:
        """Say that the process is alive."""


def period_from(environment: Mapping[str, str], pid: int) -> float | None:
    """Return the watchdog's period in seconds as systemd asks for it in ``WATCHDOG_USEC``, or None.

    A ``WATCHDOG_PID`` of another process means that the request is not for us.
    """
    text = environment.get("WATCHDOG_USEC", "")
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        return None
    return int(text) / 1_000_000 if environment.get("WATCHDOG_PID", str(pid)) == str(pid) else None


def complaint(children: Iterable[ChildStatus]) -> str | None:
    """Return which critical child is not well, and why; None when all are.

    Starting and waiting for a restart are well: the tree bounds both, and ends when a critical child cannot live.
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
    ctx: ActorContext, *, notifier: Pet, snapshot: Callable[[], Iterable[ChildStatus]], period: float | None
) -> None:
    """Pet indefinitely, every quarter of ``period`` seconds; do nothing indefinitely when it is None.

    ``snapshot`` is the tree's. The event loop may be late by another quarter before a pet is withheld.
    """
    ctx.started()
    if period is None:
        with ctx.idle():
            await trio.sleep_forever()
    nap = period / PETS_PER_PERIOD
    withheld: str | None = None
    late = 0.0
    while True:
        reason = f"the event loop was {late:.1f} s late" if late > nap else complaint(snapshot())
        if reason is None:
            notifier.watchdog()
        _log_change(withheld, reason)
        withheld = reason
        asleep = trio.current_time()
        with ctx.idle():
            await trio.sleep(nap)
        late = trio.current_time() - asleep - nap


def _log_change(before: str | None, now: str | None) -> None:
    if now is not None and before is None:
        log.error("not petting systemd's watchdog any more", message_id=message_ids.UNHEALTHY, reason=now)
    elif now is None and before is not None:
        log.info("petting systemd's watchdog again", reason=before)


def current_period() -> float | None:
    """Return this process's watchdog period in seconds, or None."""
    return period_from(os.environ, os.getpid())
