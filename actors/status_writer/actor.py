"""Tells the cluster what became of it on this node: a status object, conditions, Events, and the node's index.

Acts only while the API's state is known to be current and this node has a Node object; what it says is compared with
what is there, so a quiet node sends nothing. Its duties fail alone. It reads what others publish and publishes nothing.

What it asks of the API server, for RBAC:

    routernodeconfigurationstatuses (network.openperouter.io/v1alpha1, in the program's namespace)
        patch   PATCH .../NODE            server-side apply: makes the object and its owner,
        create                            which needs this right as well (there is no POST)
        get     GET   .../NODE            another node's, when its claim on an object is old
        list    GET   .../?limit=1        how many nodes there are; refused: assumes many
    routernodeconfigurationstatuses/status
        patch   PATCH .../NODE/status     server-side apply, and a merge patch when somebody added fields to it
    underlays/status, l3vnis/status, l2vnis/status, l3passthroughs/status, rawfrrconfigs/status (in all namespaces)
        patch   PATCH .../NAME/status     server-side apply with the object's resourceVersion
    events (events.k8s.io/v1, in all namespaces)
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
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import Crowd
from actors.lib.kube.errors import ApiError, CredentialsError, ThrottledError, UnreachableError
from config.api import ApiAccess, ApiCredentials, ApiObject, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader, wait_any

from .cluster_size import CrowdDuty
from .condition_codec import Claim
from .conditions import ConditionsDuty
from .error_log import Telling
from .events import EventsDuty
from .feedback_suppression import Suppressor
from .inputs import Inputs
from .lazy_client import Line
from .node_events import claimed
from .node_index import NodeIndexDuty
from .node_status import NodeStatusDuty
from .object_status import Judge
from .rate_limit import Pause
from .writer import Duty, Scene

#: Seconds for one duty's turn: at most four requests, each with the client's own deadline.
TURN_SECONDS: Final = 180.0
#: Errors that concern all duties alike; an internal error may be one object's, whose webhook does not answer.
_SERVER_ERRORS: Final = (UnreachableError, CredentialsError, ThrottledError)
_SERVER: Final = "the API server"


@dataclass(frozen=True, slots=True)
class Readers:
    """The reading ends of everything that is told to this actor."""

    access: LatestReader[ApiAccess]
    api: LatestReader[ApiSnapshot]
    desired: LatestReader[DesiredState]
    frr: LatestReader[FrrOutcome]
    kernel: LatestReader[KernelOutcome]
    health: LatestReader[HealthReport]

    def take(self, before: Inputs) -> Inputs:
        """Return the newest inputs; the same object when there is nothing new."""
        names = ("access", "api", "desired", "frr", "kernel", "health")
        fresh = {name: value for name in names if (value := getattr(self, name).take()) is not None}
        return replace(before, **fresh) if fresh else before

    async def wait(self) -> None:
        """Wait for something new."""
        await wait_any(self.access, self.api, self.desired, self.frr, self.kernel, self.health)


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
    """Tell indefinitely. ``wall`` is the clock in Unix seconds, ``chance`` returns a random number in [0, 1)."""
    readers = Readers(access, api, desired, frr, kernel, health)
    announcer = _Announcer(ctx, settings.namespace, readers, connect, wall, chance)
    ctx.started()
    while True:
        wait = await announcer.work()
        ctx.progress()
        with ctx.idle(), trio.move_on_after(wait):
            await readers.wait()


@dataclass(slots=True)
class _Announcer:
    """One incarnation: the newest inputs, the duties, and how the server answers to each."""

    ctx: ActorContext
    namespace: str
    readers: Readers
    connect: Callable[[ApiCredentials], KubeClient]
    wall: Callable[[], float]
    chance: Callable[[], float]
    inputs: Inputs = field(default_factory=Inputs)
    telling: Telling = field(default_factory=Telling)
    _judge: Judge = field(init=False)
    _duties: _Duties | None = None
    _scene: Scene | None = None
    _judged_until: float = -math.inf
    _server: Pause = field(init=False)

    def __post_init__(self) -> None:
        self._judge = Judge(self.namespace)
        self._server = Pause(self.chance)

    async def work(self) -> float:
        """Send what is due; return after how many seconds something more will be."""
        line = Line(self.connect)
        try:
            return await self._work(line)
        finally:
            await line.close()

    async def _work(self, line: Line) -> float:
        while True:
            scene = self._look()
            if isinstance(scene, str):
                self.ctx.note(waiting=scene)
                return math.inf
            now = trio.current_time()
            duties = self._duties_of(scene.basis.node.name)
            for one in duties.all():
                one.see(scene, now)
            due, duty = duties.next(now)
            due = max(due, self._server.until)
            self._note(duties)
            if due > now:
                return max(0.0, min(due, self._judged_until) - now)
            await self._turn(duty, duties.pauses[duty.name], line, scene.basis.credentials)

    def _look(self) -> Scene | str:
        """Take in what is new and judge it; return what there is to speak of, or what is waited for."""
        now = trio.current_time()
        before, self.inputs = self.inputs, self.readers.take(self.inputs)
        if _credentials(before) != _credentials(self.inputs):
            self._server.over()
        basis = self.inputs.basis()
        if isinstance(basis, str):
            self._scene = None
            return basis
        if self._scene is None or self.inputs is not before or now >= self._judged_until:
            self._scene = Scene(basis, self._judge.judge(basis, now), self.namespace)
            self._judged_until = self._judge.due(now)
        return self._scene

    def _duties_of(self, node: str) -> _Duties:
        if self._duties is None or self._duties.node != node:
            self._duties = _Duties.make(node, self.wall, self.chance, self.telling)
        return self._duties

    async def _turn(self, duty: Duty, pause: Pause, line: Line, credentials: ApiCredentials) -> None:
        """Let a duty send one thing."""
        try:
            with self.ctx.working(f"telling the API server: {duty.name}", TURN_SECONDS):
                await duty.act(await line.client(credentials), trio.current_time())
        except _SERVER_ERRORS as error:
            self._server.failed(error, trio.current_time())
            self.telling.failing(_SERVER, error)
        except ApiError as error:
            pause.failed(error, trio.current_time())
            self.telling.failing(duty.name, error)
        else:
            self._server.over()
            pause.over()
            self.telling.working(_SERVER)
            self.telling.working(duty.name)

    def _note(self, duties: _Duties) -> None:
        self.ctx.note(
            waiting=None,
            failing=self.telling.fact(),
            status_writes=duties.node_status.writes,
            condition_writes=duties.conditions.writes,
            events_dropped=duties.events.dropped or None,
        )


@dataclass(slots=True)
class _Duties:
    """The duties of one node; another name of the node is another node."""

    node: str
    node_status: NodeStatusDuty
    conditions: ConditionsDuty
    events: EventsDuty
    others: tuple[Duty, ...]
    pauses: dict[str, Pause]

    @classmethod
    def make(cls, node: str, wall: Callable[[], float], chance: Callable[[], float], telling: Telling) -> _Duties:
        crowd = Crowd()
        events = EventsDuty(wall, crowd, chance, telling)
        suppressor = Suppressor(node, crowd, chance)

        def witness(one: ApiObject, claim: Claim) -> None:
            events.tell(claimed(one, claim))

        conditions = ConditionsDuty(suppressor, crowd, wall=wall, chance=chance, telling=telling, witness=witness)
        others = (NodeIndexDuty(events.tell, crowd, chance), CrowdDuty(crowd, chance))
        made = cls(node, NodeStatusDuty(wall, crowd, chance), conditions, events, others, {})
        made.pauses = {duty.name: Pause(chance) for duty in made.all()}
        return made

    def all(self) -> tuple[Duty, ...]:
        """Return them, those first that say most."""
        return (self.node_status, self.conditions, self.events, *self.others)

    def next(self, now: float) -> tuple[float, Duty]:
        """Return when the next turn is, and whose."""
        return min(((max(one.due(now), self.pauses[one.name].until), one) for one in self.all()), key=_when)


def _when(turn: tuple[float, Duty]) -> float:
    return turn[0]


def _credentials(inputs: Inputs) -> ApiCredentials | None:
    return inputs.access.credentials if inputs.access else None
