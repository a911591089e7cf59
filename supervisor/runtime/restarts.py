"""Keeping one unit alive: a child of its own (one_for_one), or a group in which order matters (rest_for_one).

A keeper looks at its members and does the most urgent thing, again and again: first it handles the lowest member that
has ended, then it starts the lowest member that should run. So a member that dies while another is being started,
stopped or waited for needs no special case.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence

import trio

from ..logs import message_ids
from ..logs.logger import get_logger
from ..logs.throttle import RepeatLimiter
from .child import ChildSpec, ChildState, ChildStatus
from .faults import is_bug, summarize
from .incarnation import Bell, Incarnation
from .restart_policy import Cause, Restart, Verdict, decide

log = get_logger("supervisor")

#: Failure times kept per child: more than any sensible intensity counts.
_KEPT_FAILURES = 100


class Child:
    """The mutable memory of one child across its incarnations. Changed by its keeper only."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.state = ChildState.STOPPED
        self.incarnation: Incarnation | None = None
        self.number = 0
        self.restarts = 0
        self.causes: Counter[str] = Counter()
        self.last_error = ""
        self.failures: deque[float] = deque(maxlen=_KEPT_FAILURES)
        self.in_a_row = 0
        self.not_before = -math.inf
        #: The child after this one in the list may be started: this one was, or has failed once.
        self.settled = False

    @property
    def name(self) -> str:
        """The spec's name."""
        return self.spec.name

    @property
    def live(self) -> bool:
        """Whether an incarnation exists whose end was not handled yet."""
        return self.incarnation is not None

    @property
    def ended(self) -> bool:
        """Whether an incarnation has ended and waits to be handled."""
        return self.incarnation is not None and self.incarnation.ended

    @property
    def wanted(self) -> bool:
        """Whether it should be started, now or after its backoff."""
        return not self.live and self.state in (ChildState.STOPPED, ChildState.BACKOFF)

    def healthy_at(self) -> float:
        """Return when its failures are forgotten if it keeps running; infinite when there are none."""
        if self.state is not ChildState.RUNNING or not self.in_a_row or self.incarnation is None:
            return math.inf
        return (self.incarnation.started_at or 0.0) + self.spec.backoff.reset_after

    def status(self, now: float) -> ChildStatus:
        """Return a snapshot."""
        run = self.incarnation
        context = run.context if run else None
        deadline = context.activity_deadline if context else None
        return ChildStatus(
            name=self.name,
            state=ChildState.STOPPING if run and run.cancelled_at is not None else self.state,
            critical=self.spec.critical,
            incarnation=self.number,
            restarts=self.restarts,
            causes=dict(self.causes),
            last_error=self.last_error,
            progress_age=now - context.last_progress if context else 0.0,
            progress_deadline=self.spec.progress_deadline,
            mode=context.mode if context else "idle",
            activity=context.activity if context else None,
            activity_remaining=None if deadline is None else deadline - now,
            facts=dict(context.facts) if context else {},
            stuck=run.stuck(now) if run else False,
        )


