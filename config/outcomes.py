"""What the actors report to one another: the typed values on the channels of the data flow.

    StaticSnapshot -> DesiredState -> FrrOutcome -> KernelOutcome -> HealthReport -> Status

Each later value names its generation, so that an old result is never taken for a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState, ResourceFailure, RouterIdScheme
from config.problems import Origin, Problem, ResourceId
from config.resources import Resource


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The node: ``index`` (0 or more) is for IPAM, ``log_level`` is FRR's.

    ``router_id_scheme`` is remembered with the rest. Files of versions that knew one scheme only have none: v1.
    ``index_origin`` is where the index is configured, for messages.
    """

    name: str
    index: int
    log_level: str = "info"
    router_id_scheme: RouterIdScheme = "v1"
    index_origin: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class StaticSnapshot:
    """The files' contribution: complete (a broken file is present with its last good content) and never partial.

    ``on_trial``: it is a configuration on trial, of which nothing may be stored.
    """

    node: NodeIdentity
    resources: tuple[Resource, ...]
    problems: tuple[Problem, ...] = ()
    reload_id: int = 0
    on_trial: bool = False


@dataclass(frozen=True, slots=True)
class Bounce:
    """A request to remove one L3VNI from FRR and add it again; another ``attempt`` is another request."""

    vni: int
    attempt: int


@dataclass(frozen=True, slots=True)
class FrrOutcome:
    """The result of applying a desired state to FRR.

    ``applied``: the running configuration was verified to equal the intent, but for lines of ``failures``. When it is
    False the kernel is not touched for this generation and ``error`` gives the reason in one line. ``failures`` are
    resources of which FRR refuses lines: a raw snippet is left out, the other lines of others are in force, and so is
    all that the kernel has of them. ``changed``: FRR was written to. ``withdrawn`` are the L3VNIs that FRR does not
    have at the moment, so that their devices may be moved; ``bounced`` are the requests of
    :attr:`HealthReport.bounce` that were carried out.
    """

    desired: DesiredState
    applied: bool
    changed: bool = False
    error: str = ""
    failures: tuple[ResourceFailure, ...] = ()
    withdrawn: frozenset[int] = frozenset()
    bounced: frozenset[Bounce] = frozenset()


@dataclass(frozen=True, slots=True)
class KernelOutcome:
    """The result of applying a desired state to the kernel; same meaning of ``applied``, ``changed`` and ``failures``.

    A state without any of its underlay's NICs is not ``applied``, whatever else was done: the node has no fabric.

    ``writes`` counts netlink and sysctl writes of this pass: 0 on a converged node. ``withdraw`` are the L3VNIs that
    FRR must not have while their devices are moved or made again: those devices are left as they are until FRR reports
    them in :attr:`FrrOutcome.withdrawn`.
    """

    desired: DesiredState
    applied: bool
    changed: bool = False
    error: str = ""
    failures: tuple[ResourceFailure, ...] = ()
    writes: int = 0
    underlay_mtu: int | None = None
    withdraw: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Interruption:
    """What a change would take down, for good or for a moment.

    ``subject`` is ``session``, ``vni`` or ``nic``; ``name`` is what its user calls it; ``effect`` is a sentence's end.
    """

    subject: str
    name: str
    effect: str

    def __str__(self) -> str:
        return f"{self.name}: {self.effect}"


#: FRR's state of a session that is up, and ours of a listen range that bgpd serves.
ESTABLISHED: Final = "Established"
LISTENING: Final = "Listening"
#: Detail of what no health report mentions.
NOT_CHECKED: Final = "not checked yet"


@dataclass(frozen=True, slots=True)
class SessionHealth:
    """One BGP session. ``state`` is FRR's (``Established`` ...) or ours; ``vrf`` is ``default`` for the underlay's.

    ``role`` is ``fabric`` or ``host``; ``bfd`` is empty where BFD is not used; ``detail`` is why it is down, if known;
    ``flaps`` is how often it was lost since bgpd's start.
    """

    peer: str
    vrf: str
    remote_as: int
    state: str
    uptime_seconds: int = 0
    prefixes_received: dict[str, int] = field(default_factory=dict)
    role: str = "fabric"
    bfd: str = ""
    detail: str = ""
    flaps: int = 0

    @property
    def up(self) -> bool:
        """Whether routes are exchanged."""
        return self.state == ESTABLISHED

    @property
    def is_range(self) -> bool:
        """Whether this is a listen range: its sessions are entries of their own, it cannot be up itself."""
        return self.state == LISTENING

    @property
    def display_name(self) -> str:
        """What the daemon's events call it."""
        return f"{self.peer} in VRF {self.vrf}" if self.vrf != "default" else self.peer


