"""Desired states for golden files: one for each kind of configuration, shared with the tests on real FRR."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_interface, ip_network
from typing import Any, Final

from config.desired import (
    Bfd,
    BGPFamily,
    DesiredL2VNI,
    DesiredL3VNI,
    DesiredPassthrough,
    DesiredRawFRR,
    DesiredSession,
    DesiredState,
    DesiredUnderlay,
    EndpointKind,
    FabricNeighbor,
    Family,
    GracefulRestart,
    Secret,
    SessionAddresses,
)
from config.problems import Kind, Origin, ResourceId

HOSTNAME: Final = "node1"
ORIGIN: Final = Origin("/etc/openperouter/configs/openpe_node.yaml", 3, 1)

V4, V6, EVPN = BGPFamily.IPV4_UNICAST, BGPFamily.IPV6_UNICAST, BGPFamily.EVPN


def resource(kind: Kind, name: str) -> ResourceId:
    return ResourceId(kind, "openperouter-system", name, name)


def neighbor(endpoint: str = "192.168.11.2", **changes: Any) -> FabricNeighbor:
    """An eBGP neighbour with an IPv4 address that carries IPv4 and EVPN."""
    base = FabricNeighbor(endpoint, EndpointKind.ADDRESS, Family.IPV4, 64512, True, (V4, EVPN))
    return replace(base, **changes)


def underlay(*neighbors: FabricNeighbor, vteps: Iterable[str] = ("100.65.0.0/32",), **changes: Any) -> DesiredUnderlay:
    base = DesiredUnderlay(
        resource=resource(Kind.UNDERLAY, "underlay"),
        origin=ORIGIN,
        asn=64514,
        router_id=IPv4Address("10.0.0.1"),
        interfaces=("toswitch1",),
        neighbors=neighbors or (neighbor(),),
        vteps=tuple(ip_interface(vtep) for vtep in vteps),
        advertise_evpn=True,
    )
    return replace(base, **changes)


def session(*pairs: tuple[str, str], remote_as: int | str = 64515, ebgp: bool = True) -> DesiredSession:
    """A host session; each pair is the router's and the host's address."""
    ends = tuple(SessionAddresses(ip_interface(router), ip_interface(host)) for router, host in pairs)
    return DesiredSession(asn=64514, remote_as=remote_as, ebgp=ebgp, addresses=ends)


ENDS_V4: Final = ("172.27.10.1/24", "172.27.10.2/24")
ENDS_V6: Final = ("2001:db9:1::1/64", "2001:db9:1::2/64")


def l3vni(vrf: str = "red", vni: int = 100, host: DesiredSession | None = None, **changes: Any) -> DesiredL3VNI:
    base = DesiredL3VNI(resource(Kind.L3VNI, vrf), ORIGIN, vrf, vni, 4789, ip_address("100.65.0.0"), 64514, host)
    return replace(base, **changes)


def l2vni(vni: int = 210, vrf: str | None = "red", gateways: Iterable[str] = ("172.28.24.1/24",)) -> DesiredL2VNI:
    addresses = tuple(ip_interface(gateway) for gateway in gateways)
    return DesiredL2VNI(
        resource(Kind.L2VNI, f"l2-{vni}"), ORIGIN, vni, 4789, ip_address("100.65.0.0"), vrf=vrf, gateways=addresses
    )


def raw(name: str, text: str, priority: int = 0) -> DesiredRawFRR:
    return DesiredRawFRR(resource(Kind.RAW_FRR_CONFIG, name), ORIGIN, priority, text)


def state(**parts: Any) -> DesiredState:
    return DesiredState(generation=1, node_name=HOSTNAME, node_index=0, **parts)


def _timed() -> FabricNeighbor:
    return neighbor(hold_time=9, keepalive_time=3, connect_time=7, port=1179, password=Secret("s3cret|?!#%&"))


RED: Final = l3vni(host=session(ENDS_V4))
DUAL: Final = l3vni(host=session(ENDS_V4, ENDS_V6))
V6_NEIGHBOR: Final = neighbor(
    "fd00:1::2", family=Family.IPV6, families=(V4, V6, EVPN), extended_nexthop=True, disable_connected_check=True
)
PASSTHROUGH: Final = DesiredPassthrough(resource(Kind.L3PASSTHROUGH, "pt"), ORIGIN, session(ENDS_V4))

#: What a careful operator adds to a host session.
GUARDED: Final = replace(
    session(ENDS_V4, ENDS_V6),
    password=Secret("s3cret|?!#%&"),
    ttl_security_hops=1,
    maximum_prefixes=1000,
    allowed_prefixes=tuple(map(ip_network, ("10.0.0.0/8", "192.0.2.1/32", "2001:db8:5::/48"))),
)

PREFIX_LIST: Final = """\
ip prefix-list only seq 5 permit 10.0.0.0/8 le 24
route-map mine permit 10
 match ip address prefix-list only
