"""The cluster's custom resources, and which of them an object can conflict with.

    ApiObject -> ObjectEntry (its resource, and what that occupies) -> Objects.involved

Whether a node accepts a resource depends on a few others only: those that want the same VNI, VRF or bridge, whose
address ranges overlap, the routing domain of a segment, the underlays, and what those in turn depend on. An index of
each finds them without reading the rest, so that a review costs the same in a small and in a large cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from config.api import HOSTNAME_LABEL, SOURCE_LABEL, STATIC_NODE_LABEL, STATIC_SOURCE, ApiObject, ApiSnapshot
from config.desired import Secret
from config.models import L2Vni, L3Passthrough, L3Vni
from config.models.selector import LabelSelector, selector_in
from config.problems import Kind, Origin, Problem, ResourceId
from config.resolve.overlays import managed_bridge
from config.resources import Resource
from config.sources.api_objects import read_objects
from config.sources.mirror_objects import FILE_ANNOTATION, label_value
from config.sources.naming import resource_name

from .ranges import NetworkRange, Ranges

_SEGMENTS_OF: Final = "segments of"
_UNREADABLE: Final = LabelSelector()


class _AnySecret(Mapping[tuple[str, str, str], Secret | None]):
    """Every Secret that could be named. The webhook may not read any; whether one exists is the nodes' to report."""

    def __contains__(self, place: object) -> bool:
        return True

    def __getitem__(self, place: tuple[str, str, str]) -> Secret:
        return Secret("unknown")

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class ObjectEntry:
    """One object as nodes read it. ``problems`` are those of the object by itself.

    ``mirror_of`` is the node whose file it shows, empty for any other object: its resource is then one of a file.
    ``claims`` are what no two resources of a node may have, ``seeks`` the claims of others that matter to it;
    ``pools`` are the ranges of its host session, ``gateways`` those of a segment. Entries with the same ``selection``
    select the same nodes.
    """

    resource: Resource
    problems: tuple[Problem, ...]
    selector: LabelSelector
    selection: str
    mirror_of: str
    claims: frozenset[Hashable]
    seeks: frozenset[Hashable]
    pools: tuple[NetworkRange, ...] = ()
    gateways: tuple[NetworkRange, ...] = ()

    @property
    def id(self) -> ResourceId:
        """Return the object's identity."""
        return self.resource.id


def entry_of(one: ApiObject, namespace: str) -> ObjectEntry:
    """Return what nodes make of an object; ``namespace`` is the program's own."""
    [resource], problems = read_objects(ApiSnapshot(objects=(one,), secrets=_AnySecret()), namespace)
    node = _mirrored_node(one, namespace)
    if node:
        path = one.annotations.get(FILE_ANNOTATION) or f"a file of node {node}"
        resource = replace(resource, origin=Origin(path=path))
    spec = resource.spec
    claims: set[Hashable] = {one.kind} if one.kind in (Kind.UNDERLAY, Kind.L3PASSTHROUGH) else set()
    seeks = set(claims)
    pools: tuple[NetworkRange, ...] = ()
    gateways: tuple[NetworkRange, ...] = ()
    match spec:
        case L3Vni():
            claims |= {("vni", spec.vni), ("vrf", spec.vrf)}
            seeks |= claims
        case L2Vni():
            own, others = _bridges(spec)
            claims |= {("vni", spec.vni), *own}
            seeks |= {("vni", spec.vni), *others, *_domains(one, spec, node)}
            claims |= {(_SEGMENTS_OF, *place) for place in _domains(one, spec, node)}
            gateways = tuple(map(NetworkRange.of, spec.gateway_ips))
    if isinstance(spec, L3Vni | L3Passthrough) and spec.host_session is not None:
        pools = tuple(map(NetworkRange.of, spec.host_session.pools))
    if one.kind is Kind.L3VNI:
        claims |= {(Kind.L3VNI, one.namespace, one.name), (Kind.L3VNI, "", one.name)}
        claims |= {(Kind.L3VNI, "mirrored", name) for name in _names_in_file(one, node)}
    selector = selector_in(one.spec) or _UNREADABLE
    selection = f"={node}" if node else selector.model_dump_json()
    return ObjectEntry(
        resource, problems, selector, selection, node, frozenset(claims), frozenset(seeks), pools, gateways
    )


