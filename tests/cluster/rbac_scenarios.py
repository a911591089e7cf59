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
from actors.lib.kube.client import KubeClient
from actors.lib.kube.cluster_size import ClusterSize
from actors.lib.kube.decoding import api_node, api_object
from actors.status_writer.actor import Writer
from actors.status_writer.events import AGAIN_SECONDS, EventWriter
from actors.status_writer.node_events import index_replaced
from actors.status_writer.node_index import NodeIndexWriter
from actors.status_writer.node_state import NodeState
from actors.status_writer.node_status import NodeStatusWriter
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
from config.problems import Kind, Origin
from config.resources import Resource
from config.settings import Settings
from config.sources.mirror_objects import manifest, mirror_of
from config.sources.naming import PASSTHROUGH, SECTIONS
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.status_writer.examples import node_state, state
from tests.cluster.corpus import GOOD
from tests.cluster.harness import (
    MANAGER,
    PATIENCE,
    ClusterServer,
    Json,
    Request,
    kube,
    make_namespace,
    make_node,
    of_node,
    service_account,
)
from tests.cluster.permissions import ACCOUNT, NAMESPACE, USER, Permission

#: What the writers take for the time of day.
LATER: Final = 100_000.0
#: After a refusal: in it, everything that does not need what was refused has long been done.
_GRACE_SECONDS: Final = 1.0
_SECRET: Final = "bgp-passwords"


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

    def state(self) -> NodeState:
        """Return a node where everything is in force."""
        desired = replace(state(), node_name=self.node.name)
        return replace(node_state(desired=desired, api=ApiSnapshot(self.node, live=True)), node=self.node)


@asynccontextmanager
async def stage(server: ClusterServer, account: ApiCredentials, users: str, directory: Path) -> Any:
    """Yield a stage with a namespace and a Node of that name."""
    async with kube(server.admin) as admin:
        await make_namespace(admin, users)
        node = api_node(await make_node(admin, users))
        yield Stage(server, admin, await bound_to(admin, account, users), users, directory, node)


async def bound_to(admin: KubeClient, account: ApiCredentials, node: str) -> ApiCredentials:
    """Return the shipped ServiceAccount's credentials with a token for one node."""
    return replace(account, token=(await service_account(admin, NAMESPACE, ACCOUNT, bound=of_node(node))).token)


Need = Callable[[Stage], Awaitable[None]]


def collection(namespace: str, plural: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}"


async def put(stage: Stage, kind: Kind, namespace: str, name: str, spec: Json | None = None) -> ApiObject:
    """Let a user write an object."""
    body = {"apiVersion": API_VERSION, "kind": kind.value, "metadata": {"name": name, "namespace": namespace}}
    body["spec"] = spec or GOOD[kind][0]
    made = await stage.admin.apply(f"{collection(namespace, PLURALS[kind])}/{name}", body, manager=MANAGER)
    return api_object(kind, made)


# What the mirror does: actors.api_mirror.writer.carry_out


def mirrored(stage: Stage, kind: Kind, name: str, **spec: Any) -> ApiObject:
    """Return the mirror of a resource of the stage's node."""
    good = replace(_parsed(kind, GOOD[kind][0]), name=f"static-{stage.node.name}-{name}", namespace=NAMESPACE)
    found = mirror_of(good, stage.node.name, stage.node, "proof")
    return replace(found, spec={**found.spec, **spec})


def _parsed(kind: Kind, spec: Json) -> Resource:
    model = next(one.spec for one in (*SECTIONS.values(), PASSTHROUGH) if one.kind is kind)
    return Resource(
        kind, NAMESPACE, "", Origin("/etc/openperouter/configs/openpe_a.yaml", 1), model.model_validate(spec)
    )


async def put_mirror(stage: Stage, mirror: ApiObject) -> ApiObject:
    """Make the object that the node's mirror would make."""
    path = f"{collection(NAMESPACE, PLURALS[mirror.kind])}/{mirror.name}"
    return api_object(mirror.kind, await stage.admin.apply(path, manifest(mirror), manager=MANAGER))


async def carries_out(stage: Stage, change: Change) -> None:
    async with kube(stage.account) as client:
        await carry_out(client, change)


async def mirror_is_created(stage: Stage, *, kind: Kind) -> None:
    await carries_out(stage, Change(None, mirrored(stage, kind, "new")))


async def mirror_is_changed(stage: Stage, *, kind: Kind) -> None:
    there = await put_mirror(stage, mirrored(stage, kind, "old"))
    await carries_out(stage, Change(there, replace(there, labels={**there.labels, "c": "d"})))


