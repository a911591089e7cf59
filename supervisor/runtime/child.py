"""What the supervisor is told about a child, and what it tells about one.

Both are plain frozen values: a spec is written down in the composition root, a status is a snapshot for who shows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .actor import ActorContext, Fact, Mode
from .channel import Latest, Mailbox
from .restart_policy import Backoff, Intensity, Restart

#: A channel of any content.
AnyChannel = Latest[Any] | Mailbox[Any]


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child. Times in seconds.

    ``run`` starts one incarnation; whatever outlives it (channel ends that must not be read again, sockets) belongs to
    the composition root. ``start_timeout`` bounds the time until ``context.started()``; ``progress_deadline`` the time
    without progress while neither idle nor working; ``shutdown_timeout`` how long a stop waits for the unit of work in
    hand before it cancels. Children of the same ``group`` form a rest_for_one group; ``reads`` and ``writes`` feed the
    channel graph.
    """

    name: str
    run: Callable[[ActorContext], Awaitable[None]]
    restart: Restart = Restart.PERMANENT
    critical: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    intensity: Intensity = field(default_factory=Intensity)
    start_timeout: float = 30.0
    progress_deadline: float = 60.0
    shutdown_timeout: float = 5.0
    group: str | None = None
    reads: tuple[AnyChannel, ...] = ()
    writes: tuple[AnyChannel, ...] = ()

    def __post_init__(self) -> None:
        if not self.name or min(self.start_timeout, self.progress_deadline) <= 0 or self.shutdown_timeout < 0:
            raise ValueError(f"child {self.name!r}: a name and positive times are needed")


class ChildState(StrEnum):
    """Where a child is in its life.

    ``STOPPED`` also means: not yet started. ``FINISHED`` returned as it may, ``FAILED`` will not be restarted.
    """

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """A snapshot of one child.

    ``restarts`` counts all restarts and ``causes`` the ends that led to them; ``last_error`` is one bounded line.
    ``progress_age`` and ``activity_remaining`` are seconds, the latter negative when a declared call is overdue.
    ``stuck``: it was cancelled and has not ended in time.
    """

    name: str
    state: ChildState
    critical: bool = False
    incarnation: int = 0
    restarts: int = 0
    causes: dict[str, int] = field(default_factory=dict)
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
