"""One server's objects that concern one node, and when they are complete enough to be published.

    Reflector: Node ──> labels ──> KindStore selection       Reflector per kind ──> objects ──> passwordSecret names
                                                             Reflector per Secret ──> passwords

The cache owns the reflectors: one for each of the five kinds in all namespaces, one for the Node, one for the node's
status object, one for those of nodes with about its index, and one for each Secret that the node's underlays refer to.
They fill its stores; this module connects them: the node's labels select the objects, and the objects name the Secrets
that are needed.

"Unknown" is not "none". A kind that the server does not serve keeps its last known content, and delays the rest only
for a bounded time; one that was never listed is left out and named (:meth:`Cache.not_followed`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import trio
from pydantic import ValidationError

from actors.lib.kube.client import Json
from actors.lib.kube.decoding import api_node, other_router, password, whole
from actors.lib.kube.reflector import Reflector, ServerCache
from actors.lib.kube.store import Store
from config.api import (
    API_VERSION,
    INDEX_LABEL,
    NODE_STATUS_PLURAL,
    PLURALS,
    SECRETS,
    WITH_PASSWORDS,
    ApiNode,
    ApiSnapshot,
    NotFollowed,
    OtherRouter,
    WatchFailure,
)
from config.desired import Secret
from config.models.sessions import SecretReference
from supervisor.logs.logger import get_logger
from supervisor.runtime.channel import Latest

from .saved_labels import SavedLabels
from .store import KindStore

log = get_logger("crd_watch")

#: As many as one underlay can have neighbours: each needs a connection.
MOST_SECRETS: Final = 128
_SECRET_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Cache(ServerCache):
    """The known objects; another server, or another name or index of the node, gets a new cache.

    ``changes`` is set whenever the publisher may have something to do; ``key`` signs what this node writes.
    """

    def __init__(
        self,
        server: str,
        name: str,
        namespace: str,
        *,
        index: int,
        key: bytes,
        changes: Latest[None],
        saved_labels: SavedLabels,
    ) -> None:
        super().__init__(server, changes)
        self.name, self.namespace, self.index = name, namespace, index
        self.saved_labels = saved_labels
        #: Set when it is known which labels the node has, or that there is no Node.
        self.labels_known = trio.Event()
        self._labels: Mapping[str, str] | None = None
        self._node: Store[ApiNode] = Store(api_node, only=name)
        self._status: Store[Json] = Store(whole, only=name)
        self._others: Store[OtherRouter] = Store(partial(other_router, own=name))
        self._kinds = {kind: KindStore(kind, key, namespace) for kind in PLURALS}
        #: Where each node has one object.
        self.status_path = f"/apis/{API_VERSION}/namespaces/{namespace}/{NODE_STATUS_PLURAL}"
        self.node = Reflector(self, "nodes", "/api/v1/nodes", self._node, only=name)
        self.reflectors = (
            self.node,
            Reflector(self, NODE_STATUS_PLURAL, self.status_path, self._status, only=name, optional=True),
            Reflector(
                self, NODE_STATUS_PLURAL, self.status_path, self._others, labels=indexes_like(index), optional=True
            ),
            *(
                Reflector(self, plural, f"/apis/{API_VERSION}/{plural}", self._kinds[kind], optional=True)
                for kind, plural in PLURALS.items()
            ),
        )
        #: Those of the passwords that are needed at the moment, by the names of the Secret and the key in it.
        self.secrets: dict[tuple[str, str], Reflector] = {}
        #: References beyond what is followed.
        self.ignored_secrets = 0

    def all_reflectors(self) -> Iterator[Reflector]:
        """Yield the present reflectors."""
        yield from self.reflectors
        yield from self.secrets.values()

    @property
    def complete(self) -> bool:
        """Whether a snapshot may be published.

        What the server does not serve holds up nothing else for long: its last known content stays, also where the
        node's new labels would select other objects, and what was never listed is left out and named. The Node is
        different: as long as its labels are not even saved nothing can be selected.
        """
        node_known = self.node.synced or (self.node.blocked and self.labels_known.is_set())
        others = (one for one in self.all_reflectors() if one is not self.node)
        return node_known and all(one.synced or self._is_left_out(one) for one in others)

    def _is_left_out(self, one: Reflector) -> bool:
        # A server that fails is expected to recover for a while; for a Secret only its underlay waits.
        lasting = one.failure is not WatchFailure.FAILING or one.store.known or one.excluded
        return one.blocked and (lasting or one in self.secrets.values())

    def not_followed(self) -> tuple[NotFollowed, ...]:
        """Return what a server that answers does not serve, each resource once."""
        found: dict[str, NotFollowed] = {}
        for reflector in self.all_reflectors():
            if reflector.blocked and reflector.failure is not None:
                resource = reflector.resource
                one = NotFollowed(resource, reflector.failure, reflector.failed_at, reflector.store.known)
                other = found.get(resource, one)
                found[resource] = replace(other, since=min(one.since, other.since), listed=one.listed and other.listed)
        return tuple(found[resource] for resource in sorted(found))

    @property
    def down_times(self) -> list[float]:
        """Return since when each of the reflectors is down that count as signs of an unreachable server."""
        return [one.down_since for one in self._down() if one.down_since is not None]

    def confirmed_at(self) -> float:
        """Return until when all of this was known to be true (Unix seconds)."""
        return min((one.confirmed_at for one in self._down() if one.confirmed_at), default=0.0)

    def doubtful_since(self) -> float:
        """Return from when on content is in doubt that the server no longer serves (Unix seconds), or infinity."""
        doubtful = (
            one
            for one in self.all_reflectors()
            if one.blocked and one.store.known and one.resource != NODE_STATUS_PLURAL
            if one.failure is not WatchFailure.MISSING or one.store.items
        )
        return min((one.confirmed_at for one in doubtful), default=math.inf)

    def _down(self) -> Iterator[Reflector]:
        """Yield the reflectors that are down, except for Secrets that are blocked and kinds that are excluded.

        Those are reported by themselves: that the server cannot read them does not make it unreachable.
        """
        for one in self.reflectors:
            if one.down_since is not None and not one.excluded:
                yield one
        for one in self.secrets.values():
            if one.down_since is not None and not one.excluded and not one.blocked:
                yield one

    def changed(self, reflector: Reflector) -> None:
        """React to a changed store."""
        if reflector is self.node:
            self._select()
        self._update_secrets()
        super().changed(reflector)

    def snapshot(self, synced_at: float, *, live: bool) -> ApiSnapshot:
        """Return everything, in a fixed order."""
        stores = self._kinds.values()
        passwords: dict[tuple[str, str, str], Secret | None] = {
            (self.namespace, *place): one.store.value for place, one in self.secrets.items() if one.store.known
        }
        return ApiSnapshot(
            node=self._node.value,
            objects=tuple(one for store in stores for one in store.objects(mirrored=False)),
            mirrored=tuple(one for store in stores for one in store.objects(mirrored=True)),
            secrets=MappingProxyType(passwords),
            node_status=self._status.value,
            synced_at=synced_at,
            live=live,
            not_followed=self.not_followed(),
            chosen_by=self._labels,
            others=tuple(self._others.items[key] for key in sorted(self._others.items)),
            others_of=self.index,
        )

    def counts(self) -> tuple[int, int]:
        """Return how many objects concern this node, and how many it wrote."""
        mirrored = [one.mirrored for store in self._kinds.values() for one in store.items.values()]
        return mirrored.count(False), mirrored.count(True)

    def _select(self) -> None:
        """Select by the node's labels; those of a deleted Node stay in force, also across a restart.

        A machine whose Node was deleted by mistake needs the network to register again.
        """
        if self._node.value is not None:
            self.saved_labels.save(self._node.value.labels)
            self._select_by(self._node.value.labels)
        elif self._labels is None:
            self._select_by(self.saved_labels.load())
        self.labels_known.set()

    def select_without_node(self) -> None:
        """Select by the saved labels where the Node may not be read; where there are none nothing can be selected."""
        if self._labels is None and (labels := self.saved_labels.load()) is not None:
            self._select_by(labels)
            self.labels_known.set()

    def _select_by(self, labels: Mapping[str, str] | None) -> None:
        if labels is None or labels == self._labels:
            return
        if self._node.value is None:
            log.info("the Node does not exist; its last known labels select the objects", node=self.name)
        self._labels = labels
        for store in self._kinds.values():
            store.select_by(labels)
        for reflector in self.reflectors:
            if reflector.store.stale:
                reflector.interrupt()

    def _update_secrets(self) -> None:
        """Add and remove reflectors so that there is one for each password that is referred to."""
        wanted = sorted(set(self._references()))
        self.ignored_secrets = len(wanted[MOST_SECRETS:])
        path = f"/api/v1/namespaces/{self.namespace}/{SECRETS}"
        for place in self.secrets.keys() - set(wanted[:MOST_SECRETS]):
            del self.secrets[place]
        for place in wanted[:MOST_SECRETS]:
            if place not in self.secrets:
                name, key = place
                store = Store(partial(password, key=key), only=name)
                self.secrets[place] = Reflector(self, SECRETS, path, store, only=name)

    def _references(self) -> Iterator[tuple[str, str]]:
        """Yield Secrets and their keys as objects of our own namespace name them; no other namespace's may be read."""
        for kind in WITH_PASSWORDS:
            for found in self._kinds[kind].objects(mirrored=False):
                if found.namespace == self.namespace:
                    yield from _password_secrets(found.spec)


def indexes_like(index: int) -> str:
    """Return the selector of the routers that may have a node's addresses.

    With both schemes of router IDs in one cluster the neighbouring indexes may have the same one.
    """
    return f"{INDEX_LABEL} in ({', '.join(str(one) for one in range(max(index - 1, 0), index + 2))})"


def _password_secrets(spec: Any) -> Iterator[tuple[str, str]]:
    """Yield what could be names of Secrets, and keys in them; the spec is anything that the server let pass."""
    neighbors = spec.get("neighbors") if isinstance(spec, dict) else None
    host_session = spec.get("hostSession") if isinstance(spec, dict) else None
    for session in (*(neighbors if isinstance(neighbors, list) else ()), host_session):
        written = session.get("passwordSecret") if isinstance(session, dict) else None
        if not isinstance(written, dict | str):
            continue
        with suppress(ValidationError):
            place = SecretReference.from_api(written).in_secret
            if _SECRET_NAME.fullmatch(place[0]):
                yield place
