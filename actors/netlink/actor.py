"""Keeps the kernel as the newest state that FRR has applied wants it.

FRR comes first, for additions and removals alike: a VXLAN device that appears while bgpd has no EVPN instance crashes
it (reference RLD-5). What FRR has applied is made so here, verified, and kept so: the loop looks again when a
notification says that something changed, when a resource failed and is due for another attempt, and every audit
interval. Looking without finding anything writes nothing and says nothing.
"""

from __future__ import annotations

import math
import random
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from config.desired import DesiredState, HostMasterKind
from config.outcomes import FrrOutcome, KernelOutcome
from config.problems import Kind
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from supervisor.runtime.faults import DependencyFault

from .converge import Pass, converge
from .link_monitor import Interest, drain, open_monitor, watch
from .planning.plan import marked_nics
from .state_files import StateFiles
from .wire.kernel import LinuxKernel
from .wire.namespace import NAMESPACES, NamespaceMissing
from .wire.socket import KernelRefusal

log = get_logger("netlink")
T = TypeVar("T")

#: Changes within this many seconds of one another are looked at once.
COALESCE_SECONDS = 0.2
#: How often the namespace's file is looked at: its deletion makes no notification, and our threads would keep it alive,
#: and the NIC in it.
NAMESPACE_SECONDS = 2.0
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0
#: A pass over many hundred VNIs takes seconds; one that takes longer than this hangs.
PASS_SECONDS = 300.0
#: Part of the audit interval by which it varies, so that nodes do not all look at once.
JITTER = 0.2


async def run(
    ctx: ActorContext, *, settings: Settings, frr: LatestReader[FrrOutcome], out: Latest[KernelOutcome]
) -> None:
    """Run one incarnation until cancelled."""
    owner = trio.CapacityLimiter(1)
    kernel = await trio.to_thread.run_sync(_open, settings, limiter=owner)
    keeper = _Keeper(ctx, kernel, owner, out, settings.audit_interval_seconds)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.watch_host)
            nursery.start_soon(keeper.watch_router)
            nursery.start_soon(keeper.take_in, frr)
            ctx.started()
            await keeper.keep()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(kernel.close, limiter=owner)


def _open(settings: Settings) -> LinuxKernel:
    try:
        state = StateFiles.of(settings)
    except OSError as error:
        raise DependencyFault(f"{settings.state_dir}: {error.strerror}") from error
    return LinuxKernel(Path(NAMESPACES / settings.netns), state)


