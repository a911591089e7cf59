"""Writes this node's RouterNodeConfigurationStatus when it differs from what it should be, and only then.

Input: each new state of the node, with the object as the watch shows it. Changes are collected for a moment, and a
configuration that is being applied gets some time, so that most changes cost one write. Output: a server-side apply of
the object, if it or its owner is missing, and of its status. Other clients' changes are reverted. The server's result
of a write is accepted even if its schema is another version's: otherwise two versions would correct each other
indefinitely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from actors.lib.kube.client import Json, KubeClient
from actors.lib.kube.cluster_size import ClusterSize
from actors.lib.kube.errors import ForbiddenError, NotFoundError
from actors.lib.kube.request_backoff import TokenBucket
from config.api import API_VERSION, INDEX_LABEL, NODE_MANAGER, NODE_STATUS_KIND, NODE_STATUS_PLURAL, ApiNode
from config.crd.conditions import Condition, read_conditions
from config.crd.node_status import NodeStatus
from config.models.base import fields_by_key
from config.problems import ResourceId

from .node_state import NodeState
from .node_status_builder import build_status, is_pending
from .object_status import ObjectStatus, ObjectTracker

#: How long nothing new must have come, and how long news waits at the longest, seconds.
QUIET: Final = 1.0
LONGEST: Final = 5.0
#: Writes at once, and then one in so many seconds: flapping sessions must not make the status flap as fast.
BURST: Final = 10
PERIOD: Final = 30.0
#: How long a watch may lag behind the server's answer, seconds.
LAG: Final = 10.0
_KEYS: Final = frozenset(fields_by_key(NodeStatus))


class NodeStatusWriter:
    """``wall`` is the clock in Unix seconds."""

    name = "node status"

    def __init__(self, wall: Callable[[], float], size: ClusterSize) -> None:
        self._wall, self._size = wall, size
        self._bucket = TokenBucket(BURST, PERIOD)
        self._state: NodeState | None = None
        self._tracker = ObjectTracker()
        self._objects: Mapping[ResourceId, ObjectStatus] = {}
        self._first_news = self._last_news = math.inf
        self._conditions: tuple[Condition, ...] = ()
        self._wanted: Json = {}
        self._differs_at = math.inf
        self._jitter = 0.0
        self._written_at = -math.inf
        self._answer = _Answer()
        #: Whether a role of an earlier version forbids the label: then other nodes do not see this one's addresses.
        self._unlabelled = False
        self.writes = 0

    def update(self, state: NodeState, now: float) -> None:
        """Compare the status with the server's, if that is due."""
        if state is not self._state:
            self._state, self._objects = state, self._tracker.update(state)
            self._first_news, self._last_news = min(self._first_news, now), now
            self._answer.current(state.api.node_status, now)
        if now >= min(self._ripe_at(state), self._answer.until):
            self._compare(state, now)

    def due(self, now: float) -> float:
        """Return when to compare or to write."""
        ripe = self._ripe_at(self._state) if self._state else math.inf
        return min(ripe, self._write_at(now), self._answer.until)

    async def write(self, client: KubeClient, now: float) -> None:
        """Write the object."""
        state = self._state
        if state is None or now < self._write_at(now):
            return
        shown = state.api.node_status
        server = self._answer.current(shown, now)
        passed = set() if self._is_complete(server, state) else await self._apply_object(client, state)
        answer, more = await _write(client, state, self._wanted)
        passed |= more
        stale = {_version(shown), *passed} - {_version(answer)}
        self._answer = _Answer(self._wanted, answer, stale, now + LAG)
        self._bucket.take(now)
        self._written_at = now
        self._differs_at = math.inf
        self.writes += 1

    def _write_at(self, now: float) -> float:
        """Return when to write: what all nodes have to write is spread over a window, and each writes once in it."""
        if self._differs_at == math.inf:
            return math.inf
        slot = self._differs_at + self._jitter * self._size.window()
        again = self._written_at + self._size.window(LONGEST)
        return max(slot, self._bucket.due(now), again)

    def _ripe_at(self, state: NodeState) -> float:
        """Return when to compare: the news has ended, or, for a configuration on its way, at the latest."""
        longest = self._first_news + LONGEST
        return longest if is_pending(state) else min(longest, self._last_news + QUIET)

    def _compare(self, state: NodeState, now: float) -> None:
        self._first_news = self._last_news = math.inf
        server = self._answer.current(state.api.node_status, now)
        known = read_conditions((server or {}).get("status", {}).get("conditions", ()))
        previous = (*self._conditions, *known)
        status = build_status(state, self._objects, now=self._wall(), previous=previous)
        self._conditions, self._wanted = status.conditions, status.to_data()
        if self._is_shown(server, state):
            self._differs_at = math.inf
        elif self._differs_at == math.inf:
            self._differs_at, self._jitter = now, self._size.chance()

    async def _apply_object(self, client: KubeClient, state: NodeState) -> set[str]:
        """Apply the object without its status; return its versions."""
        try:
            return {_version(await _apply_object(client, state, {} if self._unlabelled else self._labels()))}
        except ForbiddenError:
            if self._unlabelled or not self._labels():
                raise
            self._unlabelled = True
            return {_version(await _apply_object(client, state, {}))}

    def _labels(self) -> dict[str, str]:
        router = self._wanted.get("router")
        return {INDEX_LABEL: str(router["nodeIndex"])} if router else {}

    def _is_complete(self, server: Mapping[str, Any] | None, state: NodeState) -> bool:
        """Whether the object is there, with its owner and label."""
        if server is None or not owned(server, state.node):
            return False
        there = (server["metadata"].get("labels") or {}).get(INDEX_LABEL)
        return self._unlabelled or there == self._labels().get(INDEX_LABEL)

    def _is_shown(self, server: Mapping[str, Any] | None, state: NodeState) -> bool:
        if server is None or not self._is_complete(server, state):
            return False
        return not differs(self._wanted, server) or self._answer.explains(self._wanted, server)


