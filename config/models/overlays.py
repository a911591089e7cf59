"""The tenant networks: L3VNI, L2VNI, L3Passthrough, and raw FRR snippets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from .base import Model
from .names import BridgeName, VrfName
from .rules import Cel, cel, check, unsupported
from .selector import Selected
from .sessions import HostSession, LastingHostSession
from .types import (
    ONE_OF_EACH_FAMILY,
    NamespacePattern,
    RouteDistinguisher,
    RouteTarget,
    Subnet,
    UdpPort,
    Vni,
    one_of_each_family,
)

#: IANA's VXLAN port (RFC 7348).
VXLAN_PORT = 4789
#: Upstream's schema limit of each route target list.
MAX_ROUTE_TARGETS = 100
MAX_NAMESPACES = 100
#: Characters of one raw snippet, in files as in the API: at most 256 KiB of UTF-8, where etcd takes 1.5 MiB a request.
#: FRR's own text, which is ASCII, also fits in the annotation (256 KiB) in which kubectl apply keeps an object again.
MAX_RAW_CONFIG = 65536
AddressFamilyName = Literal["IPv4", "IPv6"]


class Vxlan(Selected):
    """The fields that every VNI has."""

    vni: Vni = Field(description="VXLAN network identifier, unique per node.")
    vxlan_port: UdpPort = Field(default=VXLAN_PORT, description="UDP port of the tunnel.")
    underlay_address_family: AddressFamilyName | None = Field(
        default=None, description="Family of the tunnel endpoint; absent: IPv4 when the underlay has one, else IPv6."
    )


class L3Vni(Vxlan):
    """A routed tenant network: one VRF stretched over the fabric as EVPN type-5 routes."""

    vrf: VrfName = Field(description="VRF of the network; also the name of its Linux device.")
    host_session: LastingHostSession | None = Field(
        default=None, description="BGP session with the host inside this VRF."
    )
    export_rts: tuple[RouteTarget, ...] = Field(
        default=(),
        alias="exportRTs",
        max_length=MAX_ROUTE_TARGETS,
        description="Exported route targets; empty: automatic.",
    )
    import_rts: tuple[RouteTarget, ...] = Field(
        default=(),
        alias="importRTs",
        max_length=MAX_ROUTE_TARGETS,
        description="Imported route targets; empty: automatic.",
    )
    allowed_namespaces: tuple[NamespacePattern, ...] = Field(
        default=(),
        max_length=MAX_NAMESPACES,
        description="Namespaces whose L2VNIs it may route, besides its own; *: all. Files are in the program's own.",
    )

    @field_validator("host_session")
    @classmethod
    @cel(
        "!has(self.hostASN) || self.hostASN != self.asn",
        "hostASN must differ from asn; for iBGP set hostType: Internal instead",
        field="hostSession",
    )
    def _numbers_differ(cls, session: HostSession | None) -> HostSession | None:
        if session is not None and session.host_asn == session.asn:
            raise ValueError("hostASN must differ from asn; for iBGP set hostType: Internal instead")
        return session


class L3VniReference(Model):
    """An L3VNI by its name."""

    name: str = Field(min_length=1, max_length=253, description="Name of the L3VNI.")
    namespace: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="Its namespace, which it has to open to this one (allowedNamespaces); absent: the L2VNI's own, "
        "else the nodes' files.",
    )


class RoutingDomain(Model):
    """The VRF that routes for a segment."""

    type: Literal["L3VNI"] = Field(description="Kind of the routing domain: L3VNI.")
    l3vni: L3VniReference | None = Field(default=None, description="The L3VNI, when type is L3VNI.")

    _not_yet = unsupported("L3VPN", "l3vpn", "routing domains of type L3VPN")

    @check("has(self.l3vni)", "type L3VNI needs l3vni.name")
    def _reference_fits_type(self) -> bool:
        return self.l3vni is not None


class LinuxBridge(Model):
    """The host bridge that the segment's veth joins."""

    lifecycle: Literal["Managed", "External"] = Field(
        description="Managed: the router creates br-hs-<vni>. External: name is an existing bridge."
    )
    name: BridgeName | None = Field(default=None, description="The bridge; set if and only if lifecycle is External.")

    @check("(self.lifecycle == 'Managed') != has(self.name)", "set name if and only if lifecycle is External")
    def _name_fits_lifecycle(self) -> bool:
        return (self.lifecycle == "Managed") != (self.name is not None)


