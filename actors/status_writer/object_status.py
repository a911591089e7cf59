"""What this node makes of each object of the API that selects it: in force, not in force and why, or not known yet.

An object's generation is good once everything on this node has taken it up, and stays good until something is wrong
with that very object: that FRR restarts is the router's trouble, told in the node's own status, and no verdict on two
hundred objects. Resources fail alone, so another one's failure does not count either.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from config.api import ApiObject
from config.crd.conditions import FAILED, SUCCESSFUL
from config.problems import Kind, Origin, Reason, ResourceId
from config.sources.mirror_objects import plain_name

from .failures import Blame, blames, router_faults
from .inputs import Basis, origins_of

#: A generation that was taken in and is neither in force nor refused for so many seconds counts as failed: FRR and the
#: kernel need seconds for the largest change, and a minute when they are restarted meanwhile.
PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """``good`` None: not known yet. ``generation`` is the newest one of the object that this node has dealt with."""

    generation: int
    good: bool | None
    reason: str = SUCCESSFUL
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Key:
    resource: ResourceId
    uid: str
    generation: int


@dataclass(frozen=True, slots=True)
class _Facts:
    """One look at the inputs, arranged for questions about single objects."""

    origins: Mapping[ResourceId, Origin]
    blamed: Mapping[ResourceId, list[Blame]]
    underlay: str
    router: tuple[str, str]
    standing: frozenset[ResourceId]
    node: str


class Judge:
    """Remembers which generations were good, and since when others are on their way."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._proved: set[_Key] = set()
        self._since: dict[_Key, float] = {}

    def judge(self, basis: Basis, now: float) -> dict[ResourceId, Verdict]:
        """Return a verdict on each object, mirrors of files included; those not taken in at all have none."""
        facts = _facts(basis, self._namespace)
        self._forget((*basis.api.objects, *basis.api.mirrored))
        verdicts = {one.id: self._verdict(one, facts, now, mirror=False) for one in basis.api.objects}
        verdicts |= {one.id: self._verdict(one, facts, now, mirror=True) for one in basis.api.mirrored}
        return {resource: verdict for resource, verdict in verdicts.items() if verdict is not None}

    def due(self, now: float) -> float:
        """Return when a verdict will change by the passing of time alone."""
        ends = (since + PATIENCE for since in self._since.values())
        return min((end for end in ends if end > now), default=math.inf)

    def _verdict(self, one: ApiObject, facts: _Facts, now: float, *, mirror: bool) -> Verdict | None:
        resource = replace(one.id, name=plain_name(one.name, facts.node)) if mirror else one.id
        origin = facts.origins.get(resource)
        generation = one.generation if mirror else origin.generation if origin and not origin.path else None
        known = facts.blamed.get(resource, ())
        if blamed := [blame for blame in known if mirror or blame.origin.generation == one.generation]:
            return Verdict(one.generation, False, blamed[0].reason.value, "; ".join(blame.message for blame in blamed))
        if generation == one.generation and origin is not None:
            return self._of_newest(one, resource in facts.standing, facts, now)
        if facts.underlay:
            told = f"the underlay is not usable, so that nothing changes on this node: {facts.underlay}"
            return Verdict(one.generation, False, Reason.DEPENDENCY_FAILED.value, told)
        return Verdict(generation, None) if generation is not None and not mirror else None

    def _of_newest(self, one: ApiObject, stands: bool, facts: _Facts, now: float) -> Verdict:
        """Judge what takes part in the newest state and is not to blame for anything."""
        key = _Key(one.id, one.uid, one.generation)
        if stands:
            self._proved.add(key)
        if key in self._proved:
            self._since.pop(key, None)
            return Verdict(one.generation, True)
        if now - self._since.setdefault(key, now) < PATIENCE:
            return Verdict(one.generation, None)
        return Verdict(one.generation, False, *facts.router)

    def _forget(self, objects: Iterable[ApiObject]) -> None:
        present = {_Key(one.id, one.uid, one.generation) for one in objects}
        self._proved &= present
        self._since = {key: since for key, since in self._since.items() if key in present}


def _facts(basis: Basis, namespace: str) -> _Facts:
    blamed: dict[ResourceId, list[Blame]] = {}
    for blame in blames(basis, namespace):
        if blame.resource is not None:
            blamed.setdefault(blame.resource, []).append(blame)
    underlay = next((one[0].message for resource, one in blamed.items() if resource.kind is Kind.UNDERLAY), "")
    origins = origins_of(basis.desired)
    standing = frozenset(_standing(basis, origins)) - blamed.keys()
    return _Facts(origins, blamed, underlay, _trouble(basis), standing, basis.desired.node_name)


def _standing(basis: Basis, origins: Iterable[ResourceId]) -> Iterator[ResourceId]:
    """Yield the resources that are in force, judging by the health of the newest state.

    While another resource fails the state as a whole is never verified. Then health names whom it blames, but only once
    everything else had its time.
    """
    health = basis.health
    if health is None or health.generation != basis.desired.generation:
        return
    if health.verified:
        yield from origins
    elif health.failures:
        broken = {vni.resource for vni in health.vnis if not vni.ok}
        yield from (resource for resource in origins if resource not in broken)


def _trouble(basis: Basis) -> tuple[str, str]:
    """Return reason and message for what is not in force though nobody blames it."""
    for reason, message in router_faults(basis):
        return reason.value, message
    # Without the number of the state, which changes by itself.
    summary = (
        re.sub(r"^verifying generation \d+: ", "", basis.health.summary) if basis.health else "health not known yet"
    )
    return FAILED, f"not in force after {PATIENCE:g} s: {summary}"