"""

CASES: Final[dict[str, DesiredState]] = {
    "empty": state(),
    "basic": state(underlay=underlay(), l3vnis=(RED,)),
    "log_debug": state(log_level="debug", underlay=underlay()),
    "log_warn": state(log_level="warn"),
    "log_error": state(log_level="error"),
    "no_vnis": state(underlay=underlay(advertise_evpn=False, vteps=())),
    "asn_route_targets": state(
        underlay=underlay(), l3vnis=(replace(RED, export_rts=("64514:100",), import_rts=("64514:100", "64514:200")),)
    ),
    "ip_route_targets": state(
        underlay=underlay(), l3vnis=(replace(RED, export_rts=("10.0.0.1:100",), import_rts=("10.0.0.1:101",)),)
    ),
    "four_byte_asn_route_targets": state(
        underlay=underlay(asn=4200000001),
        l3vnis=(replace(RED, asn=4200000001, export_rts=("4200000001:100",), import_rts=("4200000001:101",)),),
    ),
    "external": state(underlay=underlay(neighbor(remote_as="external"))),
    "internal": state(
        underlay=underlay(neighbor(remote_as="internal", ebgp=False)),
        l3vnis=(l3vni(host=session(ENDS_V4, remote_as="internal", ebgp=False)),),
    ),
    "internal_by_number": state(underlay=underlay(neighbor(remote_as=64514, ebgp=False))),
    "dual_stack": state(underlay=underlay(), l3vnis=(DUAL,)),
    "dual_stack_route_targets": state(
        underlay=underlay(), l3vnis=(replace(DUAL, export_rts=("64514:1",), import_rts=("64514:2",)),)
    ),
    "ipv6_only": state(
        underlay=underlay(V6_NEIGHBOR, vteps=("fd00:65::/128",)),
        l3vnis=(l3vni(host=session(ENDS_V6), vtep=ip_address("fd00:65::")),),
    ),
    "ipv6_only_route_targets": state(
        underlay=underlay(),
        l3vnis=(l3vni(host=session(ENDS_V6), export_rts=("64514:1",), import_rts=("64514:2",)),),
    ),
    "unnumbered": state(
        underlay=underlay(neighbor("toswitch1", endpoint_kind=EndpointKind.INTERFACE, extended_nexthop=True)),
        l3vnis=(RED,),
    ),
    "unnumbered_external": state(
        underlay=underlay(
            neighbor(
                "toswitch1",
                endpoint_kind=EndpointKind.INTERFACE,
                extended_nexthop=True,
                remote_as="external",
                families=(V4, V6, EVPN),
            )
        )
    ),
    "ipv6_without_ipv4": state(
        underlay=underlay(replace(V6_NEIGHBOR, families=(V6,), extended_nexthop=False), vteps=(), advertise_evpn=False)
    ),
    "route_reflector": state(
        underlay=underlay(
            neighbor("192.168.11.4", remote_as="internal", ebgp=False, reflected_families=(V4, EVPN)),
            neighbor("192.168.11.5", remote_as="internal", ebgp=False, reflected_families=(EVPN,)),
            neighbor("192.168.11.6", remote_as="internal", ebgp=False),
            neighbor(
                "10.9.0.0/16",
                endpoint_kind=EndpointKind.LISTEN_RANGE,
                remote_as="internal",
                ebgp=False,
                families=(V4, V6, EVPN),
                reflected_families=(V4, V6, EVPN),
            ),
            neighbor(),
            cluster_id=IPv4Address("192.0.2.1"),
        ),
        l3vnis=(RED,),
    ),
    "route_reflector_without_vtep": state(
        underlay=underlay(
            neighbor("192.168.11.4", remote_as="internal", ebgp=False, reflected_families=(V4, EVPN)),
            vteps=(),
            cluster_id=IPv4Address("192.0.2.1"),
        )
    ),
    "bfd_plain": state(underlay=underlay(neighbor(bfd=Bfd()))),
    "bfd_profile": state(underlay=underlay(neighbor(bfd=Bfd(100, 150, 5, False, 10)))),
    "bfd_passive": state(
        underlay=underlay(neighbor(bfd=Bfd(passive=True)), neighbor("192.168.11.3", bfd=Bfd(minimum_ttl=250)))
    ),
    "bfd_defaults_spelled_out": state(underlay=underlay(neighbor(bfd=Bfd(300, 300, 3, False, 254)))),
    "bfd_profile_unnumbered": state(
        underlay=underlay(neighbor("toswitch1", endpoint_kind=EndpointKind.INTERFACE, bfd=Bfd(200)))
    ),
    "l3vni_without_session": state(underlay=underlay(), l3vnis=(l3vni(),)),
    "l3vni_with_gateways": state(
        underlay=underlay(),
        l3vnis=(replace(RED, gateway_networks=("172.28.24.0/24", "2001:db8:24::/64")),),
        l2vnis=(l2vni(gateways=("172.28.24.1/24", "2001:db8:24::1/64")),),
    ),
    "segment_route_targets": state(
        underlay=underlay(),
        l2vnis=(
            replace(
                l2vni(210, None, ()), rd="10.0.0.1:210", import_rts=("64514:210", "64514:1"), export_rts=("64520:1",)
            ),
            l2vni(220, None, ()),
            replace(l2vni(230, None, ()), import_rts=("4200000001:1",)),
        ),
    ),
    "l3vni_gateways_without_session": state(
        underlay=underlay(), l3vnis=(l3vni(gateway_networks=("172.28.24.0/24",)),), l2vnis=(l2vni(),)
    ),
    "two_l3vnis": state(
        underlay=underlay(),
        l3vnis=(
            RED,
            l3vni("blue", 200, session(("172.27.11.1/24", "172.27.11.2/24"), remote_as="external"), asn=64520),
        ),
    ),
    "great_vni": state(underlay=underlay(), l3vnis=(l3vni(vni=100), l3vni("blue", 16777215))),
    "passthrough_without_evpn": state(
        underlay=underlay(neighbor(families=(V4,)), vteps=(), advertise_evpn=False), passthrough=PASSTHROUGH
    ),
    "passthrough_external": state(
        underlay=underlay(), passthrough=replace(PASSTHROUGH, session=session(ENDS_V4, remote_as="external"))
    ),
    "passthrough_internal": state(
        underlay=underlay(), passthrough=replace(PASSTHROUGH, session=session(ENDS_V4, remote_as=64514, ebgp=False))
    ),
    "passthrough_dual": state(
        underlay=underlay(neighbor(families=(V4, V6, EVPN))),
        passthrough=replace(PASSTHROUGH, session=session(ENDS_V4, ENDS_V6)),
    ),
    "raw": state(
        underlay=underlay(),
        raw_frr=(
            raw("first", PREFIX_LIST),
            raw("second", "router bgp 64514\n neighbor 192.168.11.2 description leaf one\nexit", 10),
        ),
    ),
    "raw_alone": state(raw_frr=(raw("only", "ip route 10.9.0.0/24 blackhole"),)),
    "tunnel_endpoints": state(
        underlay=underlay(neighbor(families=(V4, V6, EVPN)), vteps=("100.65.0.1/32", "fd00:65::1/128"))
    ),
    "tunnel_endpoint_without_evpn_neighbor": state(underlay=underlay(neighbor(families=(V4,)))),
    "evpn_without_tunnel_endpoint": state(underlay=underlay(vteps=())),
    "graceful_restart": state(underlay=underlay(graceful_restart=GracefulRestart())),
    "graceful_restart_timers": state(
        underlay=underlay(neighbor(connect_time=120), graceful_restart=GracefulRestart(60, 180))
    ),
    "listen_range": state(
        underlay=underlay(neighbor("192.168.11.0/24", endpoint_kind=EndpointKind.LISTEN_RANGE, password=Secret("hush")))
    ),
    "guarded_host_sessions": state(
        underlay=underlay(),
        l3vnis=(
            l3vni(host=GUARDED),
            l3vni("blue", 200, replace(GUARDED, allowed_prefixes=(ip_network("10.0.0.0/8"),))),
        ),
        passthrough=replace(PASSTHROUGH, session=GUARDED),
    ),
    "guarded_fabric_sessions": state(
        underlay=underlay(
            neighbor(ttl_security_hops=1, maximum_prefixes=5000),
            neighbor(
                "192.168.12.0/24", endpoint_kind=EndpointKind.LISTEN_RANGE, ttl_security_hops=2, maximum_prefixes=9
            ),
            neighbor("eth9", endpoint_kind=EndpointKind.INTERFACE, ttl_security_hops=1, extended_nexthop=True),
        )
    ),
    "listen_range_ipv6": state(
        underlay=underlay(
            neighbor(
                "fd00:1::/64",
                endpoint_kind=EndpointKind.LISTEN_RANGE,
                family=Family.IPV6,
                families=(V4, V6, EVPN),
                extended_nexthop=True,
                bfd=Bfd(100),
            )
        )
    ),
    "multihop": state(underlay=underlay(neighbor(ebgp_multihop=4))),
    "multihop_unlimited": state(underlay=underlay(neighbor(ebgp_multihop=255))),
    "timers_port_password": state(underlay=underlay(_timed())),
    "timers_at_defaults": state(
        underlay=underlay(neighbor(hold_time=180, keepalive_time=60, connect_time=120, port=179))
    ),
    "timers_zero": state(underlay=underlay(neighbor(hold_time=0, keepalive_time=0))),
    "several_neighbors": state(
        underlay=underlay(neighbor(), neighbor("192.168.12.2", remote_as=64513), V6_NEIGHBOR), l3vnis=(DUAL,)
    ),
}
