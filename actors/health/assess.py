"""Compares FRR's state with what was configured: a pure function from an observation and outcomes to a report.

An :class:`HealthInputs`, an :class:`Observation` and the faults of VNIs (:mod:`.vnis`) come in, a :class:`HealthReport`
goes out. Its promises:

* ``verified`` needs the outcomes of the same generation, a complete answer, and everything working or past its time;
* what does not work after that is a failure of its own resource, with a cause that an operator can act on, and keeps no
  other resource waiting;
* a resource that FRR or the kernel has already refused is not reported twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from actors.lib.frr.processes import CORE_DAEMONS
from config.desired import DesiredState, ResourceFailure
from config.outcomes import (
    PROBE_DOWN,
    FrrOutcome,
    HealthReport,
    InterfaceHealth,
    KernelOutcome,
    ProbeHealth,
    ProbeReport,
    SessionHealth,
    VniHealth,
)
from config.problems import Reason, ResourceId

from .frr_json import Observation
from .routes import VniFault
from .sessions import ESTABLISHED, LISTENING, MISSING, described, expected_of, sessions_of
from .vnis import vni_health, vnis_of


@dataclass(frozen=True, slots=True)
class HealthInputs:
    """The newest values of the stages before this one. ``settling``: FRR still gets time to apply a change."""

    desired: DesiredState | None = None
    frr: FrrOutcome | None = None
    kernel: KernelOutcome | None = None
    settling: bool = False
    probes: ProbeReport = field(default_factory=ProbeReport)

    @property
    def state(self) -> DesiredState | None:
        """The state to compare with: the newest that FRR was given."""
        return self.frr.desired if self.frr else self.desired

    @property
    def is_changing(self) -> bool:
        """Whether FRR has yet to answer to the newest state, which it may be carrying out."""
        return bool(self.frr and self.desired and self.frr.desired.generation < self.desired.generation)

    @property
    def is_early(self) -> bool:
        """Whether nothing can work yet: FRR has not answered at all, or the kernel not to what FRR has applied.

        Nor while one of them waits for the other, because devices of L3VNIs are moved.
        """
        if self.frr is None or not self.frr.applied:
            return self.frr is None
        if self.kernel is None or self.kernel.desired.generation != self.frr.desired.generation:
            return True
        asked = self.kernel.withdraw.intersection(vni.vni for vni in self.frr.desired.l3vnis)
        return asked != self.frr.withdrawn

    @property
    def refused(self) -> frozenset[ResourceId]:
        """Resources that an earlier stage has left out and reported."""
        outcomes = [outcome for outcome in (self.frr, self.kernel) if outcome is not None]
        return frozenset(failure.resource for outcome in outcomes for failure in outcome.failures)

    @property
    def omitted(self) -> frozenset[ResourceId]:
        """VNIs that are not to work: refused ones, and those that FRR does not have while their devices are moved."""
        return self.refused | self.moving

    @property
    def moving(self) -> frozenset[ResourceId]:
        """L3VNIs that FRR does not have while their devices are moved, and has again afterwards."""
        if self.frr is None or self.state is None:
            return frozenset()
        withdrawn = self.frr.withdrawn
        return frozenset(vni.resource for vni in self.state.l3vnis if vni.vni in withdrawn) - self.refused


def assess(inputs: HealthInputs, seen: Observation, faults: Mapping[ResourceId, VniFault]) -> HealthReport:
    """Return the report of one poll; ``faults`` are those that count, by VNI."""
    state = inputs.state
    if state is None:
        return HealthReport(0, 0, False, "waiting for a configuration", daemons=_daemons(frozenset(), seen))
    if seen.error:
        return _unanswered(state, seen)
    return _answered(inputs, state, seen, faults)


def _unanswered(state: DesiredState, seen: Observation) -> HealthReport:
    vnis = tuple(vni_health(vni, VniFault("unknown: FRR does not answer"), Observation()) for vni in vnis_of(state))
    daemons = {name: runs and name != seen.silent for name, runs in _daemons(_required(state), seen).items()}
    summary = f"waiting for FRR: {seen.error}"
    return HealthReport(
        state.generation, state.reload_id, False, summary, daemons=daemons, vnis=vnis, problems=(summary,)
    )


def _answered(
    inputs: HealthInputs, state: DesiredState, seen: Observation, faults: Mapping[ResourceId, VniFault]
) -> HealthReport:
    refused, omitted = inputs.refused, inputs.omitted
    required = _required(state)
    vnis = tuple(
        vni_health(vni, faults.get(vni.resource), seen) for vni in vnis_of(state) if vni.resource not in omitted
    )
    sessions = sessions_of(state, refused, seen)
    interfaces = tuple(_interfaces(inputs, state, seen))
    missing = [session for session in sessions if session.state == MISSING]
    unapplied = list(_unapplied(inputs, state))
    absent = [f"{daemon} is not running" for daemon in sorted(required - seen.daemons)]
    # Without a core daemon its VNIs and sessions are unknown, and none of them is to blame.
    complete = seen.daemons >= CORE_DAEMONS
    judged = complete and not unapplied and not inputs.settling
    unfinished = [] if judged else [
        *(f"{vni.resource}: {vni.detail}" for vni in vnis if complete and not vni.ok),
        *(f"{described(session)} is not configured in bgpd" for session in missing),
    ]  # fmt: skip
    reasons = [*unapplied, *absent, *unfinished]
    probes = _probes(inputs.probes, sessions)
    return HealthReport(
        generation=state.generation,
        reload_id=state.reload_id,
        verified=not reasons,
        summary=_summary(state, sessions, vnis, reasons),
        daemons=_daemons(required, seen),
        sessions=sessions,
        vnis=vnis,
        interfaces=interfaces,
        probes=probes,
        failures=(*_failures(state, refused, vnis, missing, interfaces), *_unreachable(probes)) if judged else (),
        problems=tuple(absent),
    )


def _unapplied(inputs: HealthInputs, state: DesiredState) -> Iterator[str]:
    """Yield why this generation is not, or not yet, in force in FRR and in the kernel."""
    for name, outcome in (("FRR", inputs.frr), ("kernel", inputs.kernel)):
        if outcome is None or outcome.desired.generation != state.generation:
            yield f"{name} has not yet applied generation {state.generation}"
        elif not outcome.applied:
            yield f"{name}: {outcome.error or 'not applied'}"
    yield from (f"{moving}: FRR has it again once its devices are moved" for moving in sorted(inputs.moving, key=str))


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
    refused: frozenset[ResourceId],
    vnis: tuple[VniHealth, ...],
    missing: list[SessionHealth],
    interfaces: tuple[InterfaceHealth, ...],
) -> Iterator[ResourceFailure]:
    """Yield what does not work although it was applied and had its time."""
    for vni in vnis:
        if not vni.ok:
            yield ResourceFailure(vni.resource, Reason.OVERLAY_ATTACHMENT_FAILED, vni.detail, vni.origin)
    expected = expected_of(state, frozenset()) if missing else ()
    owners = {(one.vrf, one.peer): one for one in expected}
    for session in missing:
        owner = owners[session.vrf, session.peer]
        message = f"{described(session)} is not configured in bgpd"
        yield ResourceFailure(owner.owner, Reason.FRR_CONFIGURATION_FAILED, message, owner.origin)
    underlay = state.underlay
    if underlay is not None:
        for interface in interfaces:
            # If the kernel's part refused the underlay, it has reported why a NIC is absent.
            if interface.detail and (interface.present or underlay.resource not in refused):
                message = f"interface {interface.name} {interface.detail}"
                yield ResourceFailure(underlay.resource, Reason.UNDERLAY_FAILED, message, underlay.origin)


def _probes(report: ProbeReport, sessions: Sequence[SessionHealth]) -> tuple[ProbeHealth, ...]:
    """Return the probes whose session is still configured."""
    hosts = {session.vrf for session in sessions if session.role == "host"}
    return tuple(probe for probe in report.probes if probe.vrf in hosts)


def _unreachable(probes: Iterable[ProbeHealth]) -> Iterator[ResourceFailure]:
    for probe in probes:
        if probe.state == PROBE_DOWN:
            what = "the host's end" if probe.role == "host" else "target"
            message = f"probe: {what} {probe.target} in VRF {probe.vrf}: {probe.detail}; it is only reported"
            yield ResourceFailure(probe.resource, Reason.PROBE_FAILED, message, probe.origin)


def _required(state: DesiredState) -> frozenset[str]:
    uses_bfd = state.underlay is not None and any(neighbor.bfd is not None for neighbor in state.underlay.neighbors)
    return CORE_DAEMONS | {"bfdd"} if uses_bfd else CORE_DAEMONS


def _daemons(required: frozenset[str], seen: Observation) -> dict[str, bool]:
    return {daemon: daemon in seen.daemons for daemon in sorted(required | seen.daemons)}


def _interfaces(inputs: HealthInputs, state: DesiredState, seen: Observation) -> Iterator[InterfaceHealth]:
    mtu = (inputs.kernel.underlay_mtu if inputs.kernel else None) or 0
    for name in state.underlay.interfaces if state.underlay else ():
        up = seen.interfaces.get(name)
        if up is not None:
            yield InterfaceHealth(name, present=True, up=up, mtu=mtu, detail="" if up else "is down")
        elif "zebra" in seen.daemons:
            yield InterfaceHealth(name, present=False, up=False, detail="is not in the router's namespace")
        else:
            yield InterfaceHealth(name, present=False, up=False, detail="unknown: zebra is not running")
