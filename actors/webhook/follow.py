"""Follow all custom resources and all Nodes of the cluster, for the webhook's decisions.

    list in pages ──> ClusterObjects.replace ──> watch ──> ClusterObjects.put / remove; broken or too old: list again

While the server is unreachable the last known objects are kept: a decision from slightly old objects is better than
none. Until every kind was listed once the webhook is not ready. A kind whose definition is not installed has no
objects.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.decoding import api_node, api_object, items, metadata, version_of
from actors.lib.kube.errors import ApiError, GoneError, NotFoundError, error_in
from config.admission.nodes import Nodes
from config.admission.objects import ObjectEntry, Objects, entry_of
from config.api import API_VERSION, PLURALS, ApiCredentials
from config.problems import Kind, ResourceId
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from supervisor.runtime.faults import summarize
from supervisor.runtime.restart_policy import Backoff

log = get_logger("webhook")

Connect = Callable[[ApiCredentials], KubeClient]
NODES: Final = "nodes"
_RETRY: Final = Backoff(first=0.5, longest=30.0, jitter=0.5)
#: A watch that ends sooner counts as failed.
_LIVELY_SECONDS: Final = 5.0


@dataclass(slots=True)
class ClusterObjects:
    """The cluster's objects. Changed in place; a reader must not await while it makes a decision.

    ``listed`` are the collections that were listed completely.
    """

    namespace: str
    objects: Objects = field(default_factory=Objects)
    nodes: Nodes = field(default_factory=Nodes)
    listed: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether every collection was listed once."""
        return len(self.listed) == len(PLURALS) + 1

    def replace(self, resource: str, found: list[Any]) -> None:
        """Replace a collection by a complete list."""
        if resource == NODES:
            self.nodes.replace(api_node(raw) for raw in found)
        else:
            fresh = {entry.id: entry for entry in (self._entry(resource, raw) for raw in found)}
            gone = [one.id for one in self.objects if PLURALS[one.id.kind] == resource and one.id not in fresh]
            for identity in gone:
                self.objects.remove(identity)
            for entry in fresh.values():
                self.objects.put(entry)
        self.listed.add(resource)

    def apply(self, resource: str, what: str, raw: Any) -> None:
        """Apply a watch event."""
        if resource == NODES:
            self.nodes.remove(metadata(raw)["name"]) if what == "DELETED" else self.nodes.put(api_node(raw))
        elif what == "DELETED":
            meta = metadata(raw)
            self.objects.remove(ResourceId(_kind(resource), str(meta.get("namespace") or ""), meta["name"]))
        else:
            self.objects.put(self._entry(resource, raw))

    def _entry(self, resource: str, raw: Any) -> ObjectEntry:
        return entry_of(api_object(_kind(resource), raw), self.namespace)


async def run(
    ctx: ActorContext,
    *,
    namespace: str,
    credentials: LatestReader[ApiCredentials],
    out: Latest[ClusterObjects],
    connect: Connect = KubeClient,
) -> None:
    """Follow indefinitely; new credentials continue with the known objects."""
    known = out.peek() or ClusterObjects(namespace)
    out.set(known)
    ctx.started()
    with ctx.idle():
        current = await credentials.receive()
        while True:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_follow_all, known, current, connect)
                current = await credentials.receive()
                nursery.cancel_scope.cancel()


async def _follow_all(known: ClusterObjects, credentials: ApiCredentials, connect: Connect) -> None:
    async with _connected(credentials, connect) as client, trio.open_nursery() as nursery:
        nursery.start_soon(_follow, known, client, NODES, "/api/v1/nodes")
        for plural in PLURALS.values():
            nursery.start_soon(_follow, known, client, plural, f"/apis/{API_VERSION}/{plural}")


@asynccontextmanager
async def _connected(credentials: ApiCredentials, connect: Connect) -> AsyncIterator[KubeClient]:
    try:
        async with connect(credentials) as client:
            yield client
    except ApiError as error:
        # Only new credentials help; they cancel this task.
        log.warning(
            "the API server's credentials are not usable",
            message_id=message_ids.API_CREDENTIALS_UNUSABLE,
            error=summarize(error),
        )
        await trio.sleep_forever()


async def _follow(known: ClusterObjects, client: KubeClient, resource: str, path: str) -> None:
    failures = 0
    while True:
        began = trio.current_time()
        try:
            version = await _list(known, client, resource, path)
            while True:
                version = await _watch(known, client, resource, path, version)
        except GoneError:
            failures = 1
        except ApiError as error:
            failures = 1 if trio.current_time() - began > _LIVELY_SECONDS else failures + 1
            if isinstance(error, NotFoundError) and resource != NODES:
                known.replace(resource, [])
            elif failures == 1:
                log.warning(
                    "cannot follow the API server's objects; decisions use the last known ones",
                    message_id=message_ids.WEBHOOK_BLIND,
                    resource=resource,
                    error=summarize(error),
                )
        await trio.sleep(_RETRY.delay(failures, random.random()))  # noqa: S311 - jitter


async def _list(known: ClusterObjects, client: KubeClient, resource: str, path: str) -> str:
    found: list[Any] = []
    version = ""
    async with aclosing(client.pages(path)) as pages:
        async for page in pages:
            version = version or version_of(page)
            found += items(page)
    known.replace(resource, found)
    return version


async def _watch(known: ClusterObjects, client: KubeClient, resource: str, path: str, version: str) -> str:
    """Apply the events of one watch; return the version to continue from."""
    began = trio.current_time()
    async with client.watch(path, {"resourceVersion": version, "allowWatchBookmarks": "true"}) as events:
        async for event in events:
            if (error := error_in(event)) is not None:
                raise error
            what, raw = str(event.get("type")), event.get("object")
            version = version_of(raw)
            if what != "BOOKMARK":
                known.apply(resource, what, raw)
    if trio.current_time() - began < _LIVELY_SECONDS:
        raise GoneError(f"{path}: the watch ended as soon as it began")
    return version


def _kind(resource: str) -> Kind:
    return next(kind for kind, plural in PLURALS.items() if plural == resource)
