"""One run of a child, from its start to its end: its context, its cancellation, its error.

Whatever the child does, :meth:`ChildRun.run` ends without an error of the child's: only cancellation from outside and
the user's Ctrl-C pass through.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from .actor import ActorContext
from .child import ChildSpec
from .restart_policy import Cause, cause_of

#: How long a cancelled child may take to unwind, in seconds, before it counts as stuck.
UNWIND_SECONDS = 5.0


class ChangeSignal:
    """Wakes every task that waits for a change in a child; each checks its own condition."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def notify(self) -> None:
        """Wake all waiting tasks."""
        event, self._event = self._event, trio.Event()
        event.set()

    async def wait(self, *, at: float = float("inf")) -> None:
        """Wait for the next change, at most until a moment of trio's clock."""
        with trio.move_on_at(at):
            await self._event.wait()

    async def until(self, condition: Callable[[], bool], *, at: float = float("inf")) -> None:
        """Wait until a condition holds, at most until a moment of trio's clock."""
        while not condition() and trio.current_time() < at:
            await self.wait(at=at)


class ChildRun:
    """One run of a child's body."""

    def __init__(self, spec: ChildSpec, number: int, changed: ChangeSignal) -> None:
        self.spec = spec
        self.number = number
        self.context = ActorContext(spec.name, number, changed=self._reported)
        self.error: BaseException | None = None
        self.ended = False
        self.cancelled_at: float | None = None
        self.start_by = trio.current_time() + spec.start_timeout
        self.started_at: float | None = None
        #: When the loop looks at it again, if nothing wakes it before.
        self.look_at = math.inf
        self._stop_cause: Cause | None = None
        self._changed = changed
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Run the body and keep its error."""
        try:
            with self._scope:
                await self.spec.body()(self.context)
        except* (Exception, SystemExit) as error:  # noqa: BLE001 - containing any error of a child is the point
            self.error = error.exceptions[0] if len(error.exceptions) == 1 else error
        finally:
            self.ended = True
            self._changed.notify()

    def _reported(self) -> None:
        """Wake who waits for its start or for the end of its work, and the loop where that would look too late.

        Actors become idle and end calls all the time, and then the loop mostly looks soon enough.
        """
        if self.look_at > self.frozen_at():
            self._changed.notify()

    @property
    def cause(self) -> Cause:
        """How it ended: why it was cancelled, if it was, else by itself."""
        return self._stop_cause or cause_of(self.error)

    @property
    def interruptible(self) -> bool:
        """Whether stopping it now interrupts no work."""
        return self.ended or not self.context.has_started or self.context.mode == "idle"

    def cancel(self, cause: Cause) -> None:
        """Cancel it; the first cause counts."""
        if self.cancelled_at is None and not self.ended:
            self._stop_cause = cause
            self.cancelled_at = trio.current_time()
            self._scope.cancel()
            self._changed.notify()

    def frozen_at(self) -> float:
        """Return the moment at which it counts as frozen unless it makes progress."""
        return self.context.frozen_at(self.spec.progress_deadline)

    def stuck(self, now: float) -> bool:
        """Whether it was cancelled and has not unwound in time."""
        return not self.ended and self.cancelled_at is not None and now >= self.cancelled_at + UNWIND_SECONDS

    async def finish_work(self, skip: Callable[[], bool]) -> None:
        """Wait for the unit of work in hand, at most the shutdown timeout or until ``skip`` holds, then cancel."""
        deadline, self.look_at = trio.current_time() + self.spec.shutdown_timeout, math.inf
        await self._changed.until(lambda: self.interruptible or skip(), at=deadline)
        self.cancel(Cause.STOPPED)

    async def wait_unwound(self) -> bool:
        """Wait for the end of a cancelled run, for a bounded time; return whether it has ended."""
        await self._changed.until(lambda: self.ended, at=trio.current_time() + UNWIND_SECONDS)
        return self.ended
