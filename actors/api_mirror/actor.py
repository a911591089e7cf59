"""Shows in the API what comes from files, for readers only: ``kubectl get`` lists it, with labels.

In: the files' resources, and what the API server has. Out, to the API server: one labelled object, a mirror, for each
resource. Each pass plans the changes (:mod:`.planning`), sends those that are due (:mod:`.schedule`) one by one
(:mod:`.writer`), and returns when the next one is. A converged node sends nothing; a change that fails does not stop
the others.

Nothing is sent unless the API's state is known to be current and this node has a Node object, which owns all mirrors:
without knowing what is there nothing can be compared, and without an owner nothing would be removed with the node.

What it needs of the API server, for RBAC, in the program's own namespace only, on underlays, l3vnis, l2vnis,
l3passthroughs and rawfrrconfigs of network.openperouter.io/v1alpha1:

    create   POST   .../namespaces/NAMESPACE/PLURAL          a mirror that is missing (also with dryRun=All)
    patch    PATCH  .../namespaces/NAMESPACE/PLURAL/NAME     a merge patch of what differs, with its resourceVersion
    delete   DELETE .../namespaces/NAMESPACE/PLURAL/NAME     by uid and resourceVersion: what no file has any more, and
                                                             what has immutable fields but can be created again
    get      GET    .../namespaces/NAMESPACE/PLURAL/NAME     only when a name is taken by an object that this node's
                                                             watch does not show

and on routernodeconfigurationstatuses:

    list     GET    .../?limit=1                             how many nodes there are; refused: assumes a large cluster

The owner reference sets no blockOwnerDeletion, so it needs no right on the Node (nodes/finalizers).
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import ClusterSize
from actors.lib.kube.errors import SERVER_ERRORS, ApiError
from actors.lib.kube.mirror_signature import mirror_key, proof
from actors.lib.kube.request_backoff import RequestBackoff
from config.api import ApiAccess, ApiCredentials, ApiNode, ApiObject, ApiSnapshot
from config.outcomes import StaticSnapshot
from config.problems import ResourceId
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader, wait_any
from supervisor.runtime.faults import DependencyFault

from .error_log import MirrorLog, log
from .planning import Change, MirrorPlan, Renamed, mirrors, plan, renamed
from .schedule import MirrorSchedule
from .writer import NameTakenError, carry_out

#: Seconds for one change: at most six requests, each with the client's own deadline.
CHANGE_SECONDS: Final = 200.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    access: LatestReader[ApiAccess],
    snapshots: LatestReader[StaticSnapshot],
    api: LatestReader[ApiSnapshot],
    connect: Callable[[ApiCredentials], KubeClient] = KubeClient,
    chance: Callable[[], float] = random.random,
) -> None:
    """Mirror indefinitely; ``chance`` returns a random number in [0, 1).

    Raises :class:`DependencyFault` where the key of the proofs can be neither read nor created.
    """
    try:
        key = mirror_key(settings.state_dir)
    except OSError as error:
        raise DependencyFault(f"the key of this node's mirrors is unavailable: {error}") from error
    mirror = _Mirror(ctx, settings, connect, MirrorSchedule(ClusterSize(chance=chance)), RequestBackoff(chance), key)
    ctx.started()
    while True:
        mirror.take(access.take(), snapshots.take(), api.take())
        wait = await mirror.work()
        ctx.progress()
        with ctx.idle(), trio.move_on_after(wait):
            await wait_any(access, snapshots, api)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Everything that a pass needs."""

    credentials: ApiCredentials
    static: StaticSnapshot
    api: ApiSnapshot
    node: ApiNode


