"""The cluster as the controller sees it: its Nodes, what each node's status object says, and the users' objects.

    JSON of the API server ──> :class:`ClusterDecoder` ──> ClusterNode, NodeReport, ClusterObject ──> ClusterState

Of 5 000 nodes most report the same about the same 1 000 objects. So equal reports are one object in memory, and an
unchanged report is the identical object, which makes comparing cheap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from pydantic import ValidationError

from actors.lib.kube.decoding import api_node, api_object, metadata
from config.api import INDEX_ANNOTATION, NODE_MANAGER
from config.crd.conditions import DEGRADED, READY, UNDERLAY_FAILED, Condition, read_conditions
from config.models.selector import LabelSelector
from config.problems import Kind

#: Maximum number of object keys that are kept for sharing between reports.
MOST_KEYS: Final = 100_000
_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


class ObjectKey(NamedTuple):
    """The identity of a user's object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class ObjectReport(NamedTuple):
    """A node's report on one object: the generation that it has processed, and whether that is in force."""

    generation: int
    in_force: bool


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A Node. ``annotation`` is its index as text; ``by_node``: the node itself wrote it. ``created``: RFC 3339."""

    name: str
    uid: str
    labels: Mapping[str, str]
    annotation: str | None = None
    by_node: bool = False
    created: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class NodeReport:
    """The content of a node's status object; equal reports of several nodes are one object.

    ``failed`` has the messages of failing resources; ``problem`` is a failure of the whole node, "" if there is none.
    """

    resources: Mapping[ObjectKey, ObjectReport] = field(default_factory=lambda: _EMPTY)
    failed: Mapping[ObjectKey, str] = field(default_factory=lambda: _EMPTY)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """An Underlay, L3VNI ...; ``selector`` is its node selector as canonical JSON; ``conditions``: Ready, Degraded."""

    key: ObjectKey
    uid: str
    generation: int
    selector: str = "null"
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything, complete. ``live``: watches confirm it now; nothing is written from a state that is not live.

    ``reports`` are by node name; their Nodes may no longer exist.
    """

    nodes: Mapping[str, ClusterNode] = field(default_factory=lambda: _EMPTY)
    reports: Mapping[str, NodeReport] = field(default_factory=lambda: _EMPTY)
    objects: Mapping[ObjectKey, ClusterObject] = field(default_factory=lambda: _EMPTY)
    live: bool = False


class ClusterDecoder:
    """Creates these values from the server's JSON, and shares equal ones."""

    def __init__(self) -> None:
        self._keys: dict[ObjectKey, ObjectKey] = {}
        self._reports: WeakValueDictionary[Any, NodeReport] = WeakValueDictionary()

    def node(self, raw: Any) -> ClusterNode:
        """Return a Node."""
        node, created = api_node(raw), str(metadata(raw).get("creationTimestamp") or "")
        annotation = node.annotations.get(INDEX_ANNOTATION)
        return ClusterNode(node.name, node.uid, node.labels, annotation, _index_is_by_node(raw), created)

    def report(self, raw: Any) -> NodeReport:
        """Return the report in a status object. Entries of an unexpected shape are ignored."""
        metadata(raw)
        status = _status(raw)
        resources = {
            self._key(one): ObjectReport(_generation(one), one.get("inForce") is True)
            for one in _entries(status, "resources")
        }
        failed = {
            self._key(one): str(one.get("message") or "not in force")
            for one in reversed(list(_entries(status, "failedResources")))
        }
        problem = _problem(status, any(one.in_force for one in resources.values()))
        identity = (frozenset(resources.items()), frozenset(failed.items()), problem)
        shared = self._reports.get(identity)
        if shared is None:
            shared = self._reports[identity] = NodeReport(resources, failed, problem)
        return shared

    def object(self, kind: Kind, raw: Any) -> ClusterObject:
        """Return a user's object."""
        one = api_object(kind, raw)
        return ClusterObject(
            self._shared(ObjectKey(one.kind.value, one.namespace, one.name)),
            one.uid,
            one.generation,
            json.dumps(one.spec.get("nodeSelector") if isinstance(one.spec, dict) else None, sort_keys=True),
            conditions_of(raw),
        )

    def _key(self, entry: Mapping[str, Any]) -> ObjectKey:
        return self._shared(ObjectKey(*(str(entry.get(part) or "") for part in ("kind", "namespace", "name"))))

    def _shared(self, key: ObjectKey) -> ObjectKey:
        if len(self._keys) > MOST_KEYS:
            self._keys.clear()
        return self._keys.setdefault(key, key)


def selector_of(text: str) -> LabelSelector | None:
    """Return a node selector from its JSON; one that cannot be read selects every node, each of which reports it."""
    try:
        return None if text == "null" else LabelSelector.model_validate(json.loads(text))
    except ValidationError:
        return None


def conditions_of(raw: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions Ready and Degraded in a user's object."""
    return tuple(one for one in read_conditions(_entries(_status(raw), "conditions")) if one.type in (READY, DEGRADED))


def _status(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    status = raw.get("status")
    return status if isinstance(status, dict) else {}


def _entries(status: Mapping[str, Any], part: str) -> Iterator[Mapping[str, Any]]:
    entries = status.get(part)
    yield from (one for one in (entries if isinstance(entries, list) else ()) if isinstance(one, dict))


def _generation(entry: Mapping[str, Any]) -> int:
    generation = entry.get("observedGeneration")
    return generation if isinstance(generation, int) else -1


def _problem(status: Mapping[str, Any], anything_in_force: bool) -> str:
    """Return the failure of the whole node: of its underlay, or of its router, which takes everything out of force."""
    for one in read_conditions(_entries(status, "conditions")):
        if one.type == DEGRADED and one.status == "True":
            return one.message if one.reason == UNDERLAY_FAILED or not anything_in_force else ""
    return ""


def _index_is_by_node(raw: Any) -> bool:
    """Whether the field managers show that the node's own daemon wrote its index last."""
    entries = metadata(raw).get("managedFields")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("manager") == NODE_MANAGER:
            fields = entry.get("fieldsV1")
            for part in ("f:metadata", "f:annotations"):
                fields = fields.get(part) if isinstance(fields, dict) else None
            if isinstance(fields, dict) and f"f:{INDEX_ANNOTATION}" in fields:
                return True
    return False
