"""Which index each Node gets: pure functions from the Nodes to the changes (upstream's nodemarker; reference ARCH-14).

A node that runs the daemon takes its index from its configuration, and writes it itself: the controller never changes
such an index, not even a duplicate, which only the configuration can resolve. Every other Node keeps a valid, unique
index, and gets the lowest free one instead of a missing, invalid or duplicate one. So an index is written either by the
node or by the controller, and the two never compete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

#: The largest index that a node's configuration accepts.
MAX_INDEX: Final = 2**63 - 1
_DIGITS: Final = len(str(MAX_INDEX))


@dataclass(frozen=True, slots=True)
class IndexedNode:
    """The part of a Node that matters for its index. ``created`` orders Nodes: RFC 3339 in UTC sorts as text.

    ``own``: the index is from the node's configuration. ``settled``: the Node has existed for long enough that a daemon
    on it would have reported; until then a missing index is not assigned.
    """

    name: str
    annotation: str | None = None
    own: bool = False
    settled: bool = True
    created: str = ""


def index_of(annotation: str | None) -> int | None:
    """Return the index in an annotation, None if it has no valid one."""
    if annotation is None or not (annotation.isascii() and annotation.isdecimal()) or len(annotation) > _DIGITS:
        return None
    index = int(annotation)
    return index if index <= MAX_INDEX else None


def assign(nodes: Iterable[IndexedNode]) -> dict[str, int]:
    """Return the new index of each Node that needs one, by name.

    Of several Nodes with the same index, one that configures it keeps it, else the oldest Node, then the first by name.
    """
    taken: set[int] = set()
    lacking = []
    for node in sorted(nodes, key=lambda node: (not node.own, node.created, node.name)):
        index = index_of(node.annotation)
        if index is not None and (node.own or index not in taken):
            taken.add(index)
        elif not node.own and (node.settled or node.annotation is not None):
            lacking.append(node.name)
    free = (index for index in count() if index not in taken)
    return {name: next(free) for name in lacking}


def duplicates(nodes: Iterable[IndexedNode]) -> dict[int, tuple[str, ...]]:
    """Return the indices that several nodes' own configurations claim, each with the names of those nodes, sorted."""
    claims: dict[int, list[str]] = {}
    for node in nodes:
        index = index_of(node.annotation)
        if node.own and index is not None:
            claims.setdefault(index, []).append(node.name)
    return {index: tuple(sorted(names)) for index, names in sorted(claims.items()) if len(names) > 1}


def described(duplicate: Mapping[int, tuple[str, ...]]) -> dict[str, str]:
    """Return a message for each node with a duplicate index, by the node's name."""
    return {
        name: f"nodes {listed(names)} have the same index {index}, and so the same addresses"
        for index, names in duplicate.items()
        for name in names
    }


def listed(names: Iterable[str], most: int = 3) -> str:
    """Return names as a phrase: the first few, and the number of the others."""
    all_ = list(names)
    shown = all_[:most]
    if len(all_) > most:
        return f"{', '.join(shown)} and {len(all_) - most} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
