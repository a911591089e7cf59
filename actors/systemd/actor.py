"""Translate the router's status into systemd's notification protocol (sd_notify(3)).

In come the status and the reload requests; out go READY, RELOADING, STATUS and extensions of the start timeout.

READY=1 is sent once, when the first configuration is applied and verified, never because a server answered. Until then
the start timeout is extended for as long as this actor is scheduled, because waiting for a NIC or for FRR is not a
failed start; a process that hangs stops extending and is killed. After five minutes READY=1 is sent anyway: a
node whose NIC never appears must still start its kubelet, which reports why it has no network. The status line then
starts with "late", and the daemon keeps trying; being killed and started again would bring no NIC.

A reload is announced when it is requested and completed when its outcome is known, good or bad: systemd waits for it.
"""

from __future__ import annotations

import math
from typing import Final

import trio

from config.status import Status
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.sd_notify import Notifier
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader, wait_any

log = get_logger("systemd")

#: Seconds between two extensions of the start timeout, and what each adds: three may be lost before systemd acts.
EXTEND_EVERY_SECONDS: Final = 10.0
EXTEND_BY_SECONDS: Final = 40.0
#: How long units that are ordered after this one wait for a configuration that is not in force. The unit's comment, its
#: manual page and docs/operations.md have it in minutes.
PATIENCE_SECONDS: Final = 300.0


class Handshake:
    """What was sent to systemd so far. One object outlives this actor's runs, as systemd's memory does."""

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
        """Whether other units may still be kept waiting for this start."""
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
        with ctx.idle(), trio.move_on_after(math.inf if handshake.ready_sent else EXTEND_EVERY_SECONDS):
            await wait_any(status, reload)
        _announce_reload(handshake, notifier, reload.take())
        current = status.take() or current
        if current is not None:
            in_time = current.ready or handshake.verified or handshake.patient
            notifier.status(current.summary if in_time else f"late: {current.summary}")
            _end_start(handshake, notifier, current)
            _end_reload(handshake, notifier, current)
        if not handshake.ready_sent and handshake.patient:
            notifier.extend_timeout(EXTEND_BY_SECONDS)
        ctx.progress()


def _announce_reload(handshake: Handshake, notifier: Notifier, requested: int | None) -> None:
    """Announce a reload request, once the configuration has been in force.

    Before that there may be no outcome, for which systemd would wait without end; the command of ExecReload has a
    deadline of its own.
    """
    if requested is None or requested <= handshake.reload_announced:
        return
    handshake.reload_announced = requested
    if handshake.verified:
        notifier.reloading()
    else:
        handshake.reload_answered = requested


def _end_start(handshake: Handshake, notifier: Notifier, status: Status) -> None:
    """Send READY, once, when the configuration is in force or has taken too long."""
    newly_verified = status.ready and not handshake.verified
    late = not status.ready and not handshake.ready_sent and not handshake.patient
    if (newly_verified or late) and not handshake.ready_sent:
        handshake.ready_sent = True
        notifier.ready()
    if newly_verified:
        handshake.verified = True
        log.info("ready", message_id=message_ids.READY, summary=status.summary)
    elif late:
        message = f"not ready after {PATIENCE_SECONDS / 60:.0f} minutes; releasing units that wait"
        log.warning(message, message_id=message_ids.LATE, summary=status.summary)


def _end_reload(handshake: Handshake, notifier: Notifier, status: Status) -> None:
    """Complete an announced reload once its outcome is known."""
    reload = status.reload
    if handshake.reloading and max(reload.verified, reload.failed) >= handshake.reload_announced:
        handshake.reload_answered = handshake.reload_announced
        notifier.ready()
        result = "degraded" if status.phase == "degraded" else "verified"
        if reload.failed > reload.verified:
            result = f"failed: {reload.reason}"
        message_id = message_ids.RELOADED
        log.info("reload complete", message_id=message_id, reload=handshake.reload_announced, result=result)
