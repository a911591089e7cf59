"""A node with something of everything, as the daemon reports it, and the configuration that fits it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from config.desired import DesiredPassthrough, DesiredState, EndpointKind, HostMasterKind, ResourceFailure
from config.outcomes import InterfaceHealth, SessionHealth, VniHealth
from config.problems import Kind, Origin, Problem, Reason, ResourceId, Severity
from config.status import Status, UnderlayStatus
from tests.actors.frr.cases import ENDS_V4, ENDS_V6, l2vni, l3vni, neighbor, session, state, underlay

FILE: Final = "/etc/openperouter/configs/openpe_node.yaml"
RED, STRETCHED, LONE, GREEN, PASSTHROUGH = (
    ResourceId(Kind.L3VNI, "system", "static-red", label="red"),
    ResourceId(Kind.L2VNI, "system", "static-red-l2", label="red"),
    ResourceId(Kind.L2VNI, "tenant", "lone"),
    ResourceId(Kind.L3VNI, "system", "static-green", label="green"),
    ResourceId(Kind.L3PASSTHROUGH, "system", "static-passthrough", label="passthrough"),
)

STATUS: Final = Status(
    node="n1",
    node_index=0,
    underlay=UnderlayStatus(
        "underlay",
        f"{FILE}:2:5",
        64514,
        "10.0.0.1",
        ("100.65.0.0/32",),
        (
            InterfaceHealth("eth1", present=True, up=True, mtu=9000),
            InterfaceHealth("eth2", present=True, up=False, mtu=9000, detail="no carrier"),
        ),
    ),
    sessions=(
        SessionHealth(
            "eth1", "default", 64512, "Established", 3725, {"ipv4Unicast": 3, "l2VpnEvpn": 8}, "fabric", "up"
        ),
        SessionHealth("eth2", "default", 64513, "Idle", bfd="down", detail="the peer sends no BFD packets", flaps=4),
        SessionHealth("172.31.0.0/24", "default", 0, "Listening"),
        SessionHealth("172.31.0.9", "default", 64520, "Established", 60, {"ipv4Unicast": 1}),
        SessionHealth("10.9.9.9", "default", 64521, "Connect"),
        SessionHealth("172.27.10.2", "red", 64515, "Active", role="host", flaps=1),
        SessionHealth("2001:db9:1::2", "red", 64515, "Established", 7, {"ipv6Unicast": 2}, "host"),
        SessionHealth("172.27.10.2", "default", 64515, "Established", 7, {"ipv4Unicast": 0}, "host"),
    ),
    vnis=(
        VniHealth(RED, 100, "L3", "red", ok=True, origin=Origin(FILE, 10, 5), routes=1),
        VniHealth(
            STRETCHED,
            110,
            "L2",
            "red",
            ok=True,
            origin=Origin(FILE, 20, 5),
            remote_vteps=2,
            evpn_received={"2": 14, "3": 2},
            evpn_advertised={"2": 4, "3": 1},
        ),
        VniHealth(
            LONE,
            120,
            "L2",
            "",
            ok=False,
            detail="host bridge br0 is missing",
            origin=Origin(namespace="t", name="lone"),
        ),
    ),
    problems=(
        Problem("is taken", Origin(FILE, 30, 9), "vni", resource=GREEN, in_force="it is left out"),
        Problem("spelled VRF", Origin(FILE, 11, 5), "VRF", Severity.WARNING, resource=RED),
    ),
    failures=(ResourceFailure(LONE, Reason.OVERLAY_ATTACHMENT_FAILED, "host bridge br0 is missing"),),
)

_NEIGHBORS: Final = (
    neighbor("eth1", endpoint_kind=EndpointKind.INTERFACE),
    neighbor("eth2", endpoint_kind=EndpointKind.INTERFACE),
    neighbor("172.31.0.0/24", endpoint_kind=EndpointKind.LISTEN_RANGE),
)
DESIRED: Final[DesiredState] = state(
    underlay=underlay(*_NEIGHBORS),
    l3vnis=(replace(l3vni(host=session(ENDS_V4, ENDS_V6)), resource=RED),),
    l2vnis=(
        replace(l2vni(110), resource=STRETCHED, host_master=HostMasterKind.MANAGED_BRIDGE, bridge="br-hs-110"),
        replace(l2vni(120, vrf=None, gateways=()), resource=LONE),
    ),
    passthrough=DesiredPassthrough(PASSTHROUGH, Origin(FILE, 40, 3), session(ENDS_V4)),
)
