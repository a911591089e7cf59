"""A child as two plain values: the spec that defines it, and the status that is a snapshot of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from .actor import ActorContext, Fact, Mode
from .graph import Edge, Ports

#: Runs an actor, until it is cancelled or fails.
Body = Callable[[ActorContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child. Times in seconds.

    ``connect`` takes the channel ends that the child needs and returns its body. It is called for each run, so that a
    restarted child reads every channel from its newest value on, and must ask for the same ends each time. A
    ``critical`` child that cannot live ends the tree. ``start_timeout`` bounds
    the time until ``context.started()``; ``progress_deadline`` the time without progress while neither idle nor
    working; ``shutdown_timeout`` how long a stop waits for the unit of work in hand before it cancels.
    """

    name: str
    connect: Callable[[Ports], Body]
    critical: bool = False
    start_timeout: float = 30.0
    progress_deadline: float = 60.0
    shutdown_timeout: float = 5.0

    def body(self) -> Body:
        """Return the body for one run, with channel ends of its own."""
        return self.connect(Ports(self.name))

    def edges(self) -> list[Edge]:
        """Return what the child does with which channel."""
        ports = Ports(self.name)
        self.connect(ports)
        return ports.edges


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

    ``incarnation`` is the number of its runs so far, ``causes`` counts those that failed by their :class:`.Cause`,
    ``last_error`` is one bounded line, ``progress_age`` in seconds.
    ``frozen``: it made no progress for too long, or its declared call is overdue. ``stuck``: it was cancelled and has
    not ended in time.
    """

    name: str
    state: ChildState
    critical: bool = False
    incarnation: int = 0
    restarts: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    last_error: str = ""
    progress_age: float = 0.0
    mode: Mode = "busy"
    activity: str | None = None
    facts: dict[str, Fact] = field(default_factory=dict)
    frozen: bool = False
    stuck: bool = False
