"""What has to change in the API for it to show the files, as a pure function of both.

In: the files' resources and the API's objects. Out: the changes, in an order in which they can be made.

Three promises. An object that this node cannot prove to have written is never deleted, and only written to when it has
the identity of a file's resource and is no other node's: then it is the mirror, even where another client removed its
labels and proof. A mirror whose file has no usable content now is left as it was. And a spec that means the same is not
written again, however the server spells it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from config.api import PROOF_ANNOTATION, SOURCE_LABEL, STATIC_NODE_LABEL, ApiNode, ApiObject, ApiSnapshot
from config.outcomes import StaticSnapshot
from config.problems import Kind, ResourceId
from config.resources import UnknownContent, Unusable
from config.sources.mirror_objects import ANNOTATIONS, canonical, file_of, mirror_of, other_name

#: The resource version of an object that is not there.
ABSENT: Final = ""
#: The mirrors that do not have the names of their resources.
Renamed = Mapping[ResourceId, ResourceId]
_NONE: Final[Renamed] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Change:
    """One object that has to become another. ``observed`` None: to be created; ``wanted`` None: to be deleted."""

    observed: ApiObject | None
    wanted: ApiObject | None

    @property
    def id(self) -> ResourceId:
        """Return which object it is."""
        subject = self.wanted or self.observed
        if subject is None:
            raise ValueError("a change of nothing into nothing")
        return subject.id

    @property
    def seen(self) -> str:
        """Return the resource version on which the change is based."""
        return self.observed.resource_version if self.observed else ABSENT

    @property
    def verb(self) -> str:
        """Return what is done to the object, as RBAC calls it."""
        if self.wanted is None:
            return "delete"
        return "patch" if self.observed else "create"


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """The changes in the order in which they can be made.

    ``mislabelled`` are objects that are labelled like mirrors, but are none. ``versions`` are those of all mirrors that
    are there; ``foreign`` are mirrors that carry another node's proof.
    """

    changes: tuple[Change, ...] = ()
    mislabelled: tuple[ApiObject, ...] = ()
    versions: Mapping[ResourceId, str] = field(default_factory=dict)
    foreign: frozenset[ResourceId] = frozenset()


def renamed(static: StaticSnapshot, api: ApiSnapshot, taken: Collection[ResourceId]) -> Renamed:
    """Return the mirrors that need another name than their resource's, which is ``taken``.

    A mirror that is there keeps the name that it has: another node's object may come and go.
    """
    there = {observed.id for observed in api.mirrored}
    pairs = ((resource.id, _other_id(resource.id, static.node.name)) for resource in static.resources)
    return {own: other for own, other in pairs if own not in there and (own in taken or other in there)}


def mirrors(
    static: StaticSnapshot, node: ApiNode, prove: Callable[[ResourceId], str], names: Renamed = _NONE
) -> dict[ResourceId, ApiObject]:
    """Return the object that each valid resource from the files should have; ``prove`` gives its proof."""
    usable = [one for one in static.resources if not isinstance(one.spec, Unusable | UnknownContent)]
    called = [(one, names.get(one.id, one.id).name) for one in usable]
    l3vnis = {one.name: names.get(one.id, one.id).name for one in static.resources if one.kind is Kind.L3VNI}
    shown = [replace(one, name=name) for one, name in called]
    return {one.id: mirror_of(one, static.node.name, node, prove(one.id), l3vnis) for one in shown}


def plan(static: StaticSnapshot, wanted: Mapping[ResourceId, ApiObject], api: ApiSnapshot) -> MirrorPlan:
    """Return what has to change for ``api`` to show ``wanted``, which are the mirrors of ``static``."""
    configured = {resource.id for resource in static.resources}
    # A resource that is not usable has no mirror now, but may have one from before, under either name.
    usable = {resource.id for resource in static.resources if not isinstance(resource.spec, Unusable | UnknownContent)}
    kept = {name for one in configured - usable for name in (one, _other_id(one, static.node.name))} | wanted.keys()
    unproven = [observed for observed in api.objects if observed.id not in configured]
    unmarked = {observed.id: observed for observed in api.objects if observed.id in wanted}
    there = unmarked | {observed.id: observed for observed in api.mirrored}
    # Deletions come first: a new object may use a name or number that they free.
    gone = (observed for observed in api.mirrored if observed.id not in kept and not _may_be_in(static, observed))
    changes = [Change(observed, None) for observed in gone]
    changes += (Change(there.get(mirror.id), mirror) for mirror in wanted.values())
    return MirrorPlan(
        tuple(change for change in changes if not _is_made(change)),
        tuple(observed for observed in unproven if SOURCE_LABEL in observed.labels),
        {key: observed.resource_version for key, observed in there.items()},
        frozenset(key for key, observed in unmarked.items() if PROOF_ANNOTATION in observed.annotations),
    )


def is_proven(observed: ApiObject, wanted: ApiObject) -> bool:
    """Whether an object has the proof of the mirror of its name, so that this node wrote it."""
    proof = wanted.annotations.get(PROOF_ANNOTATION)
    return proof is not None and observed.annotations.get(PROOF_ANNOTATION) == proof


def another_nodes(observed: ApiObject, wanted: ApiObject) -> str:
    """Return which other node an object belongs to, by its label or owner; empty when neither names another node.

    A Node that was created again has another uid, and is the same node.
    """
    label, ours = observed.labels.get(STATIC_NODE_LABEL, ""), wanted.labels.get(STATIC_NODE_LABEL)
    if label and label != ours:
        return label
    known = {value for owner in wanted.owners for value in (owner.get("name"), owner.get("uid"))}
    nodes = [owner for owner in observed.owners if owner.get("kind") == "Node"]
    others = (owner for owner in nodes if known.isdisjoint((owner.get("name"), owner.get("uid"))))
    return next((str(owner.get("name") or owner.get("uid")) for owner in others), "")


def difference(observed: ApiObject, wanted: ApiObject) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) that turns ``observed`` into ``wanted``; empty when they mean the same.

    Labels and annotations of other clients stay. The owners are exactly the wanted ones: another owner would keep the
    object when the node is gone.
    """
    metadata: dict[str, Any] = {}
    if labels := _merge(observed.labels, wanted.labels):
        metadata["labels"] = labels
    if annotations := _merge(observed.annotations, wanted.annotations, ours=ANNOTATIONS):
        metadata["annotations"] = annotations
    if [dict(owner) for owner in observed.owners] != [dict(owner) for owner in wanted.owners]:
        metadata["ownerReferences"] = [dict(owner) for owner in wanted.owners]
    patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if canonical(wanted.kind, observed.spec) != wanted.spec:
        patch["spec"] = _spec_difference(observed.spec, wanted.spec)
    return patch


