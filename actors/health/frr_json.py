"""Decodes the JSON of zebra, bgpd and bfdd into typed values.

The shapes are those of FRR 10.3. Members that are missing or new are tolerated, so that another version costs a detail
and not the actor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

VNIS: Final = "show evpn vni detail json"
INTERFACES: Final = "show interface brief json"
SUMMARY: Final = "show bgp vrf all summary json"
INSTANCES: Final = "show bgp vrfs json"
PEER_GROUPS: Final = "show bgp peer-group json"
BFD_PEERS: Final = "show bfd peers json"
ROUTES_IPV4: Final = "show ip route vrf all summary json"
ROUTES_IPV6: Final = "show ipv6 route vrf all summary json"

#: FRR's name of the default VRF and of the BGP instance in it.
DEFAULT_VRF: Final = "default"
#: zebra's types of routes from bgpd, among them those of EVPN type-5 routes.
BGP_ROUTES: Final = frozenset({"ebgp", "ibgp"})


@dataclass(frozen=True, slots=True)
class Peer:
    """One BGP neighbour in bgpd. ``prefixes`` counts received ones by FRR's name of the address family."""

    remote_as: int = 0
    state: str = ""
    uptime_seconds: int = 0
    prefixes: dict[str, int] = field(default_factory=dict)
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Vni:
    """One VNI in zebra; ``up`` is None for an L2VNI, for which zebra has no such state."""

    type: str
    vrf: str
    vxlan: str = ""
    svi: str = ""
    up: bool | None = None
    remote_vteps: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """FRR's state in one poll: ``peers`` and ``bfd`` by VRF and peer, ``l3vnis`` (those in bgpd) and ``routes`` (BGP's
    in the forwarding table) by VRF.

    A non-empty ``error`` means that FRR did not answer: the rest is unknown, not absent.
    """

    daemons: frozenset[str] = frozenset()
    peers: dict[tuple[str, str], Peer] = field(default_factory=dict)
    listen_ranges: frozenset[str] = frozenset()
    vnis: dict[int, Vni] = field(default_factory=dict)
    l3vnis: dict[str, int] = field(default_factory=dict)
    interfaces: dict[str, bool] = field(default_factory=dict)
    bfd: dict[tuple[str, str], str] = field(default_factory=dict)
    routes: dict[str, int] = field(default_factory=dict)
    error: str = ""


def parse(daemons: frozenset[str], answers: Mapping[str, object]) -> Observation:
    """Decode the answers, keyed by the commands above; one that is missing or None counts as empty."""
    return Observation(
        daemons=daemons,
        peers=parse_summary(answers.get(SUMMARY)),
        listen_ranges=parse_peer_groups(answers.get(PEER_GROUPS)),
        vnis=parse_vnis(answers.get(VNIS)),
        l3vnis=parse_instances(answers.get(INSTANCES)),
        interfaces=parse_interfaces(answers.get(INTERFACES)),
        bfd=parse_bfd(answers.get(BFD_PEERS)),
        routes=parse_routes(answers.get(ROUTES_IPV4), answers.get(ROUTES_IPV6)),
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
        dynamic=facts.get("dynamicPeer") is True,
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
        remote_vteps=_number(entry.get("numRemoteVteps")),
    )


def parse_instances(answer: object) -> dict[str, int]:
    """Return the L3VNI of each of bgpd's VRF instances; 0 is none."""
    instances = _mapping(_mapping(answer).get("vrfs"))
    return {vrf: _number(_mapping(facts).get("l3vni")) for vrf, facts in instances.items()}


def parse_interfaces(answer: object) -> dict[str, bool]:
    """Return zebra's interfaces and whether each is operationally up."""
    return {name: _mapping(facts).get("status") == "up" for name, facts in _mapping(answer).items()}


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


def _records(answer: object) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in _sequence(answer) if isinstance(entry, Mapping))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    """Return a count, or 0 where FRR writes ``n/a``."""
    return value if isinstance(value, int) else 0
