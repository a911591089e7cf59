"""The FRR actor: keeps FRR running the newest desired state, whatever happens to FRR or is done to it.

It applies each new state, and looks again when FRR was restarted and every audit interval. It never gives up on an FRR
that is away: it says so once and tries again, slower and slower. Equal states and an undisturbed FRR cost one reading
an audit, and no line in the log.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import trio

from config.desired import DesiredState
from config.outcomes import FrrOutcome
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from supervisor.runtime.faults import Fault

from .apply import Applier
from .driver import FrrDriver, VtyshDriver
from .render.render import RenderedConfig, render

#: Longest pass in seconds: reading, a few removals, one reload at its own deadline, reading again.
APPLY_SECONDS: Final = 600.0

#: Pauses after a failure, in seconds: the first, and the longest that doubling leads to.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 30.0

#: Seconds between looks at FRR's sockets, which is how its restart is noticed: a few stat calls.
SOCKET_POLL: Final = 2.0

log = get_logger("frr")


async def run(
    ctx: ActorContext, *, settings: Settings, desired: LatestReader[DesiredState], out: Latest[FrrOutcome]
) -> None:
    """Run one incarnation of the actor."""
    await FrrActor(ctx, settings, VtyshDriver(settings), desired, out).serve()


class FrrActor:
    """One incarnation: the newest desired state and what became of it."""

    def __init__(
        self,
        ctx: ActorContext,
        settings: Settings,
        driver: FrrDriver,
        desired: LatestReader[DesiredState],
        out: Latest[FrrOutcome],
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._ctx = ctx
        self._settings = settings
        self._desired = desired
        self._out = out
        self._jitter = jitter
        self._applier = Applier(driver, settings.frr_etc_dir / settings.frr_pathspace / "frr.conf")
        self._retry = FIRST_RETRY
        self._sockets: frozenset[tuple[str, int, int]] = frozenset()

    async def serve(self) -> None:
        """Apply the newest state indefinitely."""
        self._ctx.started()
        with self._ctx.idle():
            state = await self._desired.receive()
        while True:
            self._sockets = self._daemon_sockets()
            outcome = await self._pass(state)
            self._report(outcome)
            state = await self._next(state, outcome)

    async def _pass(self, state: DesiredState) -> FrrOutcome:
        try:
            rendered = self._render(state)
        except Fault as fault:
            return FrrOutcome(state, applied=False, error=f"cannot render FRR's configuration: {fault}")
        try:
            with self._ctx.working(f"applying generation {state.generation} to FRR", APPLY_SECONDS):
                return await self._applier.apply(state, rendered)
        except trio.TooSlowError:
            return FrrOutcome(state, applied=False, error=f"FRR took longer than {APPLY_SECONDS:g} s")

    def _render(self, state: DesiredState) -> RenderedConfig:
        return render(state, hostname=socket.gethostname(), listen_limit=self._settings.bgp_listen_limit)

    def _report(self, outcome: FrrOutcome) -> None:
        """Publish what is news: a new state, another verdict, or that FRR was written to."""
        previous = self._out.peek()
        news = outcome.changed or previous is None or previous != replace(outcome, changed=previous.changed)
        self._ctx.note(
            generation=outcome.desired.generation, applied=outcome.applied, waiting_for=outcome.error or None,
            left_out=len(outcome.failures) or None,
        )  # fmt: skip
        if not news:
            return
        if previous is None or _verdict(previous) != _verdict(outcome) or outcome.changed:
            _log_outcome(outcome)
        self._out.set(outcome)

    async def _next(self, state: DesiredState, outcome: FrrOutcome) -> DesiredState:
        """Wait for a reason to look again: a new state, FRR's restart, the audit, or the retry of a failure."""
        with self._ctx.idle(), trio.move_on_after(self._pause(outcome)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_sockets, nursery.cancel_scope)
                await self._desired.wait_pending()
                nursery.cancel_scope.cancel()
        newest = self._desired.take()
        if newest is None:
            return state
        self._retry = FIRST_RETRY
        return newest

    def _pause(self, outcome: FrrOutcome) -> float:
        """Return the seconds until the next look without a reason, spread so that nodes do not march in step."""
        if outcome.applied:
            self._retry = FIRST_RETRY
            seconds = self._settings.audit_interval_seconds
        else:
            seconds = self._retry
            self._retry = min(self._retry * 2, LONGEST_RETRY)
        return seconds * (0.75 + 0.5 * self._jitter())

    async def _watch_sockets(self, scope: trio.CancelScope) -> None:
        # The sockets tell nobody that they are replaced, and their directory may not even exist yet.
        while self._daemon_sockets() == self._sockets:  # noqa: ASYNC110
            await trio.sleep(SOCKET_POLL)
        scope.cancel()

    def _daemon_sockets(self) -> frozenset[tuple[str, int, int]]:
        """Return what tells one life of FRR's daemons from the next."""
        directory = self._settings.frr_run_dir / self._settings.frr_pathspace
        try:
            return frozenset(
                (path.name, path.stat().st_ino, path.stat().st_ctime_ns) for path in directory.glob("*.vty")
            )
        except OSError:
            return frozenset()


def _verdict(outcome: FrrOutcome) -> tuple[object, ...]:
    return outcome.applied, outcome.error, outcome.failures


def _log_outcome(outcome: FrrOutcome) -> None:
    generation = outcome.desired.generation
    if not outcome.applied:
        log.warning(
            "FRR does not run the desired configuration",
            message_id=message_ids.FRR_DIFFERS,
            generation=generation,
            reason=outcome.error,
        )
    elif outcome.changed:
        log.info(
            "FRR runs the desired configuration, verified", message_id=message_ids.FRR_VERIFIED, generation=generation
        )
    else:
        log.info("FRR already runs the desired configuration", generation=generation)
    for failure in outcome.failures:
        log.warning(
            failure.message,
            message_id=message_ids.FRR_REFUSED,
            resource=str(failure.resource),
            origin=str(failure.origin),
        )
