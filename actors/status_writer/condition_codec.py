"""What the conditions on a custom resource claim, read and written: one claim for all nodes.

    good      Ready=True, Degraded=False    in force on at least one node, and no node has said otherwise
    failing   Ready=False, Degraded=True    on the node that the message names, whatever the others say

A claim speaks of one generation of the object. The name of the node is the machine-readable part of the message, which
begins with ``node NAME: ``; when somebody looked whether the failure is still there, it ends with the time of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from config.api import API_VERSION, ApiObject
from config.crd.conditions import (
    DEGRADED,
    READY,
    SUCCESSFUL,
    Condition,
    condition,
    legal_reason,
    legal_text,
    read_conditions,
    timestamp,
)

#: The field manager of all nodes alike, so that each may change what another wrote.
MANAGER: Final = "openperouter-conditions"
#: The conditions are for the eye; the whole text is in the reporter's own status.
_LENGTH: Final = 500
#: A Node's name (RFC 1123 subdomain). It becomes part of a path when the claim is checked, and anybody who may write
#: the status of any object may have written it.
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NODE: Final = rf"(?=\S{{1,253}}: ){_LABEL}(\.{_LABEL})*"
_MESSAGE: Final = re.compile(rf"node (?P<node>{_NODE}): (?P<why>.*?)(?: \(still so at (?P<confirmed>\S+)\))?")


@dataclass(frozen=True, slots=True)
class Claim:
    """``node`` is who made it, ``why`` is empty for a good one, ``confirmed`` is when it was checked (RFC 3339)."""

    failing: bool
    node: str = ""
    reason: str = SUCCESSFUL
    why: str = ""
    confirmed: str = ""

    def same(self, other: Claim) -> bool:
        """Whether both say the same, whenever it was confirmed."""
        return (self.failing, self.node, self.reason, self.why) == (other.failing, other.node, other.reason, other.why)


def failing(node: str, reason: str, why: str) -> Claim:
    """Return a claim as it will be read again."""
    return Claim(True, node, legal_reason(reason), legal_text(why, _LENGTH, "no reason given"))


def confirmed(claim: Claim, now: float) -> Claim:
    """Return a failing claim that was true at ``now``, in Unix seconds."""
    return Claim(claim.failing, claim.node, claim.reason, claim.why, timestamp(now))


def claim_of(one: ApiObject) -> Claim | None:
    """Return what is claimed of the object's present generation; None when that is nothing, or makes no sense."""
    found = {one.type: one for one in read_conditions(one.conditions)}
    ready, degraded = found.get(READY), found.get(DEGRADED)
    if ready is None or degraded is None:
        return None
    if {ready.observed_generation, degraded.observed_generation} != {one.generation}:
        return None
    return _claim(ready, degraded)


def _claim(ready: Condition, degraded: Condition) -> Claim | None:
    said = _MESSAGE.fullmatch(ready.message)
    words = (ready.status, degraded.status)
    if said is None or words not in (("True", "False"), ("False", "True")):
        return None
    if degraded.status == "False":
        return Claim(False, said["node"])
    if degraded.message != ready.message or degraded.reason != ready.reason:
        return None
    return Claim(True, said["node"], degraded.reason, said["why"], said["confirmed"] or "")


def conditions(claim: Claim, generation: int, now: float, previous: Iterable[Any]) -> tuple[Condition, Condition]:
    """Return the conditions that make a claim at ``now``; ``previous`` are the object's as they are, JSON data."""
    before = tuple(read_conditions(previous))
    ready, degraded = _messages(claim)
    return (
        condition(READY, not claim.failing, claim.reason, ready, now=now, generation=generation, previous=before),
        condition(DEGRADED, claim.failing, claim.reason, degraded, now=now, generation=generation, previous=before),
    )


def manifest(one: ApiObject, claim: Claim, now: float) -> dict[str, Any]:
    """Return what to apply to the object's status. The server refuses it when the object has changed meanwhile."""
    metadata = {"name": one.name, "namespace": one.namespace, "uid": one.uid, "resourceVersion": one.resource_version}
    made = conditions(claim, one.generation, now, one.conditions)
    data = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in made]
    return {
        "apiVersion": API_VERSION,
        "kind": one.kind.value,
        "metadata": metadata,
        "status": {"conditions": data},
    }


def _messages(claim: Claim) -> tuple[str, str]:
    if not claim.failing:
        return f"node {claim.node}: in force; no node has said otherwise", "no node has said that it is not in force"
    tail = f" (still so at {claim.confirmed})" if claim.confirmed else ""
    text = f"node {claim.node}: {claim.why}{tail}"
    return text, text
