"""The supervisor: a list of children, kept alive, started in order and stopped in reverse.

Errors of a child never reach its siblings. What does end the tree is a request to stop, or a critical child that cannot
live; the exit code then says why. Stopping leaves whatever the children made in place.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from ..logs import message_ids
from ..logs.throttle import RepeatLimiter
from .channel import Latest
from .child import ChildSpec, ChildState, ChildStatus
from .faults import EXIT_BUG, EXIT_OK, exit_code_of, summarize
from .incarnation import UNWIND_SECONDS, Bell
from .restart_policy import Cause
from .restarts import Child, Keeper, log

#: Shortest distance between two inspections, in seconds: rounding must not make a busy loop.
_SHORTEST_NAP = 0.001


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the tree ended: exit code 0 for a request, else that of the last error of the child that ``reason`` names."""

    exit_code: int
    reason: str


class Supervisor:
    """Runs children. One object, one run.

    ``chance`` gives random numbers in [0, 1) for jitter. ``abandon`` is called with the exit code when a child could
    not be stopped in time: it must end the process, which such a child (a thread in the kernel, say) would hold up.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        chance: Callable[[], float] = random.random,
        abandon: Callable[[int], object] = os._exit,
    ) -> None:
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            raise ValueError(f"children's names are not unique: {', '.join(names)}")
        self._children = [Child(spec) for spec in specs]
        self._chance = chance
        self._abandon = abandon
        self._bell = Bell()
        self._limiter = RepeatLimiter(log, clock=trio.current_time)
        self._ending: Ending | None = None
        self._hurry = False
        self._reported_stuck: set[str] = set()
        #: Rewritten at each change of a child's state; ages and facts in it are those of that moment.
        self.statuses: Latest[tuple[ChildStatus, ...]] = Latest("children")

    def stop(self) -> None:
        """Ask for an orderly end. Asked again, units of work in hand are no longer waited for."""
        self._hurry = self._ending is not None
        self._ending = self._ending or Ending(EXIT_OK, "stop requested")
        self._bell.ring()

    def snapshot(self) -> tuple[ChildStatus, ...]:
        """Return every child's status now, in start order."""
        now = trio.current_time()
        return tuple(child.status(now) for child in self._children)

    async def wait_settled(self) -> None:
        """Wait until every child has started once, or failed once if it is not critical."""
        await self._bell.until(lambda: all(child.settled for child in self._children))

    async def run(self) -> Ending:
        """Keep the children alive until the end; return why it came. Cancelling this cancels all children at once."""
        async with trio.open_nursery() as bodies:
            ending = self._ending or await self._keep_until_the_end(bodies)
            stuck = await self._shut_down()
            if stuck:
                names = ", ".join(stuck)
                log.error("children abandoned: they do not end", message_id=message_ids.CHILD_HANGS, children=names)
                self._abandon(ending.exit_code)
        return ending

    async def _keep_until_the_end(self, bodies: trio.Nursery) -> Ending:
        async with trio.open_nursery() as keepers:
            for members in self._units():
                keepers.start_soon(self._keeper(members, bodies).keep)
            keepers.start_soon(self._inspect_for_ever)
            await self._bell.until(lambda: self._ending is not None)
            keepers.cancel_scope.cancel()
        return self._ending or Ending(EXIT_BUG, "unknown")

    def _units(self) -> list[list[Child]]:
        """Return the members of each group, and each other child alone, in the order of their first members."""
        units: dict[str, list[Child]] = {}
        for child in self._children:
            group = child.spec.group
            units.setdefault(f"child {child.name}" if group is None else f"group {group}", []).append(child)
        return list(units.values())

    def _keeper(self, members: Sequence[Child], bodies: trio.Nursery) -> Keeper:
        return Keeper(
            members,
            bell=self._bell,
            nursery=bodies,
            limiter=self._limiter,
            chance=self._chance,
            may_start=self._may_start,
            changed=self._publish,
            escalate=self._escalate,
        )

    def _may_start(self, child: Child) -> bool:
        index = self._children.index(child)
        return index == 0 or self._children[index - 1].settled

    def _publish(self) -> None:
        self.statuses.set(self.snapshot())
        self._bell.ring()

    def _escalate(self, child: Child, error: BaseException | None, text: str) -> None:
        if self._ending is None:
            code = exit_code_of(error) if error else EXIT_BUG
            self._ending = Ending(code, f"{child.name} failed for good: {text}")
        self._publish()

    async def _inspect_for_ever(self) -> None:
        """Cancel frozen children, forget the failures of healthy ones, report stuck ones: each exactly when due."""
        while True:
            now, rings = trio.current_time(), self._bell.rings
            due = min((self._inspect(child, now) for child in self._children), default=float("inf"))
            await self._bell.until(lambda: self._bell.rings != rings, at=max(due, now + _SHORTEST_NAP))  # noqa: B023

    def _inspect(self, child: Child, now: float) -> float:
        """Do what is due for a child; return when to look again unless the bell rings before."""
        run = child.incarnation
        if run is None or run.ended:
            return float("inf")
        if now >= child.healthy_at():
            child.in_a_row = 0
            self._limiter.recovered(child.name, f"{child.name} is healthy again")
        if child.status(now).frozen:
            run.cancel(Cause.FROZEN)
        if run.cancelled_at is not None:
            if run.stuck(now):
                self._report_stuck(child)
                return float("inf")
            return run.cancelled_at + UNWIND_SECONDS
        if child.state is not ChildState.RUNNING:
            return float("inf")
        # One that is idle now may become busy at once and freeze: that far ahead nothing can be due.
        context, patience = run.context, child.spec.progress_deadline
        frozen_at = {"busy": context.last_progress, "idle": now, "working": context.activity_deadline or now}[
            context.mode
        ]
        return min(frozen_at + patience, child.healthy_at())

    def _report_stuck(self, child: Child) -> None:
        key = f"{child.name}/{child.number}"
        if key not in self._reported_stuck:
            self._reported_stuck.add(key)
            message = f"{child.name} does not end although it was cancelled"
            log.error(message, message_id=message_ids.CHILD_HANGS, incarnation=child.number)
            if child.spec.critical:
                self._escalate(child, None, "does not end although it was cancelled")

    async def _shut_down(self) -> list[str]:
        """Stop the children, the last first, each within its bounds; return the names of those that did not end."""
        stuck = []
        for child in reversed(self._children):
            run = child.incarnation
            if run is None:
                continue
            await run.finish_work(child.spec.shutdown_timeout, lambda: self._hurry)
            self._publish()
            await self._bell.until(lambda: run.ended, at=trio.current_time() + UNWIND_SECONDS)  # noqa: B023
            if not run.ended:
                stuck.append(child.name)
                continue
            if run.error is not None:
                message = f"{child.name} failed while being stopped: {summarize(run.error)}"
                log.warning(message, message_id=message_ids.CHILD_FAILED_STOPPING)
            child.incarnation, child.state = None, ChildState.STOPPED
            self._publish()
        return stuck
