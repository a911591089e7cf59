"""What the actors report to one another: the typed values on the channels of the data flow.

    StaticSnapshot -> DesiredState -> FrrOutcome -> KernelOutcome -> HealthReport -> Status

Each later value names its generation, so that an old result is never taken for a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from config.desired import DesiredState, ResourceFailure
from config.problems import Origin, Problem, ResourceId
from config.resources import Resource


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The node: ``index`` (0 or more) is for IPAM, ``log_level`` is FRR's."""

    name: str
    index: int
    log_level: str = "info"


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
class FrrOutcome:
    """The result of applying a desired state to FRR.

    ``applied``: the running configuration was verified to equal the intent. When it is False the kernel is not touched
    for this generation and ``error`` gives the reason in one line. ``failures`` are resources left out (a refused raw
    snippet, for instance); the rest is in force. ``changed``: FRR was written to.
    """

    desired: DesiredState
    applied: bool
    changed: bool = False
    error: str = ""
    failures: tuple[ResourceFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelOutcome:
    """The result of applying a desired state to the kernel; same meaning of ``applied``, ``changed`` and ``failures``.

    A state without any of its underlay's NICs is not ``applied``, whatever else was done: the node has no fabric.

    ``writes`` counts netlink and sysctl writes of this pass: 0 on a converged node.
    """

    desired: DesiredState
    applied: bool
    changed: bool = False
    error: str = ""
    failures: tuple[ResourceFailure, ...] = ()
    writes: int = 0
    underlay_mtu: int | None = None


@dataclass(frozen=True, slots=True)
class SessionHealth:
    """One BGP session. ``state`` is FRR's (``Established`` ...); ``vrf`` is ``default`` for the underlay's."""

    peer: str
    vrf: str
    remote_as: int
    state: str
    uptime_seconds: int = 0
    prefixes_received: dict[str, int] = field(default_factory=dict)
    role: str = "fabric"
    bfd: str = ""


@dataclass(frozen=True, slots=True)
class VniHealth:
    """One VNI as zebra sees it. ``ok`` False comes with a ``detail``."""

    resource: ResourceId
    vni: int
    type: str
    vrf: str
    ok: bool
    detail: str = ""
    origin: Origin = field(default_factory=Origin)
    remote_vteps: int = 0
    routes: int = 0


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

    ``verified``: generation ``generation`` is applied in FRR and kernel, and zebra knows each VNI with its VRF and bgpd
    each session, or has had the time for it: then the VNI or session is among the ``failures``. Sessions need not be
    Established for that.
    """

    generation: int
    reload_id: int
    verified: bool
    summary: str
    daemons: dict[str, bool] = field(default_factory=dict)
    sessions: tuple[SessionHealth, ...] = ()
    vnis: tuple[VniHealth, ...] = ()
    interfaces: tuple[InterfaceHealth, ...] = ()
    failures: tuple[ResourceFailure, ...] = ()
    problems: tuple[str, ...] = ()
