"""Builds this node's status object from its state: a pure function.

Upstream's rules (reference 7.4) without its defects: Ready is never True while the newest configuration is not
verified, and every text is legal. Nothing in the status changes by itself, so a quiet node writes it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from config.api import ApiObject
from config.crd.conditions import (
    DEGRADED,
    DUPLICATE_INDEX,
    FAILED,
    PENDING,
    READY,
    SUCCESSFUL,
    UNDERLAY_FAILED,
    UNIQUE_INDEX,
    Condition,
    condition,
)
from config.crd.node_status import (
    FailedResource,
    NodeStatus,
    ObservedResource,
    RouterState,
    SessionState,
    VniState,
    failed_resource,
    frr_failure,
    node_status,
    observed_resource,
    router_state,
    session_state,
    vni_state,
)
from config.desired import DesiredState
from config.outcomes import vni_health
from config.problems import RUNNING_KEPT, Kind, Reason, ResourceId
from config.sources.mirror_objects import plain_name

from .node_state import Failure, NodeState, duplicate_addresses, resource_failures, router_failures
from .object_status import ObjectStatus

_KIND_ORDER: Final[Mapping[Kind | None, int]] = {kind: number for number, kind in enumerate((None, *Kind))}


def build_status(
    state: NodeState, objects: Mapping[ResourceId, ObjectStatus], *, now: float, previous: Iterable[Condition]
) -> NodeStatus:
    """Return the status at ``now``, in Unix seconds; ``previous`` are conditions whose transition times are kept."""
    failures = _in_order(resource_failures(state))
    router = tuple(router_failures(state))
    return node_status(
        _conditions(state, failures, [message for _, message in router], now, tuple(previous)),
        failed=(*_failed(state, failures), *_frr_failed(state)),
        resources=_resources((*state.api.objects, *state.api.mirrored), objects, router_works=not router),
        sessions=_sessions(state),
        vnis=_vnis(state, failures),
        router=_router(state.desired),
    )


def is_pending(state: NodeState) -> bool:
    """Whether the newest configuration is still on its way, with nothing wrong so far."""
    return not (state.verified or resource_failures(state) or any(router_failures(state)))


def _conditions(
    state: NodeState, failures: tuple[Failure, ...], router: list[str], now: float, previous: tuple[Condition, ...]
) -> tuple[Condition, ...]:
    degraded = bool(failures or router)
    reason, message = _reason_and_message(state, failures, router)
    ready = state.verified and not degraded
    conditions = (
        condition(READY, ready, reason, message, now=now, previous=previous),
        condition(DEGRADED, degraded, reason, message, now=now, previous=previous),
    )
    duplicates = "; ".join(duplicate_addresses(state))
    if not duplicates and all(one.type != DUPLICATE_INDEX for one in previous):
        return conditions
    why = (DUPLICATE_INDEX, duplicates) if duplicates else (UNIQUE_INDEX, "no other node has this node's addresses")
    return *conditions, condition(DUPLICATE_INDEX, bool(duplicates), *why, now=now, previous=previous)


def _router(desired: DesiredState) -> RouterState | None:
    """Return the addresses that the router has, or waits for."""
    if desired.addresses is not None:
        return router_state(desired.addresses, in_force=True)
    return router_state(desired.awaited, in_force=False) if desired.awaited else None


def _reason_and_message(state: NodeState, failures: tuple[Failure, ...], router: list[str]) -> tuple[str, str]:
    if underlays := [failure for failure in failures if failure.of_underlay]:
        refused = any(failure.in_force == RUNNING_KEPT for failure in underlays)
        kept = "; what was in force before stays in force" if refused else ""
        return UNDERLAY_FAILED, f"{underlays[0].message}{kept}"
    if router:
        return FAILED, "; ".join(router)
    if failures:
        count = len({(failure.resource, failure.origin.path) for failure in failures})
        noun = "resource is" if count == 1 else "resources are"
        return FAILED, f"{count} {noun} not in force, see failedResources"
    if state.verified:
        return SUCCESSFUL, "the newest configuration is in force and verified"
    return PENDING, "the newest configuration is not yet verified"


def _frr_failed(state: NodeState) -> Iterator[FailedResource]:
    if state.frr is not None and not state.frr.applied:
        yield frr_failure(state.frr.error)


def _in_order(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Return the same order for the same failures, whichever was found first: files, the underlay, the rest by name."""

    def place(failure: Failure) -> tuple[int, str, str]:
        resource = failure.resource
        if resource is None:
            return _KIND_ORDER[None], "", failure.origin.path
        return _KIND_ORDER[resource.kind], resource.namespace, resource.name

    return tuple(sorted(failures, key=place))


def _failed(state: NodeState, failures: Iterable[Failure]) -> Iterator[FailedResource]:
    """Yield one entry for each resource and reason; a file's resource is named as its mirror.

    The mirror has another name where another object has the resource's, which must not get its message.
    """
    node = state.desired.node_name
    mirrors = {replace(one.id, name=plain_name(one.name, node)): one.id for one in state.api.mirrored}
    messages: dict[tuple[Kind | None, str, str, Reason], list[str]] = {}
    for failure in failures:
        resource = failure.resource
        if resource is not None and failure.origin.path:
            resource = mirrors.get(resource, resource)
        key = (
            (resource.kind, resource.namespace, resource.name, failure.reason)
            if resource
            else (None, "", failure.origin.path, failure.reason)
        )
        messages.setdefault(key, []).append(failure.message)
    for (kind, namespace, name, reason), texts in messages.items():
        yield failed_resource(kind, name, reason, "; ".join(texts), namespace=namespace)


def _resources(
    shown: Iterable[ApiObject], objects: Mapping[ResourceId, ObjectStatus], *, router_works: bool
) -> Iterator[ObservedResource]:
    for one in shown:
        if status := objects.get(one.id):
            in_force = status.in_force and router_works
            yield observed_resource(one.kind, one.name, status.generation, in_force=in_force, namespace=one.namespace)


def _sessions(state: NodeState) -> Iterator[SessionState]:
    return map(session_state, state.health.sessions if state.health else ())


def _vnis(state: NodeState, failures: Iterable[Failure]) -> Iterator[VniState]:
    messages = {
        failure.resource: failure.message
        for failure in reversed(tuple(failures))
        if failure.resource is not None and failure.reason is not Reason.PROBE_FAILED
    }
    return map(vni_state, vni_health(state.desired, state.health, messages))