class Keeper:
    """Keeps one unit's members running, indefinitely; their bodies run in the nursery that is given."""

    def __init__(
        self,
        members: Sequence[Child],
        *,
        bell: Bell,
        nursery: trio.Nursery,
        limiter: RepeatLimiter,
        chance: Callable[[], float],
        may_start: Callable[[Child], bool],
        changed: Callable[[], None],
        escalate: Callable[[Child, BaseException | None, str], None],
    ) -> None:
        self._members = members
        self._bell = bell
        self._nursery = nursery
        self._limiter = limiter
        self._chance = chance
        self._may_start = may_start
        self._changed = changed
        self._escalate = escalate

    async def keep(self) -> None:
        """Start the members and mend whatever happens to them."""
        while True:
            ended = next((child for child in self._members if child.ended), None)
            pending = next(
                (child for child in self._members if child.wanted or child.state is ChildState.STARTING), None
            )
            if ended is not None:
                await self._handle(ended)
            elif pending is None:
                await self._bell.until(self._any_ended)
            elif pending.live:
                await self._await_start(pending)
            else:
                await self._launch_in_time(pending)

    def _any_ended(self) -> bool:
        return any(child.ended for child in self._members)

    def _set(self, child: Child, state: ChildState) -> None:
        child.state = state
        self._changed()

    async def _launch_in_time(self, child: Child) -> None:
        """Start a child if it is its turn and its backoff is over, else wait for that or for trouble."""
        first = child.number == 0
        if first and not self._may_start(child):
            await self._bell.until(lambda: self._any_ended() or self._may_start(child))
        elif trio.current_time() < child.not_before:
            await self._bell.until(self._any_ended, at=child.not_before)
        else:
            child.number += 1
            child.restarts += 0 if first else 1
            child.incarnation = Incarnation(child.spec, child.number, self._bell)
            self._nursery.start_soon(child.incarnation.run, name=child.name)
            self._set(child, ChildState.STARTING)

    async def _await_start(self, child: Child) -> None:
        """Wait for the start handshake; past its time cancel the incarnation, whose end is handled like any other."""
        run = child.incarnation
        if run is None:
            return
        await self._bell.until(lambda: run.context.has_started or self._any_ended(), at=run.start_by)
        if self._any_ended():
            return
        if run.context.has_started and run.cancelled_at is None:
            run.started_at = trio.current_time()
            child.settled = True
            self._set(child, ChildState.RUNNING)
            (log.debug if child.in_a_row else log.info)(f"{child.name} started", incarnation=child.number)
        else:
            run.cancel(Cause.START_TIMEOUT)
            await self._bell.until(self._any_ended)

    async def _handle(self, child: Child) -> None:
        """Decide what follows from the end of a child's incarnation, and do it."""
        run, child.incarnation = child.incarnation, None
        if run is None:
            return
        now = trio.current_time()
        if run.cause is Cause.RETURNED and child.spec.restart is not Restart.PERMANENT:
            child.settled = True
            self._set(child, ChildState.FINISHED)
            log.info(f"{child.name} finished")
            return
        text = _explain(child.spec, run)
        self._note_failure(child, run, text, now)
        exceeded = child.spec.intensity.exceeded(child.failures, child.in_a_row, now)
        critical = child.spec.critical
        verdict = decide(child.spec.restart, run.cause, critical=critical, exceeded=exceeded, error=run.error)
        child.settled = child.settled or not critical or run.context.has_started
        if verdict is Verdict.RESTART:
            delay = child.spec.backoff.delay(child.in_a_row, self._chance())
            child.not_before = now + delay
            self._set(child, ChildState.BACKOFF)
            self._log_failure(child, run, text, delay)
            await self._stop_after(child)
            return
        self._set(child, ChildState.FAILED)
        fields = {"cause": run.cause, "restarts": child.restarts}
        log.error(f"{child.name} failed for good: {text}", message_id=message_ids.CHILD_FAILED_FOR_GOOD, **fields)
        self._log_traceback(child, run)
        if verdict is Verdict.ESCALATE:
            self._escalate(child, run.error, text)
            await trio.sleep_forever()

    def _note_failure(self, child: Child, run: Incarnation, text: str, now: float) -> None:
        if run.started_at is not None and now - run.started_at >= child.spec.backoff.reset_after:
            child.in_a_row = 0
        child.in_a_row += 1
        child.failures.append(now)
        child.causes[str(run.cause)] += 1
        child.last_error = text

    def _log_failure(self, child: Child, run: Incarnation, text: str, delay: float) -> None:
        fields = {"cause": run.cause, "restarts": child.restarts, "restart_in": f"{delay:.1f}s"}
        fields["message_id"] = message_ids.CHILD_FAILED
        if self._limiter.failing(child.name, f"{child.name} failed: {text}", **fields):
            self._log_traceback(child, run)

    def _log_traceback(self, child: Child, run: Incarnation) -> None:
        if run.error is not None and is_bug(run.error):
            log.bug(f"{child.name} has a bug", run.error, message_id=message_ids.BUG, incarnation=child.number)

    async def _stop_after(self, child: Child) -> None:
        """Stop the members after a failed one, the last first: the keeper starts them again once that one runs."""
        tail = self._members[self._members.index(child) + 1 :]
        for other in reversed(tail):
            run = other.incarnation
            if run is None:
                continue
            await run.finish_work(other.spec.shutdown_timeout)
            # Not bounded, because two incarnations at once would be worse; the tree reports one that is stuck.
            await self._bell.until(lambda: run.ended)  # noqa: B023 - awaited before the next turn
            other.incarnation = None
            if run.error is not None:
                message = f"{other.name} failed while being stopped: {summarize(run.error)}"
                log.warning(message, message_id=message_ids.CHILD_FAILED_STOPPING)
            never = other.spec.restart is Restart.TEMPORARY
            self._set(other, ChildState.FAILED if never else ChildState.STOPPED)


def _explain(spec: ChildSpec, run: Incarnation) -> str:
    """Return one line that says how an incarnation failed."""
    detail = f": {summarize(run.error)}" if run.error else ""
    match run.cause:
        case Cause.RETURNED:
            return "returned, which it never should"
        case Cause.START_TIMEOUT:
            return f"did not start within {spec.start_timeout:g} s{detail}"
        case Cause.FROZEN:
            return f"froze: no progress for {spec.progress_deadline:g} s{detail}"
        case _:
            return detail.removeprefix(": ")