class _Answer:
    """What the server answered to the last write: it holds until the watch shows something newer."""

    def __init__(
        self,
        sent: Json | None = None,
        answer: Json | None = None,
        stale: set[str] | None = None,
        until: float = math.inf,
    ) -> None:
        self._sent, self._answer, self._stale = sent, answer, stale or set()
        self.until = until

    def current(self, shown: Mapping[str, Any] | None, now: float) -> Mapping[str, Any] | None:
        """Return the object as the server has it. Call it for everything that the watch shows."""
        if now >= self.until or _version(shown) not in self._stale:
            self._stale, self.until = set(), math.inf
        return self._answer if self._stale else shown

    def explains(self, wanted: Json, server: Mapping[str, Any]) -> bool:
        """Whether the server has what it made of exactly this status."""
        return self._answer is not None and wanted == self._sent and server.get("status") == self._answer.get("status")


def differs(wanted: Mapping[str, Any], server: Mapping[str, Any]) -> bool:
    """Whether a server's object has another status; conditions that other clients added are theirs."""
    there = server.get("status") or {}
    ours = {one["type"]: one for one in wanted.get("conditions", ())}
    theirs = {one.get("type"): one for one in there.get("conditions") or ()}
    if any(theirs.get(type_) != one for type_, one in ours.items()):
        return True
    return any((wanted.get(key) or None) != (there.get(key) or None) for key in _KEYS - {"conditions"})


def owned(server: Mapping[str, Any], node: ApiNode) -> bool:
    """Whether the cluster will remove the object together with the node."""
    owners = server.get("metadata", {}).get("ownerReferences") or ()
    return any(owner.get("kind") == "Node" and owner.get("uid") == node.uid for owner in owners)


def path_of(namespace: str, node: str) -> str:
    """Return where a node's status object is."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{NODE_STATUS_PLURAL}/{node}"


async def _write(client: KubeClient, state: NodeState, wanted: Json) -> tuple[Json, set[str]]:
    """Write the wanted status; return the object, and its versions on the way to that."""
    path = path_of(state.namespace, state.node.name)
    passed = set()
    try:
        answer = await _apply_status(client, path, state, wanted)
    except NotFoundError:
        # Deleted a moment ago, which the watch has yet to show: its label follows.
        passed.add(_version(await _apply_object(client, state, {})))
        answer = await _apply_status(client, path, state, wanted)
    if added := [key for key in _KEYS if key in (answer.get("status") or {}) and key not in wanted]:
        # Another client wrote these and owns them, so leaving them out does not remove them.
        passed.add(_version(answer))
        answer = await client.merge_patch(f"{path}/status", {"status": dict.fromkeys(added)}, manager=NODE_MANAGER)
    return answer, passed


async def _apply_object(client: KubeClient, state: NodeState, labels: dict[str, str]) -> Json:
    owner = {"apiVersion": "v1", "kind": "Node", "name": state.node.name, "uid": state.node.uid}
    head = _head(state, ownerReferences=[owner], **({"labels": labels} if labels else {}))
    return await client.apply(path_of(state.namespace, state.node.name), head, manager=NODE_MANAGER)


async def _apply_status(client: KubeClient, path: str, state: NodeState, wanted: Json) -> Json:
    return await client.apply(f"{path}/status", {**_head(state), "status": wanted}, manager=NODE_MANAGER)


def _head(state: NodeState, **metadata: Any) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": NODE_STATUS_KIND,
        "metadata": {"name": state.node.name, "namespace": state.namespace, **metadata},
    }


def _version(shown: Mapping[str, Any] | None) -> str:
    return str((shown or {}).get("metadata", {}).get("resourceVersion", ""))
