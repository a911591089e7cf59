"""Reports this node's status to the cluster.

Input: the configuration, its outcome in FRR, the kernel and the health checks, and the API server's objects. Output to
the API server: a status object, Events about the Node, and the node's index. A node writes nothing else: the controller
(actors.controller), where there is one, aggregates an object's state over all nodes.

:class:`_Reporter` joins the inputs into a :class:`NodeState` and hands each new one to the writers. A writer compares
it with the server's content and returns when it has something to send, so a quiet node sends nothing. Writers fail
independently: what RBAC forbids one of them does not stop another. Nothing is sent unless the API's state is known to
be current and this node has a Node object.

Requests to the API server, for RBAC:

    routernodeconfigurationstatuses (network.openperouter.io/v1alpha1, in the program's namespace)
        patch   PATCH .../NODE            server-side apply: makes the object and its owner,
        create                            which needs this right as well (there is no POST)
        list    GET   .../?limit=1        how many nodes there are; refused: assumes a large cluster
    routernodeconfigurationstatuses/status
        patch   PATCH .../NODE/status     server-side apply, and a merge patch when another client added fields to it
    events (events.k8s.io/v1, in the namespace default)
        create  POST  .../events
        patch   PATCH .../events/NAME     a merge patch of the series
        get     GET   .../events/NAME     only when an Event of that name is there
    nodes
        patch   PATCH /api/v1/nodes/NODE  a merge patch of the annotation openpe.io/nodeindex

The owner reference sets no blockOwnerDeletion, so it needs no right on the Node (nodes/finalizers).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import ClusterSize
from actors.lib.kube.errors import SERVER_ERRORS, ApiError, ForbiddenError
from actors.lib.kube.request_backoff import RequestBackoff
from config.api import ApiAccess, ApiCredentials, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader, wait_any

from .events import EventWriter
from .node_index import NodeIndexWriter
from .node_state import ChannelValues, NodeState
from .node_status import NodeStatusWriter

log = get_logger("status_writer")

#: Seconds for one write: at most four requests, each with the client's own deadline.
WRITE_SECONDS: Final = 180.0
#: Most characters of the fact about what fails, which is one line among others.
_MAX_FACT: Final = 200


class Writer(Protocol):
    """One part of what is reported. Times are seconds of one clock."""

    name: str

    def update(self, state: NodeState, now: float) -> None:
        """Store the state of the node; called for every change, and when something is due."""

    def due(self, now: float) -> float:
        """Return when to call :meth:`update` and, if it is due then as well, :meth:`write`; infinity is never."""

    async def write(self, client: KubeClient, now: float) -> None:
        """Send one thing, if one is due. Raises the errors of the client."""


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    access: LatestReader[ApiAccess],
    api: LatestReader[ApiSnapshot],
    desired: LatestReader[DesiredState],
    frr: LatestReader[FrrOutcome],
    kernel: LatestReader[KernelOutcome],
    health: LatestReader[HealthReport],
    connect: Callable[[ApiCredentials], KubeClient] = KubeClient,
    wall: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
) -> None:
    """Report indefinitely. ``wall`` is the clock in Unix seconds, ``chance`` returns a random number in [0, 1)."""
    readers: dict[str, LatestReader[Any]]
    readers = {"access": access, "api": api, "desired": desired, "frr": frr, "kernel": kernel, "health": health}
    reporter = _Reporter(ctx, settings.namespace, readers, connect, wall, chance)
    ctx.started()
    while True:
        wait = await reporter.work()
        ctx.progress()
        with ctx.idle(), trio.move_on_after(wait):
            await wait_any(*readers.values())


class Retry:
    """One thing that may fail by itself: when to try it again, and its lines in the log."""

    def __init__(self, subject: str, chance: Callable[[], float], limiter: RepeatLimiter) -> None:
        self.subject = subject
        self.backoff = RequestBackoff(chance)
        #: Why it fails, the server's reason if it gave one; None while it works.
        self.error: str | None = None
        self._limiter = limiter

    def failed(self, error: ApiError, now: float) -> None:
        """Wait, and log the failure unless it repeats the one before."""
        self.backoff.failed(error, now)
        self.error = error.reason or str(error)
        message_id = message_ids.API_FORBIDDEN if isinstance(error, ForbiddenError) else message_ids.REPORTING_FAILS
        self._limiter.failing(
            self.subject, f"reporting to the cluster fails: {self.subject}: {error}", message_id=message_id
        )

    def succeeded(self) -> None:
        """Try the next one at once, and log that it works if it failed before."""
        self.backoff.reset()
        self.error = None
        message = f"reporting to the cluster works again: {self.subject}"
        self._limiter.recovered(self.subject, message, message_id=message_ids.REPORTING_WORKS)


@dataclass(frozen=True, slots=True)
class _DueWrite:
    """What to write next: ``due`` is when, in seconds of the clock."""

    due: float
    writer: Writer
    retry: Retry
    credentials: ApiCredentials


@dataclass(slots=True)
class _Reporter:
    """One incarnation: the newest values, the writers, and when each of them may try."""

    ctx: ActorContext
    namespace: str
    readers: Mapping[str, LatestReader[Any]]
    connect: Callable[[ApiCredentials], KubeClient]
    wall: Callable[[], float]
    chance: Callable[[], float]
    _values: ChannelValues = field(default_factory=ChannelValues)
    _state: NodeState | str = ""
    _writers: _Writers | None = None
    _limiter: RepeatLimiter = field(default_factory=lambda: RepeatLimiter(log, clock=trio.current_time))
    _server: Retry = field(init=False)

    def __post_init__(self) -> None:
        self._server = Retry("the API server", self.chance, self._limiter)

    async def work(self) -> float:
        """Send what is due; return the seconds until something else is.

        A connection lasts as long as something is due: thousands of idle ones would be a load of their own.
        """
        while True:
            write = self._next_write()
            if write is None:
                return math.inf
            if (wait := write.due - trio.current_time()) > 0:
                return wait
            try:
                async with self.connect(write.credentials) as client:
                    await self._write_while_due(write, client)
            except SERVER_ERRORS as error:
                self._server.failed(error, trio.current_time())
                self._note()

    async def _write_while_due(self, write: _DueWrite | None, client: KubeClient) -> None:
        while write and write.credentials == client.credentials and write.due <= trio.current_time():
            try:
                with self.ctx.working(f"writing to the API server: {write.writer.name}", WRITE_SECONDS):
                    await write.writer.write(client, trio.current_time())
            except SERVER_ERRORS:
                raise
            except ApiError as error:
                write.retry.failed(error, trio.current_time())
            else:
                write.retry.succeeded()
                self._server.succeeded()
            write = self._next_write()

    def _next_write(self) -> _DueWrite | None:
        """Read the newest values; return the next write, None while something is missing."""
        self._take_values()
        state = self._state
        if isinstance(state, str):
            self.ctx.note(waiting=state)
            return None
        now, server = trio.current_time(), self._server.backoff.until
        if self._writers is None or self._writers.node != (state.node.name, state.node.uid):
            self._writers = _Writers.make(state, self.wall, self.chance, self._limiter)
        for writer, _ in self._writers.retries:
            writer.update(state, now)
        self._note()
        writes = [
            _DueWrite(max(writer.due(now), retry.backoff.until, server), writer, retry, state.credentials)
            for writer, retry in self._writers.retries
        ]
        return min(writes, key=lambda write: write.due)

    def _take_values(self) -> None:
        new = {name: value for name, reader in self.readers.items() if (value := reader.take()) is not None}
        if not new and self._state:
            return
        before, self._values = self._values, replace(self._values, **new)
        if before.credentials != self._values.credentials:
            self._server.backoff.reset()
        self._state = self._values.node_state(self.namespace)

    def _note(self) -> None:
        writers = self._writers
        if writers is None:
            return
        retries = [self._server, *(retry for _, retry in writers.retries)]
        failing = [f"{retry.subject}: {retry.error}" for retry in retries if retry.error]
        more = f" (and {len(failing) - 1} more)" if failing[1:] else ""
        self.ctx.note(
            waiting=None,
            failing=failing[0][:_MAX_FACT] + more if failing else None,
            status_writes=writers.status.writes,
            events_dropped=writers.events.dropped or None,
        )


@dataclass(frozen=True, slots=True)
class _Writers:
    """The writers of one Node object, by name and UID, and when each may try again.

    What the server refused for a deleted Node (422, the UID is immutable) must not delay its successor.
    """

    node: tuple[str, str]
    status: NodeStatusWriter
    events: EventWriter
    retries: tuple[tuple[Writer, Retry], ...]

    @classmethod
    def make(
        cls, state: NodeState, wall: Callable[[], float], chance: Callable[[], float], limiter: RepeatLimiter
    ) -> _Writers:
        size = ClusterSize(chance=chance)
        status, events = NodeStatusWriter(wall, size), EventWriter(wall, size)
        all_: tuple[Writer, ...] = (
            status,
            events,
            NodeIndexWriter(events.report, size),
            _SizePoll(size, state.namespace),
        )
        retries = tuple((writer, Retry(writer.name, chance, limiter)) for writer in all_)
        return cls((state.node.name, state.node.uid), status, events, retries)


@dataclass(slots=True)
class _SizePoll:
    """Counts the nodes, which determines how long the other writers wait for their slots."""

    size: ClusterSize
    namespace: str
    name: str = "number of nodes"

    def update(self, state: NodeState, now: float) -> None:
        self.size.poll_soon(now)

    def due(self, now: float) -> float:
        return self.size.poll_at

    async def write(self, client: KubeClient, now: float) -> None:
        await self.size.poll(client, self.namespace, now)
