"""What the daemon does with each permission: a function of its own code, on a real object, that fails without it.

Each takes a :class:`Stage` and raises when the daemon cannot do its work. ``NEEDS`` names the one for each permission.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from actors.api_mirror.planning import Change
from actors.api_mirror.writer import carry_out
from actors.crd_watch import actor as crd_watch
from actors.crd_watch.decoding import api_node, api_object
from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import Crowd
from actors.status_writer.condition_codec import MANAGER as CONDITIONS_MANAGER
from actors.status_writer.condition_codec import failing, manifest
from actors.status_writer.conditions import ConditionsDuty
from actors.status_writer.error_log import Telling
from actors.status_writer.events import AGAIN_SECONDS, EventsDuty
from actors.status_writer.feedback_suppression import Suppressor
from actors.status_writer.node_events import claimed
from actors.status_writer.node_index import NodeIndexDuty
from actors.status_writer.node_status import NodeStatusDuty
from actors.status_writer.object_status import Verdict
from actors.status_writer.writer import Duty, Scene
from config.api import (
    API_VERSION,
    GROUP,
    NODE_STATUS_KIND,
    NODE_STATUS_PLURAL,
    PLURALS,
    ApiAccess,
    ApiCredentials,
    ApiNode,
    ApiObject,
    ApiReach,
    ApiSnapshot,
)
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.status_writer.examples import basis, state
from tests.cluster.corpus import GOOD
from tests.cluster.harness import MANAGER, ClusterServer, Json, Request, kube, make_namespace, make_node
from tests.cluster.permissions import NAMESPACE, USER, Permission

#: What the announcing duties take for the time of day.
LATER: Final = 100_000.0
_WAIT_SECONDS: Final = 20.0
#: After a refusal: in it, everything that does not need what was refused has long been done.
_GRACE_SECONDS: Final = 1.0
_SECRET: Final = "tor"


class NotSeenError(AssertionError):
    """The watch does not show what is there."""


@dataclass
class Stage:
    """A server with our definitions, a Node, a namespace of users, and the shipped ServiceAccount."""

    server: ClusterServer
    admin: KubeClient
    account: ApiCredentials
    users: str
    directory: Path
    node: ApiNode
    begin: int = field(init=False)

    def __post_init__(self) -> None:
        self.begin = len(self.server.requests(USER))

    def refusals(self) -> list[Request]:
        """Return what the account was refused on this stage."""
        return [one for one in self.server.requests(USER)[self.begin :] if one.code == 403]

    def scene(self, *objects: ApiObject, **verdicts: Verdict) -> Scene:
        """Return a node where everything is in force; ``verdicts`` are on objects, by name."""
        desired = replace(state(), node_name=self.node.name)
        seen = ApiSnapshot(self.node, objects, live=True)
        judged = {one.id: verdicts.get(one.name, Verdict(one.generation, good=True)) for one in objects}
        return Scene(replace(basis(desired=desired, api=seen), node=self.node), judged, NAMESPACE)


@asynccontextmanager
async def stage(server: ClusterServer, account: ApiCredentials, users: str, directory: Path) -> Any:
    """Yield a stage with a namespace and a Node of that name."""
    async with kube(server.admin) as admin:
        await make_namespace(admin, users)
        node = api_node(await make_node(admin, users))
        yield Stage(server, admin, account, users, directory, node)


Need = Callable[[Stage], Awaitable[None]]


def collection(namespace: str, plural: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}"


async def put(stage: Stage, kind: Kind, namespace: str, name: str, spec: Json | None = None) -> ApiObject:
    """Let a user write an object."""
    body = {"apiVersion": API_VERSION, "kind": kind.value, "metadata": {"name": name, "namespace": namespace}}
    body["spec"] = spec or GOOD[kind][0]
    made = await stage.admin.apply(f"{collection(namespace, PLURALS[kind])}/{name}", body, manager=MANAGER)
    return api_object(kind, made)


async def stored(stage: Stage, one: ApiObject) -> ApiObject:
    path = f"{collection(one.namespace, PLURALS[one.kind])}/{one.name}"
    return api_object(one.kind, await stage.admin.get(path))


# What the mirror does: actors.api_mirror.writer.carry_out


def mirrored(kind: Kind, name: str) -> ApiObject:
    return ApiObject(kind, NAMESPACE, name, labels={"a": "b"}, spec=GOOD[kind][0])


async def carries_out(stage: Stage, change: Change) -> None:
    async with kube(stage.account) as client:
        await carry_out(client, change)


async def mirror_is_created(stage: Stage, *, kind: Kind) -> None:
    await carries_out(stage, Change(None, mirrored(kind, f"new-{stage.users}")))


async def mirror_is_changed(stage: Stage, *, kind: Kind) -> None:
    there = await put(stage, kind, NAMESPACE, f"old-{stage.users}")
    await carries_out(stage, Change(there, replace(there, labels={"c": "d"})))


async def mirror_is_removed(stage: Stage, *, kind: Kind) -> None:
    there = await put(stage, kind, NAMESPACE, f"gone-{stage.users}")
    await carries_out(stage, Change(there, None))


async def mirror_takes_a_name_back(stage: Stage, *, kind: Kind) -> None:
    await put(stage, kind, NAMESPACE, f"taken-{stage.users}")
    await carries_out(stage, Change(None, mirrored(kind, f"taken-{stage.users}")))


# What announce does: the duties of actors.status_writer


def middling() -> float:
    """Return what stands for chance."""
    return 0.5


async def let(stage: Stage, duty: Duty, *objects: ApiObject, turns: int = 3, since: float = 0.0) -> None:
    """Let a duty do what it has to, at the times that it asks for: nobody waits for them."""
    scene, now = stage.scene(*objects), since
    async with kube(stage.account) as client:
        for _ in range(turns):
            duty.see(scene, now)
            now = duty.due(now)
            if now == math.inf:
                return
            duty.see(scene, now)
            await duty.act(client, now)


async def node_status_is_made(stage: Stage) -> None:
    """NodeStatusDuty: there is no object yet."""
    await stage.admin.delete(collection(NAMESPACE, NODE_STATUS_PLURAL))
    await node_status_is_told(stage)


async def node_status_is_told(stage: Stage) -> None:
    """NodeStatusDuty: server-side apply to the object, then to its status."""
    duty = NodeStatusDuty(lambda: LATER, Crowd(1), middling)
    await let(stage, duty)
    assert duty.writes


async def index_is_shown(stage: Stage) -> None:
    """NodeIndexDuty: an annotation on the Node."""
    await let(stage, NodeIndexDuty(lambda _: None, Crowd(1), middling), turns=1)


async def conditions_are_told(stage: Stage, *, kind: Kind) -> None:
    """ConditionsDuty: an object is in force."""
    there = await put(stage, kind, stage.users, "told")
    await tell_conditions(stage, there)
    assert [one["type"] for one in (await stored(stage, there)).conditions] == ["Ready", "Degraded"]


async def claims_are_checked(stage: Stage) -> None:
    """ConditionsDuty: another node has said that an object fails, and does not stand for that any more."""
    there = await put(stage, Kind.L3VNI, stage.users, "checked")
    claim = manifest(there, failing("another-node", "ValidationFailed", "it was so"), 0.0)
    path = f"{collection(there.namespace, PLURALS[there.kind])}/{there.name}/status"
    await stage.admin.apply(path, claim, manager=CONDITIONS_MANAGER)
    await tell_conditions(stage, await stored(stage, there))
    ready, _ = (await stored(stage, there)).conditions
    assert ready["status"] == "True"


async def tell_conditions(stage: Stage, there: ApiObject) -> None:
    crowd = Crowd(1)
    duty = ConditionsDuty(
        Suppressor(stage.node.name, crowd, middling),
        crowd,
        wall=lambda: LATER,
        chance=middling,
        telling=Telling(),
        witness=lambda *_: None,
    )
    await let(stage, duty, there)


async def tell_events(stage: Stage, duty: EventsDuty, now: float) -> None:
    there = await put(stage, Kind.L3VNI, stage.users, "failing")
    duty.see(stage.scene(there), now)
    duty.tell(claimed(there, failing(stage.node.name, "ValidationFailed", "it is so")))
    await let(stage, duty, there, turns=1, since=now)


def events_duty() -> EventsDuty:
    return EventsDuty(lambda: LATER, Crowd(1), middling)


async def event_is_told(stage: Stage) -> None:
    """EventsDuty: something happens for the first time."""
    await tell_events(stage, events_duty(), 0.0)


async def event_is_counted(stage: Stage) -> None:
    """EventsDuty: it happens again."""
    duty = events_duty()
    await tell_events(stage, duty, 0.0)
    await tell_events(stage, duty, 2 * AGAIN_SECONDS)


async def event_is_known_again(stage: Stage) -> None:
    """EventsDuty: it happens again, to a daemon that has been restarted."""
    await tell_events(stage, events_duty(), 0.0)
    await tell_events(stage, events_duty(), 0.0)


# What crd_watch does: actors.crd_watch.actor.run

Seen = Callable[[ApiSnapshot], bool]


async def follows(stage: Stage, prepare: Callable[[str], Awaitable[Seen]]) -> None:
    """Follow the server: what is there when the watch begins is seen, and what changes afterwards, too.

    ``prepare`` writes a text somewhere and returns how to find it.
    """
    settings = Settings(state_dir=stage.directory, namespace=NAMESPACE)
    access, static, out = Latest[ApiAccess]("access"), Latest[StaticSnapshot]("static"), Latest[ApiSnapshot]("api")
    access.set(ApiAccess(ApiReach.REACHABLE, stage.account))
    static.set(StaticSnapshot(NodeIdentity(stage.node.name, 3), ()))
    there = await prepare("first")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(
                crd_watch.run,
                ActorContext("crd_watch"),
                settings=settings,
                access=access.reader(),
                snapshots=static.reader(),
                out=out,
            )
        )
        await see(stage, out, there)
        await see(stage, out, await prepare("second"))
        nursery.cancel_scope.cancel()


async def see(stage: Stage, out: Latest[ApiSnapshot], seen: Seen) -> None:
    """Wait until a snapshot shows something; not for long once the account was refused something."""
    deadline = trio.current_time() + _WAIT_SECONDS
    refused = False
    while not ((snapshot := out.peek()) and seen(snapshot)):
        if trio.current_time() > deadline:
            raise NotSeenError(f"{stage.refusals()}")
        if not refused and stage.refusals():
            refused, deadline = True, trio.current_time() + _GRACE_SECONDS
        await trio.sleep(0.05)


async def node_is_followed(stage: Stage) -> None:
    async def prepare(text: str) -> Seen:
        await stage.admin.merge_patch(
            f"/api/v1/nodes/{stage.node.name}", {"metadata": {"labels": {"text": text}}}, manager=MANAGER
        )
        return lambda snapshot: snapshot.labels.get("text") == text

    await follows(stage, prepare)


async def node_status_is_followed(stage: Stage) -> None:
    path = f"{collection(NAMESPACE, NODE_STATUS_PLURAL)}/{stage.node.name}"

    async def prepare(text: str) -> Seen:
        metadata = {"name": stage.node.name, "namespace": NAMESPACE, "labels": {"text": text}}
        body = {"apiVersion": API_VERSION, "kind": NODE_STATUS_KIND, "metadata": metadata}
        await stage.admin.apply(path, body, manager=MANAGER)
        return lambda snapshot: (snapshot.node_status or {}).get("metadata", {}).get("labels") == {"text": text}

    await follows(stage, prepare)


async def objects_are_followed(stage: Stage, *, kind: Kind) -> None:
    async def prepare(text: str) -> Seen:
        there = await put(stage, kind, stage.users, text)
        return lambda snapshot: there.id in [one.id for one in snapshot.objects]

    await follows(stage, prepare)


async def passwords_are_followed(stage: Stage) -> None:
    neighbor = {"asn": 64512, "address": "192.168.11.2", "passwordSecret": _SECRET}
    await put(stage, Kind.UNDERLAY, NAMESPACE, "passwords", {**GOOD[Kind.UNDERLAY][0], "neighbors": [neighbor]})
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{_SECRET}"

    async def prepare(text: str) -> Seen:
        data = {"password": base64.b64encode(text.encode()).decode()}
        metadata = {"name": _SECRET, "namespace": NAMESPACE}
        await stage.admin.apply(
            path, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}, manager=MANAGER
        )

        def seen(snapshot: ApiSnapshot) -> bool:
            password = snapshot.secrets.get((NAMESPACE, _SECRET))
            return password is not None and password.reveal() == text

        return seen

    await follows(stage, prepare)


def _needs_of(kind: Kind) -> dict[Permission, Need]:
    plural = PLURALS[kind]
    followed = partial(objects_are_followed, kind=kind)
    return {
        Permission("", GROUP, plural, "list"): followed,
        Permission("", GROUP, plural, "watch"): followed,
        Permission("", GROUP, f"{plural}/status", "patch"): partial(conditions_are_told, kind=kind),
        Permission(NAMESPACE, GROUP, plural, "create"): partial(mirror_is_created, kind=kind),
        Permission(NAMESPACE, GROUP, plural, "patch"): partial(mirror_is_changed, kind=kind),
        Permission(NAMESPACE, GROUP, plural, "delete"): partial(mirror_is_removed, kind=kind),
        Permission(NAMESPACE, GROUP, plural, "get"): partial(mirror_takes_a_name_back, kind=kind),
    }


NEEDS: Final[dict[Permission, Need]] = {
    **{permission: need for kind in PLURALS for permission, need in _needs_of(kind).items()},
    Permission("", "", "nodes", "list"): node_is_followed,
    Permission("", "", "nodes", "watch"): node_is_followed,
    Permission("", "", "nodes", "patch"): index_is_shown,
    Permission("", "events.k8s.io", "events", "create"): event_is_told,
    Permission("", "events.k8s.io", "events", "patch"): event_is_counted,
    Permission("", "events.k8s.io", "events", "get"): event_is_known_again,
    Permission(NAMESPACE, GROUP, NODE_STATUS_PLURAL, "create"): node_status_is_made,
    Permission(NAMESPACE, GROUP, NODE_STATUS_PLURAL, "patch"): node_status_is_told,
    Permission(NAMESPACE, GROUP, NODE_STATUS_PLURAL, "get"): claims_are_checked,
    Permission(NAMESPACE, GROUP, NODE_STATUS_PLURAL, "list"): node_status_is_followed,
    Permission(NAMESPACE, GROUP, NODE_STATUS_PLURAL, "watch"): node_status_is_followed,
    Permission(NAMESPACE, GROUP, f"{NODE_STATUS_PLURAL}/status", "patch"): node_status_is_told,
    Permission(NAMESPACE, "", "secrets", "list"): passwords_are_followed,
    Permission(NAMESPACE, "", "secrets", "watch"): passwords_are_followed,
}