class _Keeper:
    """The loop and what it knows between passes."""

    def __init__(
        self,
        ctx: ActorContext,
        kernel: LinuxKernel,
        owner: trio.CapacityLimiter,
        out: Latest[KernelOutcome],
        audit_seconds: float,
    ) -> None:
        self._ctx = ctx
        self._kernel = kernel
        self._owner = owner
        self._out = out
        self._audit_seconds = audit_seconds
        self._newest: FrrOutcome | None = None
        self._in_force: DesiredState | None = None
        self._done_generation: int | None = None
        self._wake = trio.Event()
        self._interest = Interest.of_host((), ())
        self._monitors: dict[str, socket.socket] = {}
        self._router_watch: trio.CancelScope | None = None
        self._router_opened = trio.Event()
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._due = math.inf
        self._reported: tuple[str, ...] = ()

    def look_again(self) -> None:
        """Ask for a pass."""
        self._wake.set()

    async def take_in(self, frr: LatestReader[FrrOutcome]) -> None:
        """Receive FRR's outcomes. A state that FRR has not applied never replaces the one in force here."""
        while True:
            outcome = await frr.receive()
            self._newest = outcome
            if outcome.applied:
                self._in_force = outcome.desired
                self._retry_seconds = FIRST_RETRY_SECONDS
                self.look_again()
            else:
                error = f"not begun: FRR has not applied generation {outcome.desired.generation}: {outcome.error}"
                self._out.set(KernelOutcome(outcome.desired, applied=False, error=error))
                self._done_generation = None

    async def watch_host(self) -> None:
        """Wake the loop upon changes in the host that concern us."""
        monitor = await self._in_thread(open_monitor)
        self._monitors["host"] = monitor
        with monitor:
            await watch(monitor, lambda: self._interest, self.look_again)

    async def watch_router(self) -> None:
        """Wake the loop upon changes in the router's namespace, whichever that is at the time."""
        while True:
            await self._router_opened.wait()
            self._router_opened = trio.Event()
            monitor = self._monitors.get("router")
            if monitor is None:
                continue
            with trio.CancelScope() as self._router_watch, monitor:
                await watch(monitor, lambda: None, self.look_again)
            self._router_watch = None

    async def keep(self) -> None:
        """Pass after pass, each for a reason."""
        while True:
            await self._wait()
            desired = self._in_force
            if desired is not None:
                await self._pass(desired)

    async def _wait(self) -> None:
        """Wait for a reason to look: a new state, a change, a retry, an audit, or another namespace under the name."""
        with self._ctx.idle():
            while not self._wake.is_set() and trio.current_time() < self._due:
                seconds = min(self._due - trio.current_time(), NAMESPACE_SECONDS if self._in_force else math.inf)
                with trio.move_on_after(seconds):
                    await self._wake.wait()
                if not self._kernel.router_is_current():
                    break
            if self._wake.is_set():
                await trio.sleep(COALESCE_SECONDS if self._done_generation == self._generation else 0)
        self._wake = trio.Event()

    @property
    def _generation(self) -> int | None:
        return None if self._in_force is None else self._in_force.generation

    async def _pass(self, desired: DesiredState) -> None:
        fresh = self._done_generation != desired.generation
        started = trio.current_time()
        try:
            with self._ctx.working("applying to the kernel", PASS_SECONDS):
                result = await self._in_thread(partial(self._converge, desired))
        except (NamespaceMissing, KernelRefusal) as fault:
            self._close_router_watch()
            self._missed(desired, str(fault))
            return
        self._interest = _interest(desired, result)
        self._report(desired, result, fresh=fresh, seconds=trio.current_time() - started)
        self._schedule(clean=result.clean)

    def _converge(self, desired: DesiredState) -> Pass:
        """Make the pass, in the owner thread; notifications of our own writes are forgotten before each look."""
        if not self._kernel.router_is_current():
            trio.from_thread.run_sync(self._close_router_watch)
            self._kernel.release_router()
        if "router" not in self._monitors:
            monitor = self._kernel.router.call(lambda _: open_monitor())
            trio.from_thread.run_sync(self._open_router_watch, monitor)
        return converge(desired, self._kernel, self._drain)

    def _drain(self) -> None:
        for monitor in list(self._monitors.values()):
            drain(monitor)

    def _open_router_watch(self, monitor: socket.socket) -> None:
        self._monitors["router"] = monitor
        self._router_opened.set()

    def _close_router_watch(self) -> None:
        """Let go of the namespace: a socket in it would keep it alive, and the NIC with it."""
        monitor = self._monitors.pop("router", None)
        if self._router_watch is not None:
            self._router_watch.cancel()
        elif monitor is not None:
            monitor.close()

    def _missed(self, desired: DesiredState, error: str) -> None:
        """Say that nothing could be done, once per reason, and try again soon."""
        self._publish(KernelOutcome(desired, applied=False, error=error))
        self._say(
            (error,),
            lambda: log.error(
                "kernel not configured",
                message_id=message_ids.KERNEL_NOT_CONFIGURED,
                error=error,
                generation=desired.generation,
            ),
        )
        self._ctx.note(error=error)
        self._done_generation = None
        self._due = trio.current_time() + NAMESPACE_SECONDS

    def _report(self, desired: DesiredState, result: Pass, *, fresh: bool, seconds: float) -> None:
        outcome = outcome_of(desired, result)
        failures = tuple(f"{failure.resource}: {failure.message}" for failure in outcome.failures)
        problems = (*result.errors, *failures)
        if fresh or result.writes or problems != self._reported:
            self._publish(outcome)
        if result.writes:
            message = "kernel configured" if fresh else "kernel drift repaired"
            event = message_ids.KERNEL_CONFIGURED if fresh else message_ids.DRIFT
            first = result.steps.partition("\n")[0]
            log.info(
                message,
                message_id=event,
                generation=desired.generation,
                writes=result.writes,
                seconds=round(seconds, 3),
                first=first,
            )
        for problem in problems:
            if problem not in self._reported:
                log.warning("not in the kernel", message_id=message_ids.KERNEL_LACKS, problem=problem)
        self._say(problems, lambda: None)
        self._ctx.note(generation=desired.generation, failures=len(failures) or None, error=outcome.error or None)
        self._ctx.note(underlay_mtu=result.plan.model.mtu, writes=result.writes)
        self._done_generation = desired.generation

    def _publish(self, outcome: KernelOutcome) -> None:
        """Publish, unless FRR is already past or stuck on another state, whose outcome is the one to show."""
        if self._newest is None or self._newest.desired is outcome.desired:
            self._out.set(outcome)

    def _say(self, problems: tuple[str, ...], speak: Callable[[], None]) -> None:
        if problems != self._reported:
            speak()
            if self._reported and not problems:
                log.info("kernel as desired again")
        self._reported = problems

    def _schedule(self, *, clean: bool) -> None:
        """Set when to look again at the latest."""
        seconds = self._audit_seconds
        if clean:
            self._retry_seconds = FIRST_RETRY_SECONDS
        else:
            seconds = min(seconds, self._retry_seconds)
            self._retry_seconds = min(self._retry_seconds * 2, LAST_RETRY_SECONDS)
        # Spreading load needs no unpredictability.
        self._due = trio.current_time() + seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._owner)


def outcome_of(desired: DesiredState, result: Pass) -> KernelOutcome:
    """Return what a pass came to.

    A node that has none of its NICs reaches nobody: whatever else was done, its state is not in force. With
    one of them inside, another that is missing is a failure among others: the node works, and says what it lacks.
    """
    # The pass keeps one failure a resource; each NIC that is missing has to be named.
    failures = tuple(dict.fromkeys((*result.plan.failures, *result.failures)))
    cut_off: tuple[str, ...] = ()
    if desired.underlay is not None and not set(desired.underlay.interfaces).intersection(marked_nics(result.observed)):
        cut_off = tuple(failure.message for failure in failures if failure.resource.kind is Kind.UNDERLAY)
    return KernelOutcome(
        desired,
        applied=result.complete and not cut_off,
        changed=result.writes > 0,
        error="; ".join((*result.errors, *cut_off)),
        failures=failures,
        writes=result.writes,
        underlay_mtu=result.plan.model.mtu,
    )


def _interest(desired: DesiredState, result: Pass) -> Interest:
    """Return which of the host's devices concern us: our own, the underlay's NICs, and bridges that users name."""
    names = set(desired.underlay.interfaces if desired.underlay is not None else ())
    names |= {vni.bridge for vni in desired.l2vnis if vni.host_master is HostMasterKind.EXTERNAL_BRIDGE and vni.bridge}
    links = result.observed.host.links
    return Interest.of_host(names, (link.index for name, link in links.items() if link.ours or name in names))
