"""Which routes the router has to a prefix or an address: zebra's and the kernel's, and the paths that bgpd has.

    PREFIX or ADDRESS -> one lookup in zebra for all VRFs, in bgpd one for each instance and one in the table of EVPN
                      -> routes by VRF, and the EVPN routes that no VRF has, with why

Each is a lookup of one prefix, so that the size of no table matters: an address finds its longest match, a prefix only
itself. mgmtd is not asked, so that nothing waits for a commit. The shapes are those of FRR 10.3 (``zebra_vty.c``,
``bgp_route.c``); members that are missing or new cost a detail only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final, Protocol

from supervisor.runtime.faults import DependencyFault

from ..exit_codes import UNAVAILABLE, USAGE, CommandError

DEFAULT_VRF: Final = "default"
INSTANCES: Final = "show bgp vrfs json"
IMPORTS: Final = "show bgp l2vpn evpn vrf-import-rt json"
#: Routes that are kept, the paths of each, and the next hops of each: more are not an answer to read.
MOST_ROUTES: Final = 50
MOST_PATHS: Final = 16
#: What bgpd calls the peer of a path of its own, the last one in another VRF.
_OWN: Final = frozenset({"0.0.0.0", "::", "(unspec)"})  # noqa: S104 - bgpd's word


class LookupFrr(Protocol):
    """What this module needs of FRR; raises ``DependencyFault``."""

    async def texts(self, *commands: str, daemon: str) -> list[str]:
        """Return what one daemon prints for each command."""


@dataclass(frozen=True, slots=True)
class ZebraHop:
    """A next hop; ``address`` is empty for a device, ``vrf`` set if it is another one. ``in_kernel``: it is used."""

    address: str = ""
    device: str = ""
    vrf: str = ""
    unreachable: bool = False
    in_kernel: bool = False


@dataclass(frozen=True, slots=True)
class ZebraRoute:
    """One source's route in zebra; ``uptime`` is FRR's text."""

    protocol: str
    distance: int
    metric: int
    selected: bool
    installed: bool
    failed: bool = False
    uptime: str = ""
    hops: tuple[ZebraHop, ...] = ()


@dataclass(frozen=True, slots=True)
class BgpPath:
    """One of bgpd's paths. ``peer`` announced it, empty for an own one; ``reason`` is why it is the best.

    ``rd`` and ``vni`` are those of the EVPN route that it was imported from: then ``next_hop`` is a tunnel endpoint.
    """

    peer: str = ""
    as_path: str = ""
    next_hop: str = ""
    valid: bool = False
    reachable: bool = True
    best: bool = False
    reason: str = ""
    rd: str = ""
    vni: str = ""


@dataclass(frozen=True, slots=True)
class FoundRoute:
    """All that there is for one prefix in one VRF; ``vni`` is the VRF's L3VNI, 0 for none.

    Of an EVPN route that is in no VRF ``vrf`` is empty, and ``not_imported`` is why.
    """

    vrf: str
    prefix: str
    vni: int = 0
    zebra: tuple[ZebraRoute, ...] = ()
    paths: tuple[BgpPath, ...] = ()
    not_imported: str = ""

    @property
    def is_none(self) -> bool:
        """Whether it only says that there is no route: the kernel's default in each VRF, which rejects packets."""
        hops = [hop for route in self.zebra for hop in route.hops]
        return not self.paths and bool(hops) and all(hop.unreachable for hop in hops)


@dataclass(frozen=True, slots=True)
class FoundRoutes:
    """The routes to what was asked for, the underlay's first; ``more`` is how many others there are.

    ``evpn`` are EVPN routes of others that are in none of the VRFs; ``missing`` is why there are no paths of bgpd.
    """

    routes: tuple[FoundRoute, ...] = field(default=())
    evpn: tuple[FoundRoute, ...] = ()
    more: int = 0
    missing: str = ""


def parse_target(text: str) -> tuple[IPv4Network | IPv6Network, bool]:
    """Return a prefix, and whether it was given as an address; raise :class:`CommandError` for neither."""
    what = f"{text} is not an address or prefix, such as 198.51.100.7 or 198.51.100.0/24"
    # Python takes anything for the zone of an address.
    if "%" in text:
        raise CommandError(what, USAGE)
    try:
        return ip_network(text), "/" not in text
    except ValueError as error:
        raise CommandError(f"{what} ({error})" if "host bits" in str(error) else what, USAGE) from None


