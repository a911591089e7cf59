"""Decodes the JSON of zebra, bgpd and bfdd into typed values.

The shapes are those of FRR 10.3. Members that are missing or new are tolerated, so that another version costs a detail
and not the actor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from actors.lib.tunnel_entries import TunnelEntries

T = TypeVar("T")

VNIS: Final = "show evpn vni detail json"
INTERFACES: Final = "show interface brief json"
SUMMARY: Final = "show bgp vrf all summary json"
INSTANCES: Final = "show bgp vrfs json"
PEER_GROUPS: Final = "show bgp peer-group json"
BFD_PEERS: Final = "show bfd peers json"
ROUTES_IPV4: Final = "show ip route vrf all summary json"
ROUTES_IPV6: Final = "show ipv6 route vrf all summary json"
BFD_COUNTERS: Final = "show bfd peers counters json"
EVPN_VNIS: Final = "show bgp l2vpn evpn vni json"
#: Type-3 and type-5 routes of everyone. FRR 10.3's bgpd crashes on "show bgp vrf all ipv4 unicast statistics json":
#: counts come from the summary.
TYPE_3: Final = "show bgp l2vpn evpn route type multicast json"
TYPE_5: Final = "show bgp l2vpn evpn route type prefix json"
BGP_IPV4: Final = "show ip route vrf all bgp json"
BGP_IPV6: Final = "show ipv6 route vrf all bgp json"
NEXT_HOPS: Final = "show evpn next-hops vni all json"

#: So many of our BFD packets may still be unanswered by a peer that has just been configured: ten seconds' worth at
#: the pace of one a second at which FRR sends while a session is down.
BFD_PACKETS: Final = 10
#: FRR's name of the default VRF and of the BGP instance in it.
DEFAULT_VRF: Final = "default"
#: FRR's name of the EVPN address family.
EVPN: Final = "l2VpnEvpn"
#: zebra's types of routes from bgpd, among them those of EVPN type-5 routes.
BGP_ROUTES: Final = frozenset({"ebgp", "ibgp"})
#: Of more routes than this nothing is kept between two polls: their memory would be a fabric's, not a node's.
KEPT_ROUTES: Final = 1000


@dataclass(frozen=True, slots=True)
class Peer:
    """One BGP neighbour in bgpd. ``prefixes`` counts received ones by FRR's name of the address family.

    ``flaps`` is how often it was lost, ``evpn_sent`` how many EVPN routes it was sent."""

    remote_as: int = 0
    state: str = ""
    uptime_seconds: int = 0
    prefixes: dict[str, int] = field(default_factory=dict)
    flaps: int = 0
    evpn_sent: int = 0


@dataclass(frozen=True, slots=True)
class Vni:
    """One VNI in zebra; ``up`` is None for an L2VNI, for which zebra has no such state."""

    type: str
    vrf: str
    vxlan: str = ""
    svi: str = ""
    up: bool | None = None
    vtep: str = ""
    router_mac: str = ""
    remote_vteps: int = 0
    flooded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BgpVni:
    """One VNI in bgpd. ``import_rts`` are route targets; ``router_mac`` is an L3VNI's."""

    rd: str
    originator: str
    import_rts: frozenset[str] = frozenset()
    router_mac: str = ""


@dataclass(frozen=True, slots=True)
class EvpnRoute:
    """A usable path of a type-3 or type-5 route in bgpd; ``prefix`` is empty for type 3, ``own`` if it starts here."""

    rd: str
    prefix: str
    next_hop: str
    own: bool
    targets: frozenset[str] = frozenset()
    router_mac: str = ""