class Objects:
    """All objects of the cluster, indexed."""

    def __init__(self, entries: Iterable[ObjectEntry] = ()) -> None:
        self._entries: dict[ResourceId, ObjectEntry] = {}
        self._claimed: defaultdict[Hashable, dict[ResourceId, ObjectEntry]] = defaultdict(dict)
        self._pools: Ranges[ResourceId] = Ranges()
        #: The segments' subnets, by the claim on their routing domain.
        self._gateways: defaultdict[Hashable, Ranges[ResourceId]] = defaultdict(Ranges)
        for entry in entries:
            self.put(entry)

    def __iter__(self) -> Iterator[ObjectEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: ObjectEntry) -> None:
        """Add or replace an object."""
        self.remove(entry.id)
        self._entries[entry.id] = entry
        for claim in entry.claims:
            self._claimed[claim][entry.id] = entry
            for subnet in entry.gateways if _is_segment_of(claim) else ():
                self._gateways[claim].add(subnet, entry.id)
        for pool in entry.pools:
            self._pools.add(pool, entry.id)

    def remove(self, identity: ResourceId) -> None:
        """Remove an object, if it exists."""
        entry = self._entries.pop(identity, None)
        if entry is None:
            return
        for claim in entry.claims:
            del self._claimed[claim][identity]
            for subnet in entry.gateways if claim in self._gateways else ():
                self._gateways[claim].remove(subnet, identity)
            if not self._claimed[claim]:
                del self._claimed[claim]
                self._gateways.pop(claim, None)
        for pool in entry.pools:
            self._pools.remove(pool, identity)

    def involved(self, *started: ObjectEntry) -> list[ObjectEntry]:
        """Return all that can decide about these versions of an object, which is itself left out, and the underlays.

        What a routing domain routes is included as well: a change of the domain decides about it.
        """
        subject = started[0].id
        found: dict[ResourceId, ObjectEntry] = {one.id: one for one in self._claiming(Kind.UNDERLAY)}
        waiting: list[ObjectEntry] = list(started)
        for entry in started:
            if entry.id.kind is Kind.L3VNI:
                waiting += self._segments(entry)
        found.update((entry.id, entry) for entry in waiting)
        while waiting:
            for other in self._beside(waiting.pop()):
                if other.id not in found:
                    found[other.id] = other
                    waiting.append(other)
        found.pop(subject, None)
        return [found[one] for one in sorted(found, key=lambda one: (one.kind, one.namespace, one.name))]

    def _claiming(self, claim: Hashable) -> Iterable[ObjectEntry]:
        return self._claimed.get(claim, {}).values()

    def _beside(self, entry: ObjectEntry) -> Iterator[ObjectEntry]:
        """Yield the entries that one conflicts with or refers to."""
        for claim in entry.seeks:
            yield from self._claiming(claim)
        yield from (self._entries[one] for one in self._pools.overlapping(entry.pools))
        for claim in entry.claims if entry.gateways else ():
            yield from self._rivals(entry, claim)

    def _rivals(self, entry: ObjectEntry, claim: Hashable) -> Iterator[ObjectEntry]:
        """Yield the segments with overlapping subnets that may be in the same VRF, by a claim on a routing domain."""
        if not isinstance(claim, tuple) or not _is_segment_of(claim):
            return
        for domain in self._claiming(claim[1:]):
            for name in domain.claims:
                subnets = self._gateways.get((_SEGMENTS_OF, *name)) if isinstance(name, tuple) else None
                if subnets is not None:
                    yield from (self._entries[one] for one in subnets.overlapping(entry.gateways))

    def _segments(self, domain: ObjectEntry) -> Iterator[ObjectEntry]:
        for claim in domain.claims:
            if isinstance(claim, tuple):
                yield from self._claiming((_SEGMENTS_OF, *claim))


def _mirrored_node(one: ApiObject, namespace: str) -> str:
    """Return the node whose file an object shows, empty for any other.

    Only administrators write in the program's namespace, and an admission policy keeps each node from writing mirrors
    of others. The signature that a node asks for only that node can check.
    """
    [owner, *others] = one.owners or ({},)
    node = owner.get("name")
    if one.namespace != namespace or one.labels.get(SOURCE_LABEL) != STATIC_SOURCE or owner.get("kind") != "Node":
        return ""
    if others or not isinstance(node, str) or one.labels.get(STATIC_NODE_LABEL) != label_value(node):
        return ""
    selector: Any = one.spec.get("nodeSelector") if isinstance(one.spec, dict) else None
    return node if selector == {"matchLabels": {HOSTNAME_LABEL: node}} else ""


def _names_in_file(one: ApiObject, node: str) -> Iterator[str]:
    """Yield the names by which a segment may refer to a mirrored L3VNI: its own, and the one in the file."""
    if node:
        yield one.name
        prefix = resource_name(node, "x")[:-1]
        if one.name.startswith(prefix):
            yield one.name.removeprefix(prefix)


def _domains(one: ApiObject, spec: L2Vni, node: str) -> Iterator[tuple[Hashable, ...]]:
    """Yield the claims of each L3VNI to which a segment may refer (:mod:`config.resolve.domains`)."""
    written = spec.routing_domain
    if written is None or written.l3vni is None:
        return
    name, namespace = written.l3vni.name, written.l3vni.namespace
    yield (Kind.L3VNI, namespace or one.namespace, name)
    if namespace is None:
        yield (Kind.L3VNI, "mirrored", name)
        if node:
            yield (Kind.L3VNI, "", name)


def _bridges(spec: L2Vni) -> tuple[set[Hashable], set[Hashable]]:
    """Return a segment's claim on a bridge, and the claim that excludes it."""
    bridge = spec.host_master.linux_bridge if spec.host_master else None
    if bridge is None:
        return set(), set()
    name = bridge.name or managed_bridge(spec.vni)
    managed, external = ("managed", name), ("external", name)
    return ({external}, {managed}) if bridge.name else ({managed}, {external})


def _is_segment_of(claim: Hashable) -> bool:
    return isinstance(claim, tuple) and claim[0] == _SEGMENTS_OF
