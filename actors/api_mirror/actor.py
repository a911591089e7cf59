"""Shows in the API what comes from files, for readers only: ``kubectl get`` lists it, with labels.

Acts only while the API's state is known to be current and this node has a Node object, which owns all mirrors: without
knowing what is there nothing can be compared, and without an owner nothing would be removed with the node. A converged
node sends nothing; after an attempt that failed the others go on.

What it asks of the API server, for RBAC, in the program's own namespace only, on underlays, l3vnis, l2vnis,
l3passthroughs and rawfrrconfigs of network.openperouter.io/v1alpha1:

    create   POST   .../namespaces/NAMESPACE/PLURAL          a mirror that is missing (also with dryRun=All, see below)
    patch    PATCH  .../namespaces/NAMESPACE/PLURAL/NAME     a merge patch of what differs, with its resourceVersion
    delete   DELETE .../namespaces/NAMESPACE/PLURAL/NAME     by uid and resourceVersion: of what no file has any more,
                                                             and of what must not change but can be created again
    get      GET    .../namespaces/NAMESPACE/PLURAL/NAME     only when a name is taken by what no watch here shows

and on routernodeconfigurationstatuses:

    list     GET    .../?limit=1                             how many nodes there are; refused: assumes many

The owner reference sets no blockOwnerDeletion, so it needs no right on the Node (nodes/finalizers).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import ClusterSize
from actors.lib.kube.errors import SERVER_ERRORS, ApiError
from actors.lib.kube.mirror_signature import mirror_key, proof
from config.api import ApiAccess, ApiCredentials, ApiNode, ApiObject, ApiSnapshot
from config.desired import ResourceId
from config.outcomes import StaticSnapshot
from config.settings import Settings
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader, wait_any
from supervisor.runtime.faults import DependencyFault
from supervisor.runtime.restart_policy import Backoff

from .attempts import Ledger
from .error_log import Telling
from .planning import Change, Plan, Renamed, mirrors, plan, renamed
from .schedule import Turns
from .writer import NameTakenError, carry_out

log = get_logger("mirror")

#: Seconds for reading the key, 32 bytes on a local disk.
KEY_SECONDS: Final = 20.0
#: Seconds for one change: at most six requests, each with the client's own deadline.
CHANGE_SECONDS: Final = 200.0
#: For a server that takes nothing at all.
BACKOFF: Final = Backoff(first=1.0, factor=2.0, longest=60.0)


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

    Raises :class:`DependencyFault` where the key of the proofs can be neither read nor made.
    """
    mirror = _Mirror(ctx, settings, connect, Turns(ClusterSize(chance=chance)))
    ctx.started()
    while True:
        mirror.learn(access.take(), snapshots.take(), api.take())
        wait = await mirror.work()
        ctx.progress()
        with ctx.idle(), trio.move_on_after(wait):
            await wait_any(access, snapshots, api)


@dataclass(slots=True)
class _Server:
    """How the server as a whole has answered: ``failures`` in a row, and when to ask again."""

    failures: int = 0
    until: float = -math.inf

    def failed(self, error: ApiError) -> None:
        self.failures += 1
        pause = max(BACKOFF.delay(self.failures, random.random()), error.retry_after or 0.0)  # noqa: S311
        self.until = trio.current_time() + pause


