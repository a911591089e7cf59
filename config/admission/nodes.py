"""The cluster's nodes, and which of them a resource selects.

Nodes with the same relevant resources decide alike, except where their index matters: from some index on a pool of
addresses is too small. So the nodes of such a group are in the order of their index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from config.api import INDEX_ANNOTATION, ApiNode
from config.models import Underlay
from config.models.selector import selects
from config.outcomes import NodeIdentity
from config.problems import Kind

from .objects import ObjectEntry

#: Maximum size of the cached selectors with their nodes, in bytes, and of one of them: a tenant may send any number of
#: selectors, each as long as a request may be, and the webhook's container has 384 MiB.
_MOST_BYTES: Final = 32 * 2**20
_MOST_BYTES_OF_ONE: Final = _MOST_BYTES // 8
#: Maximum number of digits of an index: the annotation may have any content.
_INDEX_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that decide alike, by index, and their common resources; ``had_old``: the old object selected them."""

    nodes: tuple[NodeIdentity, ...]
    entries: tuple[ObjectEntry, ...]
    had_old: bool


@dataclass(slots=True)
class Nodes:
    """All nodes by name. The nodes of a selector are cached until a node changes."""

    _nodes: dict[str, ApiNode] = field(default_factory=dict)
    _selected: dict[str, frozenset[str]] = field(default_factory=dict)
    _selected_bytes: int = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def put(self, node: ApiNode) -> None:
        """Add or replace a node."""
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if before is None or before.labels != node.labels:
            self._forget()

    def remove(self, name: str) -> None:
        """Remove a node, if it exists."""
        if self._nodes.pop(name, None) is not None:
            self._forget()

    def selected(self, entry: ObjectEntry) -> frozenset[str]:
        """Return the names of the nodes that an entry selects."""
        if entry.mirror_of:
            return frozenset({entry.mirror_of} & self._nodes.keys())
        cached = self._selected.get(entry.selection)
        if cached is not None:
            return cached
        names = frozenset(name for name, node in self._nodes.items() if selects(entry.selector, node.labels))
        self._cache(entry.selection, names)
        return names

    def _cache(self, selection: str, names: frozenset[str]) -> None:
        size = getsizeof(selection) + getsizeof(names)
        if size > _MOST_BYTES_OF_ONE:
            return
        if self._selected_bytes + size > _MOST_BYTES:
            self._forget()
        self._selected[selection] = names
        self._selected_bytes += size

    def _forget(self) -> None:
        self._selected.clear()
        self._selected_bytes = 0

    def groups(self, new: ObjectEntry, old: ObjectEntry | None, involved: Sequence[ObjectEntry]) -> list[Group]:
        """Return the nodes that ``new`` selects, in groups; ``old`` is what it replaces."""
        names = self.selected(new)
        before = self.selected(old) if old is not None else frozenset[str]()
        selections: defaultdict[str, list[ObjectEntry]] = defaultdict(list)
        present: dict[str, list[str]] = {name: [] for name in names}
        underlays: dict[str, list[ObjectEntry]] = {name: [] for name in names}
        for entry in involved:
            if entry.id.kind is not Kind.UNDERLAY:
                selections[entry.selection].append(entry)
                continue
            for name in names & self.selected(entry):
                underlays[name].append(entry)
        for selection, [entry, *_] in selections.items():
            for name in names & self.selected(entry):
                present[name].append(selection)
        grouped: defaultdict[Hashable, list[str]] = defaultdict(list)
        for name in sorted(names):
            grouped[name in before, tuple(present[name]), _alike(underlays[name], new)].append(name)
        return [self._group(one, selections, present, underlays, before) for one in grouped.values()]

    def _group(
        self,
        names: list[str],
        selections: Mapping[str, list[ObjectEntry]],
        present: Mapping[str, list[str]],
        underlays: Mapping[str, list[ObjectEntry]],
        before: frozenset[str],
    ) -> Group:
        identities = (NodeIdentity(name, self.index(name)) for name in names)
        nodes = tuple(sorted(identities, key=lambda one: (one.index, one.name)))
        first = nodes[0].name
        entries = [entry for selection in present[first] for entry in selections[selection]]
        return Group(nodes, (*underlays[first], *entries), first in before)

    def index(self, name: str) -> int:
        """Return a node's index. An unknown one counts as 0, for which every pool is large enough."""
        text = self._nodes[name].annotations.get(INDEX_ANNOTATION, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= _INDEX_DIGITS else 0


def _alike(underlays: Sequence[ObjectEntry], new: ObjectEntry) -> Hashable:
    """Return what the underlays of two nodes have in common that decide alike about a resource.

    Each node may have one of its own. Where it is not what is decided about, only some of its content matters to other
    resources, and its name does not.
    """
    if new.id.kind is Kind.UNDERLAY or len(underlays) != 1:
        return tuple(one.id for one in underlays)
    [underlay] = underlays
    spec = underlay.resource.spec
    if not isinstance(spec, Underlay):
        return "unusable"
    pools = spec.tunnel_endpoint.cidrs if spec.tunnel_endpoint else ()
    interfaces = tuple(one.name for one in spec.interfaces)
    place = "file" if underlay.resource.is_from_file else underlay.resource.namespace
    asn = spec.asn if new.id.kind is Kind.L3PASSTHROUGH else None
    return place, asn, interfaces, pools, spec.router_id_cidr
