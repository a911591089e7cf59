"""A child as two plain values: the spec that defines it, and the status that is a snapshot of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .actor import ActorContext, Fact, Mode
from .channel import Latest

#: A channel of any content.
AnyChannel = Latest[Any]


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child. Times in seconds.

    ``run`` starts one run of its actor. A ``critical`` child that cannot live ends the tree. ``start_timeout`` bounds
    the time until ``context.started()``; ``progress_deadline`` the time without progress while neither idle nor
    working; ``shutdown_timeout`` how long a stop waits for the unit of work in hand before it cancels.
    """

    name: str
    run: Callable[[ActorContext], Awaitable[None]]
    critical: bool = False
    start_timeout: float = 30.0
    progress_deadline: float = 60.0
    shutdown_timeout: float = 5.0
    reads: tuple[AnyChannel, ...] = ()
    writes: tuple[AnyChannel, ...] = ()


class ChildState(StrEnum):
    """Where a child is in its life. ``STOPPED`` also means not yet started; ``FAILED`` will not be restarted."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """A snapshot of one child.

    ``incarnation`` is the number of its runs so far, ``last_error`` one bounded line. ``progress_age`` and
    ``activity_remaining`` are seconds, the latter negative when a declared call is overdue. ``stuck``: it was cancelled
    and has not ended in time.
    """

    name: str
    state: ChildState
    critical: bool = False
    incarnation: int = 0
    restarts: int = 0
    last_error: str = ""
    progress_age: float = 0.0
    progress_deadline: float = 60.0
    mode: Mode = "busy"
    activity: str | None = None
    activity_remaining: float | None = None
    facts: dict[str, Fact] = field(default_factory=dict)
    stuck: bool = False

    @property
    def frozen(self) -> bool:
        """Whether it is overdue: busy, or inside a declared call, longer than it may be."""
        if self.state is not ChildState.RUNNING or self.mode == "idle":
            return False
        if self.mode == "working" and self.activity_remaining is not None:
            # A call that honours its deadline ends by itself; this is the margin for its unwinding.
            return self.activity_remaining <= -self.progress_deadline
        return self.progress_age >= self.progress_deadline
