"""An actor is an async function that takes a context and its channel ends.

The context is the actor's only link to the supervisor. Through it the actor reports that it has started, that it makes
progress, that it is idle (waiting for input, for however long) or inside a long call with a declared deadline, and
facts for ``openperouter status``. An actor that is neither idle nor working and makes no progress for longer than its
progress deadline is frozen: the tree cancels and restarts it, and systemd's watchdog is not notified meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import trio

Mode = Literal["busy", "idle", "working"]

#: A fact shown in ``openperouter status``: keep values short, they are printed on one line. Never a secret.
Fact = str | int | float | bool | None


class ActorContext:
    """What one run of an actor, the ``incarnation``-th, reports to the supervisor.

    ``changed`` is called when the actor has started, when it becomes idle, since a stop then interrupts no work, and
    when a declared call ends.
    """

    def __init__(self, name: str, incarnation: int = 1, *, changed: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.incarnation = incarnation
        self.mode: Mode = "busy"
        self.facts: dict[str, Fact] = {}
        self.last_progress = trio.current_time()
        self.activity: str | None = None
        self.activity_deadline: float | None = None
        self.has_started = False
        self._changed = changed

    def started(self) -> None:
        """Report that initialisation is complete. Idempotent; without it the actor fails its start timeout."""
        if not self.has_started:
            self.has_started = True
            self.progress()
            self._changed()

    def progress(self) -> None:
        """Report that a unit of work was completed."""
        self.last_progress = trio.current_time()

    def frozen_at(self, patience: float) -> float:
        """Return the moment at which the actor counts as frozen, the earliest possible one while it is idle.

        ``patience`` seconds may pass without progress. A declared call that honours its deadline ends by itself: past
        it the same time is left for unwinding.
        """
        return self.alive_until() + patience

    def alive_until(self) -> float:
        """Return the last moment at which the actor counts as working: now while it is idle."""
        if self.mode == "idle":
            return trio.current_time()
        return self.last_progress if self.activity_deadline is None else self.activity_deadline

    def note(self, **facts: Fact) -> None:
        """Merge facts into this actor's observable state; a fact of None is removed."""
        for key, value in facts.items():
            if value is None:
                self.facts.pop(key, None)
            else:
                self.facts[key] = value

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Wrap a wait for input: may last indefinitely without counting as frozen."""
        self.progress()
        previous, self.mode = self.mode, "idle"
        self._changed()
        try:
            yield
        finally:
            self.mode = previous
            self.progress()

    @contextmanager
    def working(self, what: str, seconds: float) -> Iterator[trio.CancelScope]:
        """Wrap a declared long call: cancelled with :class:`trio.TooSlowError` after ``seconds``.

        Meanwhile the actor counts as making progress, and systemd's watchdog is notified.
        """
        saved = (self.mode, self.activity, self.activity_deadline)
        self.mode, self.activity, self.activity_deadline = "working", what, trio.current_time() + seconds
        self.progress()
        try:
            with trio.fail_after(seconds) as scope:
                yield scope
        finally:
            self.mode, self.activity, self.activity_deadline = saved
            self.progress()
            # It may freeze now, long before the declared deadline.
            self._changed()
