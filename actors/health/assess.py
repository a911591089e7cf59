"""Judging what FRR says against what was asked for: a pure function from observation and outcomes to a report.

Promises: ``verified`` is never claimed from an old outcome or a partial answer, nor before everything works or has had
its time; what does not work after that is a failure of its own resource, which keeps nobody else waiting; a resource
that FRR or the kernel has already refused is not blamed twice; every verdict of not working comes with the reason that
a person can act on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from actors.lib.frr.processes import CORE_DAEMONS
from config.desired import DesiredState, ResourceFailure
from config.outcomes import FrrOutcome, HealthReport, InterfaceHealth, KernelOutcome, SessionHealth, VniHealth
from config.problems import Reason, ResourceId

from .frr_json import Observation
from .sessions import ESTABLISHED, LISTENING, MISSING, expected_of, named, sessions_of
from .vnis import check_vni, vni_health, vnis_of


@dataclass(frozen=True, slots=True)
class HealthInputs:
    """The newest values of the stages before this one. ``settling`` forgives for a moment what FRR needs time for."""

    desired: DesiredState | None = None
    frr: FrrOutcome | None = None
    kernel: KernelOutcome | None = None
    settling: bool = False

    @property
    def state(self) -> DesiredState | None:
        """The state to compare with: the newest that FRR was given, since only that can be there."""
        return self.frr.desired if self.frr else self.desired

    @property
    def refused(self) -> frozenset[ResourceId]:
        """Resources that an earlier stage has left out and reported."""
        outcomes = [outcome for outcome in (self.frr, self.kernel) if outcome is not None]
        return frozenset(failure.resource for outcome in outcomes for failure in outcome.failures)


def assess(inputs: HealthInputs, seen: Observation) -> HealthReport:
    """Return the report of one look."""
    state = inputs.state
    if state is None:
        return HealthReport(0, 0, False, "waiting for a configuration", daemons=_daemons(frozenset(), seen))
    if seen.error:
        return _unanswered(state, seen.error)
    return _answered(inputs, state, seen)


def _unanswered(state: DesiredState, error: str) -> HealthReport:
    vnis = tuple(vni_health(vni, None, "unknown: FRR does not answer") for vni in vnis_of(state))
    daemons = dict.fromkeys(sorted(_required(state)), False)
    summary = f"waiting for FRR: {error}"
    return HealthReport(
        state.generation, state.reload_id, False, summary, daemons=daemons, vnis=vnis, problems=(summary,)
    )


def _answered(inputs: HealthInputs, state: DesiredState, seen: Observation) -> HealthReport:
    refused = inputs.refused
    required = _required(state)
    absent = sorted(required - seen.daemons)
    vnis = tuple(check_vni(vni, seen) for vni in vnis_of(state) if vni.resource not in refused)
    sessions = sessions_of(state, refused, seen)
    interfaces = _interfaces(inputs, state, seen)
    missing = [session for session in sessions if session.state == MISSING]
    unapplied = list(_unapplied(inputs, state))
    gone = [f"{daemon} is not running" for daemon in absent]
    # While a daemon is gone, what it would have to tell is unknown, and nobody's fault but the daemon's.
    can_tell = seen.daemons >= CORE_DAEMONS
    judged = can_tell and not unapplied and not inputs.settling
    unfinished = [] if judged else [
        *(f"{vni.resource}: {vni.detail}" for vni in vnis if can_tell and not vni.ok),
        *(f"{named(session)} is not configured in bgpd" for session in missing),
    ]  # fmt: skip
    reasons = [*unapplied, *gone, *unfinished]
    return HealthReport(
        generation=state.generation,
        reload_id=state.reload_id,
        verified=not reasons,
        summary=_summary(state, sessions, vnis, reasons),
        daemons=_daemons(required, seen),
        sessions=sessions,
        vnis=vnis,
        interfaces=interfaces,
        failures=tuple(_failures(state, vnis, missing, _blamable(interfaces, state, refused))) if judged else (),
        problems=tuple(gone),
    )


def _unapplied(inputs: HealthInputs, state: DesiredState) -> Iterator[str]:
    """Yield why this generation is not, or not yet, in force in FRR and in the kernel."""
    for name, outcome in (("FRR", inputs.frr), ("kernel", inputs.kernel)):
        if outcome is None or outcome.desired.generation != state.generation:
            yield f"{name} has not yet applied generation {state.generation}"
        elif not outcome.applied:
            yield f"{name}: {outcome.error or 'not applied'}"


def _summary(
    state: DesiredState, sessions: tuple[SessionHealth, ...], vnis: tuple[VniHealth, ...], reasons: list[str]
) -> str:
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return f"verifying generation {state.generation}: {reasons[0]}{more}"
    real = [session for session in sessions if session.state != LISTENING]
    up = sum(session.state == ESTABLISHED for session in real)
    working = sum(vni.ok for vni in vnis)
    of_all = f" of {len(vnis)}" if working < len(vnis) else ""
    noun = "VNI" if len(vnis) == 1 else "VNIs"
    return f"generation {state.generation} verified: {up} of {len(real)} sessions up, {working}{of_all} {noun}"


def _failures(
    state: DesiredState,
    vnis: tuple[VniHealth, ...],
    missing: list[SessionHealth],
    interfaces: tuple[InterfaceHealth, ...],
) -> Iterator[ResourceFailure]:
    """Yield what does not work although it was applied and had its time."""
    for vni in vnis:
        if not vni.ok:
            yield ResourceFailure(vni.resource, Reason.OVERLAY_ATTACHMENT_FAILED, vni.detail, vni.origin)
    owners = {(expected.vrf, expected.peer): expected for expected in expected_of(state, frozenset())}
    for session in missing:
        owner = owners[session.vrf, session.peer]
        message = f"{named(session)} is not configured in bgpd"
        yield ResourceFailure(owner.owner, Reason.FRR_CONFIGURATION_FAILED, message, owner.origin)
    if state.underlay is not None:
        for interface in interfaces:
            if interface.detail:
                message = f"interface {interface.name} {interface.detail}"
                yield ResourceFailure(state.underlay.resource, Reason.UNDERLAY_FAILED, message, state.underlay.origin)


def _blamable(
    interfaces: tuple[InterfaceHealth, ...], state: DesiredState, refused: frozenset[ResourceId]
) -> tuple[InterfaceHealth, ...]:
    """Leave out the interfaces whose absence the kernel's part has already reported, with the cause."""
    told = state.underlay is not None and state.underlay.resource in refused
    return tuple(interface for interface in interfaces if interface.present or not told)


