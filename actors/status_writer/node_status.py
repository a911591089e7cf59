"""Keeps this node's RouterNodeConfigurationStatus as it should be: written when it differs, and only then.

News is collected for a moment, and a state that is on its way is given one to arrive: most changes cost one write. What
somebody else does to the object is undone. What the server makes of our words, where its schema is another version's,
is taken as it is, or two versions would argue indefinitely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from actors.lib.kube.client import Json, KubeClient
from actors.lib.kube.cluster_size import Crowd
from actors.lib.kube.errors import NotFoundError
from config.api import API_VERSION, NODE_STATUS_KIND, NODE_STATUS_PLURAL, ApiNode
from config.crd.conditions import Condition, read_conditions
from config.crd.node_status import NodeStatus

from .node_status_builder import compose, is_pending
from .rate_limit import TokenBucket
from .writer import Scene

MANAGER: Final = "openperouter"
#: How long nothing new must have come, and how long news waits at the longest, seconds.
QUIET: Final = 1.0
LONGEST: Final = 5.0
#: Writes at once, and then one in so many seconds: sessions that flap must not flap here as fast.
BURST: Final = 10
PERIOD: Final = 30.0
#: How long a watch may lag behind what we were answered, seconds.
LAG: Final = 10.0
_KEYS: Final = frozenset(field.alias or name for name, field in NodeStatus.model_fields.items())


class NodeStatusDuty:
    """``wall`` is the clock in Unix seconds, ``chance`` returns a random number in [0, 1)."""

    name = "node status"

    def __init__(self, wall: Callable[[], float], crowd: Crowd, chance: Callable[[], float]) -> None:
        self._wall, self._crowd, self._chance = wall, crowd, chance
        self._bucket = TokenBucket(BURST, PERIOD)
        self._scene: Scene | None = None
        self._first_news = self._last_news = math.inf
        self._conditions: tuple[Condition, ...] = ()
        self._wanted: Json = {}
        self._differs_at = math.inf
        self._place = 0.0
        self._written_at = -math.inf
        self._answer = _Answer()
        self.writes = 0

    def see(self, scene: Scene, now: float) -> None:
        """Compare what there is to say with what the server has, when it is time to."""
        if scene is not self._scene:
            self._scene = scene
            self._first_news, self._last_news = min(self._first_news, now), now
            self._answer.believed(scene.basis.api.node_status, now)
        if now >= min(self._ripe_at(scene), self._answer.until):
            self._compare(scene, now)

    def due(self, now: float) -> float:
        """Return when to look or to write."""
        ripe = self._ripe_at(self._scene) if self._scene else math.inf
        return min(ripe, self._write_at(now), self._answer.until)

    async def act(self, client: KubeClient, now: float) -> None:
        """Write the object."""
        scene = self._scene
        if scene is None or now < self._write_at(now):
            return
        shown = scene.basis.api.node_status
        answer, passed = await _write(client, scene, self._answer.believed(shown, now), self._wanted)
        stale = {_version(shown), *passed} - {_version(answer)}
        self._answer = _Answer(self._wanted, answer, stale, now + LAG)
        self._bucket.take(now)
        self._written_at = now
        self._differs_at = math.inf
        self.writes += 1

    def _write_at(self, now: float) -> float:
        """Return when to write: a change that concerns all nodes is written by one after the other, in each round."""
        if self._differs_at == math.inf:
            return math.inf
        turn = self._differs_at + self._crowd.spread(self._place)
        again = self._written_at + max(LONGEST, self._crowd.spread(1.0))
        return max(turn, self._bucket.due(now), again)

    def _ripe_at(self, scene: Scene | None) -> float:
        """Return when the news so far is to be looked at; a state on its way may take the whole time."""
        longest = self._first_news + LONGEST
        on_its_way = scene is not None and is_pending(scene.basis, scene.namespace)
        return longest if on_its_way else min(longest, self._last_news + QUIET)

    def _compare(self, scene: Scene, now: float) -> None:
        self._first_news = self._last_news = math.inf
        server = self._answer.believed(scene.basis.api.node_status, now)
        known = read_conditions((server or {}).get("status", {}).get("conditions", ()))
        status = compose(
            scene.basis,
            scene.verdicts,
            namespace=scene.namespace,
            now=self._wall(),
            previous=(*self._conditions, *known),
        )
        self._conditions, self._wanted = status.conditions, status.to_data()
        if not self._is_shown(server, scene.basis.node):
            if self._differs_at == math.inf:
                self._differs_at, self._place = now, self._chance()
        else:
            self._differs_at = math.inf

    def _is_shown(self, server: Mapping[str, Any] | None, node: ApiNode) -> bool:
        if server is None or not owned(server, node):
            return False
        return not differs(self._wanted, server) or self._answer.explains(self._wanted, server)


class _Answer:
    """What the server answered to the last write: it holds until the watch shows something newer."""

    def __init__(
        self,
        said: Json | None = None,
        answer: Json | None = None,
        stale: set[str] | None = None,
        until: float = math.inf,
    ) -> None:
        self._said, self._answer, self._stale = said, answer, stale or set()
        self.until = until

    def believed(self, shown: Mapping[str, Any] | None, now: float) -> Mapping[str, Any] | None:
        """Return the object as the server has it, given what the watch shows; tell it all that is shown."""
        if now >= self.until or _version(shown) not in self._stale:
            self._stale, self.until = set(), math.inf
        return self._answer if self._stale else shown

    def explains(self, wanted: Json, server: Mapping[str, Any]) -> bool:
        """Whether the server has what it made of these very words."""
        return self._answer is not None and wanted == self._said and server.get("status") == self._answer.get("status")


def differs(wanted: Mapping[str, Any], server: Mapping[str, Any]) -> bool:
    """Whether a server's object says something else; conditions that others added are theirs."""
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


async def _write(
    client: KubeClient, scene: Scene, server: Mapping[str, Any] | None, wanted: Json
) -> tuple[Json, set[str]]:
    """Make the server say what is wanted; return the object, and its versions on the way to that."""
    path = path_of(scene.namespace, scene.basis.node.name)
    passed = set()
    if server is None or not owned(server, scene.basis.node):
        passed.add(_version(await _apply_object(client, path, scene)))
    try:
        answer = await _apply_status(client, path, scene, wanted)
    except NotFoundError:
        # Deleted a moment ago, which the watch has yet to show.
        passed.add(_version(await _apply_object(client, path, scene)))
        answer = await _apply_status(client, path, scene, wanted)
    if added := [key for key in _KEYS if key in (answer.get("status") or {}) and key not in wanted]:
        # Whoever wrote these owns them now, so leaving them out does not remove them.
        passed.add(_version(answer))
        answer = await client.merge_patch(f"{path}/status", {"status": dict.fromkeys(added)}, manager=MANAGER)
    return answer, passed


async def _apply_object(client: KubeClient, path: str, scene: Scene) -> Json:
    node = scene.basis.node
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    return await client.apply(path, {**_head(scene, ownerReferences=[owner])}, manager=MANAGER)


async def _apply_status(client: KubeClient, path: str, scene: Scene, wanted: Json) -> Json:
    return await client.apply(f"{path}/status", {**_head(scene), "status": wanted}, manager=MANAGER)


def _head(scene: Scene, **metadata: Any) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": NODE_STATUS_KIND,
        "metadata": {"name": scene.basis.node.name, "namespace": scene.namespace, **metadata},
    }


def _version(shown: Mapping[str, Any] | None) -> str:
    return str((shown or {}).get("metadata", {}).get("resourceVersion", ""))
