"""What decides between two resources that conflict but are valid by themselves: the one in force wins.

So no one can take a network out of force by adding a resource. In full, the first difference decides:

1. in force and unchanged; in force under its name, but changed since; not in force yet
2. from a file; from the API
3. L3VNI, L2VNI, passthrough
4. namespace and name

A segment is no older than its routing domain, without which it cannot be in force. Contents are compared by digest, so
that a resource that moved (from the API to a file, or to another entry) keeps its precedence; a copy of one that is
still there inherits nothing. A :class:`Standing` is what has to be stored for that; it contains no secret, since all
passwords look the same in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

from config.desired import Secret
from config.models import Model
from config.models.base import fields_by_key
from config.problems import Kind, ResourceId
from config.resources import Resource


@dataclass(frozen=True, slots=True)
class Held:
    """What is stored about a resource in force: a digest of its content, and for a segment its routing domain."""

    digest: str
    domain: ResourceId | None = None


#: The resources in force.
Standing = Mapping[ResourceId, Held]
NOTHING_IN_FORCE: Final[Standing] = MappingProxyType({})


class Rank(IntEnum):
    """How old a resource is: smaller ones win."""

    UNCHANGED = 0
    CHANGED = 1
    NEW = 2


#: Rank, origin, kind, namespace and name.
Key = tuple[int, int, int, str, str]
_FROM_FILE: Final = 0
_FROM_API: Final = 1
_KINDS: Final = tuple(Kind)


class Precedence:
    """The order of one node's resources, given what is in force."""

    def __init__(self, resources: Iterable[Resource], standing: Standing = NOTHING_IN_FORCE) -> None:
        known = {resource.id: resource for resource in resources}
        self.standing = standing
        self._digests = {one: digest(resource) for one, resource in known.items()}
        self._unchanged = {one for one, held in standing.items() if self._digests.get(one) == held.digest}
        gone = {one: held for one, held in standing.items() if one not in known}
        # Nameless entries of files are numbered, so an entry inserted before one takes its name.
        renamed = {one for one in standing if one in known and one not in self._unchanged and known[one].is_from_file}
        self._moved = {(one.kind, held.digest) for one, held in gone.items()}
        self._moved_in_files = self._moved | {(one.kind, standing[one].digest) for one in renamed}

    def rank(self, resource: Resource) -> Rank:
        """Return how old a resource is."""
        moved = self._moved_in_files if resource.is_from_file else self._moved
        if resource.id in self._unchanged or (resource.kind, self._digests[resource.id]) in moved:
            return Rank.UNCHANGED
        return Rank.CHANGED if resource.id in self.standing else Rank.NEW

    def key(self, resource: Resource, domain: Resource | None = None) -> Key:
        """Return what to sort by, given a segment's routing domain."""
        age = self._age(resource) if domain is None else max(self._age(resource), self._age(domain))
        return (*age, _KINDS.index(resource.kind), resource.namespace, resource.name)

    def lacks(self, kind: Kind, resources: Iterable[Resource]) -> bool:
        """Whether something of a kind is in force that none of these resources is."""
        if not any(one.kind is kind for one in self.standing):
            return False
        return all(self.rank(resource) is Rank.NEW for resource in resources)

    def hold(self, resource: ResourceId, domain: ResourceId | None = None) -> Held:
        """Return what to store about a resource that is in force now."""
        return Held(self._digests[resource], domain)

    def _age(self, resource: Resource) -> tuple[int, int]:
        return self.rank(resource), _FROM_FILE if resource.is_from_file else _FROM_API


def digest(resource: Resource) -> str:
    """Return a digest of a valid resource's content without its node selector; empty for one that is not usable."""
    if not isinstance(resource.spec, Model):
        return ""
    content = _given(resource.spec)
    content.pop("nodeSelector", None)
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=_plain).encode()).hexdigest()


def _given(model: Model) -> dict[str, Any]:
    """Return what is given of a model, by the keys that users write.

    That is what pydantic's ``model_dump`` returns, for which each model's serializer has to be made first: a start
    makes none of these.
    """
    keys = zip(fields_by_key(type(model)), type(model).model_fields, strict=True)
    return {key: value for key, name in keys if (value := getattr(model, name)) is not None}


def _plain(value: object) -> object:
    """Return what JSON writes instead of a value that it does not know."""
    if isinstance(value, Model):
        return _given(value)
    return "********" if isinstance(value, Secret) else str(value)
