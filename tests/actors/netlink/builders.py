"""Desired states for the kernel's tests: a demo-like one, and small pieces to vary it with."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_interface

from actors.netlink.converge import converge
from actors.netlink.planning.observed import Link, Namespace
from actors.netlink.planning.plan import plan
from config.desired import (
    DesiredL2VNI,
    DesiredL3VNI,
    DesiredPassthrough,
    DesiredSession,
    DesiredState,
    DesiredUnderlay,
    HostMasterKind,
    SessionAddresses,
)
from config.problems import Kind, Origin, ResourceId
from tests.fakes.kernel import FakeKernel

NAMESPACE = "openperouter-system"


def resource(kind: Kind, name: str) -> ResourceId:
    return ResourceId(kind, NAMESPACE, name, name)


def origin(name: str) -> Origin:
    return Origin(path=f"openpe_{name}.yaml", line=1)


UNDERLAY = resource(Kind.UNDERLAY, "underlay")


def underlay(*interfaces: str, vteps: tuple[str, ...] = ("100.65.0.0/32",)) -> DesiredUnderlay:
    return DesiredUnderlay(
        resource=UNDERLAY,
        origin=origin("underlay"),
        asn=64514,
        router_id=IPv4Address("10.0.0.1"),
        interfaces=interfaces,
        neighbors=(),
        vteps=tuple(ip_interface(vtep) for vtep in vteps),
        advertise_evpn=True,
    )


def session(*pairs: tuple[str, str], host_vrf: bool = False) -> DesiredSession:
    addresses = tuple(SessionAddresses(router=ip_interface(router), host=ip_interface(host)) for router, host in pairs)
    return DesiredSession(asn=64514, remote_as=64515, ebgp=True, addresses=addresses, host_vrf=host_vrf)


DUAL = (("172.26.10.1/24", "172.26.10.2/24"), ("2001:db8:1::1/64", "2001:db8:1::2/64"))


def l3vni(
    name: str = "red",
    vni: int = 100,
    *,
    vrf: str | None = None,
    pairs: tuple[tuple[str, str], ...] = DUAL,
    vtep: str = "100.65.0.0",
    host_vrf: bool = False,
) -> DesiredL3VNI:
    return DesiredL3VNI(
        resource=resource(Kind.L3VNI, name),
        origin=origin(name),
        vrf=vrf or name,
        vni=vni,
        vxlan_port=4789,
        vtep=ip_address(vtep),
        asn=64514,
        session=session(*pairs, host_vrf=host_vrf) if pairs else None,
    )


def l2vni(
    name: str = "blue",
    vni: int = 110,
    *,
    vrf: str | None = "red",
    gateways: tuple[str, ...] | None = None,
    master: HostMasterKind = HostMasterKind.MANAGED_BRIDGE,
    bridge: str | None = None,
    vtep: str = "100.65.0.0",
) -> DesiredL2VNI:
    if master is HostMasterKind.MANAGED_BRIDGE:
        bridge = f"br-hs-{vni}"
    if gateways is None:
        gateways = ("172.27.1.1/24", "2001:db8:2::1/64") if vrf is not None else ()
    return DesiredL2VNI(
        resource=resource(Kind.L2VNI, name),
        origin=origin(name),
        vni=vni,
        vxlan_port=4789,
        vtep=ip_address(vtep),
        vrf=vrf,
        gateways=tuple(ip_interface(gateway) for gateway in gateways),
        host_master=master,
        bridge=bridge or (f"br-hs-{vni}" if master is HostMasterKind.MANAGED_BRIDGE else None),
    )


def passthrough(*, host_vrf: bool = False) -> DesiredPassthrough:
    pairs = (("192.168.40.1/24", "192.168.40.2/24"), ("2001:db8:40::1/64", "2001:db8:40::2/64"))
    return DesiredPassthrough(resource(Kind.L3PASSTHROUGH, "pass"), origin("pass"), session(*pairs, host_vrf=host_vrf))


def state(generation: int = 1, **parts: object) -> DesiredState:
    """Return a state with an underlay over ``toswitch1`` and nothing else, changed by ``parts``."""
    defaults: dict[str, object] = {"underlay": underlay("toswitch1")}
    return DesiredState(generation=generation, node_name="node", node_index=0, **{**defaults, **parts})  # type: ignore[arg-type]


def demo(generation: int = 1) -> DesiredState:
    """Return an L3VNI with a dual-stack session, an L2VNI in its VRF with gateways and a bridge, and a passthrough."""
    return state(generation, l3vnis=(l3vni(),), l2vnis=(l2vni(),), passthrough=passthrough())


def without_underlay(desired: DesiredState) -> DesiredState:
    return replace(desired, underlay=None, l3vnis=(), l2vnis=(), passthrough=None)


def node() -> FakeKernel:
    """A machine whose host has the underlay's NIC."""
    kernel = FakeKernel()
    kernel.add(Namespace.HOST, Link(0, "toswitch1", up=True))
    return kernel


def lines(desired: DesiredState, kernel: FakeKernel) -> list[str]:
    """The steps of a plan as text."""
    return [str(step) for step in plan(desired, kernel.observe(desired)).steps]


def settle(desired: DesiredState, kernel: FakeKernel) -> int:
    """Converge, which has to succeed, and return the number of writes."""
    result = converge(desired, kernel)
    assert result.clean, (result.errors, result.failures)
    return result.writes
