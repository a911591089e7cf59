"""Values of a working router, for the report's tests to break one at a time."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_interface

from actors.report.status_builder import Process, StatusInputs
from config.desired import (
    BGPFamily,
    DesiredL2VNI,
    DesiredL3VNI,
    DesiredState,
    DesiredUnderlay,
    EndpointKind,
    FabricNeighbor,
    Family,
    ResourceFailure,
    Secret,
)
from config.outcomes import (
    FrrOutcome,
    HealthReport,
    InterfaceHealth,
    KernelOutcome,
    NodeIdentity,
    SessionHealth,
    StaticSnapshot,
    VniHealth,
)
from config.problems import Kind, Origin, Problem, Reason, ResourceId, Severity
from config.status import ActorStatus

PROCESS = Process("0.1.0", 42, "boot", 1000.0, "/etc/openperouter/configs")
RED = ResourceId(Kind.L3VNI, "ns", "static-node-red", "red")
GREEN = ResourceId(Kind.L3VNI, "ns", "static-node-green", "green")
BLUE = ResourceId(Kind.L2VNI, "ns", "static-node-blue", "blue")
UNDERLAY = ResourceId(Kind.UNDERLAY, "ns", "static-node-underlay", "underlay")
VTEP = IPv4Address("100.65.0.1")
PASSWORD = "correct horse battery staple"

ERROR = Problem("vni 100 is taken", Origin("openpe_vnis.yaml", 7, 3), "l3vnis[1].vni", resource=GREEN)
WARNING = Problem("unknown case of a key", Origin("openpe_vnis.yaml", 2, 1), severity=Severity.WARNING)
FAILURE = ResourceFailure(
    RED, Reason.OVERLAY_ATTACHMENT_FAILED, "bridge br-ext is missing", Origin("openpe_vnis.yaml", 2)
)
CHILD = ActorStatus("frr", "running")


def desired(generation: int = 4, *, reload_id: int = 0, problems: tuple[Problem, ...] = ()) -> DesiredState:
    neighbor = FabricNeighbor(
        "192.168.11.2",
        EndpointKind.ADDRESS,
        Family.IPV4,
        64512,
        True,
        (BGPFamily.IPV4_UNICAST,),
        password=Secret(PASSWORD),
    )
    underlay = DesiredUnderlay(
        UNDERLAY,
        Origin("openpe_underlay.yaml", 2),
        64514,
        IPv4Address("10.0.0.1"),
        ("toswitch1",),
        (neighbor,),
        (ip_interface("100.65.0.1/32"),),
    )
    return DesiredState(
        generation,
        "n1",
        0,
        reload_id=reload_id,
        underlay=underlay,
        l3vnis=(DesiredL3VNI(RED, Origin("openpe_vnis.yaml", 2), "red", 100, 4789, VTEP, 64514),),
        l2vnis=(DesiredL2VNI(BLUE, Origin("openpe_vnis.yaml", 9), 110, 4789, VTEP, vrf="red"),),
        problems=problems,
    )


def health(generation: int = 4, *, verified: bool = True, reload_id: int = 0) -> HealthReport:
    return HealthReport(
        generation,
        reload_id,
        verified,
        f"generation {generation} verified",
        daemons={"bgpd": True, "zebra": True},
        sessions=(
            SessionHealth("192.168.11.2", "default", 64512, "Established", 100, {"ipv4Unicast": 3}),
            SessionHealth("172.27.10.2", "red", 64515, "Active", role="host"),
        ),
        vnis=(
            VniHealth(RED, 100, "L3", "red", ok=True, routes=7),
            VniHealth(BLUE, 110, "L2", "red", ok=True, remote_vteps=2),
        ),
        interfaces=(InterfaceHealth("toswitch1", present=True, up=True, mtu=9000),),
    )


def inputs(generation: int = 4, *, reload_id: int = 0, problems: tuple[Problem, ...] = ()) -> StatusInputs:
    """A converged router."""
    state = desired(generation, reload_id=reload_id, problems=problems)
    return StatusInputs(
        PROCESS,
        snapshot=StaticSnapshot(NodeIdentity("n1", 0), (), problems, reload_id),
        desired=state,
        frr=FrrOutcome(state, applied=True),
        kernel=KernelOutcome(state, applied=True, underlay_mtu=9000),
        health=health(generation, reload_id=reload_id),
        children=(CHILD,),
        was_ready=True,
    )
