"""One life of a child: its context, its handshake, its containment and its end.

Whatever the child does, :meth:`Incarnation.run` ends without an error of the child's: only cancellation from outside
and the user's Ctrl-C pass through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from .actor import ActorContext
from .child import ChildSpec
from .restart_policy import Cause, cause_of

#: How long a cancelled child may take to unwind, in seconds, before it counts as stuck.
UNWIND_SECONDS = 5.0


class Bell:
    """Wakes everybody who waits for a change; waiters look again themselves."""

    def __init__(self) -> None:
        self.rings = 0
        self._event = trio.Event()

    def ring(self) -> None:
        """Wake all waiters."""
        self.rings += 1
        event, self._event = self._event, trio.Event()
        event.set()

    async def until(self, condition: Callable[[], bool], *, at: float = float("inf")) -> bool:
        """Wait until a condition holds, at most until a moment of trio's clock; return whether it holds."""
        with trio.move_on_at(at):
            while not condition():
                await self._event.wait()
        return condition()


class SupervisedContext(ActorContext):
    """The real context: tells the supervisor when the actor becomes idle, the moment at which a stop costs nothing."""

    def __init__(self, name: str, incarnation: int, bell: Bell) -> None:
        super().__init__(name, incarnation, on_started=bell.ring)
        self._bell = bell

    @contextmanager
    def idle(self) -> Iterator[None]:
        """As in the base class, and ring."""
        with super().idle():
            self._bell.ring()
            yield


class Incarnation:
    """One run of a child's body."""

    def __init__(self, spec: ChildSpec, number: int, bell: Bell) -> None:
        self.spec = spec
        self.context = SupervisedContext(spec.name, number, bell)
        self.error: BaseException | None = None
        self.ended = False
        self.stop_cause: Cause | None = None
        self.cancelled_at: float | None = None
        self.start_by = trio.current_time() + spec.start_timeout
        self.started_at: float | None = None
        self._bell = bell
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Run the body and keep its error."""
        try:
            with self._scope:
                await self.spec.run(self.context)
        except* (Exception, SystemExit) as error:  # noqa: BLE001 - containing any error of a child is the point
            self.error = error.exceptions[0] if len(error.exceptions) == 1 else error
        finally:
            self.ended = True
            self._bell.ring()

    @property
    def cause(self) -> Cause:
        """How it ended: why it was stopped, if it was, else by itself."""
        return self.stop_cause or cause_of(self.error)

    @property
    def restful(self) -> bool:
        """Whether stopping it now interrupts no work."""
        return self.ended or not self.context.has_started or self.context.mode == "idle"

    def cancel(self, cause: Cause) -> None:
        """Cancel it; the first cause counts."""
        if self.cancelled_at is None and not self.ended:
            self.stop_cause = self.stop_cause or cause
            self.cancelled_at = trio.current_time()
            self._scope.cancel()
            self._bell.ring()

    def stuck(self, now: float) -> bool:
        """Whether it was cancelled and has not unwound in time."""
        return not self.ended and self.cancelled_at is not None and now >= self.cancelled_at + UNWIND_SECONDS

    async def finish_work(self, seconds: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """Wait for the unit of work in hand, at most ``seconds`` or until ``hurry`` holds, then cancel."""
        await self._bell.until(lambda: self.restful or hurry(), at=trio.current_time() + seconds)
        self.cancel(Cause.STOPPED)
