"""What the templates print: each decision is taken here, and a template only checks whether a value is set.

A value that equals FRR's own default is left out. FRR does not show it in its running configuration, so it would be a
permanent difference; configuring the graceful restart times even resets sessions (FRR #22953).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from config.desired import (
    Bfd,
    BGPFamily,
    DesiredL3VNI,
    DesiredPassthrough,
    DesiredSession,
    DesiredUnderlay,
    EndpointKind,
    FabricNeighbor,
    GracefulRestart,
    IPInterface,
    RemoteAS,
)
from config.resolve.ipam import route_distinguisher

#: Seconds between connection attempts to a host, or to a peer that restarts gracefully (reference 5.5, 5.6).
QUICK_CONNECT: Final = 5

#: FRR's defaults ("traditional" profile, FRR 10.3): bgpd.h and the YANG models of bfdd.
DEFAULT_BGP_PORT: Final = 179
DEFAULT_MULTIHOP: Final = 1
DEFAULT_CONNECT_TIME: Final = 120
DEFAULT_LISTEN_LIMIT: Final = 100
DEFAULT_BFD: Final = Bfd(300, 300, 3, False, 254)

#: Minutes until a session that was closed for too many prefixes may come up again.
MAXIMUM_PREFIX_RESTART: Final = 5
#: Seconds until bgpd applies a changed route map. After its start it opens no session for as many whole seconds as are
#: then left (bgp_config_end in bgp_vty.c): by FRR's default of five 4 s, without a route map 1 s, and by this one none.
#: It still announces nothing before the route maps: the first routes follow a session by a second ("coalesce-time").
POLICY_DELAY: Final = 1
#: The route map for a host that may announce anything, and the one for what it may announce through a passthrough.
ALLOW_ALL: Final = "allowall"
PASSTHROUGH_POLICY: Final = "allowed-through"


@dataclass(frozen=True, slots=True)
class BgpNeighbor:
    """One neighbour's lines outside its address families."""

    name: str
    remote_as: RemoteAS
    is_interface: bool = False
    listens: bool = False
    multihop: int | None = None
    port: int | None = None
    timers: tuple[int, int] | None = None
    connect_time: int | None = None
    password: str | None = field(default=None, repr=False)
    bfd: bool = False
    bfd_profile: str | None = None
    disable_connected_check: bool = False
    extended_nexthop: bool = False
    ttl_security_hops: int | None = None


@dataclass(frozen=True, slots=True)
class FamilyNeighbor:
    """One neighbour's lines inside an address family."""

    name: str
    allowas_in: bool = False
    next_hop_self: bool = False
    reflector_client: bool = False
    #: The route map for what it announces; what it is sent is then allowed as a whole.
    policy_in: str | None = None
    #: The most prefixes that it may announce, and the minutes until it may try again.
    maximum_prefix: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AddressFamily:
    """One address family of a BGP instance; left out if :attr:`empty`."""

    afi: str
    safi: str
    networks: tuple[str, ...] = ()
    neighbors: tuple[FamilyNeighbor, ...] = ()
    advertise_all_vni: bool = False
    rd: str | None = None
    import_rts: tuple[str, ...] = ()
    export_rts: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether it has no lines: FRR does not show such a family."""
        return not (self.networks or self.neighbors or self.advertise_all_vni or self.rd)


@dataclass(frozen=True, slots=True)
class BgpInstance:
    """One BGP instance; without a router ID only what an instance that another stanza opens gains."""

    asn: int
    router_id: str | None
    families: tuple[AddressFamily, ...]
    neighbors: tuple[BgpNeighbor, ...] = ()
    vrf: str | None = None
    cluster_id: str | None = None
    graceful_restart: GracefulRestart | None = None
    listen_limit: int | None = None


@dataclass(frozen=True, slots=True)
class PrefixList:
    """The prefix list of one IP version; each entry has its number, network, and the longest prefix permitted in it.

    There is no longest prefix where the network is a single address.
    """

    command: str
    entries: tuple[tuple[int, str, int | None], ...]


def prefix_lists(session: DesiredSession | None) -> tuple[PrefixList, ...]:
    """Return what a host may announce; none where it may announce anything.

    They are used in a route map, whose changes bgpd applies to routes that it has already, by a route refresh.
    """
    allowed = () if session is None or session.allowed_prefixes is None else session.allowed_prefixes
    lists = []
    for command, version in (("ip", 4), ("ipv6", 6)):
        networks = [network for network in allowed if network.version == version]
        entries = tuple(
            (5 * number, str(network), _unless(network.max_prefixlen, network.prefixlen))
            for number, network in enumerate(networks, start=1)
        )
        if entries:
            lists.append(PrefixList(command, entries))
    return tuple(lists)


def vrf_policy(vrf: str) -> str:
    """Return the name of the route map and prefix lists for what the host may announce in a VRF."""
    return f"allowed-in-{vrf}"


def bfd_profiles(underlay: DesiredUnderlay) -> dict[str, Bfd]:
    """Return a profile, without defaults, for each neighbour with BFD settings of its own."""
    return {
        _profile_name(neighbor): replace(
            neighbor.bfd,
            receive_interval=_unless(neighbor.bfd.receive_interval, DEFAULT_BFD.receive_interval),
            transmit_interval=_unless(neighbor.bfd.transmit_interval, DEFAULT_BFD.transmit_interval),
            detect_multiplier=_unless(neighbor.bfd.detect_multiplier, DEFAULT_BFD.detect_multiplier),
            minimum_ttl=_unless(neighbor.bfd.minimum_ttl, DEFAULT_BFD.minimum_ttl),
        )
        for neighbor in underlay.neighbors
        if neighbor.bfd and neighbor.bfd.has_profile
    }


def underlay_instance(underlay: DesiredUnderlay, listen_limit: int) -> BgpInstance:
    """Return the instance with the fabric's sessions."""
    neighbors = tuple(_fabric_neighbor(neighbor, underlay) for neighbor in underlay.neighbors)
    listens = any(neighbor.listens for neighbor in neighbors)
    families = [
        _underlay_unicast(underlay, BGPFamily.IPV4_UNICAST, 4),
        _underlay_unicast(underlay, BGPFamily.IPV6_UNICAST, 6),
        *([_underlay_evpn(underlay)] if underlay.advertise_evpn else []),
    ]
    return BgpInstance(
        asn=underlay.asn,
        router_id=str(underlay.router_id),
        neighbors=neighbors,
        families=_present(families),
        cluster_id=str(underlay.cluster_id) if underlay.cluster_id else None,
        graceful_restart=underlay.graceful_restart,
        listen_limit=_unless(listen_limit, DEFAULT_LISTEN_LIMIT) if listens else None,
    )


