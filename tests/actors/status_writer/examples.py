"""Objects, states and outcomes that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from typing import Any, Protocol

from actors.status_writer.actor import Writer
from actors.status_writer.node_state import NodeState
from config.api import ApiCredentials, ApiNode, ApiObject, ApiSnapshot
from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState, DesiredUnderlay, ResourceFailure
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, SessionHealth, VniHealth
from config.problems import Kind, Origin, Problem, Reason, ResourceId, Severity
from tests.fakes.api_server import FakeApiServer

NAMESPACE = "openperouter-system"
NODE = ApiNode("node-a", "uid-of-node-a", {"kubernetes.io/hostname": "node-a"})
CREDENTIALS = ApiCredentials(server="https://192.0.2.1:6443", source="test")


def cr(name: str = "red", *, generation: int = 1, version: str = "10", **changes: Any) -> ApiObject:
    """Return an L3VNI of the namespace ``tenants``."""
    made = ApiObject(Kind.L3VNI, "tenants", name, f"uid-of-{name}", version, generation)
    return replace(made, **changes)


def l3vni(one: ApiObject, vni: int = 100) -> DesiredL3VNI:
    """Return what an object becomes in a desired state."""
    return DesiredL3VNI(one.id, one.origin, one.name, vni, 4789, IPv4Address("100.65.0.1"), 64514)


def l2vni(name: str, vni: int, path: str = "/etc/openperouter/configs/openpe_a.yaml") -> DesiredL2VNI:
    """Return what an L2VNI from a file becomes in a desired state."""
    resource = ResourceId(Kind.L2VNI, NAMESPACE, name)
    return DesiredL2VNI(resource, Origin(path, 7, 3), vni, 4789, IPv4Address("100.65.0.1"))


UNDERLAY = DesiredUnderlay(
    ResourceId(Kind.UNDERLAY, NAMESPACE, "static-node-a-underlay-0"),
    Origin("/etc/openperouter/configs/openpe_underlay.yaml", 2, 1),
    64514,
    IPv4Address("10.0.0.1"),
    ("eth1",),
    (),
    (IPv4Interface("100.65.0.1/32"),),
)


def state(*objects: ApiObject, generation: int = 5, problems: tuple[Problem, ...] = (), **changes: Any) -> DesiredState:
    """Return a state with an underlay and one L3VNI for each object."""
    made = DesiredState(generation, NODE.name, 3, underlay=UNDERLAY, problems=problems)
    return replace(made, l3vnis=tuple(l3vni(one, 100 + i) for i, one in enumerate(objects)), **changes)


def refused(one: ApiObject, message: str = "vni 100 is taken", reason: Reason = Reason.VALIDATION_FAILED) -> Problem:
    """Return the problem of an object that is refused."""
    return Problem(message, one.origin, "spec.vni", reason=reason, resource=one.id)


def file_problem(kind: Kind | None, name: str, message: str, path: str = "/etc/x/openpe_a.yaml") -> Problem:
    """Return the problem of something in a file."""
    resource = ResourceId(kind, NAMESPACE, name, name) if kind else None
    return Problem(message, Origin(path, 3, 1), "asn", resource=resource)


def duplicate(severity: Severity = Severity.WARNING) -> Problem:
    """Return the problem of an index that another node has as well."""
    message, kept = "this node's index 3 is not unique: node b has it", "this router stays as it is"
    reason = Reason.DUPLICATE_INDEX
    return Problem(message, UNDERLAY.origin, "", severity, reason, UNDERLAY.resource, kept)


def unrelated_underlay() -> Problem:
    """Return the problem of an Underlay that is refused while the router has another one, and loses nothing."""
    tenants = cr("fabric", kind=Kind.UNDERLAY)
    message = "Underlays of namespace tenants do not count on this node"
    return Problem(message, tenants.origin, reason=Reason.UNDERLAY_FAILED, resource=tenants.id)


def failure(one: ApiObject, message: str = "the kernel refuses the bridge") -> ResourceFailure:
    """Return the failure of an object while it was carried out."""
    return ResourceFailure(one.id, Reason.OVERLAY_ATTACHMENT_FAILED, message, one.origin)


def health(desired: DesiredState, *, verified: bool = True, **changes: Any) -> HealthReport:
    """Return a report on a state in which every VNI works."""
    vnis = tuple(VniHealth(vni.resource, vni.vni, "L3", vni.vrf, ok=True) for vni in desired.l3vnis)
    sessions = (SessionHealth("192.0.2.1", "default", 64512, "Established", 100, {"ipv4Unicast": 3}),)
    made = HealthReport(desired.generation, 0, verified, "fine", sessions=sessions, vnis=vnis)
    return replace(made, **changes)


def snapshot(*objects: ApiObject, mirrored: tuple[ApiObject, ...] = (), **changes: Any) -> ApiSnapshot:
    """Return a live snapshot."""
    return replace(ApiSnapshot(NODE, objects, mirrored, live=True), **changes)


def node_state(*objects: ApiObject, desired: DesiredState | None = None, **changes: Any) -> NodeState:
    """Return the state of a node where all objects are in force, with changes."""
    desired = desired or state(*objects)
    whole: Mapping[str, Any] = {
        "frr": FrrOutcome(desired, applied=True),
        "kernel": KernelOutcome(desired, applied=True),
        "health": health(desired),
    }
    api = changes.pop("api", None) or snapshot(*objects)
    return NodeState(NAMESPACE, CREDENTIALS, api, NODE, desired, **{**whole, **changes})


class WriterBench(Protocol):
    """One writer, its server, the state that it last got, and the time."""

    server: FakeApiServer
    state: NodeState
    now: float

    @property
    def writer(self) -> Writer:
        """Return the writer."""


async def run_writer(bench: WriterBench, seconds: float) -> None:
    """Let time pass as the actor would: update and write whenever something is due. An error leaves its time."""
    end = bench.now + seconds
    async with bench.server.connect(CREDENTIALS) as client:
        for _ in range(1000):
            due = bench.writer.due(bench.now)
            if due > end:
                break
            bench.now = max(bench.now, due)
            bench.writer.update(bench.state, bench.now)
            if bench.writer.due(bench.now) <= bench.now:
                await bench.writer.write(client, bench.now)
        else:
            raise AssertionError("never idle")
    bench.now = end