def _required(state: DesiredState) -> frozenset[str]:
    uses_bfd = state.underlay is not None and any(neighbor.bfd is not None for neighbor in state.underlay.neighbors)
    return CORE_DAEMONS | {"bfdd"} if uses_bfd else CORE_DAEMONS


def _daemons(required: frozenset[str], seen: Observation) -> dict[str, bool]:
    return {daemon: daemon in seen.daemons for daemon in sorted(required | seen.daemons)}


def _interfaces(inputs: HealthInputs, state: DesiredState, seen: Observation) -> tuple[InterfaceHealth, ...]:
    mtu = inputs.kernel.underlay_mtu if inputs.kernel else None
    names = state.underlay.interfaces if state.underlay else ()
    return tuple(_interface(name, seen.interfaces.get(name), mtu or 0, zebra="zebra" in seen.daemons) for name in names)


def _interface(name: str, up: bool | None, mtu: int, *, zebra: bool) -> InterfaceHealth:
    if up is None and not zebra:
        return InterfaceHealth(name, present=False, up=False, detail="unknown: zebra is not running")
    if up is None:
        return InterfaceHealth(name, present=False, up=False, detail="is not in the router's namespace")
    return InterfaceHealth(name, present=True, up=up, mtu=mtu, detail="" if up else "is down")
