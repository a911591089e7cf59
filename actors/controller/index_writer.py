"""Writes missing indices to Nodes, and reports duplicate ones.

A Node is read again before it is written, and written only if it has not changed: the daemon on it may have written its
own index meanwhile, which takes precedence. The controller cannot change an index that the configurations of several
nodes have, so it writes an Event about each of these Nodes, and a line to the log.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from actors.lib.kube.client import Json, KubeClient
from actors.lib.kube.decoding import micro_time, unix_time
from actors.lib.kube.errors import ConflictError, NotFoundError
from config.api import INDEX_ANNOTATION
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger

from .aggregation import DUPLICATE_INDEX, indexed_nodes
from .cluster_state import ClusterDecoder, ClusterNode, ClusterState
from .condition_writer import MANAGER
from .node_indices import IndexedNode, assign, described, duplicates

log = get_logger("node_indices")

#: How long a new Node may be without an index: the daemon on it starts before the kubelet, and writes its own as soon
#: as it may, in a large cluster in its slot.
GRACE_SECONDS: Final = 60.0
SECONDS_PER_NODE: Final = 0.01
#: How long a duplicate must last before it is reported, and when it is reported again: Events expire.
STEADY_SECONDS: Final = 10.0
REFRESH_SECONDS: Final = 1800.0
#: Time for the watch to catch up after a Node was not as expected.
LAG_SECONDS: Final = 5.0
#: Maximum number of Nodes that get an Event about a duplicate.
MOST_EVENTS: Final = 20
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
#: An Event's name is the Node's, truncated, and a digest: a DNS subdomain has at most 253 characters.
_MAX_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class _Assigned:
    before: ClusterNode
    index: int


class IndexWriter:
    """``wall`` is the clock in Unix seconds. Other times are seconds of trio's clock."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._state = ClusterState()
        self._decoder = ClusterDecoder()
        self._assigned: dict[str, _Assigned] = {}
        self._held: dict[str, float] = {}
        self._wanted: dict[str, int] = {}
        #: When to check the same Nodes again: the next one becomes settled, or one that had changed is due.
        self.again_at = math.inf
        self.indexed: list[IndexedNode] = []

    def update(self, state: ClusterState, now: float) -> None:
        """Store the Nodes; find which of them need an index."""
        self._state = state
        self._assigned = {name: one for name, one in self._assigned.items() if state.nodes.get(name) is one.before}
        settled, settles_in = self._settled(state)
        self._held = {name: until for name, until in self._held.items() if until > now}
        self.again_at = min([now + settles_in, *self._held.values()])
        self.indexed = [self._with_answer(node) for node in indexed_nodes(state, settled)]
        self._wanted = {name: index for name, index in assign(self.indexed).items() if name not in self._held}

    def due(self, now: float) -> float:
        """Return when to write, or to check again."""
        return now if self._wanted else self.again_at

    async def write(self, client: KubeClient, now: float) -> None:
        """Write one index, if one is due. Raises the errors of the client."""
        if not self._wanted:
            return
        name = next(iter(self._wanted))
        index, expected = self._wanted.pop(name), self._state.nodes[name]
        self._held[name] = now + LAG_SECONDS
        self.again_at = min(self.again_at, now + LAG_SECONDS)
        path = f"/api/v1/nodes/{name}"
        with suppress(NotFoundError, ConflictError):
            raw = await client.get(path)
            found = self._decoder.node(raw)
            same = (found.uid, found.annotation, found.by_node) == (expected.uid, expected.annotation, expected.by_node)
            if not same or found.annotation == str(index):
                return
            change = {
                "annotations": {INDEX_ANNOTATION: str(index)},
                "uid": found.uid,
                "resourceVersion": raw["metadata"]["resourceVersion"],
            }
            await client.merge_patch(path, {"metadata": change}, manager=MANAGER)
            self._assigned[name] = _Assigned(expected, index)
            del self._held[name]
            log.info("assigned an index", node=name, index=index, before=expected.annotation or "none")

    def _with_answer(self, node: IndexedNode) -> IndexedNode:
        """Return a Node with the index that was just written to it, until the watch delivers it."""
        written = self._assigned.get(node.name)
        return node if written is None else replace(node, annotation=str(written.index))

    def _settled(self, state: ClusterState) -> tuple[list[str], float]:
        """Return the Nodes that are old enough, and in how many seconds the next one will be."""
        grace, wall = GRACE_SECONDS + SECONDS_PER_NODE * len(state.nodes), self._wall()
        waits = {
            name: unix_time(node.created) + grace - wall
            for name, node in state.nodes.items()
            if node.annotation is None and name not in state.reports
        }
        settled = [name for name in state.nodes if waits.get(name, 0.0) <= 0]
        return settled, min((wait for wait in waits.values() if wait > 0), default=math.inf)


@dataclass(slots=True)
class _Duplicate:
    text: str
    next_at: float
    reported: bool = False


class DuplicateReporter:
    """Sends the Events. ``wall`` is the clock in Unix seconds."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._nodes: Mapping[str, ClusterNode] = {}
        self._known: dict[str, _Duplicate] = {}

    def update(self, state: ClusterState, indexed: list[IndexedNode], now: float) -> None:
        """Compare the present duplicates with those that were reported."""
        self._nodes = state.nodes
        present = described(duplicates(indexed))
        for name in self._known.keys() - present.keys():
            if self._known.pop(name).reported:
                log.info("the node's index is unique again", node=name)
        for name, text in list(present.items())[:MOST_EVENTS]:
            if name not in self._known or self._known[name].text != text:
                self._known[name] = _Duplicate(text, now + STEADY_SECONDS)

    def due(self) -> float:
        """Return when to send the next one."""
        return min((one.next_at for one in self._known.values()), default=math.inf)

    async def write(self, client: KubeClient, now: float) -> None:
        """Send one Event. Raises the errors of the client."""
        name, one = min(self._known.items(), key=lambda item: item[1].next_at)
        node = self._nodes.get(name)
        if one.next_at > now or node is None:
            return
        if not one.reported:
            log.warning(one.text, message_id=message_ids.DUPLICATE_INDEX, node=name)
        one.reported, one.next_at = True, now + REFRESH_SECONDS
        event = self._event(node, one.text)
        try:
            await client.create(EVENTS, event, {"fieldManager": MANAGER})
        except ConflictError:
            await self._count(client, event)

    async def _count(self, client: KubeClient, event: Json) -> None:
        """Increase the count of an existing Event, unless it is recent: another leader may have just sent it."""
        path = f"{EVENTS}/{event['metadata']['name']}"
        with suppress(NotFoundError):
            series = (await client.get(path)).get("series") or {}
            if self._wall() - unix_time(series.get("lastObservedTime")) >= REFRESH_SECONDS / 2:
                count = int(series.get("count") or 1) + 1
                change = {"series": {"count": count, "lastObservedTime": event["eventTime"]}}
                await client.merge_patch(path, change, manager=MANAGER)

    def _event(self, node: ClusterNode, text: str) -> Json:
        moment = micro_time(self._wall())
        digest = hashlib.sha256(f"{node.uid}\n{text}".encode()).hexdigest()[:16]
        note = f"{text}: give each its own nodeIndex in node-config.yaml"
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{node.name[:_MAX_NAME].rstrip('-.')}.{digest}", "namespace": "default"},
            "eventTime": moment,
            "reportingController": MANAGER,
            "reportingInstance": MANAGER,
            "action": "Configure",
            "type": "Warning",
            "reason": DUPLICATE_INDEX,
            "note": note[:1000],
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid},
        }