@dataclass(frozen=True, slots=True)
class _Basis:
    """Everything that a pass needs to know."""

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
    turns: Turns
    access: ApiAccess | None = None
    static: StaticSnapshot | None = None
    api: ApiSnapshot | None = None
    ledger: Ledger = field(default_factory=Ledger)
    telling: Telling = field(default_factory=Telling)
    server: _Server = field(default_factory=_Server)
    _key: bytes | None = field(default=None, repr=False)
    _taken: set[ResourceId] = field(default_factory=set)
    _wanted: tuple[StaticSnapshot, ApiNode, Renamed, dict[ResourceId, ApiObject]] | None = None

    def learn(self, access: ApiAccess | None, static: StaticSnapshot | None, api: ApiSnapshot | None) -> None:
        """Take in what is new; other credentials are worth an attempt at once."""
        if access is not None and (self.access is None or access.credentials != self.access.credentials):
            self.server = _Server(failures=self.server.failures)
        self.access = access or self.access
        self.static = static or self.static
        self.api = api or self.api

    async def work(self) -> float:
        """Send what is due; return after how many seconds something more will be."""
        basis = self._basis()
        if isinstance(basis, str):
            self.ctx.note(waiting=basis, mirrors=None, failing=None)
            return math.inf
        wanted = await self._wishes(basis)
        todo = plan(basis.static, wanted, basis.api)
        self.telling.see_strangers(todo.strangers)
        self.turns.begin(todo.changes, trio.current_time())
        await self._count(basis, todo)
        await self._pass(basis, todo)
        left = [due for change in todo.changes if (due := self._due_at(change)) < math.inf]
        failing = self.ledger.failing(todo.changes)
        self.telling.recovered(failing)
        self.telling.see_fights(self.ledger.fights(), todo.rivals)
        self.ctx.note(waiting=None, mirrors=len(wanted), failing=len(failing) or None)
        return max(0.0, min([self._poll_at(todo), *left]) - trio.current_time())

    def _basis(self) -> _Basis | str:
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
        return _Basis(credentials, self.static, self.api, node)

    async def _wishes(self, basis: _Basis) -> dict[ResourceId, ApiObject]:
        """Return the mirrors of the files as they are now."""
        self._taken &= {resource.id for resource in basis.static.resources}
        names = renamed(basis.static, basis.api, self._taken)
        if self._wanted and self._wanted[0] is basis.static and self._wanted[1:3] == (basis.node, names):
            return self._wanted[3]
        key = await self._read_key()
        wanted = mirrors(basis.static, basis.node, lambda resource: proof(key, resource), names)
        self._wanted = (basis.static, basis.node, names, wanted)
        return wanted

    async def _read_key(self) -> bytes:
        # Not before a snapshot has come: who made that has read the key, so that there is one and only one.
        if self._key is None:
            with self.ctx.working("reading the key of the mirrors", KEY_SECONDS):
                try:
                    self._key = await trio.to_thread.run_sync(mirror_key, self.settings.state_dir)
                except OSError as error:
                    raise DependencyFault(f"the key to this node's own objects cannot be had: {error}") from error
        return self._key

    def _due_at(self, change: Change) -> float:
        return max(self.ledger.due_at(change), self.turns.due_at(change), self.server.until)

    def _poll_at(self, todo: Plan) -> float:
        return max(self.turns.poll_at(todo.changes, trio.current_time()), self.server.until)

    async def _count(self, basis: _Basis, todo: Plan) -> None:
        """Ask how many nodes there are, when something has to wait for that."""
        if self._poll_at(todo) > trio.current_time():
            return
        try:
            with self.ctx.working("counting the nodes", CHANGE_SECONDS):
                async with self.connect(basis.credentials) as client:
                    await self.turns.size.poll(client, self.settings.namespace, trio.current_time())
        except SERVER_ERRORS as error:
            self.server.failed(error)
            self.telling.server_failed(error)
        except ApiError as error:
            # Nothing is lost but time.
            log.debug("the nodes are not counted", error=str(error))

    async def _pass(self, basis: _Basis, todo: Plan) -> None:
        """Send every change that is due, those that failed least often first."""
        self.ledger.begin(todo, trio.current_time())
        due = [change for change in todo.changes if self._due_at(change) <= trio.current_time()]
        if not due:
            return
        sent: list[Change] = []
        try:
            async with self.connect(basis.credentials) as client:
                for change in sorted(due, key=self.ledger.attempts):
                    await self._send(client, change, sent, {resource.id for resource in basis.static.resources})
        except SERVER_ERRORS as error:
            self.server.failed(error)
            self.telling.server_failed(error)
        else:
            self.server = _Server()
            self.telling.server_answered()
        self.telling.written(sent)
        tried = {change.id for change in due}
        self.telling.failed(pair for pair in self.ledger.failing(todo.changes) if pair[0].id in tried)

    async def _send(
        self, client: KubeClient, change: Change, sent: list[Change], resources: Collection[ResourceId]
    ) -> None:
        if self.ledger.due_at(change) > trio.current_time():
            # Others of its sort have failed meanwhile.
            return
        try:
            with self.ctx.working(f"writing the mirror {change.id}", CHANGE_SECONDS):
                outcome = await carry_out(client, change)
        except SERVER_ERRORS:
            raise
        except ApiError as error:
            if isinstance(error, NameTakenError) and change.id in resources:
                # The next plan has it under a name that no other node can want.
                self._taken.add(change.id)
                self.telling.gave_way(change, error)
            else:
                self.ledger.failed(change, error, trio.current_time(), random.random())  # noqa: S311
        else:
            self.ledger.sent(change, outcome.answer, outcome.stale, trio.current_time(), random.random())  # noqa: S311
            sent.append(change)
