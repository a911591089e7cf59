"""Decide about an object that is about to be stored: allowed, allowed with warnings, or denied.

    object ──> read as nodes read it ──> resolve on each group of nodes that it selects ──> ReviewResponse

An object is denied if it cannot be in force: it breaks a rule by itself, or every node that it selects would refuse it
because of the existing objects. There is a warning if only some of the nodes refuse it, if another object loses by
precedence, or if a reference is missing: a segment may be created before its routing domain. What only a node can know
(files that it does not mirror, whether a Secret exists, its own settings) is left to it.

Both outcomes come from :func:`config.resolve.resolution.resolve`, with what is in force without the object as standing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from config.api import ApiObject
from config.models import L2Vni
from config.outcomes import NodeIdentity
from config.problems import Kind, Problem, Reason, Severity, errors
from config.resolve.grants import Grants
from config.resolve.resolution import Resolution, resolve
from config.resources import Resource

from .nodes import Group, Nodes
from .objects import ObjectEntry, Objects, entry_of

#: Maximum number of warnings in an answer, and of characters in each (Kubernetes advises at most 256 for one, 4096
#: for all).
MOST_WARNINGS: Final = 12
MOST_CHARACTERS: Final = 300
_DENIALS: Final = 8
#: Kinds of which the setting underlayNamespaces says from where they count.
_FOR_THE_FABRIC: Final = (Kind.UNDERLAY, Kind.L3PASSTHROUGH)
#: Most resources that are resolved for one answer, over all groups of nodes: some two seconds, of five that the API
#: server waits. Only objects that are made for it, each in conflict and for nodes of its own, need more.
MOST_RESOLVED: Final = 40_000


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """An object that is created, or updated from ``old``; None for one that is deleted."""

    new: ApiObject | None
    old: ApiObject | None = None


@dataclass(frozen=True, slots=True)
class ReviewResponse:
    """``message`` says why an object is denied; ``warnings`` are for the user who is allowed."""

    allowed: bool = True
    message: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Verdicts:
    """What the nodes refuse and report, with how many each; ``asked`` counts them, ``unasked`` those left out.

    ``resolved`` counts the resources that were resolved.
    """

    asked: int = 0
    unasked: int = 0
    resolved: int = 0
    refused: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    remarks: dict[str, int] = field(default_factory=dict)

    def add(self, found: dict[str, int], texts: Iterable[str], nodes: int) -> None:
        for text in dict.fromkeys(texts):
            found[text] = found.get(text, 0) + nodes

    def takes(self, group: Group) -> bool:
        """Count the resources of a group, and return whether they are not too many; the first group is always asked."""
        self.resolved += len(group.entries) + 1
        return not self.asked or self.resolved <= MOST_RESOLVED

    def refuse(self, texts: Collection[str], nodes: int) -> None:
        self.refused += nodes if texts else 0
        self.add(self.refusals, texts, nodes)

    def counted(self, found: dict[str, int]) -> Iterator[str]:
        for text, nodes in found.items():
            yield text if nodes >= self.asked else f"{text} (on {nodes} of {self.asked} nodes)"


def review(objects: Objects, nodes: Nodes, request: ReviewRequest, grants: Grants) -> ReviewResponse:
    """Return the answer. ``objects`` may lag behind, and have another version of the object; ``grants`` are the nodes'.

    Never raises because of the object's content.
    """
    if request.new is None or (request.old is not None and request.old.spec == request.new.spec):
        return ReviewResponse()
    new = entry_of(request.new, grants.namespace)
    old = entry_of(request.old, grants.namespace) if request.old is not None else None
    if broken := errors(new.problems):
        return ReviewResponse(allowed=False, message="; ".join(map(_text, broken[:_DENIALS])))
    remarks = [_text(problem) for problem in new.problems]
    remarks += _left_to_nodes(new.resource, grants)
    grants = _granting(new.resource, grants)
    verdicts = _Verdicts()
    for group in nodes.groups(new, old, objects.involved(*(one for one in (new, old) if one is not None))):
        _ask(group, new, old, grants, verdicts)
    if verdicts.asked and verdicts.refused == verdicts.asked and not verdicts.unasked:
        return ReviewResponse(allowed=False, message="; ".join(list(verdicts.refusals)[:_DENIALS]))
    if not verdicts.asked:
        remarks.append(f"{new.id} selects no node")
    if verdicts.unasked:
        unasked = f"{verdicts.unasked} of {verdicts.asked + verdicts.unasked}"
        remarks.append(f"{unasked} nodes were not considered: too many objects may conflict with {new.id}")
    remarks += verdicts.counted({**verdicts.refusals, **verdicts.remarks})
    return ReviewResponse(warnings=tuple(_fitting(remarks)))


def _ask(group: Group, new: ObjectEntry, old: ObjectEntry | None, grants: Grants, verdicts: _Verdicts) -> None:
    """Add what a group of nodes decides: what the first and the last of them refuse, all in between do as well."""
    if not verdicts.takes(group):
        verdicts.unasked += len(group.nodes)
        return
    first, last = group.nodes[0], group.nodes[-1]
    refused, remarks = _decided(group, first, new, old, grants)
    # Only what takes addresses from pools can fail for an index.
    differ = first.index != last.index and (bool(refused or new.pools) or new.id.kind is Kind.UNDERLAY)
    at_end = _decided(group, last, new, old, grants)[0] if differ else refused
    verdicts.asked += len(group.nodes)
    verdicts.add(verdicts.remarks, remarks, len(group.nodes))
    if bool(refused) is bool(at_end):
        verdicts.refuse(refused, len(group.nodes))
        return
    for number, node in enumerate(group.nodes):
        if not verdicts.takes(group):
            verdicts.asked -= len(group.nodes) - number
            verdicts.unasked += len(group.nodes) - number
            return
        verdicts.refuse(_decided(group, node, new, old, grants)[0], 1)


def _decided(
    group: Group, node: NodeIdentity, new: ObjectEntry, old: ObjectEntry | None, grants: Grants
) -> tuple[list[str], list[str]]:
    """Return why a node refuses a resource, empty if it does not, and what else it would report."""
    resources = [entry.resource for entry in group.entries]
    former = [old.resource] if old is not None and group.had_old else []
    before = resolve([*resources, *former], node, grants=grants)
    after = resolve([*resources, new.resource], node, standing=before.standing, grants=grants)
    refusals: list[str] = []
    remarks: list[str] = []
    for problem in after.problems:
        if problem.resource != new.id:
            continue
        final = problem.severity is Severity.ERROR and problem.reason is not Reason.DEPENDENCY_FAILED
        (refusals if final else remarks).append(_text(problem))
    if not refusals and after.desired is not None:
        remarks += (text for name, text in _losses(before, after, new) if not any(name in known for known in remarks))
    return refusals, remarks


def _losses(before: Resolution, after: Resolution, new: ObjectEntry) -> Iterator[tuple[str, str]]:
    """Yield the name of what is no longer in force because of a resource, and why."""
    lost = before.standing.keys() - after.standing.keys() - {new.id}
    for problem in errors(after.problems):
        if problem.resource in lost:
            yield str(problem.resource), f"this takes {problem.resource} out of force: {problem.message}"


def _granting(resource: Resource, grants: Grants) -> Grants:
    """Return the nodes' settings, as if they granted what only they can refuse."""
    if grants.is_own(resource):
        return grants
    if resource.kind in _FOR_THE_FABRIC:
        return replace(grants, underlay_namespaces=grants.underlay_namespaces | {resource.namespace})
    return replace(grants, external_bridges=(*grants.external_bridges, *_bridge_of(resource)))


