"""From the actors' newest values to the one status: pure, so that what is said can be tested without a router.

Promises: ``ready`` only for the newest configuration, and only from a verification of it; ``degraded`` exactly when
there is a reason, and then the summary gives the first one; a stage that has not caught up is named, not hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from config.api import ApiAccess, ApiSnapshot
from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState, ResourceFailure
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, StaticSnapshot
from config.problems import Problem, Severity
from config.status import (
    ActorStatus,
    FailureStatus,
    Generations,
    InterfaceStatus,
    Phase,
    ProblemStatus,
    ReloadStatus,
    SessionStatus,
    Status,
    UnderlayStatus,
    VniStatus,
)

from .api_status import api_remarks, api_status
from .mirror_remarks import mirror_remarks
from .summary import summarize

#: The tree's words for a child that does not work.
TROUBLED = frozenset({"backoff", "failed"})
ESTABLISHED = "Established"


@dataclass(frozen=True, slots=True)
class Process:
    """What does not change while the daemon lives. ``started_at`` is in Unix seconds."""

    version: str
    pid: int
    boot_id: str
    started_at: float
    configs_dir: str


@dataclass(frozen=True, slots=True)
class Inputs:
    """The newest value of each channel, None where there is none yet. ``was_ready``: some configuration was, once."""

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


def compose(inputs: Inputs, now: float) -> Status:
    """Return the status at ``now``, in Unix seconds."""
    problems = tuple(_problem(problem) for problem in _problems(inputs))
    failures = tuple(_failure(failure) for failure in _failures(inputs))
    notes = tuple(_notes(inputs))
    api = api_status(inputs.access, inputs.api, inputs.desired, now)
    reload = _reload(inputs)
    blamed = any(problem.severity == Severity.ERROR for problem in problems) or bool(failures)
    degraded = blamed or (inputs.was_ready and bool(notes))
    status = Status(
        pid=inputs.process.pid,
        boot_id=inputs.process.boot_id,
        started_at=inputs.process.started_at,
        updated_at=now,
        version=inputs.process.version,
        node=_node(inputs),
        node_index=inputs.desired.node_index if inputs.desired else None,
        phase=_phase(inputs, reload, degraded=degraded),
        ready=inputs.ready,
        generations=_generations(inputs),
        reload=reload,
        actors=inputs.children,
        daemons=dict(inputs.health.daemons) if inputs.health else {},
        underlay=_underlay(inputs),
        sessions=tuple(_sessions(inputs)),
        vnis=tuple(_vnis(inputs, failures)),
        problems=problems,
        failures=failures,
        notes=notes,
        remarks=(*api_remarks(api, now), *mirror_remarks(inputs.api, inputs.snapshot)),
        api=api,
    )
    current = inputs.health if inputs.health and inputs.health.generation == status.generations.desired else None
    return summarize(status, inputs.process.configs_dir, health=current.summary if current else "")


def _node(inputs: Inputs) -> str:
    if inputs.desired:
        return inputs.desired.node_name
    return inputs.snapshot.node.name if inputs.snapshot else ""


def _problems(inputs: Inputs) -> tuple[Problem, ...]:
    """Return all known problems: those of a state include those of the files that it was resolved from."""
    if inputs.desired:
        return inputs.desired.problems
    return inputs.snapshot.problems if inputs.snapshot else ()


def _failures(inputs: Inputs) -> tuple[ResourceFailure, ...]:
    """Return each failure once, in the order of the stages."""
    stages = (inputs.frr, inputs.kernel, inputs.health)
    return tuple(dict.fromkeys(failure for stage in stages if stage is not None for failure in stage.failures))


def _notes(inputs: Inputs) -> Iterator[str]:
    """Yield what is wrong with no single resource.

    An identity that is late, a stage that fails, daemons that are gone, actors that restart.

    Of stages that fail only the first is named: the kernel's turn comes after FRR's, and FRR that does not answer one
    actor does not answer the other.
    """
    yield from _waiting(inputs)
    failing = next(_failing_stages(inputs), None)
    if failing is not None:
        yield failing[1]
    if inputs.health is not None and not (
        failing and inputs.health.problems and not any(inputs.health.daemons.values())
    ):
        yield from inputs.health.problems
    for child in inputs.children:
        if child.state in TROUBLED:
            yield f"actor {child.name} is in {child.state}: {child.last_error or 'no reason known'}"


def _waiting(inputs: Inputs) -> Iterator[str]:
    """Yield what a start waits for that has no files' contribution yet; later that is a problem of the files."""
    for child in inputs.children if inputs.snapshot is None else ():
        if child.name == "static_config" and (interface := child.facts.get("waiting_for")):
            yield f"interface {interface}, from which the node's index derives, is absent or has no address"