async def find_routes(frr: LookupFrr, target: str, vrf: str = "") -> FoundRoutes:
    """Look up a prefix or an address, in one VRF or, with none, in all.

    Raises :class:`CommandError` for what is not a prefix or a VRF that FRR does not have, ``DependencyFault`` without
    zebra. Without bgpd there are zebra's routes, and ``missing`` is why.
    """
    network, is_address = parse_target(target)
    asked = str(network.network_address) if is_address else str(network)
    ip, family = ("ip", "ipv4") if network.version == 4 else ("ipv6", "ipv6")
    [in_zebra] = await frr.texts(f"show {ip} route vrf all {asked} json", daemon="zebra")
    entries, missing = _zebra_entries(in_zebra), ""
    try:
        vnis, paths = await _in_bgpd(frr, f"{family} unicast {asked} json", vrf)
        in_evpn, imports = await frr.texts(f"show bgp l2vpn evpn {asked} json", IMPORTS, daemon="bgpd")
    except DependencyFault as fault:
        vnis, paths, missing, in_evpn, imports = {}, {}, str(fault), "", ""
    if vrf and not missing and vrf not in vnis and not any(name == vrf for name, _ in entries):
        raise CommandError(f"FRR has no BGP in VRF {vrf}, and no route to {target} there", USAGE)
    longest: dict[str, int] = {}
    for name, prefix in entries:
        longest[name] = max(longest.get(name, 0), _length(prefix))
    # zebra has named its longest match only: of a shorter one of bgpd it is not known whether zebra has it too.
    keys = [*entries, *(key for key in paths if key not in entries and _length(key[1]) >= longest.get(key[0], 0))]
    keys = sorted((key for key in keys if vrf in ("", key[0])), key=lambda key: (key[0] != DEFAULT_VRF, key))
    routes = [
        FoundRoute(name, prefix, vnis.get(name, 0), entries.get((name, prefix), ()), paths.get((name, prefix), ()))
        for name, prefix in keys
    ]
    known = [route for route in routes if not route.is_none]
    unused = _not_imported(known, list(_evpn_paths(in_evpn)), _importers(imports), vrf)
    more = max(0, len(known) - MOST_ROUTES) + max(0, len(unused) - MOST_ROUTES)
    return FoundRoutes(tuple(known[:MOST_ROUTES]), tuple(unused[:MOST_ROUTES]), more, missing)


def _not_imported(
    known: Sequence[FoundRoute],
    in_evpn: Sequence[tuple[str, BgpPath, tuple[str, ...]]],
    importers: Mapping[str, Sequence[str]],
    vrf: str,
) -> list[FoundRoute]:
    """Return the EVPN routes, as prefix, path and route targets, that are in no VRF, or not in the one that is meant.

    ``importers`` are the VRFs that import a route target. A VRF that is meant and has a route misses no other tenant's;
    one with a longer match may have this one too, which bgpd has not named.
    """
    if vrf and (vrf == DEFAULT_VRF or known):
        return []
    imported = {(route.prefix, path.rd) for route in known for path in route.paths}
    longest = {route.vrf: _length(route.prefix) for route in known}
    found = []
    for prefix, path, targets in in_evpn:
        vrfs = sorted({name for target in targets for name in _importing(target, importers)})
        hidden = any(longest.get(name, -1) > _length(prefix) for name in vrfs)
        if path.peer and (prefix, path.rd) not in imported and not hidden:
            found.append(FoundRoute("", prefix, paths=(path,), not_imported=_why_not(targets, vrfs, vrf)))
    return found


