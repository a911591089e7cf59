"""Which addresses are pinged, when, and their health. Pure: time and randomness come from outside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from config.desired import DesiredSession, IPAddress
from config.outcomes import PROBE_DOWN, PROBE_UP, KernelOutcome, ProbeHealth
from config.problems import Origin, ResourceId

#: Share of the interval by which it varies, so that probes and nodes do not all ping at the same time.
JITTER = 0.1


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """One address to ping, every ``interval`` seconds; ``vrf`` is empty for the router's default VRF."""

    resource: ResourceId
    vrf: str
    address: IPAddress
    role: str
    interval: int
    count: int
    origin: Origin = field(default_factory=Origin, compare=False)


@dataclass(frozen=True, slots=True)
class PingResult:
    """The result of one ping: the round-trip time in seconds, or None with a reason if it is known."""

    rtt: float | None = None
    problem: str = ""


def targets_of(outcome: KernelOutcome) -> tuple[ProbeTarget, ...]:
    """Return what to ping for a state that is in force, without resources that the kernel refused."""
    refused = {failure.resource for failure in outcome.failures}
    state = outcome.desired
    found: list[ProbeTarget] = []
    for vni in state.l3vnis:
        if vni.session is not None and vni.resource not in refused:
            found += _of_session(vni.session, vni.vrf, vni.resource, vni.origin)
    passthrough = state.passthrough
    if passthrough is not None and passthrough.resource not in refused:
        found += _of_session(passthrough.session, "", passthrough.resource, passthrough.origin)
    return tuple(dict.fromkeys(found))


def _of_session(session: DesiredSession, vrf: str, owner: ResourceId, origin: Origin) -> Iterator[ProbeTarget]:
    probe = session.probe
    if probe is None:
        return
    hosts = [addresses.host.ip for addresses in session.addresses]
    for address in hosts:
        yield ProbeTarget(owner, vrf, address, "host", probe.interval, probe.count, origin)
    for address in probe.targets:
        if address not in hosts:
            yield ProbeTarget(owner, vrf, address, "target", probe.interval, probe.count, origin)


@dataclass
class _Record:
    """One target; ``misses`` counts unanswered pings since the last answer."""

    due: float
    health: ProbeHealth
    misses: int = 0


class ProbeSchedule:
    """When each target is due, and its health. ``chance`` gives numbers from 0 to 1."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._records: dict[ProbeTarget, _Record] = {}

    def follow(self, targets: Iterable[ProbeTarget], now: float) -> None:
        """Replace the targets. Known ones keep their counters; a new one is due within its interval."""
        known, self._records = self._records, {}
        for target in targets:
            record = known.get(target) or _Record(now + self._chance() * target.interval, _unknown(target))
            record.health = replace(record.health, origin=target.origin)
            self._records[target] = record

    def next_due(self) -> float:
        """Return when the next target is due; infinity without any."""
        return min((record.due for record in self._records.values()), default=math.inf)

    def take(self, now: float, most: int) -> list[ProbeTarget]:
        """Return up to ``most`` of the targets that are due, the most overdue first, and set their next times."""
        due = sorted((record.due, number) for number, record in enumerate(self._records.values()) if record.due <= now)
        targets = list(self._records)
        taken = [targets[number] for _, number in due[:most]]
        for target in taken:
            self._records[target].due = now + target.interval * (1 + JITTER * (2 * self._chance() - 1))
        return taken

    def record(self, target: ProbeTarget, answer: PingResult) -> None:
        """Record the result of a ping; a target that was removed meanwhile is ignored."""
        record = self._records.get(target)
        if record is None:
            return
        seen = replace(record.health, sent=record.health.sent + 1)
        if answer.rtt is not None:
            record.misses = 0
            record.health = replace(seen, state=PROBE_UP, rtt_seconds=answer.rtt, detail="")
            return
        record.misses += 1
        seen = replace(seen, lost=seen.lost + 1)
        if record.misses >= target.count and seen.state != PROBE_DOWN:
            seen = replace(seen, state=PROBE_DOWN, detail=_detail(target, answer))
        record.health = seen

    def health(self) -> tuple[ProbeHealth, ...]:
        """Return all targets' health."""
        return tuple(record.health for record in self._records.values())


def _unknown(target: ProbeTarget) -> ProbeHealth:
    vrf = target.vrf or "default"
    return ProbeHealth(target.resource, vrf, str(target.address), target.role, origin=target.origin)


def _detail(target: ProbeTarget, answer: PingResult) -> str:
    """Return why a target is down; the text stays the same until it answers."""
    times = "ping" if target.count == 1 else f"{target.count} pings in a row"
    return f"no answer to {times}{f' ({answer.problem})' if answer.problem else ''}"
