"""Keeps the kernel in the newest state that FRR has applied.

In comes FRR's outcome for each desired state. FRR is first, for additions and removals alike: a VXLAN device that
appears while bgpd has no EVPN instance crashes bgpd (reference RLD-5). So FRR and the kernel are never changed at the
same time: both actors take the lock ``changing``, and a pass over the kernel ends early when FRR's actor waits for it.
A state that FRR has applied is in force here: a pass (:mod:`.converge`) brings the kernel to it and verifies it, except
for L3VNIs whose devices have to be moved while FRR has them. Those are in the outcome's ``withdraw``, and the pass that
follows FRR's answer moves them. The pass for a new state plans from what the last one has verified, unless something
was missing then or a notification has come since, and observes once, at its end. Further passes follow when a
notification reports a change in the kernel (:mod:`.link_monitor`), when a failed resource is due for another attempt,
when another namespace has the router's name, and at every audit interval; they observe first. Out goes a kernel outcome
for each new state, each pass that wrote something and each change of the failures; a pass that finds nothing to do
writes nothing and logs nothing.

All netlink calls of the actor run in one worker thread at a time (``owner``).
"""

from __future__ import annotations

import math
import random
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import trio

from actors.lib.frr.daemon_socket import DaemonSockets
from actors.lib.frr.vtysh import FrrUnavailable
from actors.lib.metrics import counters as metrics
from actors.lib.network_namespace import NAMESPACES
from config.api import ApiAccess
from config.desired import DesiredState, HostMasterKind
from config.outcomes import FrrOutcome, KernelOutcome
from config.problems import Kind
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.subprocesses import Completed, run_command
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from supervisor.runtime.faults import DependencyFault

from .cni.attachments import PLUGIN_SECONDS, Attachments
from .cni.dhcp import DhcpDaemon, Leases
from .cni.protocol import leasing
from .converge import PassResult, Planner, converge
from .kernel import LinuxKernel
from .link_monitor import Interest, drain, open_monitor, something_changed, watch
from .planning.observed import Observed
from .planning.plan_cni import made_links
from .planning.plan_nics import marked_nics
from .state_files import StateFiles
from .wire.namespace import NamespaceMissing, namespace_events
from .wire.socket import KernelRefusal

log = get_logger("netlink")
T = TypeVar("T")

#: Changes within this many seconds of one another lead to one pass.
COALESCE_SECONDS = 0.2
#: How often the namespace's file is checked while others come and go: our threads would keep a deleted namespace alive,
#: with the NIC in it.
NAMESPACE_SECONDS = 2.0
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0
#: A pass that only a notification calls for leaves this many times as long alone as the last one took, within limits:
#: another process that changes links all the time costs no more than a part of a core.
DISTANCE = 4
LONGEST_DISTANCE = 2.0
#: A pass over many hundred VNIs takes seconds; one that takes longer than this hangs.
PASS_SECONDS = 300.0
#: After so long a pass ends once zebra has been waited for again, and another one continues. Only these waits, which
#: many devices need, make a pass so long.
LONGEST_PASS_SECONDS = 120.0
#: Part of the audit interval by which it varies, so that nodes do not all work at the same time.
JITTER = 0.2
#: How long zebra may take to read a hundred new devices on a slow, busy machine. watchfrr ends it after 90 seconds.
ZEBRA_SECONDS = 60.0
ZEBRA_POLL_SECONDS = 0.1
#: A line of zebra's "show vrf".
_ZEBRAS_VRF: Final = re.compile(r"^vrf (\S+) id (\d+) table", re.MULTILINE)


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    frr: LatestReader[FrrOutcome],
    changing: trio.Lock,
    out: Latest[KernelOutcome],
    access: LatestReader[ApiAccess] | None = None,
) -> None:
    """Run one incarnation until cancelled. ``access`` has the API server, which no session may take from the host."""
    owner = trio.CapacityLimiter(1)
    dhcp = DhcpDaemon.of(settings)
    kernel = await trio.to_thread.run_sync(_open, settings, dhcp, limiter=owner)
    try:
        async with trio.open_nursery() as nursery:
            loop = _ControlLoop(
                ctx, kernel, owner, frr, changing, out, settings.audit_interval_seconds, nursery, dhcp, access
            )
            nursery.start_soon(dhcp.run, loop.wake_up)
            nursery.start_soon(loop.watch_host)
            nursery.start_soon(loop.watch_name)
            nursery.start_soon(loop.receive)
            ctx.started()
            await loop.run()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(kernel.close, limiter=owner)


