"""Follow all custom resources and all Nodes of the cluster, for the webhook's decisions.

    credentials ──> Reflectors (lists, then watches) ──> stores and the indexes Objects, Nodes ──> server

The reflectors are the nodes' own (:mod:`actors.lib.kube.reflector`), and so is what an error means. Changes are not
debounced: each moment longer is one in which a conflict is missed. Decisions are made while all collections are known
and followed, or were seconds ago: a view that lacks a deletion would deny what every node takes, and without the
webhook each node decides. A kind whose definition is not installed has no objects; if it was, its last ones count, as
they stay in force on the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self, TypeVar

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.decoding import api_node, api_object
from actors.lib.kube.reflector import Reflector, ServerCache
from actors.lib.kube.store import Store, name_of
from config.admission.nodes import Nodes
from config.admission.objects import ObjectEntry, Objects, entry_of
from config.api import API_VERSION, PLURALS, ApiCredentials, WatchFailure
from config.problems import Kind
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader

log = get_logger("webhook")

NODES: Final = "nodes"
T = TypeVar("T")


class IndexedStore(Store[T]):
    """A store whose content is in an index too: ``enter`` adds or replaces a value there, ``leave`` removes it."""

    def __init__(
        self,
        decode: Callable[[Any], T | None],
        enter: Callable[[T], object] = lambda _: None,
        leave: Callable[[T], object] = lambda _: None,
    ) -> None:
        super().__init__(decode)
        self._enter, self._leave = enter, leave

    def fresh(self) -> Self:
        """Return an empty store of the same collection, without an index."""
        return type(self)(self._decode)

    def put(self, raw: Any) -> bool:
        """Store an object's newest version."""
        changed = super().put(raw)
        if changed:
            self._enter(self.items[name_of(raw)])
        return changed

    def remove(self, raw: Any) -> bool:
        """Remove an object."""
        value = self.items.get(name_of(raw))
        if value is not None:
            self._leave(value)
        return super().remove(raw)

    def replace(self, other: Self) -> bool:
        """Replace the content by that of a complete list."""
        for name in self.items.keys() - other.items.keys():
            self._leave(self.items[name])
        for name, value in other.items.items():
            if value != self.items.get(name):
                self._enter(value)
        return super().replace(other)


class ClusterObjects(ServerCache):
    """The cluster's objects. Changed in place; a reader must not await while it makes a decision."""

    def __init__(self, namespace: str) -> None:
        super().__init__("", Latest("webhook.changes"))
        self.objects, self.nodes = Objects(), Nodes()
        nodes = IndexedStore(api_node, self.nodes.put, lambda node: self.nodes.remove(node.name))
        self.node = Reflector(self, NODES, "/api/v1/nodes", nodes)
        self.reflectors = (
            self.node,
            *(
                Reflector(self, plural, f"/apis/{API_VERSION}/{plural}", self._store(kind, namespace), optional=True)
                for kind, plural in PLURALS.items()
            ),
        )

    @property
    def ready(self) -> bool:
        """Whether decisions can be made: every collection is known, and is or was a moment ago followed."""
        listed = all(not one.needs_list or one.failure is WatchFailure.MISSING for one in self.reflectors)
        return listed and trio.current_time() < self.blind_at()

    def blind_at(self) -> float:
        """Return when the content is too old for decisions, in trio's time; infinity while it is followed."""
        return self.dead_at(*(one for one in self.reflectors if one.failure is not WatchFailure.MISSING))

    def _store(self, kind: Kind, namespace: str) -> IndexedStore[ObjectEntry]:
        decode = partial(_entry, kind, namespace)
        return IndexedStore(decode, self.objects.put, lambda entry: self.objects.remove(entry.id))


def _entry(kind: Kind, namespace: str, raw: Any) -> ObjectEntry:
    return entry_of(api_object(kind, raw), namespace)


async def run(
    ctx: ActorContext,
    *,
    namespace: str,
    credentials: LatestReader[ApiCredentials],
    out: Latest[ClusterObjects],
    connect: Callable[[ApiCredentials], KubeClient] = KubeClient,
) -> None:
    """Follow indefinitely; new credentials, for the pod's one server, continue with the known objects."""
    known = out.peek() or ClusterObjects(namespace)
    out.set(known)
    ctx.started()
    with ctx.idle():
        current = await credentials.receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_report, known)
            while True:
                async with trio.open_nursery() as connection:
                    connection.start_soon(known.follow, current, connect)
                    current = await credentials.receive()
                    connection.cancel_scope.cancel()


async def _report(known: ClusterObjects) -> None:
    """Log when objects are reviewed, and when they no longer are."""
    changes, reported = known.changes.reader(), False
    while True:
        changes.take()
        ready, blind_at = known.ready, known.blind_at()
        if ready and not reported:
            log.info("reviewing objects", objects=len(known.objects), nodes=len(known.nodes))
        elif reported and not ready:
            log.warning(
                "cannot follow the API server's objects; objects are admitted without a review until they are followed",
                message_id=message_ids.WEBHOOK_BLIND,
                resources=", ".join(one.resource for one in known.reflectors if known.dead_at(one) < math.inf),
            )
        reported = ready
        with trio.CancelScope(deadline=blind_at if ready else math.inf):
            await changes.wait_pending()
