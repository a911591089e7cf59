"""The FRR actor: keeps FRR running the newest desired state.

A :class:`DesiredState` comes in. The actor renders it, applies it (:mod:`.apply`), and publishes an
:class:`FrrOutcome`: whether FRR was verified to run it, and which resources FRR refused. Then it waits for a new state,
for FRR's restart (its sockets are replaced), for the next attempt at what FRR refused, or for the audit interval, and
applies again; a new state ends an attempt that does not succeed at once. A failure is retried with back-off,
indefinitely; an unreachable FRR is logged once. While nothing changes, an audit costs one reading of the running
configuration and logs nothing. It takes its turn with the kernel only if there is something to do: work on the kernel
ends for that and begins again. While FRR cannot be read, what was verified last counts for :data:`UNREADABLE_SECONDS`:
zebra answers nothing while many devices come or go.

An L3VNI is withdrawn, which means left out of its VRF, while the kernel moves its devices or makes them again: FRR up
to 10.4 may keep what it knew about them, and a VNI that changes its VRF would serve one tenant with another's devices
meanwhile. The VNIs that a new state moves are withdrawn from the start; once there is a kernel outcome for that state,
the outcome's requests count instead. A VNI that the health report wants to bounce is withdrawn and added again at once.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Final

import trio

from actors.lib.frr.daemon_socket import DaemonTooSlow
from actors.lib.frr.pod_processes import processes_of
from actors.lib.metrics import counters as metrics
from config.desired import DesiredState
from config.outcomes import Bounce, FrrOutcome, HealthReport, KernelOutcome
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.change_events import PathEvents
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader, wait_any
from supervisor.runtime.faults import DependencyFault, Fault
from supervisor.runtime.wakeups import aligned

from .abilities import supported, vnis_over_ipv6
from .apply import Applier, SupersededError
from .driver import FrrDriver, VtyshDriver
from .render.render import RenderedConfig, Renderer

#: Deadline of one pass in seconds: two attempts of three rounds each, without the deadlines of single commands.
APPLY_SECONDS: Final = 600.0

#: Deadline of reading FRR's version, seconds: one vtysh process.
VERSION_SECONDS: Final = 60.0

#: First and longest pause after a failure, in seconds.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 30.0

#: How long what was verified last counts while audits cannot read it: watchfrr ends a daemon that has not answered for
#: 90 seconds, and then its socket is replaced.
UNREADABLE_SECONDS: Final = 120.0

#: Seconds between two looks at FRR's sockets, which show that a daemon was restarted, while their directory changes.
SOCKET_POLL: Final = 2.0

log = get_logger("frr")


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    desired: LatestReader[DesiredState],
    kernel: LatestReader[KernelOutcome],
    health: LatestReader[HealthReport],
    changing: trio.Lock,
    out: Latest[FrrOutcome],
) -> None:
    """Run one incarnation of the actor. ``changing`` is held while FRR is changed."""
    driver = VtyshDriver(settings)
    actor = FrrActor(ctx, settings, driver, desired=desired, kernel=kernel, health=health, changing=changing, out=out)
    await actor.serve()


class FrrActor:
    """One incarnation: the newest desired state and its outcome."""

    def __init__(
        self,
        ctx: ActorContext,
        settings: Settings,
        driver: FrrDriver,
        *,
        desired: LatestReader[DesiredState],
        kernel: LatestReader[KernelOutcome],
        health: LatestReader[HealthReport],
        changing: trio.Lock,
        out: Latest[FrrOutcome],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._ctx = ctx
        self._settings = settings
        self._driver = driver
        self._processes = processes_of(settings)
        self._directory = settings.frr_run_dir / settings.frr_pathspace
        self._desired = desired
        self._kernel = kernel
        self._health = health
        self._changing = changing
        self._out = out
        self._jitter = jitter
        self._applier = Applier(driver, settings.frr_etc_dir / settings.frr_pathspace / "frr.conf")
        self._renderer = Renderer()
        #: The last configuration after what it was rendered from.
        self._rendered: tuple[DesiredState, frozenset[int], str, RenderedConfig] | None = None
        self._places = _VniPlaces()
        #: The last kernel outcome that has settled them.
        self._settled: KernelOutcome | None = None
        # An earlier incarnation has left its outcome.
        for last in (kernel.peek(), out.peek()):
            if last is not None and last.applied:
                self._places.add(last.desired)
        #: The requests to bounce an L3VNI that FRR has not removed in the last pass.
        self._refused: frozenset[Bounce] = frozenset()
        self._retry = FIRST_RETRY
        #: When the first of the audits began that could not read FRR, in a row; None: the last one could.
        self._unread_since: float | None = None
        self._sockets: frozenset[tuple[str, int, int]] = frozenset()
        self._version = ""
        # Replaced sockets give no other notice, and their directory may not even exist yet.
        self._socket_events = PathEvents(lambda: (self._directory, settings.pod_run_dir))

    async def serve(self) -> None:
        """Apply the newest state indefinitely."""
        with self._socket_events:
            await self._serve()

    async def _serve(self) -> None:
        self._ctx.started()
        with self._ctx.idle():
            state = await self._desired.receive()
        while True:
            sockets = self._daemon_sockets()
            if sockets != self._sockets:
                self._sockets = sockets
                self._applier.forget(restarted=True)
                self._version = ""
            with self._ctx.idle():
                await self._changing.acquire()
            try:
                state = self._newest(state)
                started = trio.current_time()
                outcome = await self._carry_out(state)
                self._measure(outcome, trio.current_time() - started)
                # Before the lock is free: the kernel must not be changed for an older state.
                self._publish(outcome)
            except SupersededError:
                log.info("a newer state supersedes this one", generation=state.generation)
                continue
            finally:
                self._changing.release()
            self._could_read()
            await self._wait(state, outcome)
            while await self._still_runs(state, outcome):
                await self._wait(state, outcome)

    async def _still_runs(self, state: DesiredState, outcome: FrrOutcome) -> bool:
        """Whether an audit finds nothing to do, or finds out nothing yet; it only reads. False if more is due."""
        known = self._rendered
        if not outcome.applied or known is None or self._is_due(state, outcome):
            return False
        started = trio.current_time()
        try:
            with self._ctx.working("auditing FRR", APPLY_SECONDS):
                unchanged = await self._applier.is_unchanged(known[3])
        except (DaemonTooSlow, trio.TooSlowError) as fault:
            return self._may_still_run(str(fault) or f"it took longer than {APPLY_SECONDS:g} s", started)
        except DependencyFault:
            return False
        self._could_read()
        if unchanged:
            self._measure(replace(outcome, changed=False), trio.current_time() - started)
            if not self._version:
                await self._read_version()
        return unchanged

    def _is_due(self, state: DesiredState, outcome: FrrOutcome) -> bool:
        """Whether there is something to do whatever FRR runs, or more to find out than that."""
        return (
            self._desired.pending
            or self._daemon_sockets() != self._sockets
            or self._withdrawn(state) != outcome.withdrawn
            or bool(self._due(state))
            # Its version decides about the rest of the state.
            or outcome.desired is not state
            or self._applier.refusals.seconds_to_attempt() <= 0
            or (self._rendered or ())[1:3] != (outcome.withdrawn, socket.gethostname())
        )

    def _may_still_run(self, reason: str, started: float) -> bool:
        """Whether what was verified last still counts after an audit that could not read FRR."""
        if self._unread_since is None:
            self._unread_since = started
            log.info("an audit could not read FRR's configuration", reason=reason)
            self._ctx.note(unread=reason)
        return trio.current_time() - self._unread_since < UNREADABLE_SECONDS

    def _could_read(self) -> None:
        self._unread_since = None
        self._ctx.note(unread=None)

    async def _carry_out(self, state: DesiredState) -> FrrOutcome:
        """Apply a state without the VNIs that are withdrawn now, after bouncing those that are to be bounced."""
        withdrawn, due = self._withdrawn(state), self._due(state)
        self._refused = frozenset()
        if due:
            log.info("removing L3VNIs from FRR and adding them again", vnis=sorted(bounce.vni for bounce in due))
            without = await self._apply(state, withdrawn.union(bounce.vni for bounce in due))
            if not without.applied:
                # What fails may be something else. Only an attempt has changed something and read the result.
                kept = self._applier.shown_vnis() if without.changed else {bounce.vni for bounce in due}
                self._refused = frozenset(bounce for bounce in due if bounce.vni in kept)
                due -= self._refused
        outcome = await self._apply(state, withdrawn)
        if outcome.applied and not self._version:
            await self._read_version()
        return replace(outcome, withdrawn=withdrawn, bounced=self._bounced() | due)

    async def _read_version(self) -> None:
        """Read the version of the FRR that runs, for the status; the next pass tries again if it does not answer."""
        try:
            with self._ctx.working("reading FRR's version", VERSION_SECONDS):
                self._version = await self._driver.version()
        except (DependencyFault, trio.TooSlowError) as fault:
            log.debug("FRR's version is unknown", reason=str(fault))
        self._ctx.note(frr_version=self._version or None)

    def _measure(self, outcome: FrrOutcome, seconds: float) -> None:
        metrics.RECONCILE_SECONDS.observe(seconds, "frr")
        if outcome.applied:
            metrics.LAST_APPLY.set(time.time(), "frr")
        else:
            metrics.FRR_RELOAD_FAILURES.count()
        if outcome.changed or not outcome.applied:
            metrics.FRR_RELOAD_SECONDS.observe(seconds, "applied" if outcome.applied else "failed")
        before = self._out.peek()
        # What an attempt at refused lines, another actor's request or a retry changes is not drift.
        if (
            before is not None
            and before.applied
            and outcome.changed
            and not self._refused
            and _asked(before) == _asked(outcome)
        ):
            metrics.DRIFT_DETECTED.count("frr")
            if outcome.applied:
                metrics.DRIFT_REPAIRS.count("frr")

    def _withdrawn(self, state: DesiredState) -> frozenset[int]:
        """Return the L3VNIs that FRR must not have now."""
        kernel, before = self._kernel.peek(), self._out.peek()
        asked = frozenset() if kernel is None else kernel.withdraw
        if before is not None and (kernel is None or kernel.desired.generation != state.generation):
            # The kernel has not seen this state yet.
            self._settle()
            asked |= before.withdrawn | self._places.moved(state)
        return asked.intersection(vni.vni for vni in state.l3vnis)

    def _settle(self) -> None:
        """Forget where devices were before the kernel was in the state that FRR has."""
        kernel, before = self._kernel.peek(), self._out.peek()
        if kernel is None or before is None or kernel is self._settled or kernel.desired != before.desired:
            return
        self._settled = kernel
        if kernel.applied:
            self._places.settle(kernel.desired)

    def _due(self, state: DesiredState) -> frozenset[Bounce]:
        """Return the requests to bounce an L3VNI that were not carried out yet."""
        health = self._health.peek()
        current = health is not None and health.generation == state.generation
        return health.bounce - self._bounced() if health is not None and current else frozenset()

    def _bounced(self) -> frozenset[Bounce]:
        """Return the requests that were carried out, of those that still stand."""
        health, before = self._health.peek(), self._out.peek()
        return frozenset() if health is None or before is None else before.bounced & health.bounce

    async def _apply(self, state: DesiredState, withdrawn: frozenset[int]) -> FrrOutcome:
        """Apply what this FRR can carry out, and name the rest."""
        try:
            state, refused = supported(state, await self._driver.version() if vnis_over_ipv6(state) else "")
        except DependencyFault as fault:
            return FrrOutcome(state, applied=False, error=str(fault))
        outcome = await self._apply_supported(state, withdrawn)
        return replace(outcome, failures=(*refused, *outcome.failures))

    async def _apply_supported(self, state: DesiredState, withdrawn: frozenset[int]) -> FrrOutcome:
        try:
            rendered = self._rendered_for(state, withdrawn)
            then = self._render(state, frozenset()) if withdrawn else None
        except Fault as fault:
            return FrrOutcome(state, applied=False, error=f"cannot render FRR's configuration: {fault}")
        try:
            with self._ctx.working(f"applying generation {state.generation} to FRR", APPLY_SECONDS):
                return await self._applier.apply(state, rendered, lambda: self._desired.pending, then=then)
        except trio.TooSlowError:
            return FrrOutcome(state, applied=False, error=f"FRR took longer than {APPLY_SECONDS:g} s")

    def _rendered_for(self, state: DesiredState, withdrawn: frozenset[int]) -> RenderedConfig:
        """Render a state, unless it is the last one."""
        hostname, known = socket.gethostname(), self._rendered
        if known is None or known[0] is not state or known[1:3] != (withdrawn, hostname):
            known = self._rendered = state, withdrawn, hostname, self._render(state, withdrawn)
        return known[3]

    def _render(self, state: DesiredState, withdrawn: frozenset[int]) -> RenderedConfig:
        limit = self._settings.bgp_listen_limit
        return self._renderer.render(state, hostname=socket.gethostname(), listen_limit=limit, withdrawn=withdrawn)

    def _publish(self, outcome: FrrOutcome) -> None:
        """Publish what is news, and log it unless only the state is new."""
        previous = self._out.peek()
        self._settle()
        if outcome.applied:
            self._places.add(outcome.desired)
        self._ctx.note(
            generation=outcome.desired.generation, applied=outcome.applied, waiting_for=outcome.error or None,
            left_out=len(outcome.failures) or None,
        )  # fmt: skip
        news = previous is None or outcome.changed or _result(previous) != _result(outcome)
        if news:
            _log_outcome(outcome)
        if news or previous is None or previous.desired != outcome.desired:
            self._out.set(outcome)

    async def _wait(self, state: DesiredState, outcome: FrrOutcome) -> None:
        """Wait for a new state, a request, FRR's restart, the audit, or a retry."""
        with self._ctx.idle(), trio.move_on_at(aligned(trio.current_time() + self._pause(outcome))):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_sockets, nursery.cancel_scope)
                nursery.start_soon(self._watch_requests, state, outcome, nursery.cancel_scope)
                await self._desired.wait_pending()
                nursery.cancel_scope.cancel()

    def _newest(self, state: DesiredState) -> DesiredState:
        """Return the newest state. A new one is tried without delay, a reload's with the lines that FRR refused too."""
        newest = self._desired.take()
        if newest is None:
            return state
        self._retry = FIRST_RETRY
        if newest.reload_id != state.reload_id:
            self._applier.forget()
        return newest

    def _pause(self, outcome: FrrOutcome) -> float:
        """Return the seconds until the audit, attempt or retry, with jitter so that nodes do not work in step."""
        jitter = 0.75 + 0.5 * self._jitter()
        if outcome.applied and self._unread_since is None and not self._refused:
            self._retry = FIRST_RETRY
            attempt = self._applier.refusals.seconds_to_attempt()
            return min(self._settings.audit_interval_seconds * jitter, attempt)
        seconds = self._retry
        self._retry = min(self._retry * 2, LONGEST_RETRY)
        return seconds * jitter

    async def _watch_requests(self, state: DesiredState, outcome: FrrOutcome, scope: trio.CancelScope) -> None:
        while self._withdrawn(state) == outcome.withdrawn and not self._due(state) - self._refused:
            await wait_any(self._kernel, self._health)
            self._kernel.take()
            self._health.take()
        scope.cancel()

    async def _watch_sockets(self, scope: trio.CancelScope) -> None:
        while self._daemon_sockets() == self._sockets:
            await self._socket_events.wait(SOCKET_POLL)
        scope.cancel()

    def _daemon_sockets(self) -> frozenset[tuple[str, int, int]]:
        """Return what changes when one of FRR's daemons is restarted."""
        try:
            with os.scandir(self._directory) as entries:
                sockets = [(one.name, one.stat()) for one in entries if one.name.endswith(".vty")]
        except OSError:
            sockets = []
        return self._processes.restarts().union((name, found.st_ino, found.st_ctime_ns) for name, found in sockets)


