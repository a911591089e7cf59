"""The custom resources of one kind that concern this node.

A :class:`KindStore` keeps the custom resources whose node selector selects this node, and those that this node wrote.
When the node's labels change in a way that may select others it is *stale*: only a new list can show which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from actors.lib.kube.decoding import api_object
from actors.lib.kube.mirror_signature import is_ours
from actors.lib.kube.store import Store, name_of
from config.api import ApiObject
from config.models.selector import selector_in, selects
from config.problems import Kind

#: Maximum number of label keys of one collection's selectors; with more, any label may matter.
MOST_KEYS: Final = 1000


@dataclass(frozen=True, slots=True)
class SelectedObject:
    """An object that concerns this node: by its selector, or ``mirrored``, because this node wrote it."""

    object: ApiObject
    mirrored: bool = False


class KindStore(Store[SelectedObject]):
    """The custom resources of one kind. ``key`` signs what this node writes; ``own`` is the program's namespace: of the
    snippets of others, which are refused by name, no text is kept; of what this node did not write no node selector.

    ``labels`` are those by which the content was selected, ``wanted`` the node's present ones, ``keys`` the label keys
    that any selector of the collection uses: a change of other labels needs no list. None: any key.
    """

    def __init__(self, kind: Kind, key: bytes, own: str, labels: Mapping[str, str] | None = None) -> None:
        super().__init__(self._select)
        self.kind, self._key, self._own = kind, key, own
        self.labels = self.wanted = labels
        self.keys: set[str] | None = set()

    @property
    def stale(self) -> bool:
        """Whether the node's labels have changed in a way that may select other objects."""
        if self.labels == self.wanted:
            return False
        if self.labels is None or self.wanted is None or self.keys is None:
            return self.keys != set()
        return any(self.labels.get(key) != self.wanted.get(key) for key in self.keys)

    def select_by(self, labels: Mapping[str, str]) -> None:
        """Set the node's present labels."""
        self.wanted = labels
        if not self.stale:
            self.labels = labels

    def fresh(self) -> Self:
        """Return an empty store of this kind, for the node's present labels."""
        return type(self)(self.kind, self._key, self._own, self.wanted)

    def replace(self, other: Self) -> bool:
        """Replace the content by a list, which was selected by ``other``'s labels; they may already be out of date."""
        changed = super().replace(other)
        self.labels, self.keys = other.labels, other.keys
        if not self.stale:
            self.labels = self.wanted
        return changed

    def put(self, raw: Any) -> bool:
        """Store an object's newest version. A write to its status, which is not a user's, does not count as a change.

        Of the node's own mirrors each version counts: a deletion has to name the newest.
        """
        before = self.items.get(name_of(raw))
        changed = super().put(raw)
        after = self.items.get(name_of(raw))
        if not changed or before is None or after is None or after.mirrored:
            return changed
        return replace(before.object, resource_version=after.object.resource_version) != after.object

    def objects(self, *, mirrored: bool) -> list[ApiObject]:
        """Return the objects that this node wrote, or all others, by name."""
        found = (self.items[name] for name in sorted(self.items))
        return [one.object for one in found if one.mirrored is mirrored]

    def _select(self, raw: Any) -> SelectedObject | None:
        candidate = api_object(self.kind, raw)
        if is_ours(self._key, candidate):
            return SelectedObject(candidate, mirrored=True)
        selected, keys = selection(candidate.spec, self.labels)
        if self.keys is not None and not keys <= self.keys:
            found = self.keys | keys
            self.keys = found if len(found) <= MOST_KEYS else None
        if not selected:
            return None
        if self.kind is Kind.RAW_FRR_CONFIG and candidate.namespace != self._own:
            return SelectedObject(replace(candidate, spec={}))
        return SelectedObject(replace(candidate, spec=_without_selector(candidate.spec)))


def _without_selector(spec: Any) -> Any:
    """Return a spec without its node selector, which has done its work, and whose size no definition bounds.

    One that cannot be read is kept: the merging code reports it.
    """
    if not isinstance(spec, dict) or "nodeSelector" not in spec or selector_in(spec) is None:
        return spec
    return {key: value for key, value in spec.items() if key != "nodeSelector"}


def selection(spec: Any, labels: Mapping[str, str] | None) -> tuple[bool, frozenset[str]]:
    """Return whether a spec selects a node with these labels, and the label keys on which that depends.

    A selector that cannot be read selects: the merging code reports it. ``labels`` None means a node of which nothing
    is known yet: it is selected only by what selects every node, not by a selector for nodes *without* some label.
    """
    selector = selector_in(spec)
    if selector is None:
        return True, frozenset()
    keys = frozenset((*selector.match_labels, *(one.key for one in selector.match_expressions)))
    return (not keys if labels is None else selects(selector, labels)), keys
