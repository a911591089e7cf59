"""The loop that keeps one child running: start, watch, back off, start again.

A run ends because the child failed or returned, or because the loop cancelled it: it did not start in time, or it made
no progress for too long. Whatever the reason, the next run starts after a delay that grows with the failures in a row
and is forgotten after a healthy minute. The loop ends only when a critical child cannot live, which ends the tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from ..logs import message_ids
from ..logs.logger import get_logger
from ..logs.throttle import RepeatLimiter
from .child import ChildSpec, ChildState, ChildStatus
from .child_run import UNWIND_SECONDS, ChangeSignal, ChildRun
from .faults import is_bug, summarize
from .restart_policy import HEALTHY_SECONDS, RESTART_BACKOFF, Cause, must_end

log = get_logger("supervisor")

#: Shortest distance between two inspections, in seconds: rounding must not make a busy loop.
_SHORTEST_NAP = 0.001


class Child:
    """One child across its runs.

    ``publish`` is called after each change of state, ``escalate`` with the error and its text when the tree must end.
    """

    def __init__(
        self,
        spec: ChildSpec,
        *,
        chance: Callable[[], float],
        publish: Callable[[], None],
        escalate: Callable[[str, BaseException | None, str], None],
    ) -> None:
        self.spec = spec
        self.state = ChildState.STOPPED
        self.run: ChildRun | None = None
        #: Wakes those that wait for something about this child.
        self.changed = ChangeSignal()
        #: Set when the next child in the list may start: this one has started, or has failed once and is not critical.
        self.settled = trio.Event()
        self._runs = 0
        self._last_error = ""
        self._causes: dict[str, int] = {}
        self._failures_in_a_row = 0
        self._chance = chance
        self._publish = publish
        self._escalate = escalate
        self._limiter = RepeatLimiter(log, clock=trio.current_time)

    def status(self, now: float) -> ChildStatus:
        """Return a snapshot."""
        run = self.run
        context = run.context if run else None
        state = ChildState.STOPPING if run and run.cancelled_at is not None else self.state
        return ChildStatus(
            name=self.spec.name,
            state=state,
            critical=self.spec.critical,
            incarnation=self._runs,
            restarts=max(self._runs - 1, 0),
            causes=dict(self._causes),
            last_error=self._last_error,
            progress_age=now - context.last_progress if context else 0.0,
            mode=context.mode if context else "idle",
            activity=context.activity if context else None,
            facts=dict(context.facts) if context else {},
            frozen=run is not None and state is ChildState.RUNNING and now >= run.frozen_at(),
            stuck=run is not None and run.stuck(now),
        )

    async def keep_running(self, nursery: trio.Nursery) -> None:
        """Start the child in a nursery, again after each failure, until it fails for good."""
        while True:
            run = self._launch(nursery)
            await self._await_start(run)
            await self._watch(run)
            delay = self._handle_failure(run)
            if delay is None:
                return
            await trio.sleep(delay)

    async def stop(self, skip: Callable[[], bool]) -> bool:
        """Stop the current run within its bounds, its unit of work finished unless ``skip`` holds.

        Return whether it has ended.
        """
        run = self.run
        if run is None:
            return True
        await run.finish_work(skip)
        self._publish()
        if not await run.wait_unwound():
            return False
        if run.error is not None:
            message = f"{self.spec.name} failed while being stopped: {summarize(run.error)}"
            log.warning(message, message_id=message_ids.CHILD_FAILED_STOPPING)
        self.run = None
        self._set(ChildState.STOPPED)
        return True

    def _set(self, state: ChildState) -> None:
        self.state = state
        self._publish()

    def _launch(self, nursery: trio.Nursery) -> ChildRun:
        self._runs += 1
        self.run = ChildRun(self.spec, self._runs, self.changed)
        nursery.start_soon(self.run.run, name=self.spec.name)
        self._set(ChildState.STARTING)
        return self.run

    async def _await_start(self, run: ChildRun) -> None:
        """Wait until the actor has reported its start; cancel it when that takes too long."""
        await self.changed.until(lambda: run.context.has_started or run.ended, at=run.start_by)
        if run.ended:
            return
        if not run.context.has_started:
            run.cancel(Cause.START_TIMEOUT)
            return
        run.started_at = trio.current_time()
        self.settled.set()
        self._set(ChildState.RUNNING)
        (log.debug if self._failures_in_a_row else log.info)(f"{self.spec.name} started", incarnation=run.number)

    async def _watch(self, run: ChildRun) -> None:
        """Wait for the end of a run, and do meanwhile what is due, exactly when it is due.

        Not bounded: two runs at once would be worse than one that is stuck.
        """
        reported_stuck = False
        while not run.ended:
            now = trio.current_time()
            if run.stuck(now) and not reported_stuck:
                reported_stuck = True
                self._report_stuck(run)
            run.look_at = max(self._inspect(run, now), now + _SHORTEST_NAP)
            await self.changed.wait(at=run.look_at)

    def _inspect(self, run: ChildRun, now: float) -> float:
        """Forget the failures of a healthy run, cancel a frozen one; return when to look again if nothing changes."""
        healthy_at = (run.started_at or now) + HEALTHY_SECONDS if self._failures_in_a_row else math.inf
        if now >= healthy_at:
            # One that hangs has not lived that long, and freezes only then: it is looked at again when it does.
            if run.cancelled_at is None and run.context.alive_until() >= healthy_at:
                self._failures_in_a_row = 0
                self._limiter.recovered(self.spec.name, f"{self.spec.name} is healthy again")
            healthy_at = math.inf
        if now >= run.frozen_at():
            run.cancel(Cause.FROZEN)
        if run.cancelled_at is not None:
            return math.inf if run.stuck(now) else run.cancelled_at + UNWIND_SECONDS
        return min(run.frozen_at(), healthy_at)

    def _report_stuck(self, run: ChildRun) -> None:
        text = "does not end although it was cancelled"
        log.error(f"{self.spec.name} {text}", message_id=message_ids.CHILD_HANGS, incarnation=run.number)
        if self.spec.critical:
            self._escalate(self.spec.name, None, text)

    def _handle_failure(self, run: ChildRun) -> float | None:
        """Take note of the end of a run; return the delay before the next one, None when there is to be none."""
        self.run = None
        text = self._last_error = _explain(self.spec, run)
        lasted = run.started_at is not None and trio.current_time() - run.started_at >= HEALTHY_SECONDS
        if lasted and run.cause is not Cause.FROZEN:
            self._failures_in_a_row = 0
        self._failures_in_a_row += 1
        fields = {"cause": run.cause, "restarts": self._runs - 1}
        if must_end(critical=self.spec.critical, in_a_row=self._failures_in_a_row):
            self._set(ChildState.FAILED)
            message = f"{self.spec.name} failed for good: {text}"
            log.error(message, message_id=message_ids.CHILD_FAILED_FOR_GOOD, **fields)
            self._log_traceback(run)
            self._escalate(self.spec.name, run.error, text)
            return None
        if run.context.has_started or not self.spec.critical:
            self.settled.set()
        self._causes[run.cause.value] = self._causes.get(run.cause.value, 0) + 1
        delay = RESTART_BACKOFF.delay(self._failures_in_a_row, self._chance())
        self._set(ChildState.BACKOFF)
        fields |= {"restart_in": f"{delay:.1f}s", "message_id": message_ids.CHILD_FAILED}
        if self._limiter.failing(self.spec.name, f"{self.spec.name} failed: {text}", **fields):
            self._log_traceback(run)
        return delay

    def _log_traceback(self, run: ChildRun) -> None:
        if run.error is not None and is_bug(run.error):
            log.bug(f"{self.spec.name} has a bug", run.error, message_id=message_ids.BUG, incarnation=run.number)


def _explain(spec: ChildSpec, run: ChildRun) -> str:
    """Return one line that says how a run failed."""
    detail = f": {summarize(run.error)}" if run.error else ""
    match run.cause:
        case Cause.RETURNED:
            return "returned although it must run until it is stopped"
        case Cause.START_TIMEOUT:
            return f"did not start within {spec.start_timeout:g} s{detail}"
        case Cause.FROZEN:
            return f"hung: no progress for {spec.progress_deadline:g} s{detail}"
        case _:
            return detail.removeprefix(": ")