def passthrough_instance(passthrough: DesiredPassthrough, underlay: DesiredUnderlay) -> BgpInstance:
    """Return what a passthrough adds to the underlay's instance: the host's sessions."""
    session = passthrough.session
    families = [
        AddressFamily(
            f"ipv{version}", "unicast", tuple(_host_networks(session, version)),
            tuple(_host_in_family(session, version, PASSTHROUGH_POLICY)),
        )
        for version in (4, 6)
    ]  # fmt: skip
    return BgpInstance(
        asn=underlay.asn,
        router_id=None,
        neighbors=tuple(_host_neighbors(session, QUICK_CONNECT)),
        families=_present(families),
    )


def vrf_instance(vni: DesiredL3VNI, underlay: DesiredUnderlay) -> BgpInstance:
    """Return the instance of a routed tenant network's VRF: one for both IP versions."""
    families = [
        _vrf_unicast(vni, 4),
        _vrf_unicast(vni, 6),
        AddressFamily(
            "l2vpn", "evpn", rd=route_distinguisher(underlay.router_id, vni.vni),
            import_rts=vni.import_rts, export_rts=vni.export_rts,
        ),
    ]  # fmt: skip
    return BgpInstance(
        asn=vni.asn,
        vrf=vni.vrf,
        router_id=str(underlay.router_id),
        neighbors=tuple(_host_neighbors(vni.session, None)) if vni.session else (),
        families=_present(families),
    )


def _unless(value: int | None, default: int | None) -> int | None:
    return None if value == default else value


def _present(families: Sequence[AddressFamily]) -> tuple[AddressFamily, ...]:
    return tuple(family for family in families if not family.empty)


def _profile_name(neighbor: FabricNeighbor) -> str:
    return f"neighbor-{neighbor.endpoint}"


