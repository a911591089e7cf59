"""The health actor: polls FRR and reports whether the router works as configured.

The newest :class:`DesiredState`, :class:`FrrOutcome`, :class:`KernelOutcome` and :class:`ProbeReport` come in. Each
poll reads FRR's state (:mod:`.query`, :mod:`.counts`) and the kernel's (:mod:`.entries`), compares it with what was
configured (:mod:`.vnis`, :mod:`.routes`, :mod:`.assess`), publishes a :class:`HealthReport`, which may ask the frr
actor for a repair (:mod:`.repair`), and logs what changed since the last one (:mod:`.changes`). FRR is polled at once
after a new outcome, then with back-off until everything works, then at an interval; before FRR has answered, and while
the kernel follows it, only the interval counts. While FRR carries out a newer state it is left alone, since neither
state is in force. An FRR that does not answer, or lacks a daemon, is reported like anything else.
"""

from __future__ import annotations

import math
from dataclasses import replace

import trio

from actors.lib.frr.processes import CORE_DAEMONS
from actors.lib.tunnel_entries import ReadEntries
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, ProbeReport
from config.settings import Settings
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader, wait_any
from supervisor.runtime.wakeups import aligned

from .assess import HealthInputs, assess
from .changes import changes
from .counts import RouteCounter
from .entries import EntryReader
from .frr_json import Decoder, Observation
from .query import SESSIONS, FrrReader, PolledFrr, observe, too_many
from .repair import Repairs
from .route_targets import derived_targets
from .vnis import VniCheck

log = get_logger("health")

#: First and longest pause between two polls of something not yet as configured, in seconds: zebra and bgpd need some
#: hundred milliseconds for a VNI on an idle node and seconds on a busy one.
RETRY_FIRST_SECONDS = 0.2
RETRY_LONGEST_SECONDS = 5.0
#: Pause between two polls of a healthy router, in seconds; a session that goes down is seen this late at worst.
INTERVAL_SECONDS = 15.0
#: How long FRR is left alone at most while it carries out a state, in seconds: 500 networks take it 20 in an emulated
#: machine.
CHANGE_SECONDS = 60.0
#: How long after a new outcome, or after a daemon's start, what does not work counts as unfinished rather than failed,
#: in seconds.
SETTLE_SECONDS = 10.0
#: How long after a repair of drift another one gives FRR no time again, in seconds: another program may cause drift all
#: the time.
REPEATED_SECONDS = 60.0
#: Deadline of one session with a daemon.
SESSION_SECONDS = 20.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    read_entries: ReadEntries,
    desired: LatestReader[DesiredState],
    frr: LatestReader[FrrOutcome],
    kernel: LatestReader[KernelOutcome],
    probes: LatestReader[ProbeReport],
    out: Latest[HealthReport],
) -> None:
    """Report on the router indefinitely."""
    reader = PolledFrr.of(settings, seconds=SESSION_SECONDS)
    try:
        await HealthActor(
            ctx,
            reader,
            read_entries=read_entries,
            desired=desired,
            frr=frr,
            kernel=kernel,
            probes=probes,
            out=out,
        ).serve()
    finally:
        reader.close()