#: What the devices of an L3VNI depend on: VRF, tunnel endpoint and port. Empty for those of an L2VNI.
_Place = tuple[object, ...]


class _VniPlaces:
    """Where the kernel may have the devices of each VNI.

    Work on the kernel may end halfway or not begin. So every state counts that FRR has applied since the last one that
    the kernel has in force: a VNI may have devices for each of them, also if the newest is without it.
    """

    def __init__(self) -> None:
        self._known: dict[int, set[_Place]] = {}

    def add(self, state: DesiredState) -> None:
        """Take in a state that the kernel is going to be brought to."""
        for vni, place in _places(state):
            self._known.setdefault(vni, set()).add(place)

    def settle(self, state: DesiredState) -> None:
        """Take in that the kernel is in a state, with no devices of earlier ones."""
        self._known.clear()
        self.add(state)

    def moved(self, state: DesiredState) -> frozenset[int]:
        """Return the L3VNIs of a state that may have devices elsewhere or with other attributes."""
        return frozenset(vni for vni, place in _places(state) if place and self._known.get(vni, set()) - {place})


def _places(state: DesiredState) -> Iterator[tuple[int, _Place]]:
    for l3vni in state.l3vnis:
        yield l3vni.vni, (l3vni.vrf, l3vni.vtep, l3vni.vxlan_port)
    for l2vni in state.l2vnis:
        yield l2vni.vni, ()


_result = attrgetter("applied", "error", "failures", "withdrawn", "bounced")
_asked = attrgetter("desired.generation", "failures", "withdrawn", "bounced")


def _log_outcome(outcome: FrrOutcome) -> None:
    generation = outcome.desired.generation
    if outcome.error:
        message = "FRR does not run the desired configuration"
        log.warning(message, message_id=message_ids.FRR_DIFFERS, generation=generation, reason=outcome.error)
    elif outcome.changed:
        message = "FRR runs the desired configuration, verified"
        withdrawn = sorted(outcome.withdrawn) or None
        log.info(message, message_id=message_ids.FRR_VERIFIED, generation=generation, without_vnis=withdrawn)
    else:
        log.info("FRR already runs the desired configuration", generation=generation)
    for failure in outcome.failures:
        resource, origin = str(failure.resource), str(failure.origin)
        log.warning(failure.message, message_id=message_ids.FRR_REFUSED, resource=resource, origin=origin)
