"""Pings the host side of sessions, and further addresses, where a session has ``probe``.

Input is the kernel's outcome, which has the sessions. Each address is pinged in its VRF at its interval
(:mod:`.pinger`, :mod:`.schedule`), at most :data:`MOST` at a time: if more than that do not answer, intervals only
become longer. Output is a :class:`ProbeReport` after each round; ``health`` reports an address that is down as a
failure of the resource. Nothing else depends on it: a host that does not answer pings may still work.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import trio

from actors.lib.network_namespace import NAMESPACES
from config.outcomes import KernelOutcome, ProbeReport
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader

from ..wire.namespace import NamespaceMissing
from .pinger import ANSWER_SECONDS, Pinger, RouterPinger
from .schedule import ProbeSchedule, targets_of

#: Maximum number of pings in flight.
MOST: Final = 64
#: Deadline of a round: the answers, and a thread.
ROUND_SECONDS: Final = ANSWER_SECONDS + 30.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    kernel: LatestReader[KernelOutcome],
    out: Latest[ProbeReport],
    pinger: Pinger | None = None,
    chance: Callable[[], float] = random.random,
) -> None:
    """Run one incarnation until cancelled."""
    ctx.started()
    pinger = pinger or RouterPinger(NAMESPACES / settings.netns)
    schedule = ProbeSchedule(chance)
    while True:
        with ctx.idle(), trio.move_on_at(schedule.next_due()):
            await kernel.wait_pending()
        outcome = kernel.take()
        # A state that is not in force may still have the devices of the previous one.
        if outcome is not None and outcome.applied:
            schedule.follow(targets_of(outcome), trio.current_time())
        elif due := schedule.take(trio.current_time(), MOST):
            try:
                with ctx.working("pinging", ROUND_SECONDS):
                    answers = await pinger.ping(due)
            except NamespaceMissing:
                # The router's namespace is missing, which other actors report.
                continue
            for target, answer in zip(due, answers, strict=True):
                schedule.record(target, answer)
        else:
            continue
        report = ProbeReport(schedule.health())
        if report != out.peek():
            out.set(report)
        ctx.note(probes=len(report.probes))
        ctx.progress()