async def mirror_is_removed(stage: Stage, *, kind: Kind) -> None:
    there = await put_mirror(stage, mirrored(stage, kind, "gone"))
    await carries_out(stage, Change(there, None))


async def mirror_takes_a_name_back(stage: Stage, *, kind: Kind) -> None:
    mirror = mirrored(stage, kind, "taken")
    await put(stage, kind, NAMESPACE, mirror.name)
    await carries_out(stage, Change(None, mirror))


# What the writers of actors.status_writer do


def size() -> ClusterSize:
    return ClusterSize(1, lambda: 0.5)


async def let(stage: Stage, writer: Writer, *, turns: int = 3, since: float = 0.0) -> None:
    """Let a writer do what it has to, at the times that it returns, without waiting for them."""
    state, now = stage.state(), since
    async with kube(stage.account) as client:
        for _ in range(turns):
            writer.update(state, now)
            now = writer.due(now)
            if now == math.inf:
                return
            writer.update(state, now)
            await writer.write(client, now)


async def node_status_is_created(stage: Stage) -> None:
    """NodeStatusWriter: there is no object yet."""
    await stage.admin.delete(collection(NAMESPACE, NODE_STATUS_PLURAL))
    await node_status_is_written(stage)


async def node_status_is_written(stage: Stage) -> None:
    """NodeStatusWriter: server-side apply to the object, then to its status."""
    writer = NodeStatusWriter(lambda: LATER, size())
    await let(stage, writer)
    assert writer.writes


async def index_is_shown(stage: Stage) -> None:
    """NodeIndexWriter: an annotation on the Node."""
    await let(stage, NodeIndexWriter(lambda _: None, size()), turns=1)


def event_writer() -> EventWriter:
    return EventWriter(lambda: LATER, size())


async def send_event(stage: Stage, writer: EventWriter, now: float) -> None:
    writer.report(index_replaced("7", 3))
    await let(stage, writer, turns=1, since=now)


async def event_is_created(stage: Stage) -> None:
    """EventWriter: something happens for the first time."""
    await send_event(stage, event_writer(), 0.0)


async def event_is_counted(stage: Stage) -> None:
    """EventWriter: it happens again."""
    writer = event_writer()
    await send_event(stage, writer, 0.0)
    await send_event(stage, writer, 2 * AGAIN_SECONDS)


async def event_is_found_again(stage: Stage) -> None:
    """EventWriter: it happens again, after a restart of the daemon."""
    await send_event(stage, event_writer(), 0.0)
    await send_event(stage, event_writer(), 0.0)


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
    deadline = trio.current_time() + PATIENCE
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
    neighbor = {"asn": 64512, "address": "192.168.11.2", "passwordSecret": {"name": _SECRET}}
    await put(stage, Kind.UNDERLAY, NAMESPACE, "passwords", {**GOOD[Kind.UNDERLAY][0], "neighbors": [neighbor]})
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{_SECRET}"

    async def prepare(text: str) -> Seen:
        data = {"password": base64.b64encode(text.encode()).decode()}
        metadata = {"name": _SECRET, "namespace": NAMESPACE}
        await stage.admin.apply(
            path, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}, manager=MANAGER
        )

        def seen(snapshot: ApiSnapshot) -> bool:
            password = snapshot.secrets.get((NAMESPACE, _SECRET, "password"))
            return password is not None and password.reveal() == text

        return seen

    await follows(stage, prepare)


def _needs_of(kind: Kind) -> dict[Permission, Need]:
    plural = PLURALS[kind]
    followed = partial(objects_are_followed, kind=kind)
    return {
        Permission("", GROUP, plural, "list"): followed,
        Permission("", GROUP, plural, "watch"): followed,
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
    Permission("default", "events.k8s.io", "events", "create"): event_is_created,
    Permission("default", "events.k8s.io", "events", "patch"): event_is_counted,
    Permission("default", "events.k8s.io", "events", "get"): event_is_found_again,
    Permission(NAMESPACE, GROUP, NODE_STATUS_PLURAL, "create"): node_status_is_created,
    Permission(NAMESPACE, GROUP, NODE_STATUS_PLURAL, "patch"): node_status_is_written,
    Permission(NAMESPACE, GROUP, NODE_STATUS_PLURAL, "list"): node_status_is_followed,
    Permission(NAMESPACE, GROUP, NODE_STATUS_PLURAL, "watch"): node_status_is_followed,
    Permission(NAMESPACE, GROUP, f"{NODE_STATUS_PLURAL}/status", "patch"): node_status_is_written,
    Permission(NAMESPACE, "", "secrets", "list", _SECRET): passwords_are_followed,
    Permission(NAMESPACE, "", "secrets", "watch", _SECRET): passwords_are_followed,
}