@dataclass(frozen=True, slots=True)
class VniHealth:
    """Whether one VNI works, by zebra and bgpd. ``type`` is ``L2`` or ``L3``; ``ok`` False comes with a ``detail``.

    ``routes`` counts those in an L3VNI's forwarding table. EVPN routes are counted by type (``2`` and ``3`` of an
    L2VNI, ``5`` of an L3VNI): those of other tunnel endpoints, and the node's own; an unknown number is absent.
    """

    resource: ResourceId
    vni: int
    type: str
    vrf: str
    ok: bool
    detail: str = ""
    origin: Origin = field(default_factory=Origin)
    remote_vteps: int = 0
    routes: int = 0
    evpn_received: dict[str, int] = field(default_factory=dict)
    evpn_advertised: dict[str, int] = field(default_factory=dict)


#: States of what is pinged; unknown until there was an answer, or none for long enough.
PROBE_UP: Final = "up"
PROBE_DOWN: Final = "down"
PROBE_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class ProbeHealth:
    """One address that the router pings for a session with the host.

    ``role`` is ``host`` for the host's end and ``target`` for a configured address. ``sent`` and ``lost`` count pings
    since the daemon's start or the probe's last change; ``rtt_seconds`` is that of the last answer, 0 before any.
    ``detail`` is why it is down.
    """

    resource: ResourceId
    vrf: str
    target: str
    role: str
    state: str = PROBE_UNKNOWN
    rtt_seconds: float = 0.0
    sent: int = 0
    lost: int = 0
    detail: str = ""
    origin: Origin = field(default_factory=Origin)


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All that is pinged."""

    probes: tuple[ProbeHealth, ...] = ()

    def states(self) -> frozenset[tuple[ResourceId, str, str]]:
        """Return what changes only when something begins or ceases to answer."""
        return frozenset((probe.resource, probe.target, probe.state) for probe in self.probes)


@dataclass(frozen=True, slots=True)
class InterfaceHealth:
    """One underlay interface inside the router."""

    name: str
    present: bool
    up: bool
    mtu: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What the router is actually doing.

    ``verified``: generation ``generation`` is applied in FRR and kernel, each VNI works in zebra and bgpd, its routes
    included, and bgpd has each session; what has had the time for it is among the ``failures`` instead. Sessions need
    not be Established for that. ``probes`` are of the sessions with hosts; one that is down is a failure, and keeps
    nothing from being verified. ``bounce`` are the L3VNIs that FRR should remove and add again; a request stands until
    it is left out of a report, and is carried out once.
    """

    generation: int
    reload_id: int
    verified: bool
    summary: str
    daemons: dict[str, bool] = field(default_factory=dict)
    sessions: tuple[SessionHealth, ...] = ()
    vnis: tuple[VniHealth, ...] = ()
    interfaces: tuple[InterfaceHealth, ...] = ()
    probes: tuple[ProbeHealth, ...] = ()
    failures: tuple[ResourceFailure, ...] = ()
    problems: tuple[str, ...] = ()
    bounce: frozenset[Bounce] = frozenset()

    @property
    def unanswered(self) -> bool:
        """Whether FRR, or one of its daemons, did not answer: only ``daemons`` is known then."""
        return self.problems == (self.summary,)


def vni_health(
    desired: DesiredState, report: HealthReport | None, failures: Mapping[ResourceId, str]
) -> Iterator[VniHealth]:
    """Yield every configured VNI with its reported health, or with why it has none.

    ``failures`` are messages about resources that are not in force, from any actor.
    """
    reported = {vni.resource: vni for vni in report.vnis} if report else {}
    configured: tuple[DesiredL3VNI | DesiredL2VNI, ...] = (*desired.l3vnis, *desired.l2vnis)
    for vni in configured:
        failure, kind = failures.get(vni.resource, ""), "L3" if isinstance(vni, DesiredL3VNI) else "L2"
        place, seen = (kind, vni.vrf or "", vni.origin), reported.get(vni.resource)
        if seen is None or seen.vni != vni.vni:
            seen = VniHealth(vni.resource, vni.vni, kind, vni.vrf or "", False, NOT_CHECKED, vni.origin)
        if failure or (seen.type, seen.vrf, seen.origin) != place:
            # What was reported remains: the numbers of a VNI whose place in its file has moved, or that has failed.
            kind, vrf, origin = place
            ok, detail = seen.ok and not failure, failure or seen.detail
            seen = replace(seen, type=kind, vrf=vrf, origin=origin, ok=ok, detail=detail)
        yield seen
