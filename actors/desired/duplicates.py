"""Which other nodes have this node's addresses, and whether its router waits for them: pure functions.

    RouterAddresses of a state, routers of other nodes -> those to wait for, problems to report

Addresses follow from a node's index, so a second node with the same index has the same router ID and tunnel endpoint:
the fabric then sends either node's packets to any of the two. Nodes find one another by their status objects. A router
that is up stays up. One that is not up waits for routers with its addresses that are, and for those that also wait and
whose status object is older, or equally old with a name that sorts first. It waits only for addresses that it does not
have yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from config.api import ApiSnapshot, OtherRouter
from config.desired import DesiredState, RouterAddresses
from config.problems import RUNNING_KEPT, Problem, Reason, Severity

#: Sorts after any timestamp: for a status object that does not exist yet.
_NEVER: Final = "~"
#: Maximum number of nodes in a message.
_MOST_NAMED: Final = 3
_NOT_UP: Final = "no underlay is in force meanwhile"


def routers_to_wait_for(wanted: DesiredState, in_force: DesiredState, api: ApiSnapshot) -> tuple[OtherRouter, ...]:
    """Return the routers that keep ``wanted`` from replacing ``in_force``."""
    return tuple(one for one in api.others if _new(wanted, in_force) & one.addresses.named() and _is_first(one, api))


def is_unknown(wanted: DesiredState, in_force: DesiredState, api: ApiSnapshot) -> bool:
    """Whether the API server answers, but the routers with the new addresses are not known yet."""
    asked = api.others_of is not None
    return asked and api.live and api.others_of != wanted.node_index and bool(_new(wanted, in_force))


def waiting(wanted: DesiredState, in_force: DesiredState, others: Iterable[OtherRouter]) -> tuple[Problem, ...]:
    """Return the error of an underlay whose addresses other routers have."""
    kept = RUNNING_KEPT if in_force.underlay else _NOT_UP
    return _problems(wanted, others, Severity.ERROR, kept)


def shared(state: DesiredState, api: ApiSnapshot | None) -> tuple[Problem, ...]:
    """Return the warning about a router in force whose addresses others have or wait for."""
    mine = _named(state.addresses)
    others = [one for one in api.others if mine & one.addresses.named()] if api else []
    return _problems(state, others, Severity.WARNING, "this router stays as it is")


def _new(wanted: DesiredState, in_force: DesiredState) -> frozenset[str]:
    return _named(wanted.addresses) - _named(in_force.addresses)


def _named(addresses: RouterAddresses | None) -> frozenset[str]:
    return addresses.named() if addresses else frozenset()


def _is_first(other: OtherRouter, api: ApiSnapshot) -> bool:
    """Whether another router takes precedence over this node's, which is not up."""
    meta: Mapping[str, Any] = (api.node_status or {}).get("metadata", {})
    own = (str(meta.get("creationTimestamp") or _NEVER), str(meta.get("name") or (api.node.name if api.node else "")))
    return other.in_force or (other.created or _NEVER, other.node) < own


def _problems(
    state: DesiredState, others: Iterable[OtherRouter], severity: Severity, in_force: str
) -> tuple[Problem, ...]:
    found = sorted(others, key=lambda one: one.node)
    if not found or state.underlay is None:
        return ()
    mine = _named(state.addresses)
    named = [
        f"node {one.node} (index {one.addresses.index}{'' if one.in_force else ', waiting'}) has "
        + " and ".join(sorted(mine & one.addresses.named()))
        for one in found[:_MOST_NAMED]
    ]
    more = f"; and {len(found) - _MOST_NAMED} more" if found[_MOST_NAMED:] else ""
    message = (
        f"this node's index {state.node_index} is not unique: {'; '.join(named)}{more}; give one of them another "
        "index, or delete a node that no longer exists from the cluster"
    )
    underlay = state.underlay
    return (
        Problem(
            message,
            underlay.origin,
            severity=severity,
            reason=Reason.DUPLICATE_INDEX,
            resource=underlay.resource,
            in_force=in_force,
        ),
    )