def _left_to_nodes(resource: Resource, grants: Grants) -> Iterator[str]:
    """Yield warnings about what depends on more than the objects."""
    if resource.kind is Kind.RAW_FRR_CONFIG:
        yield f"{resource.id}: whether FRR accepts the lines shows only when a node applies them"
    if grants.is_own(resource):
        return
    if resource.kind in _FOR_THE_FABRIC:
        yield f"{resource.id} counts only on nodes whose setting underlayNamespaces has {resource.namespace}"
    for bridge in _bridge_of(resource):
        yield f"{resource.id} counts only on nodes whose setting externalBridges has {bridge}"


def _bridge_of(resource: Resource) -> Iterator[str]:
    if isinstance(resource.spec, L2Vni) and resource.spec.host_master and resource.spec.host_master.linux_bridge:
        name = resource.spec.host_master.linux_bridge.name
        if name is not None:
            yield name


def _text(problem: Problem) -> str:
    field_name = f"{problem.field}: " if problem.field else ""
    return f"{problem.resource}: {field_name}{problem.message}"


def _fitting(remarks: list[str]) -> Iterator[str]:
    """Yield warnings within the limits of an answer."""
    kept = list(dict.fromkeys(remarks))
    for text in kept[:MOST_WARNINGS]:
        yield text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
    if len(kept) > MOST_WARNINGS:
        yield f"and {len(kept) - MOST_WARNINGS} more warnings"