def same_content(one: ApiObject, other: ApiObject, wanted: ApiObject) -> bool:
    """Whether two objects are literally the same, in everything that ``wanted`` sets."""
    contents = (
        (
            each.owners,
            each.spec,
            {key: each.labels.get(key) for key in wanted.labels},
            {key: each.annotations.get(key) for key in ANNOTATIONS},
        )
        for each in (one, other)
    )
    return next(contents) == next(contents)


def _other_id(resource: ResourceId, node_name: str) -> ResourceId:
    return replace(resource, name=other_name(resource.name, node_name))


def _is_made(change: Change) -> bool:
    return change.observed is not None and change.wanted is not None and not difference(change.observed, change.wanted)


def _may_be_in(static: StaticSnapshot, observed: ApiObject) -> bool:
    """Whether this mirror may be from a file, or directory, whose content is not known."""
    unknown = [one.origin.path for one in static.resources if isinstance(one.spec, UnknownContent)]
    path = file_of(observed)
    return any(path in ("", place) or path.startswith(f"{place}/") for place in unknown)


def _merge(observed: Mapping[str, str], wanted: Mapping[str, str], ours: Iterable[str] = ()) -> dict[str, str | None]:
    """Return what to set and, among the keys that are ours, what to remove."""
    changed: dict[str, str | None] = {key: value for key, value in wanted.items() if observed.get(key) != value}
    return changed | {key: None for key in ours if key in observed and key not in wanted}


def _spec_difference(observed: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(observed, Mapping):
        return dict(wanted)
    changed = {key: _value(observed.get(key), value) for key, value in wanted.items() if observed.get(key) != value}
    return changed | {key: None for key in observed if key not in wanted}


def _value(observed: Any, wanted: Any) -> Any:
    return _spec_difference(observed, wanted) if isinstance(wanted, Mapping) else wanted
