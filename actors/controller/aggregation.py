"""An object's conditions over all nodes: pure functions from the nodes' reports.

A node counts for an object if the object selects it and it has reported at all: a Node on which the program does not
run has nothing in force. On each node that counts, the object's present generation is in force, fails or is pending.
:class:`Aggregation` keeps the last results, and returns the objects whose conditions a new state may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from config.crd.conditions import (
    DEGRADED,
    FAILED,
    PENDING,
    READY,
    SUCCESSFUL,
    UNDERLAY_FAILED,
    Condition,
    condition,
    legal_text,
)
from config.models.selector import selects
from config.problems import Kind

from .cluster_state import ClusterNode, ClusterObject, ClusterState, NodeReport, ObjectKey, selector_of
from .node_indices import IndexedNode, described, duplicates, listed

NO_NODES: Final = "NoNodes"
DUPLICATE_INDEX: Final = "DuplicateNodeIndex"
#: Maximum length of one node's message in a condition.
_MAX_MESSAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """The conditions of an object without their times; ``ready`` None is Unknown."""

    ready: bool | None
    degraded: bool
    reason: str
    message: str
    degraded_reason: str
    degraded_message: str

    def conditions(self, one: ClusterObject, now: float) -> tuple[Condition, Condition]:
        """Return the conditions to write at ``now``, in Unix seconds; an unchanged status keeps its transition time."""
        generation, before = one.generation, one.conditions
        ready = condition(READY, self.ready, self.reason, self.message, now=now, generation=generation, previous=before)
        reason, message = self.degraded_reason, self.degraded_message
        degraded = condition(DEGRADED, self.degraded, reason, message, now=now, generation=generation, previous=before)
        return ready, degraded

    def is_shown(self, one: ClusterObject) -> bool:
        """Whether the object already has these conditions, apart from their times."""
        return {_timeless(each) for each in self.conditions(one, 0.0)} == {_timeless(each) for each in one.conditions}


def aggregate(
    one: ClusterObject, nodes: Sequence[str], reports: Mapping[str, NodeReport], index_problems: Mapping[str, str]
) -> Verdict:
    """Return an object's verdict; ``nodes`` are those that count, sorted.

    ``index_problems`` describes duplicate indices; they count against Underlays, whose pools the index selects from.
    """
    failing: dict[str, str] = {}
    waiting: list[str] = []
    for name in nodes:
        report = reports[name]
        seen = report.resources.get(one.key)
        if seen is None or seen.generation != one.generation:
            waiting.append(name)
        elif not seen.in_force:
            message = report.failed.get(one.key) or report.problem
            if message:
                failing[name] = message
            else:
                waiting.append(name)
    underlay = one.key.kind == Kind.UNDERLAY.value
    clash = next((index_problems[name] for name in nodes if name in index_problems), "") if underlay else ""
    return _verdict(len(nodes), failing, waiting, UNDERLAY_FAILED if underlay else FAILED, clash)


def _verdict(total: int, failing: Mapping[str, str], waiting: Sequence[str], failure: str, clash: str) -> Verdict:
    if total == 0:
        text = "0/0 nodes: it selects no node that reports a status"
        return Verdict(None, False, NO_NODES, text, NO_NODES, "no node fails")
    count = f"{total - len(failing) - len(waiting)}/{total} nodes"
    failures = f"failing on {_with_message(failing)}" if failing else ""
    pending = f"waiting for {listed(waiting)}" if waiting else ""
    message = "; ".join(filter(None, [count, failures, pending]))
    reason = failure if failing else PENDING if waiting else SUCCESSFUL
    wrong = "; ".join(filter(None, [failures, clash]))
    degraded_reason = DUPLICATE_INDEX if clash and not failing else reason
    ready = not failing and not waiting
    return Verdict(ready, bool(wrong), reason, message, degraded_reason, wrong or "no node fails")


def _with_message(failing: Mapping[str, str]) -> str:
    """Return the names of the first failing nodes, the first one with its message."""
    names = list(failing)
    text = legal_text(failing[names[0]], _MAX_MESSAGE, "not in force")
    return listed([f"{names[0]} ({text})", *names[1:]])


def _timeless(one: Condition) -> tuple[Any, ...]:
    return one.type, one.status, one.reason, one.message, one.observed_generation


@dataclass(slots=True)
class Aggregation:
    """The last state of the cluster, and each object's verdict."""

    state: ClusterState = field(default_factory=ClusterState)
    index_problems: Mapping[str, str] = field(default_factory=dict)
    _by_label: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _reporting: Sequence[str] = ()
    _selected: dict[str, Sequence[str]] = field(default_factory=dict)

    def update(self, state: ClusterState, indexed: Iterable[IndexedNode]) -> set[ObjectKey]:
        """Store a new state; return the objects whose conditions it may have changed, new ones included."""
        before, self.state = self.state, state
        # What no object has any longer goes: tenants choose how often selectors change, and how long they are.
        used = {one.selector for one in state.objects.values()}
        self._selected = {text: names for text, names in self._selected.items() if text in used}
        index_problems = described(duplicates(indexed))
        clashes_changed, self.index_problems = index_problems != self.index_problems, index_problems
        if _members(before) != _members(state):
            self._index()
            return set(state.objects)
        changed = {key for key, one in state.objects.items() if one is not before.objects.get(key)}
        if clashes_changed:
            changed |= {key for key in state.objects if key.kind == Kind.UNDERLAY.value}
        compared: dict[tuple[int, int], set[ObjectKey]] = {}
        for name, report in state.reports.items():
            old = before.reports.get(name)
            if old is not None and old is not report and (id(old), id(report)) not in compared:
                compared[id(old), id(report)] = _differences(old, report)
        return changed.union(*compared.values()) & state.objects.keys()

    def verdict(self, key: ObjectKey) -> Verdict:
        """Return the verdict on an object of the state."""
        one = self.state.objects[key]
        return aggregate(one, self.selected(one.selector), self.state.reports, self.index_problems)

    def selected(self, selector: str) -> Sequence[str]:
        """Return the names of the nodes that count for a selector, sorted."""
        if selector not in self._selected:
            self._selected[selector] = self._select(selector)
        return self._selected[selector]

    def _index(self) -> None:
        """Index the nodes by label, so that a selector of one node need not scan all of them."""
        nodes = self.state.nodes
        self._reporting = sorted(nodes.keys() & self.state.reports.keys())
        self._selected, self._by_label = {}, {}
        for name in self._reporting:
            for label in nodes[name].labels.items():
                self._by_label.setdefault(label, set()).add(name)

    def _select(self, text: str) -> Sequence[str]:
        selector = selector_of(text)
        if selector is None:
            return self._reporting
        exact = sorted((self._by_label.get(label, set()) for label in selector.match_labels.items()), key=len)
        candidates = sorted(exact[0]) if exact else self._reporting
        return [name for name in candidates if selects(selector, self.state.nodes[name].labels)]


def _members(state: ClusterState) -> dict[str, Mapping[str, str]]:
    """Return the nodes that count for selectors, with their labels."""
    return {name: node.labels for name, node in state.nodes.items() if name in state.reports}


def _differences(old: NodeReport, new: NodeReport) -> set[ObjectKey]:
    """Return the objects about which two reports differ."""
    differing = {key for key, _ in old.resources.items() ^ new.resources.items()}
    differing |= {key for key, _ in old.failed.items() ^ new.failed.items()}
    if old.problem != new.problem:
        both = (*old.resources.items(), *new.resources.items())
        differing |= {key for key, seen in both if not seen.in_force}
    return differing


def indexed_nodes(state: ClusterState, settled: Iterable[str]) -> list[IndexedNode]:
    """Return the Nodes of a state in the form that the assignment of indices takes; ``settled`` are names."""
    names = frozenset(settled)
    return [_indexed(node, state, node.name in names) for node in state.nodes.values()]


def _indexed(node: ClusterNode, state: ClusterState, settled: bool) -> IndexedNode:
    own = node.by_node or node.name in state.reports
    return IndexedNode(node.name, node.annotation, own, settled, node.created)