class HealthActor:
    """One incarnation: the newest inputs, the last report, and when to poll again."""

    def __init__(
        self,
        ctx: ActorContext,
        reader: FrrReader,
        *,
        read_entries: ReadEntries,
        desired: LatestReader[DesiredState],
        frr: LatestReader[FrrOutcome],
        kernel: LatestReader[KernelOutcome],
        probes: LatestReader[ProbeReport],
        out: Latest[HealthReport],
    ) -> None:
        self._ctx = ctx
        self._reader, self._decoder = reader, Decoder()
        self._desired, self._frr, self._kernel, self._probes = desired, frr, kernel, probes
        self._out = out
        self._inputs = HealthInputs()
        self._retry = RETRY_FIRST_SECONDS
        self._settled_at = trio.current_time()
        self._next_grace = -math.inf
        self._reported_at = -math.inf
        self._daemons: frozenset[str] = frozenset()
        self._unanswered = False
        self._last: HealthReport | None = None
        self._check, self._repairs = VniCheck(), Repairs()
        self._counter, self._entries = RouteCounter(), EntryReader(read_entries)
        self._suspected = False

    async def serve(self) -> None:
        """Poll and report indefinitely."""
        self._ctx.started()
        while True:
            with self._ctx.idle():
                await self._wait()
            await self._poll()

    async def _wait(self) -> None:
        """Wait for an input that calls for a poll, or until the next poll is due."""
        changing = False
        with trio.move_on_at(aligned(trio.current_time() + self._pause())) as waiting:
            while not self._take():
                if self._inputs.is_changing:
                    waiting.deadline = max(waiting.deadline, self._reported_at + CHANGE_SECONDS)
                elif changing:
                    waiting.deadline = trio.current_time() + INTERVAL_SECONDS
                changing = self._inputs.is_changing
                await wait_any(self._desired, self._frr, self._kernel, self._probes)

    def _take(self) -> bool:
        """Take the new inputs; return whether they call for a poll."""
        desired, frr, kernel = self._desired.take(), self._frr.take(), self._kernel.take()
        old, probes = self._inputs, self._probes.take() or self._inputs.probes
        self._inputs = replace(
            old, desired=desired or old.desired, frr=frr or old.frr, kernel=kernel or old.kernel, probes=probes
        )
        for before, after in ((old.frr, frr), (old.kernel, kernel)):
            if after is not None and (before is None or _differs(before, after)):
                self._settle()
            elif before is not None and after is not None and _repaired(before, after):
                self._settle_after_drift()
        # The numbers of probes change all the time, and the next poll will do for them.
        answering = probes.states() != old.probes.states()
        return answering or ((kernel is not None or frr is not None) and not self._inputs.is_early)

    def _settle(self) -> None:
        """Poll quickly again, and give FRR time before anything counts as failed."""
        self._retry = RETRY_FIRST_SECONDS
        self._settled_at = trio.current_time() + SETTLE_SECONDS

    def _settle_after_drift(self) -> None:
        now = trio.current_time()
        if now >= self._next_grace:
            self._next_grace = now + REPEATED_SECONDS
            self._settle()

    def _pause(self) -> float:
        if self._inputs.state is None or self._inputs.is_early:
            return INTERVAL_SECONDS
        if self._last is None:
            return 0.0
        if self._last.verified and not self._last.failures and not self._suspected:
            self._retry = RETRY_FIRST_SECONDS
            return INTERVAL_SECONDS
        pause, self._retry = self._retry, min(self._retry * 2, RETRY_LONGEST_SECONDS)
        return pause

    async def _poll(self) -> None:
        with self._ctx.working("polling FRR", (SESSIONS + 1) * SESSION_SECONDS + 5):
            seen = await observe(self._reader, self._decoder)
            seen = await self._entries.added(seen, trio.current_time())
            derived = derived_targets(self._inputs.state)
            counts = await self._counter.counted(self._reader, seen, derived, trio.current_time())
        if self._desired.pending and trio.current_time() - self._reported_at < CHANGE_SECONDS:
            # FRR may have begun to carry that state out while it was read.
            return
        seen = replace(seen, counts=counts)
        started = not seen.daemons & CORE_DAEMONS <= self._daemons
        if started or (self._unanswered and not seen.error):
            # A daemon that has just started is given its configuration only once its restart is noticed. One that hung
            # has to catch up, and gives no VNI new attempts at its repair: they may be too much for it.
            self._settle()
        if started:
            self._repairs.forget()
        self._daemons, self._unanswered = seen.daemons, bool(seen.error)
        report = self._report(replace(self._inputs, settling=trio.current_time() < self._settled_at), seen)
        for line in changes(self._last, report, answered=not seen.error):
            write = log.info if line.level == "info" else log.warning
            write(line.message, message_id=line.event, **line.fields)
        self._last, self._reported_at = report, trio.current_time()
        self._out.set(report)
        self._ctx.note(
            generation=report.generation,
            verified=report.verified,
            routes_checked=_routes_checked(seen),
            entries_checked=f"no: {self._entries.error}" if self._entries.error else _routes_checked(seen),
            routes_counted=f"not of L2VNIs: {self._counter.error}" if self._counter.error else "yes",
        )
        self._ctx.progress()

    def _report(self, inputs: HealthInputs, seen: Observation) -> HealthReport:
        """Compare what was seen with what is desired, and ask for the repairs that are due."""
        state, now = inputs.state, trio.current_time()
        if state is None or seen.error:
            return assess(inputs, seen, {})
        found = self._check.faults_of(state, inputs.omitted, seen)
        lasting = self._repairs.lasting(state, found, now)
        self._suspected = len(lasting) < len(found)
        report = assess(inputs, seen, found if inputs.settling else lasting)
        failed = {failure.resource for failure in report.failures}
        repairable = {resource for resource, fault in lasting.items() if fault.in_frr and resource in failed}
        carried_out = inputs.frr.bounced if inputs.frr else frozenset()
        return replace(report, bounce=self._repairs.requests(state, repairable, carried_out, now))


def _routes_checked(seen: Observation) -> str:
    """Return whether the fabric's routes were compared, for the actor's facts in the status."""
    if reason := too_many(seen):
        return f"no: {reason}"
    return "no" if seen.evpn is None else "yes"


def _differs(old: FrrOutcome | KernelOutcome, new: FrrOutcome | KernelOutcome) -> bool:
    """Return whether an outcome is about another state than the last one, or no longer about the same success."""
    return (old.desired.generation, old.applied) != (new.desired.generation, new.applied)


def _repaired(old: FrrOutcome | KernelOutcome, new: FrrOutcome | KernelOutcome) -> bool:
    """Return whether drift was repaired, which may have changed what works: a repeat without a write needs one poll.

    So does a bounce, which concerns VNIs that did not work before.
    """
    bounced = isinstance(old, FrrOutcome) and isinstance(new, FrrOutcome) and old.bounced != new.bounced
    return new.changed and not bounced
