"""What is known of one collection: fed by lists and by events, and never more than what concerns this node.

A list is gathered in a store of its own (:meth:`fresh`) and takes effect at once and whole (:meth:`replace`), so that a
list that breaks in the middle leaves no trace. Methods that return a bool say whether the content is another one now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from config.api import ApiObject
from config.problems import Kind

from .decoding import api_object, metadata
from .node_selector import Place, judge

T = TypeVar("T")

#: Most label keys that are remembered of one collection's selectors; with more, any label may matter.
MOST_KEYS: Final = 1000

_Name = tuple[str, str]


class Store(Protocol):
    """What a stream needs of a store."""

    #: Whether a whole list was read, or it is certain that there can be nothing.
    known: bool

    @property
    def empty(self) -> bool:
        """Whether nothing is in it."""

    @property
    def stale(self) -> bool:
        """Whether what is in it was chosen by labels that the node has no more, so that it must be listed again."""

    def fresh(self) -> Self:
        """Return an empty store of the same collection, chosen by the node's present labels."""

    def put(self, raw: Any) -> bool:
        """Take in an object that is there."""

    def remove(self, raw: Any) -> bool:
        """Take in that an object is not there any more."""

    def replace(self, other: Self) -> bool:
        """Take over what a whole list gave."""


@dataclass
class KindStore:
    """The custom resources of one kind that concern this node.

    ``labels`` are those by which they were chosen, ``wanted`` the node's present ones, ``keys`` the label keys that any
    selector of the collection looks at: a change of other labels changes nothing and needs no list. None: any key.
    """

    kind: Kind
    #: The key of this node's proofs.
    key: bytes = field(repr=False)
    labels: Mapping[str, str] | None = None
    wanted: Mapping[str, str] | None = None
    known: bool = False
    objects: dict[_Name, ApiObject] = field(default_factory=dict)
    mirrored: dict[_Name, ApiObject] = field(default_factory=dict)
    keys: set[str] | None = field(default_factory=set)

    @property
    def empty(self) -> bool:
        """Whether nothing here concerns this node."""
        return not self.objects and not self.mirrored

    @property
    def stale(self) -> bool:
        """Whether the node's labels have changed in a way that may choose other objects."""
        if self.labels == self.wanted:
            return False
        if self.labels is None or self.wanted is None or self.keys is None:
            return self.keys != set()
        return any(self.labels.get(key) != self.wanted.get(key) for key in self.keys)

    def choose_by(self, labels: Mapping[str, str]) -> None:
        """Say which labels the node has now."""
        self.wanted = labels
        if not self.stale:
            self.labels = labels

    def fresh(self) -> KindStore:
        """Return an empty store of this kind, for the node's present labels."""
        return KindStore(self.kind, self.key, labels=self.wanted, wanted=self.wanted)

    def put(self, raw: Any) -> bool:
        """Take in an object as it is now; it may belong elsewhere now."""
        candidate = api_object(self.kind, raw)
        name = (candidate.namespace, candidate.name)
        verdict = judge(candidate, self.labels, self.key)
        self._learn(verdict.keys)
        before = self.objects.pop(name, None), self.mirrored.pop(name, None)
        if verdict.place is Place.HERE:
            self.objects[name] = candidate
        elif verdict.place is Place.MIRRORED:
            self.mirrored[name] = candidate
        return before != (self.objects.get(name), self.mirrored.get(name))

    def remove(self, raw: Any) -> bool:
        """Forget an object."""
        meta = metadata(raw)
        name = (str(meta.get("namespace") or ""), meta["name"])
        gone = self.objects.pop(name, None), self.mirrored.pop(name, None)
        return gone != (None, None)

    def replace(self, other: KindStore) -> bool:
        """Take over a list. It was chosen by ``other``'s labels, which may already be out of date."""
        changed = (other.objects, other.mirrored, True) != (self.objects, self.mirrored, self.known)
        self.objects, self.mirrored, self.known = other.objects, other.mirrored, True
        self.labels, self.keys = other.labels, other.keys
        if not self.stale:
            self.labels = self.wanted
        return changed

    def _learn(self, keys: frozenset[str]) -> None:
        if self.keys is not None and not keys <= self.keys:
            self.keys = self.keys | keys if len(self.keys) < MOST_KEYS else None


@dataclass
class SingleStore(Generic[T]):
    """One object of a given name, decoded; ``value`` None: it is not there."""

    name: str
    decode: Callable[[Any], T | None]
    value: T | None = field(default=None, repr=False)
    known: bool = False
    stale: bool = field(default=False, init=False)

    @property
    def empty(self) -> bool:
        """Whether the object is not there."""
        return self.value is None

    def fresh(self) -> SingleStore[T]:
        """Return a store for the same object that knows nothing."""
        return SingleStore(self.name, self.decode)

    def put(self, raw: Any) -> bool:
        """Take in the object; one of another name is not ours."""
        if metadata(raw)["name"] != self.name:
            return False
        before, self.value = self.value, self.decode(raw)
        return before != self.value

    def remove(self, raw: Any) -> bool:
        """Take in that the object is gone."""
        if metadata(raw)["name"] != self.name or self.value is None:
            return False
        self.value = None
        return True

    def replace(self, other: SingleStore[T]) -> bool:
        """Take over what a list gave."""
        changed = (other.value, True) != (self.value, self.known)
        self.value, self.known = other.value, True
        return changed