class HostMaster(Model):
    """What the segment's veth is attached to on the host."""

    type: Literal["LinuxBridge"] = Field(description="Kind of the master: LinuxBridge.")
    linux_bridge: LinuxBridge | None = Field(default=None, description="The bridge, when type is LinuxBridge.")

    _not_yet = unsupported("OVSBridge", "ovsBridge", "OVS bridges")

    @check("has(self.linuxBridge)", "type LinuxBridge needs linuxBridge")
    def _bridge_fits_type(self) -> bool:
        return self.linux_bridge is not None


class L2Vni(Vxlan):
    """A stretched layer-2 segment, optionally routed by a VRF."""

    routing_domain: RoutingDomain | None = Field(
        default=None, description="What routes the segment; absent: it is not routed."
    )
    host_master: HostMaster | None = Field(
        default=None, description="What the host's veth is attached to; absent: nothing."
    )
    gateway_ips: Annotated[
        tuple[Subnet, ...], Cel("self == oldSelf", "gatewayIPs cannot be changed; delete the L2VNI and create it again")
    ] = Field(
        default=(), alias="gatewayIPs", max_length=2, description="Anycast gateways with prefix length, one per family."
    )

    export_rts: tuple[RouteTarget, ...] = Field(
        default=(),
        alias="exportRTs",
        max_length=MAX_ROUTE_TARGETS,
        description="Route targets of the MAC and multicast routes that the node announces; empty: automatic.",
    )
    import_rts: tuple[RouteTarget, ...] = Field(
        default=(),
        alias="importRTs",
        max_length=MAX_ROUTE_TARGETS,
        description="Route targets of the routes that the segment takes from other nodes; empty: automatic.",
    )
    rd: RouteDistinguisher | None = Field(
        default=None,
        description="Route distinguisher, unique per node and segment: with an object for several nodes they all have "
        "this one; absent: automatic.",
    )

    @field_validator("gateway_ips")
    @classmethod
    @cel(ONE_OF_EACH_FAMILY, "at most one IPv4 and one IPv6 gateway", field="gatewayIPs")
    def _one_gateway_a_family(cls, gateways: tuple[str, ...]) -> tuple[str, ...]:
        return one_of_each_family(gateways, "gateway")

    @check(
        "!has(self.gatewayIPs) || self.gatewayIPs.size() == 0 || has(self.routingDomain)",
        "gatewayIPs need a routingDomain",
    )
    def _gateways_need_a_vrf(self) -> bool:
        return not self.gateway_ips or self.routing_domain is not None


class L3Passthrough(Selected):
    """Plain BGP between host and fabric through the underlay's instance; at most one per node."""

    host_session: LastingHostSession = Field(
        description="The session. It runs in the underlay's BGP instance, so the underlay's asn is the router's."
    )


class RawFrrConfig(Selected):
    """A piece of FRR configuration (experimental). The right to write one is root's right over the node's traffic."""

    priority: int = Field(
        default=0, strict=True, ge=0, le=2147483647, description="Snippets with a lower priority come first."
    )
    raw_config: str = Field(
        min_length=1,
        max_length=MAX_RAW_CONFIG,
        description="FRR configuration lines, added after the generated ones. Commands that leave configuration mode, "
        "name a file or open FRR's shells are refused, and so are abbreviations of what opens or closes a context.",
    )