def _failing_stages(inputs: Inputs) -> Iterator[tuple[int, str]]:
    """Yield the reload request that each failing stage was at, and what it says, in the order of the stages."""
    for name, outcome in (("FRR", inputs.frr), ("kernel", inputs.kernel)):
        if outcome is not None and not outcome.applied:
            error = outcome.error or "not applied"
            yield outcome.desired.reload_id, error if error.startswith(name) else f"{name}: {error}"


def _reload(inputs: Inputs) -> ReloadStatus:
    taken_in = inputs.desired.reload_id if inputs.desired else 0
    requested = max(taken_in, inputs.snapshot.reload_id if inputs.snapshot else 0)
    verified = inputs.health.reload_id if inputs.health and inputs.health.verified else 0
    failed, reason = max(_failing_stages(inputs), key=lambda stage: stage[0], default=(0, ""))
    return ReloadStatus(requested, taken_in, verified, failed, reason)


def _phase(inputs: Inputs, reload: ReloadStatus, *, degraded: bool) -> Phase:
    if inputs.stopping:
        return "stopping"
    if degraded:
        return "degraded"
    if not (inputs.was_ready or inputs.ready):
        return "starting"
    return "reloading" if reload.requested > max(reload.verified, reload.failed) else "running"


def _generations(inputs: Inputs) -> Generations:
    health = inputs.health
    return Generations(
        desired=inputs.desired.generation if inputs.desired else 0,
        frr=inputs.frr.desired.generation if inputs.frr and inputs.frr.applied else 0,
        kernel=inputs.kernel.desired.generation if inputs.kernel and inputs.kernel.applied else 0,
        verified=health.generation if health and health.verified else 0,
    )


def _underlay(inputs: Inputs) -> UnderlayStatus | None:
    underlay = inputs.desired.underlay if inputs.desired else None
    if underlay is None:
        return None
    seen = {interface.name: interface for interface in inputs.health.interfaces} if inputs.health else {}
    interfaces = []
    for name in underlay.interfaces:
        one = seen.get(name)
        known = InterfaceStatus(name, one.present, one.up, one.mtu, one.detail) if one else None
        interfaces.append(known or InterfaceStatus(name, detail="not looked at yet"))
    return UnderlayStatus(
        name=underlay.resource.display_name,
        origin=str(underlay.origin),
        asn=underlay.asn,
        router_id=str(underlay.router_id),
        vteps=tuple(str(vtep) for vtep in underlay.vteps),
        interfaces=tuple(interfaces),
        mtu=(inputs.kernel.underlay_mtu or 0) if inputs.kernel else 0,
    )


def _sessions(inputs: Inputs) -> Iterator[SessionStatus]:
    for session in inputs.health.sessions if inputs.health else ():
        yield SessionStatus(
            peer=session.peer,
            vrf=session.vrf,
            remote_as=session.remote_as,
            state=session.state,
            up=session.state == ESTABLISHED,
            role=session.role,
            bfd=session.bfd,
            uptime_seconds=session.uptime_seconds,
            prefixes_received=dict(session.prefixes_received),
        )


def _vnis(inputs: Inputs, failures: tuple[FailureStatus, ...]) -> Iterator[VniStatus]:
    """Yield every VNI that should be there: with its health, or with why it has none."""
    if inputs.desired is not None:
        for vni in inputs.desired.l3vnis:
            yield _vni(vni, inputs.health, failures)
        for segment in inputs.desired.l2vnis:
            yield _vni(segment, inputs.health, failures)


def _vni(
    vni: DesiredL3VNI | DesiredL2VNI, health: HealthReport | None, failures: tuple[FailureStatus, ...]
) -> VniStatus:
    name = (vni.resource.kind.value, vni.resource.display_name)
    blamed = next((failure.message for failure in failures if (failure.kind, failure.name) == name), "")
    seen = next((one for one in health.vnis if one.resource == vni.resource), None) if health else None
    return VniStatus(
        kind=name[0],
        name=name[1],
        vni=vni.vni,
        type="L3" if isinstance(vni, DesiredL3VNI) else "L2",
        vrf=vni.vrf or "",
        ok=bool(seen and seen.ok and seen.vni == vni.vni and not blamed),
        detail=blamed or (seen.detail if seen else "not looked at yet"),
        origin=str(vni.origin),
        remote_vteps=seen.remote_vteps if seen else 0,
        routes=seen.routes if seen else 0,
    )


def _problem(problem: Problem) -> ProblemStatus:
    return ProblemStatus(
        origin=str(problem.origin),
        field=problem.field,
        message=problem.message,
        severity=problem.severity.value,
        reason=problem.reason.value,
        kind=problem.kind.value if problem.kind else "",
        name=problem.name,
        in_force=problem.in_force,
    )


def _failure(failure: ResourceFailure) -> FailureStatus:
    return FailureStatus(
        kind=failure.resource.kind.value,
        name=failure.resource.display_name,
        reason=failure.reason.value,
        message=failure.message,
        origin=str(failure.origin) if failure.origin.path or failure.origin.name else "",
    )
