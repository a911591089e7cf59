"""The health actor: looks at FRR after each new outcome until it is as configured, then at an interval.

Reports every look (the channel conflates), logs only changes. That FRR is silent, or a daemon of it gone, is a report
like any other: this actor ends only for a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import trio

from actors.lib.frr.processes import CORE_DAEMONS
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.settings import Settings
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader

from .assess import HealthInputs, assess
from .changes import changes
from .query import Asking, Frr, observe

log = get_logger("health")

T = TypeVar("T")

#: First and longest wait between two looks at something not yet as configured, seconds: zebra and bgpd need some
#: hundred milliseconds for a VNI on an idle node and seconds on a busy one.
RETRY_FIRST_SECONDS = 0.2
RETRY_LONGEST_SECONDS = 5.0
#: Wait between two looks at a healthy router, seconds; sessions that go down are seen this late at worst.
INTERVAL_SECONDS = 15.0
#: How long after a new outcome, or after a daemon has come, something not working counts as not finished rather than
#: failed, seconds.
SETTLE_SECONDS = 10.0
#: Deadline of one question: a look is three of them.
VTYSH_SECONDS = 20.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    desired: LatestReader[DesiredState],
    frr: LatestReader[FrrOutcome],
    kernel: LatestReader[KernelOutcome],
    out: Latest[HealthReport],
) -> None:
    """Report on the router indefinitely."""
    asked = Frr(settings, seconds=VTYSH_SECONDS)
    await watch(ctx, asked, desired=desired, frr=frr, kernel=kernel, out=out)


async def watch(
    ctx: ActorContext,
    asked: Asking,
    *,
    desired: LatestReader[DesiredState],
    frr: LatestReader[FrrOutcome],
    kernel: LatestReader[KernelOutcome],
    out: Latest[HealthReport],
) -> None:
    """Do what :func:`run` promises, against anything that answers like FRR."""
    looking = _Looking(ctx, asked, out)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow, desired, looking.take_desired)
        nursery.start_soon(_follow, frr, looking.take_frr)
        nursery.start_soon(_follow, kernel, looking.take_kernel)
        ctx.started()
        while True:
            with ctx.idle():
                await looking.due()
            await looking.look()


async def _follow(reader: LatestReader[T], take: Callable[[T], None]) -> None:
    while True:
        take(await reader.receive())


class _Looking:
    """The newest inputs, the last report, and when to look again."""

    def __init__(self, ctx: ActorContext, asked: Asking, out: Latest[HealthReport]) -> None:
        self._ctx = ctx
        self._asked = asked
        self._out = out
        self._inputs = HealthInputs()
        self._changed = trio.Event()
        self._retry = RETRY_FIRST_SECONDS
        self._settled_at = trio.current_time()
        self._daemons: frozenset[str] = frozenset()
        self._last: HealthReport | None = None

    def take_desired(self, state: DesiredState) -> None:
        self._inputs = replace(self._inputs, desired=state)
        if self._inputs.frr is None:
            self._changed.set()

    def take_frr(self, outcome: FrrOutcome) -> None:
        self._note_outcome(self._inputs.frr, outcome)
        self._inputs = replace(self._inputs, frr=outcome)

    def take_kernel(self, outcome: KernelOutcome) -> None:
        self._note_outcome(self._inputs.kernel, outcome)
        self._inputs = replace(self._inputs, kernel=outcome)

    def _note_outcome(self, old: FrrOutcome | KernelOutcome | None, new: FrrOutcome | KernelOutcome) -> None:
        """Start over with quick looks; a repeated outcome that changed nothing needs one look and no patience."""
        if old is None or new.changed or (old.desired.generation, old.applied) != (new.desired.generation, new.applied):
            self._settle()
        self._changed.set()

    def _settle(self) -> None:
        self._retry = RETRY_FIRST_SECONDS
        self._settled_at = trio.current_time() + SETTLE_SECONDS

    async def due(self) -> None:
        """Wait until something arrives that has to be looked at, or until it is time to look again."""
        with trio.move_on_after(self._pause()):
            await self._changed.wait()
        self._changed = trio.Event()

    def _pause(self) -> float:
        if self._inputs.state is None:
            return INTERVAL_SECONDS
        if self._last is None:
            return 0.0
        if self._last.verified and not self._last.failures:
            self._retry = RETRY_FIRST_SECONDS
            return INTERVAL_SECONDS
        pause, self._retry = self._retry, min(self._retry * 2, RETRY_LONGEST_SECONDS)
        return pause

    async def look(self) -> None:
        with self._ctx.working("asking FRR", 3 * VTYSH_SECONDS + 5):
            seen = await observe(self._asked)
        if not seen.daemons & CORE_DAEMONS <= self._daemons:
            # It starts with nothing, and what it had is given to it again only when somebody notices.
            self._settle()
        self._daemons = seen.daemons
        report = assess(replace(self._inputs, settling=trio.current_time() < self._settled_at), seen)
        for change in changes(self._last, report, answered=not seen.error):
            write = log.info if change.level == "info" else log.warning
            write(change.message, message_id=change.event, **change.fields)
        self._last = report
        self._out.set(report)
        self._ctx.note(generation=report.generation, verified=report.verified)
        self._ctx.progress()
