"""All that is known from one server about one node, and when that is enough to be told.

The tracks are the five kinds in all namespaces, the Node, the node's status object, and the Secrets that the node's
underlays refer to. Streams fill them; here is what connects them: the node's labels choose among the objects, the
objects say which Secrets are of interest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import trio

from actors.lib.kube.client import Json
from actors.lib.kube.cluster_size import ClusterSize
from config.api import API_VERSION, NODE_STATUS_PLURAL, PLURALS, ApiNode, ApiObject, ApiSnapshot, Hindrance, NotFollowed
from config.desired import Secret
from config.problems import Kind
from supervisor.logs.logger import get_logger
from supervisor.runtime.channel import Latest

from .decoding import api_node, is_behind, password, whole
from .stores import KindStore, SingleStore
from .watch_state import Track

log = get_logger("crd_watch")

#: As many as one underlay has neighbours: each costs a connection.
MOST_SECRETS: Final = 128
_SECRET_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class World:
    """What is known; made again for another server or another name of the node.

    ``changes`` wakes who looks at it, ``remembered`` returns the labels that the node had in an earlier life.
    """

    def __init__(
        self,
        server: str,
        name: str,
        namespace: str,
        key: bytes,
        changes: Latest[None],
        *,
        remembered: Callable[[], Mapping[str, str] | None],
    ) -> None:
        self.server, self.name, self.namespace = server, name, namespace
        self._changes = changes
        #: Changes of content so far.
        self.edits = 0
        #: What is wrong with the way to the server, in one line.
        self.trouble = ""
        #: As long as the size is not known the waits are those of a small cluster, and grow with refusals.
        self.cluster_size = ClusterSize(nodes=1)
        self.last_event: float | None = None
        #: Set when it is known which labels the node has, or that it is not there.
        self.labels_known = trio.Event()
        self._labels: Mapping[str, str] | None = None
        self._remembered = remembered
        self._node: SingleStore[ApiNode] = SingleStore(name, api_node)
        self._status: SingleStore[Json] = SingleStore(name, whole)
        self._kinds = {kind: KindStore(kind, key) for kind in PLURALS}
        by_name = {"fieldSelector": f"metadata.name={name}"}
        #: Where each node has one object.
        self.status_path = f"/apis/{API_VERSION}/namespaces/{namespace}/{NODE_STATUS_PLURAL}"
        self.node = Track("nodes", "/api/v1/nodes", self._node, by_name)
        self.tracks = (
            self.node,
            Track(NODE_STATUS_PLURAL, self.status_path, self._status, by_name, custom=True),
            *(
                Track(plural, f"/apis/{API_VERSION}/{plural}", self._kinds[kind], custom=True)
                for kind, plural in PLURALS.items()
            ),
        )
        self.secrets: dict[str, Track] = {}
        self._passwords: dict[str, SingleStore[Secret]] = {}
        #: References beyond what is followed.
        self.ignored_secrets = 0

    def all_tracks(self) -> Iterator[Track]:
        """Yield the tracks of the moment."""
        yield from self.tracks
        yield from self.secrets.values()

    @property
    def complete(self) -> bool:
        """Whether a snapshot may be told.

        What the server does not say holds up nothing else for long: what it has said of it before stays, also where the
        node's new labels would choose others, and what it never said is left out and told as such. But for the Node: as
        long as its labels are not even remembered nothing can be chosen.
        """
        others = (track for track in self.all_tracks() if track is not self.node)
        node_known = self.node.settled or (self.node.given_up and self.labels_known.is_set())
        return node_known and all(track.settled or self._is_left_out(track) for track in others)

    def _is_left_out(self, track: Track) -> bool:
        # A server that fails is expected to do better for a while; a Secret has only its underlay waiting for it.
        lasting = track.hindrance is not Hindrance.FAILING or track.store.known or track.left_out
        return track.given_up and (lasting or track in self.secrets.values())

    def not_followed(self) -> tuple[NotFollowed, ...]:
        """Return of what nothing new is heard although the server answers, each resource once."""
        found: dict[str, NotFollowed] = {}
        for track in self.all_tracks():
            if track.given_up and track.hindrance is not None:
                one = NotFollowed(track.resource, track.hindrance, track.hindered_at, track.store.known)
                other = found.get(track.resource, one)
                since, listed = min(one.since, other.since), one.listed and other.listed
                found[track.resource] = replace(other, since=since, listed=listed)
        return tuple(found[resource] for resource in sorted(found))

    @property
    def down_times(self) -> list[float]:
        """When each of the streams broke that are broken.

        A Secret that was given up is told by itself, and so is a kind that was left out: that the server cannot read
        them does not make the server away.
        """
        return [track.down_since for track in self._broken() if track.down_since is not None]

    def heard_at(self) -> float:
        """Return until when all of this was known to be true (Unix seconds)."""
        return min((track.heard_at for track in self._broken() if track.heard_at), default=0.0)

    def doubted_at(self) -> float:
        """Return from when on content is in doubt that the server says no more (Unix seconds), infinity for none."""
        doubted = (
            track
            for track in self.all_tracks()
            if track.given_up and track.store.known and track.resource != NODE_STATUS_PLURAL
            if track.hindrance is not Hindrance.MISSING or not track.store.empty
        )
        return min((track.heard_at for track in doubted), default=math.inf)

    def _broken(self) -> Iterator[Track]:
        given_up = {track for track in self.all_tracks() if track.left_out}
        given_up |= {track for track in self.secrets.values() if track.given_up}
        yield from (track for track in self.all_tracks() if track.down_since is not None and track not in given_up)

    def stir(self) -> None:
        """Wake those who look."""
        self._changes.set(None)

    def take_in(self, track: Track) -> None:
        """Follow up a changed content."""
        self.edits += 1
        if track is self.node:
            self._choose()
        self._tend_secrets()
        self.stir()

    def take_in_list(self, track: Track, version: str) -> None:
        """Follow up a list, which also tells how far the server is.

        A server with older data than we have seen (etcd was put back from a backup) answers watches from our versions
        not with an error, but with silence: then everything is listed again.
        """
        if is_behind(version, track.version):
            for other in self.all_tracks():
                other.version = None
                other.interrupt()
        track.version, track.recheck = version, False
        self.take_in(track)

    def snapshot(self, synced_at: float, *, live: bool) -> ApiSnapshot:
        """Return everything, in a fixed order."""
        return ApiSnapshot(
            node=self._node.value,
            objects=tuple(found for store in self._kinds.values() for found in _in_order(store.objects)),
            mirrored=tuple(found for store in self._kinds.values() for found in _in_order(store.mirrored)),
            secrets=MappingProxyType(
                {(self.namespace, name): self._passwords[name].value for name in self.secrets if self._read(name)}
            ),
            node_status=self._status.value,
            synced_at=synced_at,
            live=live,
            not_followed=self.not_followed(),
            chosen_by=self._labels,
        )

    def counts(self) -> tuple[int, int]:
        """Return how many objects concern this node, and how many it wrote."""
        stores = self._kinds.values()
        return sum(len(store.objects) for store in stores), sum(len(store.mirrored) for store in stores)

    def _choose(self) -> None:
        """Let the node's labels choose; those of a Node that is gone go on choosing, over a restart too.

        A machine whose Node was deleted by mistake has to keep the network over which it can come back.
        """
        if self._node.value is not None:
            self._choose_by(self._node.value.labels)
        elif self._labels is None:
            self._choose_by(self._remembered())
        self.labels_known.set()

    def choose_without_node(self) -> None:
        """Let the labels of an earlier life choose where the Node may not be read; where there are none nothing can."""
        if self._labels is None and (labels := self._remembered()) is not None:
            self._choose_by(labels)
            self.labels_known.set()

    def _choose_by(self, labels: Mapping[str, str] | None) -> None:
        if labels is None or labels == self._labels:
            return
        if self._node.value is None:
            log.info("the Node cannot be had; the labels that it had last choose among the objects", node=self.name)
        self._labels = labels
        for track in self.tracks:
            if isinstance(track.store, KindStore):
                track.store.choose_by(labels)
                if track.store.stale:
                    track.interrupt()

    def _tend_secrets(self) -> None:
        """Begin and end tracks so that there is one for each Secret that is referred to."""
        wanted = sorted(set(self._references()))
        self.ignored_secrets = len(wanted[MOST_SECRETS:])
        for name in self.secrets.keys() - set(wanted[:MOST_SECRETS]):
            del self.secrets[name], self._passwords[name]
        for name in wanted[:MOST_SECRETS]:
            if name not in self.secrets:
                store = self._passwords[name] = SingleStore(name, password)
                path = f"/api/v1/namespaces/{self.namespace}/secrets"
                self.secrets[name] = Track("secrets", path, store, {"fieldSelector": f"metadata.name={name}"})

    def _references(self) -> Iterator[str]:
        """Yield the names of Secrets in underlays of our own namespace: no other namespace's may be read."""
        for found in self._kinds[Kind.UNDERLAY].objects.values():
            if found.namespace == self.namespace:
                yield from _password_secrets(found.spec)

    def _read(self, name: str) -> bool:
        return self._passwords[name].known


def _password_secrets(spec: Any) -> Iterator[str]:
    """Yield what could be names of Secrets; the spec is anything that the server let pass."""
    neighbors = spec.get("neighbors") if isinstance(spec, dict) else None
    for neighbor in neighbors if isinstance(neighbors, list) else ():
        name = neighbor.get("passwordSecret") if isinstance(neighbor, dict) else None
        if isinstance(name, str) and _SECRET_NAME.fullmatch(name):
            yield name


def _in_order(objects: Mapping[tuple[str, str], ApiObject]) -> list[ApiObject]:
    return [objects[name] for name in sorted(objects)]
