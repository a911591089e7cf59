"""Whether an object is this node's business: by its node selector, or because this node wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pydantic import ValidationError

from actors.lib.kube.mirror_signature import is_ours
from config.api import ApiObject
from config.models.selector import LabelSelector, selects

_EVERY_NODE = LabelSelector()


class Place(Enum):
    """Where an object belongs."""

    #: It is in force on this node, or nobody can tell, which the merging code reports.
    HERE = auto()
    #: This node wrote it to show a file's resource; its labels and its selector do not matter.
    MIRRORED = auto()
    ELSEWHERE = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where an object belongs, and the labels of the node on which that depends."""

    place: Place
    keys: frozenset[str] = frozenset()


def judge(candidate: ApiObject, labels: Mapping[str, str] | None, key: bytes) -> Verdict:
    """Return where an object belongs on a node with these labels; ``key`` is the one of the node's proofs.

    ``labels`` None means a node of which nothing is known yet: then only an object for every node is for this one, and
    one for the nodes *without* some label is not.
    """
    if is_ours(key, candidate):
        return Verdict(Place.MIRRORED)
    try:
        selector = _selector(candidate.spec)
    except ValidationError:
        return Verdict(Place.HERE)
    keys = frozenset((*selector.match_labels, *(one.key for one in selector.match_expressions)))
    chosen = not keys if labels is None else selects(selector, labels)
    return Verdict(Place.HERE if chosen else Place.ELSEWHERE, keys)


def _selector(spec: Any) -> LabelSelector:
    """Return the selector in a spec; one that is absent or null selects every node. Raises ValidationError."""
    given = spec.get("nodeSelector") if isinstance(spec, dict) else None
    return _EVERY_NODE if given is None else LabelSelector.model_validate(given)
