"""This node's status object: from what is known to what it says, a pure function.

Upstream's rules (reference 7.4) with its defects mended: Ready is never True while the newest configuration is not
verified, and every text is legal. Nothing in it changes by itself, so that the status of a quiet node is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from config.api import ApiObject
from config.crd.conditions import DEGRADED, FAILED, READY, SUCCESSFUL, UNDERLAY_FAILED, Condition, condition
from config.crd.node_status import (
    FailedResource,
    NodeStatus,
    ObservedResource,
    SessionState,
    VniState,
    failed_resource,
    frr_failure,
    node_status,
    observed_resource,
    session_state,
    vni_state,
)
from config.outcomes import vni_health
from config.problems import Kind, Reason, ResourceId, errors

from .failures import Blame, blames, router_faults
from .inputs import Basis
from .object_status import Verdict

#: Our reason for neither ready nor degraded; upstream has no such moment, it says that it is ready.
PENDING: Final = "ConfigurationPending"
_KIND_ORDER: Final[Mapping[Kind | None, int]] = {kind: number for number, kind in enumerate((None, *Kind))}


def compose(
    basis: Basis, verdicts: Mapping[ResourceId, Verdict], *, namespace: str, now: float, previous: Iterable[Condition]
) -> NodeStatus:
    """Return the status at ``now``, in Unix seconds; ``previous`` are conditions whose transition times are kept."""
    blamed = _in_order(blames(basis, namespace))
    faults = tuple(router_faults(basis))
    return node_status(
        _conditions(basis, blamed, [message for _, message in faults], now, tuple(previous)),
        failed=(*_failed(blamed), *_frr_failed(basis)),
        resources=_resources((*basis.api.objects, *basis.api.mirrored), verdicts, router_works=not faults),
        sessions=_sessions(basis),
        vnis=_vnis(basis, blamed),
    )


def is_pending(basis: Basis, namespace: str) -> bool:
    """Whether the newest state is still on its way, with nothing wrong so far."""
    return not (basis.verified or blames(basis, namespace) or any(router_faults(basis)))


def _conditions(
    basis: Basis, blamed: tuple[Blame, ...], faults: list[str], now: float, previous: tuple[Condition, ...]
) -> tuple[Condition, ...]:
    degraded = bool(blamed or faults)
    reason, message = _reason_and_message(basis, blamed, faults)
    ready = basis.verified and not degraded
    return (
        condition(READY, ready, reason, message, now=now, previous=previous),
        condition(DEGRADED, degraded, reason, message, now=now, previous=previous),
    )


def _reason_and_message(basis: Basis, blamed: tuple[Blame, ...], faults: list[str]) -> tuple[str, str]:
    underlay = next((blame for blame in blamed if _is_underlay(blame)), None)
    if underlay is not None:
        refused = any(problem.kind is Kind.UNDERLAY for problem in errors(basis.desired.problems))
        kept = "; what was in force is left as it is" if refused else ""
        return UNDERLAY_FAILED, f"{underlay.message}{kept}"
    if faults:
        return FAILED, "; ".join(faults)
    if blamed:
        count = len({(blame.resource, blame.origin.path) for blame in blamed})
        noun = "resource is" if count == 1 else "resources are"
        return FAILED, f"{count} {noun} not in force, see failedResources"
    if basis.verified:
        return SUCCESSFUL, "the newest configuration is in force, verified"
    return PENDING, "the newest configuration is not yet verified"


def _is_underlay(blame: Blame) -> bool:
    return blame.reason is Reason.UNDERLAY_FAILED or (
        blame.resource is not None and blame.resource.kind is Kind.UNDERLAY
    )


def _frr_failed(basis: Basis) -> Iterator[FailedResource]:
    if basis.frr is not None and not basis.frr.applied:
        yield frr_failure(basis.frr.error)


def _in_order(blamed: Iterable[Blame]) -> tuple[Blame, ...]:
    """Return the same order for the same failures, whichever was found first: files, the underlay, the rest by name."""

    def place(blame: Blame) -> tuple[int, str, str]:
        resource = blame.resource
        if resource is None:
            return _KIND_ORDER[None], "", blame.origin.path
        return _KIND_ORDER[resource.kind], resource.namespace, resource.name

    return tuple(sorted(blamed, key=place))


def _failed(blamed: Iterable[Blame]) -> Iterator[FailedResource]:
    """Yield one entry for each resource and reason."""
    messages: dict[tuple[Kind | None, str, str, Reason], list[str]] = {}
    for blame in blamed:
        resource = blame.resource
        key = (
            (resource.kind, resource.namespace, resource.name, blame.reason)
            if resource
            else (None, "", blame.origin.path, blame.reason)
        )
        messages.setdefault(key, []).append(blame.message)
    for (kind, namespace, name, reason), texts in messages.items():
        yield failed_resource(kind, name, reason, "; ".join(texts), namespace=namespace)


def _resources(
    objects: Iterable[ApiObject], verdicts: Mapping[ResourceId, Verdict], *, router_works: bool
) -> Iterator[ObservedResource]:
    for one in objects:
        if verdict := verdicts.get(one.id):
            in_force = bool(verdict.good) and router_works
            yield observed_resource(one.kind, one.name, verdict.generation, in_force=in_force, namespace=one.namespace)


def _sessions(basis: Basis) -> Iterator[SessionState]:
    return map(session_state, basis.health.sessions if basis.health else ())


def _vnis(basis: Basis, blamed: Iterable[Blame]) -> Iterator[VniState]:
    faults = {blame.resource: blame.message for blame in reversed(tuple(blamed)) if blame.resource is not None}
    return map(vni_state, vni_health(basis.desired, basis.health, faults))