@dataclass(frozen=True, slots=True)
class NextHop:
    """One next hop of a selected BGP route in zebra. ``vrf`` is set if it is in another VRF than the route.

    ``lost``: another session brings it as well, and zebra has not made that one active again. ``refused``: the kernel
    has refused the route.
    """

    address: str
    device: str
    vrf: str
    installed: bool
    lost: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Routes:
    """All routes of EVPN: in bgpd by type, zebra's by VRF and prefix.

    ``next_hops`` are zebra's by VNI, each with its router MAC. An IPv4 one of IPv6 routes is an IPv6 address there, as
    in the kernel.
    """

    type3: tuple[EvpnRoute, ...] = ()
    type5: tuple[EvpnRoute, ...] = ()
    zebra: dict[str, dict[str, tuple[NextHop, ...]]] = field(default_factory=dict)
    next_hops: dict[int, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VniTable:
    """One of bgpd's tables of an L2VNI: entries without a path of ours, and our paths."""

    others: int = 0
    own_paths: int = 0


@dataclass(frozen=True, slots=True)
class RouteCounts:
    """A VNI's EVPN routes by type: those of other tunnel endpoints, each once, and our own."""

    received: dict[str, int] = field(default_factory=dict)
    advertised: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """FRR's state in one poll: ``peers`` and ``bfd`` by VRF and peer, ``bgp_vnis`` by VNI, ``l3vnis`` (those in bgpd)
    and ``routes`` (BGP's in the forwarding table) by VRF.

    A non-empty ``error`` means that FRR, or the daemon ``silent``, did not answer: all but ``daemons``, which are those
    that run, is unknown, not absent. So are ``bgp_vnis`` and ``evpn`` and ``evpn_size`` when they are None.
    ``evpn_size`` is that of bgpd's EVPN table, in which each route distinguisher counts once, ``table_size`` adds BGP's
    routes in zebra. ``counts`` are those of the VNIs whose EVPN routes have been counted. ``entries`` are the kernel's,
    None if they are not known.
    """

    daemons: frozenset[str] = frozenset()
    peers: dict[tuple[str, str], Peer] = field(default_factory=dict)
    listen_ranges: frozenset[str] = frozenset()
    vnis: dict[int, Vni] = field(default_factory=dict)
    l3vnis: dict[str, int] = field(default_factory=dict)
    interfaces: dict[str, bool] = field(default_factory=dict)
    device_vrfs: dict[str, str] = field(default_factory=dict)
    bfd: dict[tuple[str, str], str] = field(default_factory=dict)
    bfd_unanswered: frozenset[tuple[str, str]] = frozenset()
    bgp_vnis: dict[int, BgpVni] | None = None
    announces_vnis: bool = True
    routes: dict[str, int] = field(default_factory=dict)
    evpn_size: int | None = None
    table_size: int = 0
    evpn: Routes | None = None
    counts: dict[int, RouteCounts] = field(default_factory=dict)
    entries: TunnelEntries | None = None
    error: str = ""
    silent: str = ""


class Decoder:
    """Turns answers into values, and keeps both: what the last poll was answered too is not decoded again.

    The same answer is the same object, which :class:`.query.PolledFrr` returns for the same text.
    """

    def __init__(self) -> None:
        self._known: dict[Callable[..., object], tuple[tuple[object, ...], object]] = {}

    def value(self, decode: Callable[..., T], *answers: object) -> T:
        """Return what ``decode`` makes of these answers."""
        known = self._known.get(decode)
        if known is None or any(old is not new for old, new in zip(known[0], answers, strict=True)):
            known = self._known[decode] = answers, decode(*answers)
        return cast(T, known[1])


def parse(daemons: frozenset[str], answers: Mapping[str, object], decoder: Decoder | None = None) -> Observation:
    """Decode the answers, keyed by the commands above; one that is missing or None counts as empty."""
    of, value = answers.get, (decoder or Decoder()).value
    bgp_vnis = of(EVPN_VNIS)
    routes = value(parse_routes, of(ROUTES_IPV4), of(ROUTES_IPV6))
    return Observation(
        daemons=daemons,
        peers=parse_summary(of(SUMMARY)),
        listen_ranges=parse_peer_groups(of(PEER_GROUPS)),
        vnis=value(parse_vnis, of(VNIS)),
        l3vnis=value(parse_instances, of(INSTANCES)),
        interfaces=value(parse_interfaces, of(INTERFACES)),
        device_vrfs=value(parse_device_vrfs, of(INTERFACES)),
        bfd=parse_bfd(of(BFD_PEERS)),
        bfd_unanswered=parse_bfd_counters(of(BFD_COUNTERS)),
        bgp_vnis=None if bgp_vnis is None else value(parse_bgp_vnis, bgp_vnis),
        announces_vnis=_mapping(bgp_vnis).get("advertiseAllVnis") != "Disabled",
        routes=routes,
        evpn_size=(evpn_size := _evpn_routes(of(SUMMARY))),
        table_size=sum(routes.values()) + (evpn_size or 0),
    )


def parse_summary(answer: object) -> dict[tuple[str, str], Peer]:
    """Return the neighbours. A neighbour is one session; only its prefix counts are per address family."""
    peers: dict[tuple[str, str], Peer] = {}
    for vrf, families in _mapping(answer).items():
        for family, table in _mapping(families).items():
            for name, facts in _mapping(_mapping(table).get("peers")).items():
                peers[vrf, name] = _peer(_mapping(facts), family, peers.get((vrf, name)))
    return peers


def _peer(facts: Mapping[str, Any], family: str, known: Peer | None) -> Peer:
    state = _text(facts.get("state"))
    up_milliseconds = _number(facts.get("peerUptimeMsec")) if state == "Established" else 0
    return Peer(
        remote_as=_number(facts.get("remoteAs")),
        state=state,
        uptime_seconds=up_milliseconds // 1000,
        prefixes={**(known.prefixes if known else {}), family: _number(facts.get("pfxRcd"))},
        flaps=_number(facts.get("connectionsDropped")),
        evpn_sent=_number(facts.get("pfxSnt")) if family == EVPN else known.evpn_sent if known else 0,
    )


def parse_peer_groups(answer: object) -> frozenset[str]:
    """Return the ranges that bgpd listens on."""
    ranges: set[str] = set()
    for group in _mapping(answer).values():
        for family in _mapping(_mapping(group).get("dynamicRanges")).values():
            ranges.update(_text(one) for one in _sequence(_mapping(family).get("ranges")))
    return frozenset(ranges)


def parse_vnis(answer: object) -> dict[int, Vni]:
    """Return zebra's VNIs. L2 and L3 entries have different names for the same members."""
    return {_number(entry.get("vni")): _vni(entry) for entry in _records(answer)}


def _vni(entry: Mapping[str, Any]) -> Vni:
    state = entry.get("state")
    return Vni(
        type=_text(entry.get("type")),
        vrf=_text(entry.get("tenantVrf")),
        vxlan=_text(entry.get("vxlanInterface") or entry.get("vxlanIntf")),
        svi=_text(entry.get("sviInterface") or entry.get("sviIntf")),
        up=None if state is None else state == "Up",
        vtep=_text(entry.get("vtepIp") or entry.get("localVtepIp")),
        router_mac=_text(entry.get("routerMac")),
        flooded=frozenset(_text(one.get("ip")) for one in _records(entry.get("remoteVteps"))),
        remote_vteps=_number(entry.get("numRemoteVteps")),
    )


def parse_instances(answer: object) -> dict[str, int]:
    """Return the L3VNI of each of bgpd's VRF instances; 0 is none."""
    instances = _mapping(_mapping(answer).get("vrfs"))
    return {vrf: _number(_mapping(facts).get("l3vni")) for vrf, facts in instances.items()}


def parse_interfaces(answer: object) -> dict[str, bool]:
    """Return zebra's interfaces and whether each is operationally up."""
    return {name: _mapping(facts).get("status") == "up" for name, facts in _mapping(answer).items()}


def parse_device_vrfs(answer: object) -> dict[str, str]:
    """Return the VRF of each of zebra's interfaces."""
    return {name: _text(_mapping(facts).get("vrfName")) for name, facts in _mapping(answer).items()}


def parse_bfd(answer: object) -> dict[tuple[str, str], str]:
    """Return the state of each BFD session."""
    return {(_text(one.get("vrf")), _text(one.get("peer"))): _text(one.get("status")) for one in _records(answer)}


def parse_routes(*answers: object) -> dict[str, int]:
    """Return how many of BGP's routes are in each VRF's forwarding table, both IP versions together."""
    totals: dict[str, int] = {}
    for answer in answers:
        for vrf, table in _mapping(answer).items():
            kinds = (one for one in _records(_mapping(table).get("routes")) if str(one.get("type")) in BGP_ROUTES)
            totals[vrf] = totals.get(vrf, 0) + sum(_number(one.get("fib")) for one in kinds)
    return totals


def parse_bfd_counters(answer: object) -> frozenset[tuple[str, str]]:
    """Return the BFD sessions to whose packets there has been no answer yet."""
    return frozenset(
        (_text(one.get("vrf")), _text(one.get("peer")))
        for one in _records(answer)
        if _number(one.get("control-packet-output")) >= BFD_PACKETS and one.get("control-packet-input") == 0
    )


def parse_bgp_vnis(answer: object) -> dict[int, BgpVni]:
    """Return bgpd's VNIs; the answer has other members beside them."""
    return {
        _number(entry.get("vni")): BgpVni(
            rd=_text(entry.get("rd")),
            originator=_text(entry.get("originatorIp")),
            import_rts=frozenset(_text(target) for target in _sequence(entry.get("importRTs"))),
            router_mac=_text(entry.get("rmac")),
        )
        for entry in map(_mapping, _mapping(answer).values())
        if "vni" in entry
    }


def parse_vni_tables(answer: object) -> dict[int, VniTable]:
    """Return the tables by VNI, of which only entries with a path of ours were printed, each by its prefix."""
    return {
        _number(entry.get("vni")): VniTable(
            others=_number(entry.get("numPrefix")) - sum(name.startswith("[") for name in entry),
            own_paths=_number(entry.get("numPaths")),
        )
        for entry in map(_mapping, _mapping(answer).values())
        if "vni" in entry
    }


def _evpn_routes(summary: object) -> int | None:
    """Return how many EVPN routes bgpd has; None without an EVPN neighbour, since the summary has no such part then."""
    families = _mapping(_mapping(summary).get(DEFAULT_VRF))
    return _number(_mapping(families[EVPN]).get("ribCount")) if EVPN in families else None


def parse_evpn(answers: Mapping[str, object], decoder: Decoder | None = None) -> Routes:
    """Return the routes; an answer that is missing or None counts as empty."""
    of, value = answers.get, (decoder or Decoder()).value
    return value(_routes, of(TYPE_3), of(TYPE_5), of(BGP_IPV4), of(BGP_IPV6), of(NEXT_HOPS))


def _routes(type3: object, type5: object, bgp_ipv4: object, bgp_ipv6: object, next_hops: object) -> Routes:
    ipv4, ipv6 = _zebra_routes(bgp_ipv4), _zebra_routes(bgp_ipv6)
    return Routes(
        type3=tuple(_evpn_paths(type3)),
        type5=tuple(_evpn_paths(type5)),
        zebra={vrf: ipv4.get(vrf, {}) | ipv6.get(vrf, {}) for vrf in ipv4.keys() | ipv6.keys()},
        next_hops={
            _number_in(vni): {
                address: _text(entry.get("routerMac"))
                for address, entry in _mapping(table).items()
                if isinstance(entry, dict)
            }
            for vni, table in _mapping(next_hops).items()
        },
    )


def _evpn_paths(answer: object) -> Iterator[EvpnRoute]:
    """Yield the best paths, from ``{rd: {route: {"paths": [[path, ...], ...]}}}``."""
    for rd, table in _mapping(answer).items():
        for route in map(_mapping, _mapping(table).values()):
            for path in (path for group in _sequence(route.get("paths")) for path in _records(group)):
                if path.get("valid") is True and path.get("bestpath") is True:
                    yield _evpn_route(rd, path)


def _evpn_route(rd: str, path: Mapping[str, Any]) -> EvpnRoute:
    words = _text(_mapping(path.get("extendedCommunity")).get("string")).split()
    routed = path.get("routeType") == 5
    next_hop = next((plain_address(_text(hop.get("ip"))) for hop in _records(path.get("nexthops"))), "")
    return EvpnRoute(
        rd=rd,
        prefix=f"{path.get('ip')}/{path.get('ipLen')}" if routed else "",
        # zebra floods to the originator of a type-3 route, whatever its next hop is.
        next_hop=plain_address(_text(path.get("ip"))) if path.get("routeType") == 3 else next_hop,
        own=path.get("peerId") == "(unspec)",
        targets=frozenset(word.removeprefix("RT:") for word in words if word.startswith("RT:")),
        router_mac=next((word.removeprefix("Rmac:") for word in words if word.startswith("Rmac:")), ""),
    )


def _zebra_routes(answer: object) -> dict[str, dict[str, tuple[NextHop, ...]]]:
    """Return the next hops of each route that zebra has from bgpd; none for a route that another one is better than."""
    return {
        vrf: {
            prefix: tuple(
                NextHop(
                    address=plain_address(_text(hop.get("ip"))),
                    device=_text(hop.get("interfaceName")),
                    vrf=_text(hop.get("vrf")),
                    installed=hop.get("fib") is True,
                    lost=hop.get("duplicate") is True and hop.get("active") is not True,
                    refused=entry.get("failed") is True,
                )
                for entry in _records(entries)
                if entry.get("selected") is True
                for hop in _records(entry.get("nexthops"))
            )
            for prefix, entries in _mapping(table).items()
        }
        for vrf, table in _mapping(answer).items()
    }


def plain_address(text: str) -> str:
    """Return an IPv4 address that FRR shows as an IPv6 one, as next hop of IPv6 routes, in its own form."""
    return text.removeprefix("::ffff:") if "." in text else text


def _number_in(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _records(answer: object) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in _sequence(answer) if isinstance(entry, dict))


def _mapping(value: object) -> Mapping[str, Any]:
    # Not Mapping: that check takes several times as long, and there are a thousand in a poll of 100 networks.
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    """Return a count, or 0 where FRR writes ``n/a``."""
    return value if isinstance(value, int) else 0