def _server_of(access: LatestReader[ApiAccess] | None) -> str:
    """Return the API server's host as its URL has it, or nothing while none has answered."""
    known = None if access is None else access.peek()
    credentials = None if known is None else known.credentials
    return "" if credentials is None else urlsplit(credentials.server).hostname or ""


def _open(settings: Settings, dhcp: DhcpDaemon) -> LinuxKernel:
    zebra = DaemonSockets.of(settings, seconds=ZEBRA_SECONDS)
    state = StateFiles.of(settings)

    def run_plugin(program: Path, env: Mapping[str, str], stdin: str) -> Completed:
        call = partial(run_command, (str(program),), seconds=PLUGIN_SECONDS, stdin=stdin, env=env)
        return trio.from_thread.run(call)

    return LinuxKernel(
        NAMESPACES / settings.netns,
        state,
        lambda vrfs: trio.from_thread.run(await_zebra, zebra, dict(vrfs)),
        Attachments.of(settings, state, run_plugin, Leases(dhcp.socket, lambda: trio.from_thread.run(dhcp.ready))),
    )


async def await_zebra(zebra: DaemonSockets, vrfs: Mapping[str, int]) -> None:
    """Return once zebra answers and has VRFs of these names and indices; give up with a warning after a while.

    A zebra that does not run need not be waited for: when it starts it reads all devices before it reads routes.
    """
    problem = "it has not answered"
    with trio.move_on_after(ZEBRA_SECONDS):
        while True:
            try:
                answer = await zebra.text("show vrf", daemon="zebra")
            except FrrUnavailable:
                return
            except DependencyFault as fault:
                problem = str(fault)
            else:
                missing = vrfs.items() - {(name, int(index)) for name, index in _ZEBRAS_VRF.findall(answer)}
                if not missing:
                    return
                problem = f"it does not know {', '.join(sorted(name for name, _ in missing))}"
            await trio.sleep(ZEBRA_POLL_SECONDS)
    log.warning("zebra is late", message_id=message_ids.ZEBRA_LATE, problem=problem, seconds=ZEBRA_SECONDS)


