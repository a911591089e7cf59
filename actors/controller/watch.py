"""Follows the Nodes, the nodes' status objects and the users' objects, and publishes them as one state.

    credentials ──> ClusterCache of Reflectors (lists, then watches) ──> at most twice a second ──> ClusterState

The reflectors are the nodes' own (:mod:`actors.lib.kube.reflector`), with the same handling of errors. A
state is published once Nodes and status objects are completely known: without them "no node" could not be
distinguished from "not known yet". It stops being live when one of these two can no longer be followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.reflector import Reflector, ServerCache
from actors.lib.kube.store import Store
from config.api import API_VERSION, NODE_STATUS_PLURAL, PLURALS, ApiCredentials
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader

from .cluster_state import ClusterDecoder, ClusterNode, ClusterObject, ClusterState, NodeReport

#: Minimum interval between published states: thousands of nodes may report within seconds.
PUBLISH_SECONDS: Final = 0.5


async def run(
    ctx: ActorContext,
    *,
    namespace: str,
    credentials: LatestReader[ApiCredentials],
    out: Latest[ClusterState],
    connect: Callable[[ApiCredentials], KubeClient] = KubeClient,
) -> None:
    """Follow indefinitely; the status objects are those in ``namespace``."""
    cache: ClusterCache | None = None
    ctx.started()
    while True:
        current = credentials.take() or credentials.peek()
        if current is not None and (cache is None or cache.server != current.server):
            cache = ClusterCache(current.server, namespace)
        async with trio.open_nursery() as nursery:
            if cache is not None and current is not None:
                nursery.start_soon(cache.follow, current, connect)
                nursery.start_soon(_publish, cache, out)
            with ctx.idle():
                await credentials.wait_pending()
            nursery.cancel_scope.cancel()


class ClusterCache(ServerCache):
    """The objects of one server, and the reflectors that fill it."""

    def __init__(self, server: str, namespace: str) -> None:
        super().__init__(server, Latest("controller.changes"))
        decoder = ClusterDecoder()
        self._nodes: Store[ClusterNode] = Store(decoder.node)
        self._reports: Store[NodeReport] = Store(decoder.report)
        self._objects: dict[str, Store[ClusterObject]] = {
            plural: Store(partial(decoder.object, kind)) for kind, plural in PLURALS.items()
        }
        statuses = f"/apis/{API_VERSION}/namespaces/{namespace}/{NODE_STATUS_PLURAL}"
        self.node = Reflector(self, "nodes", "/api/v1/nodes", self._nodes)
        self.statuses = Reflector(self, NODE_STATUS_PLURAL, statuses, self._reports, optional=True)
        self.reflectors = (
            self.node,
            self.statuses,
            *(
                Reflector(self, plural, f"/apis/{API_VERSION}/{plural}", store, optional=True)
                for plural, store in self._objects.items()
            ),
        )

    @property
    def complete(self) -> bool:
        """Whether a state may be published: a kind that is refused or not installed only delays its own objects."""
        needed = self._nodes.known and self._reports.known
        return needed and all(one.synced or one.blocked for one in self.reflectors)

    def state(self, *, live: bool) -> ClusterState:
        """Return everything that is known now."""
        stores = self._objects.values()
        return ClusterState(
            {node.name: node for node in self._nodes.items.values()},
            {name: report for (_, name), report in self._reports.items.items()},
            {one.key: one for store in stores for one in store.items.values()},
            live,
        )


async def _publish(cache: ClusterCache, out: Latest[ClusterState]) -> None:
    """Publish what is complete, indefinitely, and when it is no longer live."""
    changes, edits, live = cache.changes.reader(), -1, False
    while True:
        changes.take()
        now = trio.current_time()
        dead_at = cache.dead_at(cache.node, cache.statuses)
        if cache.complete and (cache.edits != edits or (now < dead_at) != live):
            edits, live = cache.edits, now < dead_at
            out.set(cache.state(live=live))
        elif not live and (last := out.peek()) is not None and last.live:
            out.set(replace(last, live=False))
        await trio.sleep(PUBLISH_SECONDS)
        with trio.CancelScope(deadline=dead_at if dead_at > trio.current_time() else math.inf):
            await changes.wait_pending()
