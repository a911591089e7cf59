"""Which generation of each API object this node has processed, and whether that generation is in force.

An object's generation is in force once FRR and the kernel are verified to have it, and stays so until something fails
that concerns that very object. A restart of FRR is a failure of the router, which the node's status reports as such;
it does not make two hundred objects fail. Nor does the failure of another resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from config.api import ApiObject
from config.problems import Origin, ResourceId
from config.sources.mirror_objects import plain_name

from .node_state import NodeState, resource_failures


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """``generation`` is the newest one of the object that this node has processed."""

    generation: int
    in_force: bool


#: One generation of one object: its resource, uid and generation.
_Key = tuple[ResourceId, str, int]


@dataclass(frozen=True, slots=True)
class _Resources:
    """The node's resources: where each was written, which generations failed, and which are verified."""

    node: str
    origins: Mapping[ResourceId, Origin]
    failed: Mapping[ResourceId, set[int]]
    verified: frozenset[ResourceId]
    #: Whether the underlay is unusable, so that nothing on this node changes.
    underlay_failed: bool


class ObjectTracker:
    """Tracks which generations were in force."""

    def __init__(self) -> None:
        self._verified: set[_Key] = set()

    def update(self, state: NodeState) -> dict[ResourceId, ObjectStatus]:
        """Return the status of each object that this node has processed, mirrors of files included."""
        resources = _resources(state)
        self._verified &= {_key(one) for one in (*state.api.objects, *state.api.mirrored)}
        found = {one.id: self._status(one, resources, mirror=False) for one in state.api.objects}
        found |= {one.id: self._status(one, resources, mirror=True) for one in state.api.mirrored}
        return {resource: status for resource, status in found.items() if status is not None}

    def _status(self, one: ApiObject, resources: _Resources, *, mirror: bool) -> ObjectStatus | None:
        resource = replace(one.id, name=plain_name(one.name, resources.node)) if mirror else one.id
        failed = resources.failed.get(resource, set())
        if one.generation in failed or (mirror and failed):
            return ObjectStatus(one.generation, in_force=False)
        applied = _applied_generation(one, resources.origins.get(resource), mirror=mirror)
        if applied == one.generation:
            if resource in resources.verified:
                self._verified.add(_key(one))
            return ObjectStatus(one.generation, in_force=_key(one) in self._verified)
        if resources.underlay_failed:
            return ObjectStatus(one.generation, in_force=False)
        return None if applied is None else ObjectStatus(applied, in_force=False)


def _applied_generation(one: ApiObject, origin: Origin | None, *, mirror: bool) -> int | None:
    """Return the generation of the object in the newest configuration, None for an object that is not part of it."""
    if origin is None:
        return None
    if mirror:
        return one.generation
    return None if origin.path else origin.generation


def _key(one: ApiObject) -> _Key:
    return one.id, one.uid, one.generation


def _resources(state: NodeState) -> _Resources:
    failed: dict[ResourceId, set[int]] = {}
    failures = resource_failures(state)
    for failure in failures:
        if failure.resource is not None:
            failed.setdefault(failure.resource, set()).add(failure.origin.generation)
    verified = frozenset(_verified(state)) - failed.keys()
    underlay_failed = any(failure.of_underlay for failure in failures)
    return _Resources(state.desired.node_name, state.origins, failed, verified, underlay_failed)


def _verified(state: NodeState) -> Iterator[ResourceId]:
    """Yield the resources that the health of the newest configuration shows to be in force.

    While another resource fails the configuration as a whole is never verified. Then health lists the failures, but
    only after everything else has had its time.
    """
    health = state.health
    if health is None or health.generation != state.desired.generation:
        return
    if health.verified:
        yield from state.origins
    elif health.failures:
        broken = {vni.resource for vni in health.vnis if not vni.ok}
        yield from (resource for resource in state.origins if resource not in broken)