def _fabric_neighbor(neighbor: FabricNeighbor, underlay: DesiredUnderlay) -> BgpNeighbor:
    is_interface = neighbor.endpoint_kind is EndpointKind.INTERFACE
    return BgpNeighbor(
        name=neighbor.endpoint,
        remote_as=neighbor.remote_as,
        is_interface=is_interface,
        listens=neighbor.endpoint_kind is EndpointKind.LISTEN_RANGE,
        # FRR refuses it for an interface, whose neighbour is one hop away, and ignores it for iBGP.
        multihop=_unless(neighbor.ebgp_multihop, DEFAULT_MULTIHOP) if neighbor.ebgp and not is_interface else None,
        port=_unless(neighbor.port, DEFAULT_BGP_PORT),
        timers=_timers(neighbor),
        connect_time=_unless(_connect_time(neighbor, underlay), DEFAULT_CONNECT_TIME),
        password=neighbor.password.reveal() if neighbor.password else None,
        bfd=neighbor.bfd is not None,
        bfd_profile=_profile_name(neighbor) if neighbor.bfd and neighbor.bfd.has_profile else None,
        disable_connected_check=neighbor.disable_connected_check,
        # FRR enables the capability by itself for a neighbour that is an interface, and then does not show it.
        extended_nexthop=neighbor.extended_nexthop and not is_interface,
        ttl_security_hops=neighbor.ttl_security_hops,
    )


def _maximum_prefix(limit: int | None) -> tuple[int, int] | None:
    return None if limit is None else (limit, MAXIMUM_PREFIX_RESTART)


def _timers(neighbor: FabricNeighbor) -> tuple[int, int] | None:
    if neighbor.keepalive_time is None or neighbor.hold_time is None:
        return None
    return neighbor.keepalive_time, neighbor.hold_time


def _connect_time(neighbor: FabricNeighbor, underlay: DesiredUnderlay) -> int | None:
    if neighbor.connect_time is None and underlay.graceful_restart is not None:
        return QUICK_CONNECT
    return neighbor.connect_time


def _host_neighbors(session: DesiredSession, connect_time: int | None) -> list[BgpNeighbor]:
    return [
        BgpNeighbor(
            name=str(addresses.host.ip),
            remote_as=session.remote_as,
            connect_time=connect_time,
            password=session.password.reveal() if session.password else None,
            ttl_security_hops=session.ttl_security_hops,
        )
        for addresses in session.addresses
    ]


def _own_network(interface: IPInterface) -> str:
    return f"{interface.ip}/{interface.max_prefixlen}"


def _host_networks(session: DesiredSession, version: int) -> list[str]:
    return [_own_network(ends.host) for ends in session.addresses if ends.host.version == version]


def _host_in_family(session: DesiredSession, version: int | None, policy: str) -> list[FamilyNeighbor]:
    """Return the host's lines in a family: of one IP version, or with None of both."""
    return [
        FamilyNeighbor(
            str(ends.host.ip),
            next_hop_self=not session.ebgp,
            policy_in=ALLOW_ALL if session.allowed_prefixes is None else policy,
            maximum_prefix=_maximum_prefix(session.maximum_prefixes),
        )
        for ends in session.addresses
        if version in (None, ends.host.version)
    ]


def _underlay_unicast(underlay: DesiredUnderlay, family: BGPFamily, version: int) -> AddressFamily:
    networks = [_own_network(vtep) for vtep in underlay.vteps if vtep.version == version]
    neighbors = [
        FamilyNeighbor(
            neighbor.endpoint,
            allowas_in=neighbor.ebgp,
            # What is reflected keeps its next hop: clients reach one another without this router.
            next_hop_self=not neighbor.ebgp and family not in neighbor.reflected_families,
            reflector_client=family in neighbor.reflected_families,
            maximum_prefix=_maximum_prefix(neighbor.maximum_prefixes),
        )
        for neighbor in underlay.neighbors
        if family in neighbor.families
    ]
    return AddressFamily(f"ipv{version}", "unicast", tuple(networks), tuple(neighbors))


def _underlay_evpn(underlay: DesiredUnderlay) -> AddressFamily:
    neighbors = tuple(
        FamilyNeighbor(
            neighbor.endpoint,
            allowas_in=neighbor.ebgp,
            reflector_client=BGPFamily.EVPN in neighbor.reflected_families,
            maximum_prefix=_maximum_prefix(neighbor.maximum_prefixes),
        )
        for neighbor in underlay.neighbors
        if BGPFamily.EVPN in neighbor.families
    )
    return AddressFamily("l2vpn", "evpn", neighbors=neighbors, advertise_all_vni=bool(underlay.vteps))


def _vrf_unicast(vni: DesiredL3VNI, version: int) -> AddressFamily:
    gateways = [network for network in vni.gateway_networks if (":" in network) == (version == 6)]
    if vni.session is None:
        return AddressFamily(f"ipv{version}", "unicast", tuple(gateways))
    networks = [*_host_networks(vni.session, version), *gateways]
    neighbors = _host_in_family(vni.session, None, vrf_policy(vni.vrf))
    return AddressFamily(f"ipv{version}", "unicast", tuple(networks), tuple(neighbors))
