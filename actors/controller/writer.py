"""Writes node indices, Events about duplicate ones, and the objects' conditions, while this controller is the leader.

    Term (election), ClusterState (watch) ──> differences from the objects' content ──> one write at a time

Nothing is written unless the Lease is held and the state is live. A rate limit covers all writes, since the watches of
all nodes receive each one. A refused write is retried later, independently for each of the three kinds; the log has a
line when that begins, and when it ends.

Requests to the API server, for RBAC:

    nodes                             get, patch     a merge patch of the annotation openpe.io/nodeindex
    events (in the namespace default) create, get, patch
    underlays/status, l3vnis/status, l2vnis/status, l3passthroughs/status, rawfrrconfigs/status
                                      patch          server-side apply of the two conditions
    and what :mod:`.watch` lists and watches, and the Lease of :mod:`.election`
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import MESSAGES
from actors.lib.kube.errors import SERVER_ERRORS, ApiError, UnreachableError
from actors.lib.kube.request_backoff import RequestBackoff, TokenBucket
from config.api import ApiCredentials
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader, wait_any

from .aggregation import Aggregation
from .cluster_state import ClusterState
from .condition_writer import ConditionWriter
from .election import Term
from .index_writer import DuplicateReporter, IndexWriter

log = get_logger("controller")

#: Writes per second, and the burst. Each write of an object is an event for every node, so in a large cluster
#: ``MESSAGES`` events per second are the limit (actors.lib.kube.cluster_size).
RATE: Final = 20.0
BURST: Final = 20
#: Deadline of one write: at most three requests.
WRITE_SECONDS: Final = 100.0


async def run(
    ctx: ActorContext,
    *,
    credentials: LatestReader[ApiCredentials],
    term: LatestReader[Term],
    cluster: LatestReader[ClusterState],
    connect: Callable[[ApiCredentials], KubeClient] = KubeClient,
    wall: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
) -> None:
    """Write indefinitely. ``wall`` is the clock in Unix seconds, ``chance`` returns a random number in [0, 1)."""
    writer = ClusterWriter(ctx, credentials, term, cluster, connect, wall, chance)
    ctx.started()
    while True:
        wait = await writer.work()
        ctx.progress()
        with ctx.idle(), trio.move_on_after(wait):
            await wait_any(credentials, term, cluster)


@dataclass(slots=True)
class Part:
    """One kind of write, with its backoff after a refusal."""

    name: str
    due: Callable[[float], float]
    write: Callable[[KubeClient, float], Awaitable[None]]
    backoff: RequestBackoff


@dataclass(slots=True)
class ClusterWriter:
    """One incarnation of the actor."""

    ctx: ActorContext
    credentials: LatestReader[ApiCredentials]
    term: LatestReader[Term]
    cluster: LatestReader[ClusterState]
    connect: Callable[[ApiCredentials], KubeClient]
    wall: Callable[[], float]
    chance: Callable[[], float]
    _number: int = -1
    _bucket: TokenBucket = field(default_factory=lambda: TokenBucket(BURST, 1.0 / RATE))
    _server: RequestBackoff = field(init=False)
    _limiter: RepeatLimiter = field(default_factory=lambda: RepeatLimiter(log, clock=trio.current_time))
    _aggregation: Aggregation = field(init=False)
    _indices: IndexWriter = field(init=False)
    _duplicates: DuplicateReporter = field(init=False)
    _conditions: ConditionWriter = field(init=False)
    _parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        self._server = RequestBackoff(self.chance)

    async def work(self) -> float:
        """Write what is due; return the seconds until the next write is."""
        while True:
            for reader in (self.credentials, self.term, self.cluster):
                reader.take()
            current = self._usable()
            if current is None:
                return math.inf
            await self._take_in()
            part, due = self._next(trio.current_time())
            if (wait := due - trio.current_time()) > 0:
                return wait
            try:
                async with self.connect(current) as client:
                    await self._write_while_due(client, part)
            except SERVER_ERRORS as error:
                self._failed(self._server, "the API server", error)

    def _usable(self) -> ApiCredentials | None:
        """Return the credentials to write with, None while there is no state, or while another one is the leader."""
        term, state = self.term.peek(), self.cluster.peek()
        if term is None or state is None:
            return None
        return self.credentials.peek() if term.holds(trio.current_time()) and state.live else None

    async def _take_in(self) -> None:
        """Compare the newest state with the objects' content; a new term starts from nothing."""
        term, state, now = self.term.peek(), self.cluster.peek() or ClusterState(), trio.current_time()
        if term is not None and term.number != self._number:
            self._number = term.number
            self._begin()
        if self._aggregation.state is not state or self._indices.again_at <= now:
            self._indices.update(state, now)
            self._duplicates.update(state, self._indices.indexed, now)
            self._conditions.changed(self._aggregation.update(state, self._indices.indexed))
        await self._conditions.compare()

    def _begin(self) -> None:
        self._aggregation = Aggregation()
        self._indices, self._duplicates = IndexWriter(self.wall), DuplicateReporter(self.wall)
        self._conditions = ConditionWriter(self._aggregation, self.wall)
        indices, duplicates, conditions = self._indices, self._duplicates, self._conditions
        self._parts = (
            Part("the nodes' indices", indices.due, indices.write, RequestBackoff(self.chance)),
            Part("duplicate indices", lambda _: duplicates.due(), duplicates.write, RequestBackoff(self.chance)),
            Part("the objects' conditions", lambda _: conditions.due(), conditions.write, RequestBackoff(self.chance)),
        )

    def _next(self, now: float) -> tuple[Part, float]:
        # As many as all nodes' watches can handle.
        self._bucket.period = 1.0 / min(RATE, MESSAGES / max(len(self._aggregation.state.nodes), 1))
        allowed = max(self._bucket.due(now), self._server.until)
        due = [(part, max(part.due(now), part.backoff.until, allowed)) for part in self._parts]
        return min(due, key=lambda one: one[1])

    async def _write_while_due(self, client: KubeClient, part: Part) -> None:
        while self._usable() == client.credentials:
            now = trio.current_time()
            self._bucket.take(now)
            try:
                with self.ctx.working(f"writing {part.name}", WRITE_SECONDS):
                    await self._write(client, part, now)
            except SERVER_ERRORS:
                raise
            except ApiError as error:
                self._failed(part.backoff, part.name, error)
            else:
                self._worked(part)
            await self._take_in()
            part, due = self._next(trio.current_time())
            if due > trio.current_time():
                return

    async def _write(self, client: KubeClient, part: Part, now: float) -> None:
        """Make one write, unless the term ends first: a write without an answer by then is not repeated."""
        term = self.term.peek()
        with trio.CancelScope(deadline=term.until if term is not None else now) as scope:
            await part.write(client, now)
        if scope.cancelled_caught:
            raise UnreachableError("no answer before the Lease has to be renewed")

    def _failed(self, backoff: RequestBackoff, subject: str, error: ApiError) -> None:
        backoff.failed(error, trio.current_time())
        text = f"cannot write {subject}: {error}"
        self._limiter.failing(subject, text, message_id=message_ids.CONTROLLER_FAILS)

    def _worked(self, part: Part) -> None:
        self._server.reset()
        part.backoff.reset()
        for subject in (part.name, "the API server"):
            self._limiter.recovered(subject, f"{subject} can be written again")
