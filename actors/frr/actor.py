"""The FRR actor: keeps FRR running the newest desired state.

A :class:`DesiredState` comes in. The actor renders it, applies it (:mod:`.apply`), and publishes an
:class:`FrrOutcome`: whether FRR was verified to run it, and which raw snippets were left out. Then it waits for a new
state, for FRR's restart (its sockets are replaced), or for the audit interval, and applies again. A failure is retried
with back-off, indefinitely; an unreachable FRR is logged once. While nothing changes, an audit costs one reading of the
running configuration and logs nothing.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Final

import trio

from config.desired import DesiredState
from config.outcomes import FrrOutcome
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from supervisor.runtime.faults import DependencyFault, Fault

from .abilities import supported, vnis_over_ipv6
from .apply import Applier
from .driver import FrrDriver, VtyshDriver
from .render.render import render

#: Deadline of one pass in seconds: reading, a few removals, one reload at its own deadline, reading again.
APPLY_SECONDS: Final = 600.0

#: First and longest pause after a failure, in seconds.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 30.0

#: Seconds between two looks at FRR's sockets, which show that a daemon was restarted: a few stat calls.
SOCKET_POLL: Final = 2.0

log = get_logger("frr")


async def run(
    ctx: ActorContext, *, settings: Settings, desired: LatestReader[DesiredState], out: Latest[FrrOutcome]
) -> None:
    """Run one incarnation of the actor."""
    await FrrActor(ctx, settings, VtyshDriver(settings), desired, out).serve()


class FrrActor:
    """One incarnation: the newest desired state and its outcome."""

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
        self._driver = driver
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
            outcome = await self._apply(state)
            self._publish(outcome)
            state = await self._next(state, outcome)

    async def _apply(self, state: DesiredState) -> FrrOutcome:
        """Apply what this FRR can carry out, and name the rest."""
        try:
            state, refused = supported(state, await self._driver.version() if vnis_over_ipv6(state) else "")
        except DependencyFault as fault:
            return FrrOutcome(state, applied=False, error=str(fault))
        outcome = await self._apply_supported(state)
        return replace(outcome, failures=(*refused, *outcome.failures))

    async def _apply_supported(self, state: DesiredState) -> FrrOutcome:
        try:
            limit = self._settings.bgp_listen_limit
            rendered = render(state, hostname=socket.gethostname(), listen_limit=limit)
        except Fault as fault:
            return FrrOutcome(state, applied=False, error=f"cannot render FRR's configuration: {fault}")
        try:
            with self._ctx.working(f"applying generation {state.generation} to FRR", APPLY_SECONDS):
                return await self._applier.apply(state, rendered)
        except trio.TooSlowError:
            return FrrOutcome(state, applied=False, error=f"FRR took longer than {APPLY_SECONDS:g} s")

    def _publish(self, outcome: FrrOutcome) -> None:
        """Publish what is news, and log it unless only the state is new."""
        previous = self._out.peek()
        self._ctx.note(
            generation=outcome.desired.generation, applied=outcome.applied, waiting_for=outcome.error or None,
            left_out=len(outcome.failures) or None,
        )  # fmt: skip
        news = previous is None or outcome.changed or _result(previous) != _result(outcome)
        if news:
            _log_outcome(outcome)
        if news or previous is None or previous.desired != outcome.desired:
            self._out.set(outcome)

    async def _next(self, state: DesiredState, outcome: FrrOutcome) -> DesiredState:
        """Wait for a new state, FRR's restart, the audit, or the retry of a failure; return the state to apply."""
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
        """Return the seconds until the audit or the retry, with jitter so that nodes do not work in step."""
        if outcome.applied:
            self._retry = FIRST_RETRY
            seconds = self._settings.audit_interval_seconds
        else:
            seconds = self._retry
            self._retry = min(self._retry * 2, LONGEST_RETRY)
        return seconds * (0.75 + 0.5 * self._jitter())

    async def _watch_sockets(self, scope: trio.CancelScope) -> None:
        # Replaced sockets give no notice, and their directory may not even exist yet.
        while self._daemon_sockets() == self._sockets:  # noqa: ASYNC110
            await trio.sleep(SOCKET_POLL)
        scope.cancel()

    def _daemon_sockets(self) -> frozenset[tuple[str, int, int]]:
        """Return what changes when one of FRR's daemons is restarted."""
        directory = self._settings.frr_run_dir / self._settings.frr_pathspace
        try:
            return frozenset(
                (path.name, path.stat().st_ino, path.stat().st_ctime_ns) for path in directory.glob("*.vty")
            )
        except OSError:
            return frozenset()


_result = attrgetter("applied", "error", "failures")


def _log_outcome(outcome: FrrOutcome) -> None:
    generation = outcome.desired.generation
    if not outcome.applied:
        message = "FRR does not run the desired configuration"
        log.warning(message, message_id=message_ids.FRR_DIFFERS, generation=generation, reason=outcome.error)
    elif outcome.changed:
        message = "FRR runs the desired configuration, verified"
        log.info(message, message_id=message_ids.FRR_VERIFIED, generation=generation)
    else:
        log.info("FRR already runs the desired configuration", generation=generation)
    for failure in outcome.failures:
        resource, origin = str(failure.resource), str(failure.origin)
        log.warning(failure.message, message_id=message_ids.FRR_REFUSED, resource=resource, origin=origin)
