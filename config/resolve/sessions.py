"""From the underlay's neighbours as written to BGP sessions with nothing left to decide.

Address families that are not written are computed from what is *configured*, valid or not: if they followed what is in
force, the last VNI's becoming invalid would reset every session of the fabric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from config.desired import (
    Bfd,
    BGPFamily,
    DesiredProbe,
    DesiredSession,
    EndpointKind,
    FabricNeighbor,
    Family,
    IPNetwork,
    SessionAddresses,
)
from config.models import HostSession, Neighbor, Underlay
from config.models.neighbors import BfdSettings
from config.models.sessions import ProbeSettings, is_external
from config.models.types import parse_address, parse_cidr
from config.problems import Kind
from config.resources import Resource, Unusable

#: With graceful restart a neighbour must be dialled again well within the restart time (reference 5.5).
GRACEFUL_CONNECT_TIME: Final = 5
#: Prefixes that a host may announce in each family unless its session says otherwise: more than a cluster's services,
#: fewer than what costs a node its memory.
HOST_MAXIMUM_PREFIXES: Final = 10_000
#: FRR's defaults (bfdd/bfd.h: 300 ms, multiplier 3; bgpd: port 179). Writing them out changes nothing but the text.
_BFD_INTERVAL: Final = 300
_BFD_MULTIPLIER: Final = 3
_BGP_PORT: Final = 179

_UNICAST = {4: BGPFamily.IPV4_UNICAST, 6: BGPFamily.IPV6_UNICAST}
_UNICAST_OF = {Family.IPV4: BGPFamily.IPV4_UNICAST, Family.IPV6: BGPFamily.IPV6_UNICAST}


@dataclass(frozen=True, slots=True)
class Configured:
    """What decides the default address families: whether there are VNIs, and a passthrough's families."""

    vnis: bool
    passthrough: frozenset[Family]

    @classmethod
    def by(cls, resources: Sequence[Resource]) -> Configured:
        """Look at everything that was written for this node, whether it is valid or not."""
        vnis = any(resource.kind in (Kind.L2VNI, Kind.L3VNI) for resource in resources)
        families: set[Family] = set()
        for resource in resources:
            if resource.kind is Kind.L3PASSTHROUGH:
                spec = resource.spec
                families.update(spec.families if isinstance(spec, Unusable) else spec.host_session.families)
        return cls(vnis, frozenset(families))


def default_families(neighbor: Neighbor, underlay: Underlay, configured: Configured) -> tuple[BGPFamily, ...]:
    """Return the address families of a neighbour that lists none (reference 5.4), in the usual order."""
    chosen = {_UNICAST_OF[neighbor.family]}
    chosen.update(_UNICAST_OF[family] for family in configured.passthrough)
    if configured.vnis:
        chosen.update((BGPFamily.IPV4_UNICAST, BGPFamily.EVPN))
    if underlay.tunnel_endpoint is not None:
        chosen.update(_UNICAST[parse_cidr(cidr).version] for cidr in underlay.tunnel_endpoint.cidrs)
    return tuple(family for family in BGPFamily if family in chosen)


def fabric_neighbor(neighbor: Neighbor, underlay: Underlay, configured: Configured) -> FabricNeighbor:
    """Return a neighbour of the underlay with everything decided."""
    families = neighbor.explicit_families or default_families(neighbor, underlay, configured)
    external = is_external(neighbor.remote_as, underlay.asn)
    multihop = neighbor.properties[0].ebgp_multi_hop.ttl if neighbor.properties else None
    connect_time = neighbor.connect_time_seconds
    if connect_time is None and underlay.graceful_restart is not None:
        connect_time = GRACEFUL_CONNECT_TIME
    return FabricNeighbor(
        endpoint=neighbor.endpoint,
        endpoint_kind=neighbor.endpoint_kind,
        family=neighbor.family,
        remote_as=neighbor.remote_as,
        ebgp=external,
        families=families,
        port=None if neighbor.port == _BGP_PORT else neighbor.port,
        password=neighbor.password,
        hold_time=neighbor.hold_time_seconds,
        keepalive_time=neighbor.keepalive_time_seconds,
        connect_time=connect_time,
        ebgp_multihop=multihop,
        bfd=_bfd(neighbor.bfd),
        disable_connected_check=(
            neighbor.endpoint_kind is EndpointKind.ADDRESS
            and external
            and BGPFamily.IPV6_UNICAST in families
            and multihop is None
        ),
        extended_nexthop=_extended_nexthop(neighbor, families),
        ttl_security_hops=neighbor.ttl_security_hops,
        maximum_prefixes=neighbor.maximum_prefixes,
        reflected_families=neighbor.reflected_families,
    )


def host_session(written: HostSession, asn: int, addresses: Sequence[SessionAddresses]) -> DesiredSession:
    """Return a session with the host at these addresses, in a BGP instance whose AS is ``asn``."""
    allowed = written.allowed_prefixes
    return DesiredSession(
        asn=asn,
        remote_as=written.remote_as,
        ebgp=is_external(written.remote_as, asn),
        addresses=tuple(addresses),
        password=written.password,
        ttl_security_hops=written.ttl_security_hops,
        maximum_prefixes=written.maximum_prefixes or HOST_MAXIMUM_PREFIXES,
        allowed_prefixes=None if allowed is None else _networks(allowed),
        host_vrf=bool(written.host_vrf),
        probe=None if written.probe is None else _probe(written.probe),
    )


def _probe(written: ProbeSettings) -> DesiredProbe:
    targets = dict.fromkeys(map(parse_address, written.targets))
    return DesiredProbe(tuple(targets), written.interval_seconds, written.count)


def _networks(cidrs: Sequence[str]) -> tuple[IPNetwork, ...]:
    """Return each network once, so that the order in which they are written changes nothing."""
    networks = {parse_cidr(cidr).network for cidr in cidrs}
    return tuple(sorted(networks, key=lambda one: (one.version, int(one.network_address), one.prefixlen)))


def _extended_nexthop(neighbor: Neighbor, families: Sequence[BGPFamily]) -> bool:
    """Whether IPv4 routes must be announced with an IPv6 next hop (RFC 8950)."""
    if neighbor.endpoint_kind is EndpointKind.INTERFACE:
        return True
    return neighbor.family is Family.IPV6 and BGPFamily.IPV4_UNICAST in families


def _bfd(written: BfdSettings | None) -> Bfd | None:
    if written is None:
        return None
    return Bfd(
        receive_interval=_unless(written.receive_interval, _BFD_INTERVAL),
        transmit_interval=_unless(written.transmit_interval, _BFD_INTERVAL),
        detect_multiplier=_unless(written.detect_multiplier, _BFD_MULTIPLIER),
        passive=written.session_mode == "Passive",
        minimum_ttl=written.minimum_ttl,
    )


def _unless(value: int | None, default: int) -> int | None:
    return None if value == default else value
