"""Translate the router's status into systemd's protocol.

READY=1 is sent once, when the first configuration is applied and verified, never because a server answered. Until then
the start timeout is extended for as long as this actor is scheduled, because waiting for a NIC or for FRR is
not a failed start; a process that hangs stops extending and is killed. Patience has an end all the same: a node whose
NIC never comes must still get its kubelet, and be told why it has no network. Then READY=1 ends the start, the status
says that nothing is in force yet, and the work goes on; being killed and started again would bring no NIC.

A reload is announced when it is requested and completed when its outcome is known, good or bad: systemd waits for that
answer.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

from config.status import Status
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader, wait_any

log = get_logger("systemd")

#: Seconds between two extensions of the start timeout, and what each asks for: three may be lost before systemd acts.
EXTEND_EVERY_SECONDS = 10.0
EXTEND_BY_SECONDS = 40.0
#: How long those that are ordered after the unit wait for a configuration that is not in force. The unit's comment, its
#: manual page and docs/operations.md say so in minutes.
PATIENCE_SECONDS = 300.0


class Notifier(Protocol):
    """The part of sd_notify that this actor speaks; ``supervisor.process.sd_notify`` has the real one."""

    def ready(self) -> None:
        """Say that start or reload is complete."""

    def reloading(self) -> None:
        """Say that a reload has begun."""

    def status(self, text: str) -> None:
        """Show one line in ``systemctl status``."""

    def extend_timeout(self, seconds: float) -> None:
        """Ask for more time to start."""


class Handshake:
    """What has been told to systemd so far. One object outlives this actor's incarnations, as systemd's memory does."""

    def __init__(self) -> None:
        #: When this actor ran first, on trio's clock; infinite before.
        self.began = math.inf
        self.ready_sent = False
        self.verified = False
        self.reload_announced = 0
        self.reload_answered = 0

    @property
    def reloading(self) -> bool:
        """Whether systemd waits for the end of a reload."""
        return self.reload_announced > self.reload_answered

    @property
    def patient(self) -> bool:
        """Whether others may be kept waiting for this start."""
        return trio.current_time() - self.began < PATIENCE_SECONDS


async def run(
    ctx: ActorContext,
    *,
    notifier: Notifier,
    handshake: Handshake,
    status: LatestReader[Status],
    reload: LatestReader[int],
) -> None:
    """Follow status and reload requests indefinitely."""
    ctx.started()
    handshake.began = min(handshake.began, trio.current_time())
    current: Status | None = None
    while True:
        with ctx.idle(), trio.move_on_after(EXTEND_EVERY_SECONDS):
            await wait_any(status, reload)
        announce(handshake, notifier, reload.take())
        current = status.take() or current
        if current is not None:
            notifier.status(line(handshake, current))
            answer(handshake, notifier, current)
        if not handshake.ready_sent and handshake.patient:
            notifier.extend_timeout(EXTEND_BY_SECONDS)
        ctx.progress()


def line(handshake: Handshake, status: Status) -> str:
    """Return the status line; it names as late what is not in force although nobody waits for it any longer."""
    in_time = status.ready or handshake.verified or handshake.patient
    return status.summary if in_time else f"late: {status.summary}"


def announce(handshake: Handshake, notifier: Notifier, requested: int | None) -> None:
    """Tell systemd of a reload request; before READY there is nothing that systemd would wait for."""
    if requested is None or requested <= handshake.reload_announced:
        return
    handshake.reload_announced = requested
    if handshake.ready_sent:
        notifier.reloading()
    else:
        handshake.reload_answered = requested


def answer(handshake: Handshake, notifier: Notifier, status: Status) -> None:
    """End the start with READY, for one reason or the other, or an announced reload that has its outcome."""
    if status.ready and not handshake.verified:
        handshake.verified = True
        end_start(handshake, notifier)
        log.info("ready", message_id=message_ids.READY, summary=status.summary)
    elif not handshake.ready_sent and not handshake.patient:
        end_start(handshake, notifier)
        log.warning("late: others need not wait any longer", message_id=message_ids.LATE, summary=status.summary)
    outcome = max(status.reload.verified, status.reload.failed)
    if handshake.reloading and outcome >= handshake.reload_announced:
        handshake.reload_answered = handshake.reload_announced
        notifier.ready()
        log.info(
            "reload complete",
            message_id=message_ids.RELOADED,
            reload=handshake.reload_announced,
            result=reload_result(status),
        )


def end_start(handshake: Handshake, notifier: Notifier) -> None:
    """Send READY, unless the start is over."""
    if not handshake.ready_sent:
        handshake.ready_sent = True
        notifier.ready()


def reload_result(status: Status) -> str:
    """Return one word, or the reason, for the log."""
    if status.reload.failed > status.reload.verified:
        return f"failed: {status.reload.reason}"
    return "degraded" if status.phase == "degraded" else "verified"