@dataclass(eq=False)
class _ControlLoop:
    """The loop and its state between passes."""

    ctx: ActorContext
    kernel: LinuxKernel
    owner: trio.CapacityLimiter
    frr: LatestReader[FrrOutcome]
    changing: trio.Lock
    out: Latest[KernelOutcome]
    audit_seconds: float
    nursery: trio.Nursery
    dhcp: DhcpDaemon
    access: LatestReader[ApiAccess] | None = None
    newest: FrrOutcome | None = None
    in_force: FrrOutcome | None = None
    done_generation: int | None = None
    wake: trio.Event = field(default_factory=trio.Event)
    news: trio.Event = field(default_factory=trio.Event)
    #: Held during a pass, whose own notifications need not be read.
    passing: trio.Lock = field(default_factory=trio.Lock)
    earliest: float = -math.inf
    interest: Interest = field(default_factory=lambda: Interest.of_host((), ()))
    monitors: dict[str, socket.socket] = field(default_factory=dict)
    router_watch: trio.CancelScope | None = None
    retry_seconds: float = FIRST_RETRY_SECONDS
    due: float = math.inf
    problems: tuple[str, ...] = ()
    planner: Planner = field(default_factory=Planner)
    #: What the last pass has verified, if nothing was missing and no notification has come since.
    verified: Observed | None = None

    async def receive(self) -> None:
        """Receive FRR's outcomes. A state that FRR has not applied never replaces the one in force here."""
        while True:
            outcome = await self.frr.receive()
            self.newest = outcome
            if outcome.applied:
                self.in_force = outcome
                self.retry_seconds = FIRST_RETRY_SECONDS
                self.wake.set()
                self.news.set()
            else:
                error = f"not started: FRR has not applied generation {outcome.desired.generation}: {outcome.error}"
                self.out.set(KernelOutcome(outcome.desired, applied=False, error=error, withdraw=outcome.withdrawn))
                self.done_generation = None

    async def watch_host(self) -> None:
        """Wake the loop upon changes of the host's devices that concern us."""
        self.monitors["host"] = monitor = await self._in_thread(open_monitor)
        with monitor:
            await watch(monitor, lambda: self.interest, self.changed, self.passing)

    async def watch_router(self, monitor: socket.socket, scope: trio.CancelScope) -> None:
        """Wake the loop upon any change in one namespace of the router, until the scope is cancelled."""
        with scope, monitor:
            await watch(monitor, lambda: None, self.changed, self.passing)

    async def watch_name(self) -> None:
        """Wake the loop when another namespace has the router's name, or none."""
        with namespace_events() as events:
            while True:
                await events.wait(NAMESPACE_SECONDS)
                if not self.kernel.router_is_current():
                    self.wake.set()

    def wake_up(self) -> None:
        """Request a pass."""
        self.wake.set()

    def changed(self) -> None:
        """Request a pass, because something has changed in the kernel."""
        self.verified = None
        self.wake.set()

    async def run(self) -> None:
        """Make one pass after another, each for a reason."""
        while True:
            await self._wait()
            with self.ctx.idle():
                await self.changing.acquire()
            try:
                # An outcome that came meanwhile has not been received yet.
                if self.in_force is not None and not self.frr.pending:
                    async with self.passing:
                        # The pass sees all that was a reason for it until now.
                        self.wake, self.news = trio.Event(), trio.Event()
                        await self._pass(self.in_force)
                elif self.in_force is not None:
                    # What was a reason for a pass still is one if that outcome is a failure, which leads to none.
                    self.wake.set()
            finally:
                self.changing.release()

    async def _wait(self) -> None:
        """Wait for a new state, a change, a retry, an audit, or another namespace of the router's name."""
        with self.ctx.idle():
            with trio.move_on_at(self.due):
                await self.wake.wait()
            generation = None if self.in_force is None else self.in_force.desired.generation
            if self.wake.is_set() and self.done_generation == generation:
                with trio.move_on_at(max(trio.current_time() + COALESCE_SECONDS, self.earliest)):
                    await self.news.wait()
        self.wake = trio.Event()

    async def _pass(self, frr: FrrOutcome) -> None:
        desired = frr.desired
        fresh = self.done_generation != desired.generation
        started = trio.current_time()
        try:
            with self.ctx.working("applying to the kernel", PASS_SECONDS):
                await self._follow_router()
                self.kernel.api_server = _server_of(self.access)
                # Notifications of our own writes are dropped before each observation, which sees their effect.
                known = self._known(desired) if fresh else None
                self.verified = None
                work = partial(
                    converge, desired, self.kernel, self._drain, withdrawn=frr.withdrawn,
                    stop=partial(self._why_stop, time.monotonic()), planner=self.planner, known=known,
                )  # fmt: skip
                result = await self._in_thread(work)
        except (NamespaceMissing, KernelRefusal) as fault:
            # Leases, for which DHCP's daemon runs, outlive a fault of a namespace that stays.
            if isinstance(fault, NamespaceMissing) or not self.kernel.router_is_current():
                self._leave_router()
            self._report_fault(desired, str(fault))
            return
        ended = trio.current_time()
        self.earliest = ended + min(DISTANCE * (ended - started), LONGEST_DISTANCE)
        self.interest = _interest(desired, result)
        if not _leases(desired, result):
            self.dhcp.release()
        if result.interrupted:
            log.info(
                f"interrupted work on the kernel: {result.interrupted}",
                generation=desired.generation,
                writes=result.writes,
            )
            self.wake.set()
            return
        if result.clean:
            self.verified = result.observed
        self._measure(result, fresh=fresh, seconds=ended - started)
        self._report(desired, result, fresh=fresh, seconds=ended - started)
        self._schedule(clean=result.clean)

    def _why_stop(self, began: float, waited: bool) -> str:
        """Return why a pass that began at this monotonic second has to end now; see :data:`.converge.Stop`."""
        if self.changing.statistics().tasks_waiting:
            return "FRR is next"
        if not self.kernel.router_is_current():
            # What watches the old namespace keeps it alive, with the NIC in it.
            return "the router's network namespace was deleted or replaced"
        seconds = time.monotonic() - began
        return f"another look at it is due after {seconds:.0f} s" if waited and seconds > LONGEST_PASS_SECONDS else ""

    def _known(self, desired: DesiredState) -> Observed | None:
        """Return what the last pass has verified, unless a notification that counts is waiting.

        Devices of the host that only the new state names were none of our concern until now.
        """
        if self.verified is None or not _names(desired).issubset(self.interest.names):
            return None
        interests = {"host": self.interest}
        waiting = [something_changed(monitor, interests.get(name)) for name, monitor in self.monitors.items()]
        return None if any(waiting) else self.verified

    def _measure(self, result: PassResult, *, fresh: bool, seconds: float) -> None:
        metrics.RECONCILE_SECONDS.observe(seconds, "kernel")
        if result.complete:
            metrics.LAST_APPLY.set(time.time(), "kernel")
        # What follows a refusal or another actor's answer is not drift.
        if result.writes and not fresh and not self.problems and not self.asked:
            metrics.DRIFT_DETECTED.count("kernel")
            if result.clean:
                metrics.DRIFT_REPAIRS.count("kernel")

    async def _follow_router(self) -> None:
        """Watch the namespace that has the router's name now."""
        if not self.kernel.router_is_current():
            self._leave_router()
            self.verified = None
            await self._in_thread(self.kernel.release_router)
        if self.router_watch is None:
            monitor = await self._in_thread(lambda: self.kernel.router.call(lambda _: open_monitor()))
            self.monitors["router"] = monitor
            self.router_watch = trio.CancelScope()
            self.nursery.start_soon(self.watch_router, monitor, self.router_watch)

    def _leave_router(self) -> None:
        """Close what would keep the router's namespace alive, with the NIC in it: its monitor, and DHCP's daemon."""
        self.dhcp.release()
        self.monitors.pop("router", None)
        if self.router_watch is not None:
            self.router_watch.cancel()
            self.router_watch = None

    def _drain(self) -> None:
        for monitor in list(self.monitors.values()):
            drain(monitor)

    def _report_fault(self, desired: DesiredState, error: str) -> None:
        """Report that nothing could be done, log it once per reason, and try again soon."""
        withdraw = self.newest.withdrawn if self.newest is not None else frozenset()
        self._publish(KernelOutcome(desired, applied=False, error=error, withdraw=withdraw))
        if self.problems != (error,):
            log.error(
                "the kernel is not configured",
                message_id=message_ids.KERNEL_NOT_CONFIGURED,
                error=error,
                generation=desired.generation,
            )
        self.problems = (error,)
        self.ctx.note(error=error)
        self.done_generation = None
        self.due = trio.current_time() + NAMESPACE_SECONDS

    def _report(self, desired: DesiredState, result: PassResult, *, fresh: bool, seconds: float) -> None:
        outcome = outcome_of(desired, result)
        failures = tuple(f"{failure.resource}: {failure.message}" for failure in outcome.failures)
        problems = (*result.errors, *failures)
        if fresh or result.writes or problems != self.problems or outcome.withdraw != self.asked:
            self._publish(outcome)
        if result.writes:
            log.info(
                "the kernel is configured" if fresh else "kernel drift repaired",
                message_id=message_ids.KERNEL_CONFIGURED if fresh else message_ids.DRIFT,
                generation=desired.generation,
                writes=result.writes,
                seconds=round(seconds, 3),
                first=result.steps.partition("\n")[0],
            )
        for problem in problems:
            if problem not in self.problems:
                log.warning("missing in the kernel", message_id=message_ids.KERNEL_LACKS, problem=problem)
        if self.problems and not problems:
            log.info("the kernel is in the desired state again")
        self.problems = problems
        self.ctx.note(generation=desired.generation, failures=len(failures) or None, error=outcome.error or None)
        self.ctx.note(underlay_mtu=outcome.underlay_mtu, writes=result.writes)
        self.done_generation = desired.generation

    @property
    def asked(self) -> frozenset[int]:
        """Return the L3VNIs that the last outcome asked FRR to withdraw."""
        previous = self.out.peek()
        return frozenset() if previous is None else previous.withdraw

    def _publish(self, outcome: KernelOutcome) -> None:
        """Publish, unless FRR already has another state, applied or failed, whose outcome is the one to show."""
        if self.newest is None or self.newest.desired is outcome.desired:
            self.out.set(outcome)

    def _schedule(self, *, clean: bool) -> None:
        """Set the latest time of the next pass."""
        seconds = self.audit_seconds
        if clean:
            self.retry_seconds = FIRST_RETRY_SECONDS
        else:
            seconds = min(seconds, self.retry_seconds)
            self.retry_seconds = min(self.retry_seconds * 2, LAST_RETRY_SECONDS)
        # Not aligned: beside other periodic work, the thread of a pass would contend with the event loop for Python's
        # lock. Spreading load needs no unpredictability.
        self.due = trio.current_time() + seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self.owner)


