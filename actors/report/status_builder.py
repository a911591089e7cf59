"""Build the one status from the actors' newest values: pure, so that it can be tested without a router.

    snapshot, desired, FRR, kernel, health, API, children -> StatusInputs -> build_status -> Status with its summary

Promises: ``ready`` only for the newest configuration, and only once that is verified; ``degraded`` exactly when there
is a reason, and then the summary gives the first one; a stage that has not caught up is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from config.api import ApiAccess, ApiSnapshot
from config.desired import DesiredState, ResourceFailure
from config.outcomes import (
    NOT_CHECKED,
    FrrOutcome,
    HealthReport,
    InterfaceHealth,
    KernelOutcome,
    StaticSnapshot,
    VniHealth,
    vni_health,
)
from config.problems import Problem, Reason, errors
from config.status import ActorStatus, Generations, Phase, ReloadStatus, Status, UnderlayStatus

from .api_status import api_remarks, api_status, mirror_remarks
from .summary import summarize

#: The tree's states of a child that does not work.
TROUBLED = frozenset({"backoff", "failed"})


@dataclass(frozen=True, slots=True)
class Process:
    """What does not change while the daemon lives. ``started_at`` is in Unix seconds."""

    version: str
    pid: int
    boot_id: str
    started_at: float
    configs_dir: str


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """The newest value of each channel, None where there is none yet.

    ``was_ready``: some configuration was verified before; until then what is missing is a start, not a fault.
    """

    process: Process
    snapshot: StaticSnapshot | None = None
    desired: DesiredState | None = None
    frr: FrrOutcome | None = None
    kernel: KernelOutcome | None = None
    health: HealthReport | None = None
    access: ApiAccess | None = None
    api: ApiSnapshot | None = None
    children: tuple[ActorStatus, ...] = field(default=())
    was_ready: bool = False
    stopping: bool = False

    @property
    def ready(self) -> bool:
        """Whether the newest configuration is verified."""
        health, desired = self.health, self.desired
        return bool(health and desired and health.verified and health.generation == desired.generation)


def build_status(inputs: StatusInputs, now: float) -> Status:
    """Return the status at ``now``, in Unix seconds."""
    problems = _problems(inputs)
    failures = _failures(inputs)
    notes = tuple(_notes(inputs))
    api = api_status(inputs.access, inputs.api, inputs.desired, now)
    reload = _reload(inputs)
    health = inputs.health
    status = Status(
        pid=inputs.process.pid,
        boot_id=inputs.process.boot_id,
        started_at=inputs.process.started_at,
        updated_at=now,
        version=inputs.process.version,
        node=_node(inputs),
        node_index=inputs.desired.node_index if inputs.desired else None,
        phase=_phase(inputs, reload, degraded=bool(errors(problems) or failures or (inputs.was_ready and notes))),
        ready=inputs.ready,
        generations=_generations(inputs),
        reload=reload,
        actors=inputs.children,
        daemons=health.daemons if health else {},
        underlay=_underlay(inputs),
        sessions=health.sessions if health else (),
        vnis=_vnis(inputs, failures),
        probes=health.probes if health else (),
        problems=problems,
        failures=failures,
        notes=notes,
        remarks=(*api_remarks(api, now), *mirror_remarks(inputs.api, inputs.snapshot)),
        api=api,
    )
    current = health is not None and health.generation == status.generations.desired
    return summarize(status, inputs.process.configs_dir, health=health.summary if health and current else "")


def _node(inputs: StatusInputs) -> str:
    if inputs.desired:
        return inputs.desired.node_name
    return inputs.snapshot.node.name if inputs.snapshot else ""


def _problems(inputs: StatusInputs) -> tuple[Problem, ...]:
    """Return all known problems: a state includes those of the files that it was resolved from."""
    if inputs.desired:
        return inputs.desired.problems
    return inputs.snapshot.problems if inputs.snapshot else ()


def _failures(inputs: StatusInputs) -> tuple[ResourceFailure, ...]:
    """Return each failure once, in the order of the stages."""
    stages = (inputs.frr, inputs.kernel, inputs.health)
    return tuple(dict.fromkeys(failure for stage in stages if stage is not None for failure in stage.failures))


def _notes(inputs: StatusInputs) -> Iterator[str]:
    """Yield the faults that are no single resource's: a late identity, a failing stage, daemons, actors that restart.

    Of failing stages only the first is named: the kernel's turn comes after FRR's, and an FRR that does not answer one
    actor does not answer the other.
    """
    yield from _waiting(inputs)
    failing = next(_failing_stages(inputs), None)
    if failing is not None:
        yield failing[1]
    if inputs.health is not None and not (failing and inputs.health.unanswered):
        yield from inputs.health.problems
    for child in inputs.children:
        if child.state in TROUBLED:
            yield f"actor {child.name} is in {child.state}: {child.last_error or 'no reason known'}"


def _waiting(inputs: StatusInputs) -> Iterator[str]:
    """Yield what a start waits for before the first files are read, and before the first state is known."""
    waits = {child.name: child.facts.get("waiting_for") for child in inputs.children}
    if inputs.snapshot is None and (interface := waits.get("static_config")):
        yield f"interface {interface}, from which the node's index is derived, is absent or has no address"
    if inputs.desired is None and (reason := waits.get("desired")):
        yield str(reason)


def _failing_stages(inputs: StatusInputs) -> Iterator[tuple[int, str]]:
    """Yield the reload request that each failing stage was at, and its error, in the order of the stages."""
    for name, outcome in (("FRR", inputs.frr), ("kernel", inputs.kernel)):
        if outcome is not None and not outcome.applied:
            error = outcome.error or "not applied"
            yield outcome.desired.reload_id, error if error.startswith(name) else f"{name}: {error}"


def _reload(inputs: StatusInputs) -> ReloadStatus:
    taken_in = inputs.desired.reload_id if inputs.desired else 0
    requested = max(taken_in, inputs.snapshot.reload_id if inputs.snapshot else 0)
    verified = inputs.health.reload_id if inputs.health and inputs.health.verified else 0
    failed, reason = max(_failing_stages(inputs), key=lambda stage: stage[0], default=(0, ""))
    return ReloadStatus(requested, taken_in, verified, failed, reason)


def _phase(inputs: StatusInputs, reload: ReloadStatus, *, degraded: bool) -> Phase:
    if inputs.stopping:
        return "stopping"
    if degraded:
        return "degraded"
    if not (inputs.was_ready or inputs.ready):
        return "starting"
    return "reloading" if reload.requested > max(reload.verified, reload.failed) else "running"


def _generations(inputs: StatusInputs) -> Generations:
    health = inputs.health
    return Generations(
        desired=inputs.desired.generation if inputs.desired else 0,
        frr=inputs.frr.desired.generation if inputs.frr and inputs.frr.applied else 0,
        kernel=inputs.kernel.desired.generation if inputs.kernel and inputs.kernel.applied else 0,
        verified=health.generation if health and health.verified else 0,
    )


def _underlay(inputs: StatusInputs) -> UnderlayStatus | None:
    underlay = inputs.desired.underlay if inputs.desired else None
    if underlay is None:
        return None
    seen = {interface.name: interface for interface in inputs.health.interfaces} if inputs.health else {}
    unseen = InterfaceHealth("", present=False, up=False, detail=NOT_CHECKED)
    return UnderlayStatus(
        name=underlay.resource.display_name,
        origin=str(underlay.origin),
        asn=underlay.asn,
        router_id=str(underlay.router_id),
        vteps=tuple(str(vtep) for vtep in underlay.vteps),
        interfaces=tuple(seen.get(name, replace(unseen, name=name)) for name in underlay.interfaces),
        mtu=(inputs.kernel.underlay_mtu or 0) if inputs.kernel else 0,
    )


def _vnis(inputs: StatusInputs, failures: tuple[ResourceFailure, ...]) -> tuple[VniHealth, ...]:
    if inputs.desired is None:
        return ()
    # A VNI with a host that answers no ping works.
    found = (failure for failure in reversed(failures) if failure.reason is not Reason.PROBE_FAILED)
    messages = {failure.resource: failure.message for failure in found}
    return tuple(vni_health(inputs.desired, inputs.health, messages))
