"""The objects of one collection, filled by lists and by watch events.

A list is gathered in a store of its own (:meth:`Store.fresh`) and takes effect whole (:meth:`Store.replace`), so that
a list that breaks in the middle changes nothing. Events put and remove single objects. Methods that return a bool say
whether the content changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from .decoding import metadata

T = TypeVar("T")

Name = tuple[str, str]


class Store(Generic[T]):
    """Objects by namespace and name. What ``decode`` returns None for is not kept; ``only`` is the one name to keep.

    ``known``: whether a complete list was read.
    """

    def __init__(self, decode: Callable[[Any], T | None], only: str = "") -> None:
        self._decode, self._only = decode, only
        self.items: dict[Name, T] = {}
        self.known = False

    @property
    def stale(self) -> bool:
        """Whether it was filled for labels that the node no longer has, so that it must be listed again."""
        return False

    @property
    def value(self) -> T | None:
        """Return the one object of a collection that is narrowed down to a name."""
        return next(iter(self.items.values()), None)

    def fresh(self) -> Self:
        """Return an empty store of the same collection, for the node's present labels."""
        return type(self)(self._decode, self._only)

    def put(self, raw: Any) -> bool:
        """Store an object's newest version."""
        name = name_of(raw)
        value = self._decode(raw) if self._only in ("", name[1]) else None
        before = self.items.pop(name, None)
        if value is not None:
            self.items[name] = value
        return before != value

    def remove(self, raw: Any) -> bool:
        """Remove an object."""
        return self.items.pop(name_of(raw), None) is not None

    def replace(self, other: Self) -> bool:
        """Replace the content by that of a complete list."""
        changed = (other.items, True) != (self.items, self.known)
        self.items, self.known = other.items, True
        return changed


def name_of(raw: Any) -> Name:
    """Return an object's namespace and name."""
    meta = metadata(raw)
    return str(meta.get("namespace") or ""), meta["name"]
