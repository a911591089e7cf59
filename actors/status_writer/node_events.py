"""What this node reports as Events, all of them about its own Node: ``kubectl describe node`` shows them.

Input: the state of the node. Output: its failures, each with the Event at its beginning and the Event at its end.

An Event about an object that thousands of nodes share would come from each of them. So the API objects that fail on
this node are one Event about the Node together; the node's status lists them one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from config.api import ApiNode
from config.crd.conditions import DUPLICATE_INDEX, FAILED, SUCCESSFUL, UNDERLAY_FAILED, legal_reason, legal_text
from config.problems import Reason

from .node_state import Failure, NodeState, duplicate_addresses, resource_failures, router_failures

#: Maximum number of Events about files' resources; the others are in the node's status.
MAX_FROM_FILES: Final = 20
INDEX_REPLACED: Final = "NodeIndexReplaced"
#: Where Events about objects without a namespace belong, and where ``kubectl describe`` looks for them.
NAMESPACE: Final = "default"
#: Lengths of events.k8s.io/v1. The server counts bytes of these (pkg/apis/core/validation/events.go), while it counts
#: characters of what a custom resource's schema limits.
MAX_NOTE: Final = 1024
_MAX_REASON: Final = 128
_MAX_INSTANCE: Final = 128
_ELLIPSIS: Final = "…"
#: An Event's name is the Node's, truncated, and a digest: a DNS subdomain has at most 253 characters.
_MAX_NAME: Final = 200
_DIGEST: Final = 16


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One thing to report. Equal ``identity`` is the same thing, reported again."""

    identity: tuple[str, ...]
    warning: bool
    reason: str
    note: str

    def name(self, node: ApiNode) -> str:
        """Return the Event's name. A restarted daemon finds its own Events by it."""
        text = "\n".join((node.uid, *self.identity)).encode("utf-8", "surrogateescape")
        return f"{node.name[:_MAX_NAME].rstrip('-.')}.{hashlib.sha256(text).hexdigest()[:_DIGEST]}"

    def body(self, node: ApiNode, moment: str) -> dict[str, Any]:
        """Return the Event to create; ``moment`` is RFC 3339 with microseconds."""
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self.name(node), "namespace": NAMESPACE},
            "eventTime": moment,
            "reportingController": "openperouter",
            "reportingInstance": node.name[:_MAX_INSTANCE],
            "action": "Configure",
            "type": "Warning" if self.warning else "Normal",
            "reason": legal_reason(self.reason)[:_MAX_REASON],
            "note": _cut(legal_text(self.note, MAX_NOTE, self.reason)),
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid},
        }


@dataclass(frozen=True, slots=True)
class LastingFailure:
    """A failure that lasts: ``begin`` reports it; it is over when no failure with this ``key`` is left."""

    key: str
    begin: NodeEvent
    end: NodeEvent


def lasting_failures(state: NodeState) -> Iterator[LastingFailure]:
    """Yield what is wrong with this node now."""
    failures = resource_failures(state)
    for reason, message in router_failures(state):
        yield _lasting(reason.value, "the router", message)
    if duplicates := tuple(duplicate_addresses(state)):
        yield _lasting(DUPLICATE_INDEX, "the node's index", "; ".join(duplicates))
    failures = tuple(failure for failure in failures if failure.reason is not Reason.DUPLICATE_INDEX)
    if underlays := [failure for failure in failures if failure.of_underlay]:
        yield _lasting(UNDERLAY_FAILED, "the underlay", "; ".join(failure.message for failure in underlays))
    others = [failure for failure in failures if not failure.of_underlay]
    for failure in [failure for failure in others if failure.origin.path][:MAX_FROM_FILES]:
        subject = str(failure.resource) if failure.resource else failure.origin.path
        yield _lasting(_reason(failure), subject, failure.message)
    if objects := [failure for failure in others if not failure.origin.path]:
        yield _lasting(FAILED, "objects of the API", _summary(objects))


def index_replaced(old: str, index: int) -> NodeEvent:
    """Return that another index on the Node was replaced by the one that is in force."""
    note = f"the annotation had {old!r}, but this node's index is {index}: its own configuration decides"
    return NodeEvent((INDEX_REPLACED, note), True, INDEX_REPLACED, note)


def _lasting(reason: str, subject: str, message: str) -> LastingFailure:
    note = message if message.startswith(subject) else f"{subject}: {message}"
    begin = NodeEvent((reason, subject, note), True, reason, note)
    end = NodeEvent((SUCCESSFUL, subject), False, SUCCESSFUL, f"{subject}: in force again")
    return LastingFailure(f"{reason} {subject}", begin, end)


def _summary(failures: list[Failure]) -> str:
    """Return which objects are not in force, sorted by name; the first one with its message."""
    messages: dict[str, str] = {}
    for failure in failures:
        if failure.resource is not None:
            one = failure.resource
            messages.setdefault(f"{one.kind} {one.namespace}/{one.name}", failure.message)
    names = sorted(messages)
    others = f"; also not in force: {', '.join(names[1:])}" if names[1:] else ""
    return f"{names[0]}: {messages[names[0]]}{others}" if names else failures[0].message


def _reason(failure: Failure) -> str:
    return (Reason.VALIDATION_FAILED if failure.reason is Reason.FILE_INVALID else failure.reason).value


def _cut(note: str) -> str:
    """Return a note, cut between two characters if it has too many bytes."""
    text = note.encode()
    if len(text) <= MAX_NOTE:
        return note
    kept = text[: MAX_NOTE - len(_ELLIPSIS.encode())].decode(errors="ignore")
    return kept.rstrip() + _ELLIPSIS