def _importing(target: str, importers: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the VRFs that import a route target; bgpd shows one that is for any AS with AS 0."""
    number = target.rpartition(":")[2]
    return (*importers.get(target, ()), *importers.get(f"0:{number}", ()))


def _why_not(targets: Sequence[str], vrfs: Sequence[str], vrf: str) -> str:
    """Return why an EVPN route with some route targets, which ``vrfs`` import, is in no VRF, or not in ``vrf``."""
    if not targets:
        return "it has no route target"
    which = f"its route target{'' if len(targets) == 1 else 's'} {', '.join(targets)}"
    if not vrfs:
        return f"no VRF imports {which}"
    if vrf and vrf not in vrfs:
        return f"VRF {vrf} does not import {which}, but {', '.join(vrfs)}"
    return f"VRF {', '.join(vrfs)} imports {which}, but bgpd has not taken the route: does its VNI work?"


def _importers(answer: str) -> dict[str, list[str]]:
    """Return the VRFs that import each route target."""
    document = next(_documents(answer), {})
    found = {}
    for target, facts in document.items():
        vrfs = _mapping(facts).get("vrfs")
        found[target] = [_text(name) for name in vrfs] if isinstance(vrfs, list) else []
    return found


async def _in_bgpd(
    frr: LookupFrr, lookup: str, vrf: str
) -> tuple[dict[str, int], dict[tuple[str, str], tuple[BgpPath, ...]]]:
    """Return the L3VNI of each instance, and the paths by VRF and prefix."""
    [listed] = await frr.texts(INSTANCES, daemon="bgpd")
    vnis = {name: _number(_mapping(facts).get("l3vni")) for name, facts in _instances(listed).items()}
    names = [name for name in vnis if vrf in ("", name)]
    commands = [f"show bgp {_in_vrf(name)}{lookup}" for name in names]
    answers = await frr.texts(*commands, daemon="bgpd") if commands else []
    found = ((name, _bgp_paths(answer)) for name, answer in zip(names, answers, strict=True))
    return vnis, {(name, prefix): paths for name, routes in found for prefix, paths in routes}


def _length(prefix: str) -> int:
    length = prefix.rpartition("/")[2]
    return int(length) if length.isdecimal() else 0


def _in_vrf(name: str) -> str:
    return "" if name == DEFAULT_VRF else f"vrf {name} "


def _instances(answer: str) -> Mapping[str, Any]:
    return next((_mapping(document.get("vrfs")) for document in _documents(answer)), {})


def _zebra_entries(answer: str) -> dict[tuple[str, str], tuple[ZebraRoute, ...]]:
    """Return the routes by VRF and prefix: zebra prints a document for each VRF, ``{prefix: [route, ...]}``."""
    found: dict[tuple[str, str], tuple[ZebraRoute, ...]] = {}
    for document in _documents(answer):
        for prefix, entries in document.items():
            for entry in _records(entries):
                key = _text(entry.get("vrfName")) or DEFAULT_VRF, prefix
                found[key] = (*found.get(key, ()), _zebra_route(entry))[:MOST_PATHS]
    return found


def _zebra_route(entry: Mapping[str, Any]) -> ZebraRoute:
    return ZebraRoute(
        protocol=_text(entry.get("protocol")),
        distance=_number(entry.get("distance")),
        metric=_number(entry.get("metric")),
        selected=entry.get("selected") is True,
        installed=entry.get("installed") is True,
        failed=entry.get("failed") is True,
        uptime=_text(entry.get("uptime")),
        hops=tuple(_zebra_hop(hop) for hop in _records(entry.get("nexthops")))[:MOST_PATHS],
    )


def _zebra_hop(hop: Mapping[str, Any]) -> ZebraHop:
    return ZebraHop(
        address=_plain(_text(hop.get("ip"))),
        device=_text(hop.get("interfaceName")),
        vrf=_text(hop.get("vrf")),
        unreachable=hop.get("unreachable") is True,
        in_kernel=hop.get("fib") is True,
    )


def _bgp_paths(answer: str) -> Iterator[tuple[str, tuple[BgpPath, ...]]]:
    """Yield the prefix that bgpd has found, if any, with its paths, the best first."""
    for document in _documents(answer):
        paths = sorted(map(_bgp_path, _records(document.get("paths"))), key=lambda path: not path.best)
        if paths:
            yield _text(document.get("prefix")), tuple(paths[:MOST_PATHS])


def _evpn_paths(answer: str) -> Iterator[tuple[str, BgpPath, tuple[str, ...]]]:
    """Yield the best path of each EVPN route with its prefix and its route targets: bgpd has one for each RD."""
    for document in _documents(answer):
        for rd, entry in document.items():
            route = _mapping(entry)
            paths = sorted(_records(route.get("paths")), key=lambda path: not _bgp_path(path).best)
            for path in paths[:1]:
                communities = _text(_mapping(path.get("extendedCommunity")).get("string")).split()
                targets = tuple(word.removeprefix("RT:") for word in communities if word.startswith("RT:"))
                prefix = f"{_text(route.get('ip'))}/{_number(route.get('ipLen'))}"
                yield prefix, replace(_bgp_path(path), rd=rd), targets


def _bgp_path(path: Mapping[str, Any]) -> BgpPath:
    hop = next(_records(path.get("nexthops")), {})
    peer, best = _mapping(path.get("peer")), _mapping(path.get("bestpath"))
    own = path.get("sourced") is True or peer.get("peerId") in _OWN
    return BgpPath(
        peer="" if own else _text(peer.get("interface")) or _text(peer.get("peerId")),
        as_path="" if own else _text(_mapping(path.get("aspath")).get("string")),
        next_hop=_plain(_text(hop.get("ip"))),
        valid=path.get("valid") is True,
        reachable=hop.get("accessible") is not False,
        best=best.get("overall") is True,
        reason=_text(best.get("selectionReason")),
        rd=_text(path.get("importedFrom")),
        vni=_text(path.get("vni")),
    )


def _documents(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of an answer, which may have none or several; :class:`CommandError` for anything else."""
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        try:
            document, end = decoder.raw_decode(rest)
        except ValueError:
            raise CommandError(f"FRR's answer is not JSON: {rest[:80]!r}", UNAVAILABLE) from None
        yield _mapping(document)
        rest = rest[end:].lstrip()


def _plain(address: str) -> str:
    """Return an IPv4 tunnel endpoint of an IPv6 route, which FRR shows as an IPv6 address, in its own form."""
    return address.removeprefix("::ffff:") if "." in address else address


def _records(value: object) -> Iterator[Mapping[str, Any]]:
    return (one for one in (value if isinstance(value, Sequence) else ()) if isinstance(one, Mapping))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
