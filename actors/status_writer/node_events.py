"""What an admin must hear of this node, as Events: the router, its underlay, and what comes from its files.

Objects of the API are not among them: who claims that one fails makes an Event of the object itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from config.api import API_VERSION, ApiNode, ApiObject
from config.crd.conditions import SUCCESSFUL, UNDERLAY_FAILED, legal_reason, legal_text
from config.desired import DesiredState
from config.problems import Kind, Reason

from .condition_codec import Claim
from .failures import Blame, blames, router_faults
from .writer import Scene

#: Most of what comes from files; the rest is in the node's status.
MAX_FROM_FILES: Final = 20
INDEX_REPLACED: Final = "NodeIndexReplaced"
#: Lengths of events.k8s.io/v1. The server counts bytes of these (pkg/apis/core/validation/events.go), while it counts
#: characters of what a custom resource's schema limits.
MAX_NOTE: Final = 1024
_MAX_REASON: Final = 128
_MORE: Final = "…"
#: An Event's name is its subject's, cut, and a digest: a DNS subdomain has 253 characters.
_MAX_NAME: Final = 200
_DIGEST: Final = 16


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One thing to tell. Equal ``name`` and ``namespace``: the same thing, told again."""

    name: str
    namespace: str
    regarding: tuple[tuple[str, str], ...]
    warning: bool
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A state of affairs that lasts: ``occurrence`` begins it; it is over when no state with this ``key`` is left."""

    key: str
    occurrence: Occurrence
    end: Occurrence


def standing(scene: Scene) -> Iterator[Standing]:
    """Yield what is wrong with this node now."""
    node, blamed = scene.basis.node, blames(scene.basis, scene.namespace)
    for reason, message in router_faults(scene.basis):
        yield _standing(node, reason.value, "the router", message)
    if underlays := [blame for blame in blamed if blame.resource and blame.resource.kind is Kind.UNDERLAY]:
        yield _standing(node, UNDERLAY_FAILED, "the underlay", "; ".join(blame.message for blame in underlays))
    files = [blame for blame in blamed if blame.from_file and blame not in underlays]
    for blame in files[:MAX_FROM_FILES]:
        yield _standing(node, _reason(blame), _subject(blame), blame.message)


def claimed(one: ApiObject, claim: Claim) -> Occurrence:
    """Return what is to be told of a claim: the same whichever node makes it, so that it is told once."""
    regarding = {
        "apiVersion": API_VERSION,
        "kind": one.kind.value,
        "namespace": one.namespace,
        "name": one.name,
        "uid": one.uid,
    }
    why = claim.why if claim.failing else "in force again"
    note = f"node {claim.node}: {why}"
    return _occurrence(regarding, claim.failing, claim.reason, note, (one.uid, str(one.generation), claim.reason))


def index_replaced(node: ApiNode, old: str, desired: DesiredState) -> Occurrence:
    """Return that somebody's index on the Node was replaced by the one that is in force."""
    note = f"the annotation said {old!r}, but this node's index is {desired.node_index}: its own configuration decides"
    return _occurrence(_node(node), True, INDEX_REPLACED, note, (node.uid, INDEX_REPLACED, note))


def _standing(node: ApiNode, reason: str, subject: str, message: str) -> Standing:
    note = message if message.startswith(subject) else f"{subject}: {message}"
    begin = _occurrence(_node(node), True, reason, note, (node.uid, reason, subject, note))
    end = _occurrence(_node(node), False, SUCCESSFUL, f"{subject}: in force again", (node.uid, SUCCESSFUL, subject))
    return Standing(f"{reason} {subject}", begin, end)


def _occurrence(
    regarding: dict[str, str], warning: bool, reason: str, note: str, identity: tuple[str, ...]
) -> Occurrence:
    digest = hashlib.sha256("\n".join(identity).encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST]
    return Occurrence(
        name=f"{regarding['name'][:_MAX_NAME].rstrip('-.')}.{digest}",
        # Where kubectl describe looks for those about objects without a namespace.
        namespace=regarding.get("namespace") or "default",
        regarding=tuple(regarding.items()),
        warning=warning,
        reason=legal_reason(reason)[:_MAX_REASON],
        note=_fitting(legal_text(note, MAX_NOTE, reason)),
    )


def _fitting(note: str) -> str:
    """Return a note, cut between two characters if it has too many bytes."""
    text = note.encode()
    if len(text) <= MAX_NOTE:
        return note
    kept = text[: MAX_NOTE - len(_MORE.encode())].decode(errors="ignore")
    return kept.rstrip() + _MORE


def _node(node: ApiNode) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}


def _reason(blame: Blame) -> str:
    return (Reason.VALIDATION_FAILED if blame.reason is Reason.FILE_INVALID else blame.reason).value


def _subject(blame: Blame) -> str:
    return str(blame.resource) if blame.resource else blame.origin.path


def body(occurrence: Occurrence, instance: str, moment: str) -> dict[str, Any]:
    """Return the Event to create; ``instance`` is the node's name, ``moment`` RFC 3339 with microseconds."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": occurrence.name, "namespace": occurrence.namespace},
        "eventTime": moment,
        "reportingController": "openperouter",
        "reportingInstance": instance[:128],
        "action": "Configure",
        "type": "Warning" if occurrence.warning else "Normal",
        "reason": occurrence.reason,
        "note": occurrence.note,
        "regarding": dict(occurrence.regarding),
    }