@dataclass(slots=True)
class _Mirror:
    """One incarnation: the newest inputs and what it has done."""

    ctx: ActorContext
    settings: Settings
    connect: Callable[[ApiCredentials], KubeClient]
    schedule: MirrorSchedule
    server: RequestBackoff
    key: bytes = field(repr=False)
    log: MirrorLog = field(default_factory=MirrorLog)
    access: ApiAccess | None = None
    static: StaticSnapshot | None = None
    api: ApiSnapshot | None = None
    _names_taken: set[ResourceId] = field(default_factory=set)
    _wanted: tuple[StaticSnapshot, ApiNode, Renamed, dict[ResourceId, ApiObject]] | None = None

    def take(self, access: ApiAccess | None, static: StaticSnapshot | None, api: ApiSnapshot | None) -> None:
        """Take in what is new; other credentials are worth an attempt at once."""
        if access is not None and (self.access is None or access.credentials != self.access.credentials):
            self.server.reset()
        self.access = access or self.access
        self.static = static or self.static
        self.api = api or self.api

    async def work(self) -> float:
        """Send what is due; return after how many seconds something more will be."""
        inputs = self._inputs()
        if isinstance(inputs, str):
            self.ctx.note(waiting=inputs, mirrors=None, failing=None)
            return math.inf
        wanted = self._wanted_mirrors(inputs)
        todo = plan(inputs.static, wanted, inputs.api)
        self.log.mislabelled(todo.mislabelled)
        self.schedule.begin(todo, trio.current_time())
        if self._next_at(todo) <= trio.current_time():
            await self._send_due(inputs, todo)
        failing = self.schedule.failing(todo.changes)
        self.log.recovered(failing)
        self.log.fights(self.schedule.fights(), todo.foreign)
        self.ctx.note(waiting=None, mirrors=len(wanted), failing=len(failing) or None)
        return max(0.0, self._next_at(todo) - trio.current_time())

    def _inputs(self) -> _Inputs | str:
        """Return what to work with, or what is missing."""
        credentials = self.access.credentials if self.access else None
        if credentials is None:
            return "for an API server"
        if self.static is None:
            return "for the files"
        if self.api is None or not self.api.live:
            return "for the API's state"
        node = self.api.node
        if node is None or node.name != self.static.node.name:
            return f"for the Node {self.static.node.name}"
        return _Inputs(credentials, self.static, self.api, node)

    def _wanted_mirrors(self, inputs: _Inputs) -> dict[ResourceId, ApiObject]:
        """Return the mirrors of the files as they are now."""
        self._names_taken &= {resource.id for resource in inputs.static.resources}
        names = renamed(inputs.static, inputs.api, self._names_taken)
        if self._wanted and self._wanted[0] is inputs.static and self._wanted[1:3] == (inputs.node, names):
            return self._wanted[3]
        wanted = mirrors(inputs.static, inputs.node, lambda resource: proof(self.key, resource), names)
        self._wanted = (inputs.static, inputs.node, names, wanted)
        return wanted

    def _due_at(self, change: Change) -> float:
        return max(self.schedule.due_at(change), self.server.until)

    def _poll_at(self, todo: MirrorPlan) -> float:
        return max(self.schedule.poll_at(todo.changes, trio.current_time()), self.server.until)

    def _next_at(self, todo: MirrorPlan) -> float:
        return min(self._poll_at(todo), *map(self._due_at, todo.changes), math.inf)

    async def _send_due(self, inputs: _Inputs, todo: MirrorPlan) -> None:
        """Count the nodes if a change waits for that, and send every change that is due."""
        sent: list[Change] = []
        tried: set[ResourceId] = set()
        async with self._connection(inputs.credentials) as client:
            if self._poll_at(todo) <= trio.current_time():
                await self._count_nodes(client)
            due = [change for change in todo.changes if self._due_at(change) <= trio.current_time()]
            # Those that failed least often come first.
            for change in sorted(due, key=self.schedule.attempts):
                # Others of its verb and kind may have failed meanwhile.
                if self.schedule.due_at(change) <= trio.current_time():
                    tried.add(change.id)
                    if await self._send(client, change, inputs.static):
                        sent.append(change)
        self.log.written(sent)
        self.log.failed(pair for pair in self.schedule.failing(todo.changes) if pair[0].id in tried)

    @asynccontextmanager
    async def _connection(self, credentials: ApiCredentials) -> AsyncIterator[KubeClient]:
        """Yield a client; an error of the whole server ends the block and is handled here."""
        try:
            async with self.connect(credentials) as client:
                yield client
        except SERVER_ERRORS as error:
            self.server.failed(error, trio.current_time())
            self.log.server_failed(error)
        else:
            self.server.reset()
            self.log.server_answered()

    async def _count_nodes(self, client: KubeClient) -> None:
        try:
            with self.ctx.working("counting the nodes", CHANGE_SECONDS):
                await self.schedule.size.poll(client, self.settings.namespace, trio.current_time())
        except SERVER_ERRORS:
            raise
        except ApiError as error:
            # Only time is lost.
            log.debug("cannot count the nodes", error=str(error))

    async def _send(self, client: KubeClient, change: Change, static: StaticSnapshot) -> bool:
        """Send one change; return whether the server took it."""
        try:
            with self.ctx.working(f"writing the mirror {change.id}", CHANGE_SECONDS):
                outcome = await carry_out(client, change)
        except SERVER_ERRORS:
            raise
        except ApiError as error:
            if isinstance(error, NameTakenError) and change.id in {resource.id for resource in static.resources}:
                # The next plan has it under a name that no other node can want.
                self._names_taken.add(change.id)
                self.log.renamed(change, error)
            else:
                self.schedule.failed(change, error, trio.current_time())
            return False
        self.schedule.sent(change, outcome, trio.current_time())
        return True