def outcome_of(desired: DesiredState, result: PassResult) -> KernelOutcome:
    """Return a pass's result as an outcome.

    A node without any NIC is cut off: its state is not in force, even if everything else was done. With at least one
    inside, a missing one is a failure like others: the node works, and reports which NIC is missing.
    """
    # The pass keeps one failure per resource, but each missing NIC must be named.
    failures = tuple(dict.fromkeys((*result.plan.failures, *result.failures, *result.plan.warnings)))
    cut_off: tuple[str, ...] = ()
    model = result.plan.model
    nics = {*model.nics, *model.kept}.intersection(marked_nics(result.observed))
    if model.underlay is not None and not nics and not made_links(desired, result.observed):
        cut_off = tuple(failure.message for failure in failures if failure.resource.kind is Kind.UNDERLAY)
    held = ", ".join(map(str, sorted(result.plan.held)))
    waiting = (f"devices of VNI {held} are moved once FRR has removed it",) if held else ()
    return KernelOutcome(
        desired,
        applied=result.complete and not cut_off and not held,
        changed=result.writes > 0,
        error="; ".join((*result.errors, *cut_off, *waiting)),
        failures=failures,
        writes=result.writes,
        underlay_mtu=model.mtu,
        withdraw=result.plan.moves,
    )


def _leases(desired: DesiredState, result: PassResult) -> bool:
    """Return whether an interface, wanted or still there, has its addresses from DHCP."""
    wanted = () if desired.underlay is None else desired.underlay.attachments
    return any(leasing(one) for one in (*wanted, *(record.attachment for record in result.observed.cni.values())))


def _interest(desired: DesiredState, result: PassResult) -> Interest:
    """Return which of the host's devices concern us: our own, the underlay's NICs, and bridges that users name."""
    names = _names(desired)
    found = (link for name, link in result.observed.host.links.items() if link.ours or name.encode() in names)
    return Interest.of_host(names, (link.index for link in found))


def _names(desired: DesiredState) -> frozenset[bytes]:
    """Return the names of the host's devices that concern us without being ours."""
    names = set(desired.underlay.nics if desired.underlay is not None else ())
    names |= {vni.bridge for vni in desired.l2vnis if vni.host_master is HostMasterKind.EXTERNAL_BRIDGE and vni.bridge}
    return frozenset(name.encode() for name in names)
