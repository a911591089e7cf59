"""The routes to a prefix, from what zebra and bgpd answer, and how they are shown.

zebra's routes and bgpd's instances are what FRR 10.3 answered in ``tests/frr/test_health.py`` (``fabric_*`` of
``tests/actors/health/samples``), with all members. bgpd's paths are those in the form of one prefix, as
``route_vty_out_detail`` of FRR 10.3 writes it.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from supervisor.cli.terminal import Painter
from supervisor.cli.verbs.node.details_page import route_page
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.inspection.routes import (
    IMPORTS,
    INSTANCES,
    MOST_ROUTES,
    FoundRoutes,
    find_routes,
    parse_target,
)
from supervisor.runtime.faults import DependencyFault

INSTANCES_ANSWER: Final = {
    "vrfs": {
        "default": {"type": "DFLT", "vrfId": 0, "routerId": "10.0.0.1", "numConfiguredPeers": 1, "l3vni": 0},
        "red": {"type": "VRF", "vrfId": 3, "routerId": "10.0.0.1", "numConfiguredPeers": 1, "l3vni": 100},
    },
    "totalVrfs": 2,
}
TUNNELLED: Final = {
    "flags": 267,
    "fib": True,
    "ip": "100.64.0.1",
    "afi": "ipv4",
    "interfaceIndex": 4,
    "interfaceName": "br-pe-100",
    "active": True,
    "onLink": True,
    "weight": 1,
}
IN_RED: Final[dict[str, Any]] = {
    "prefix": "10.50.0.0/24",
    "prefixLen": 24,
    "protocol": "bgp",
    "vrfId": 3,
    "vrfName": "red",
    "selected": True,
    "destSelected": True,
    "distance": 20,
    "metric": 0,
    "installed": True,
    "table": 1100,
    "internalStatus": 16,
    "internalFlags": 8,
    "internalNextHopNum": 1,
    "internalNextHopActiveNum": 1,
    "nexthopGroupId": 18,
    "installedNexthopGroupId": 18,
    "uptime": "00:00:12",
    "nexthops": [TUNNELLED],
}
#: With ``import vrf red`` in the default instance.
LEAKED: Final[dict[str, Any]] = IN_RED | {
    "vrfId": 0,
    "vrfName": "default",
    "table": 254,
    "nexthops": [TUNNELLED | {"vrf": "red"}],
}
#: After ``br-pe-100`` went down and up while bgpd was busy.
STALE: Final[dict[str, Any]] = IN_RED | {
    "nexthops": [{name: value for name, value in TUNNELLED.items() if name != "fib"} | {"flags": 265}]
}
REJECTED: Final[dict[str, Any]] = {
    "prefix": "0.0.0.0/0",
    "protocol": "kernel",
    "vrfName": "red",
    "selected": True,
    "distance": 255,
    "metric": 8192,
    "installed": True,
    "uptime": "00:00:12",
    "nexthops": [{"flags": 3, "fib": True, "unreachable": True, "reject": True, "active": True}],
}
FROM_LEAF: Final[dict[str, Any]] = {
    "importedFrom": "10.0.0.200:4",
    "vni": "100",
    "l3nhg": False,
    "l3nhgActive": False,
    "aspath": {"string": "64512", "segments": [{"type": "as-sequence", "list": [64512]}], "length": 1},
    "nexthops": [
        {"ip": "100.64.0.1", "hostname": "leaf", "afi": "ipv4", "metric": 0, "accessible": True, "used": True}
    ],
    "peer": {"peerId": "192.168.11.2", "routerId": "10.0.0.200", "hostname": "leaf", "type": "external"},
    "origin": "IGP",
    "valid": True,
    "bestpath": {"bestpathFromAs": 64512, "overall": True, "selectionReason": "First path received"},
}


def in_bgp(prefix: str, *paths: dict[str, Any]) -> dict[str, Any]:
    return {"prefix": prefix, "version": 3, "paths": list(paths)}


class Frr:
    """Answers with texts; keeps what it was asked."""

    def __init__(
        self,
        zebra: list[object],
        bgp: dict[str, object],
        instances: object = INSTANCES_ANSWER,
        *,
        evpn: object = None,
        imports: dict[str, list[str]] | None = None,
    ) -> None:
        self._zebra, self._bgp, self._instances = zebra, bgp, instances
        self._evpn, self._imports = evpn or {}, imports or {}
        self.asked: list[str] = []

    async def texts(self, *commands: str, daemon: str) -> list[str]:
        self.asked += [f"{daemon}: {command}" for command in commands]
        return [self._answer(command, daemon) for command in commands]

    def _answer(self, command: str, daemon: str) -> str:
        if daemon == "zebra":
            return "".join(json.dumps(one, indent=2) + "\n" for one in self._zebra)
        if command == INSTANCES:
            return json.dumps(self._instances)
        if command == IMPORTS:
            return json.dumps({target: {"rt": target, "vrfs": vrfs} for target, vrfs in self._imports.items()})
        if command.startswith("show bgp l2vpn evpn "):
            return json.dumps(self._evpn)
        words = command.split()
        return json.dumps(self._bgp.get(words[words.index("vrf") + 1] if "vrf" in words else "default", {}))


def shown(found: FoundRoutes) -> str:
    return "\n\n".join(route_page(route, Painter(colour=False)) for route in (*found.routes, *found.evpn))


async def test_a_remote_prefix_has_its_tunnel_endpoint_and_who_announced_it() -> None:
    frr = Frr([{"10.50.0.0/24": [IN_RED]}], {"red": in_bgp("10.50.0.0/24", FROM_LEAF)})
    assert shown(await find_routes(frr, "10.50.0.7")) == (
        "route 10.50.0.0/24 in VRF red, VNI 100\n"
        "  zebra     bgp, distance 20, metric 0, for 00:00:12: selected and installed\n"
        "  next hop  tunnel endpoint 100.64.0.1 on br-pe-100\n"
        "  BGP path  from 192.168.11.2, AS path 64512, tunnel endpoint 100.64.0.1, VNI 100 of EVPN route 10.0.0.200:4:"
        " the best (First path received)"
    )
    assert frr.asked == [
        "zebra: show ip route vrf all 10.50.0.7 json",
        f"bgpd: {INSTANCES}",
        "bgpd: show bgp ipv4 unicast 10.50.0.7 json",
        "bgpd: show bgp vrf red ipv4 unicast 10.50.0.7 json",
        "bgpd: show bgp l2vpn evpn 10.50.0.7 json",
        f"bgpd: {IMPORTS}",
    ]


def in_evpn(prefix: str, rd: str, targets: str = "RT:64512:200 ", **path: Any) -> dict[str, Any]:
    """bgpd's answer about an EVPN route of the leaf's, as FRR 10.3 wrote it in ``tests/frr/test_fabric.py``."""
    address, _, length = prefix.partition("/")
    stored = {key: value for key, value in FROM_LEAF.items() if key != "importedFrom"} | {"vni": "200"}
    communities = {"extendedCommunity": {"string": f"{targets}ET:8 Rmac:02:00:00:00:40:01"}}
    entry = {"rd": rd, "routeType": 5, "ethTag": 0, "ipLen": int(length), "ip": address}
    return {rd: entry | {"paths": [stored | communities | path]}}


async def test_an_evpn_route_that_no_vrf_imports_is_shown_with_its_route_targets() -> None:
    frr = Frr([{}], {}, evpn=in_evpn("10.60.0.0/24", "10.0.0.200:3"), imports={"64512:100": ["red"]})
    found = await find_routes(frr, "10.60.0.7")
    assert found.routes == ()
    assert shown(found) == (
        "EVPN route 10.60.0.0/24, not imported\n"
        "  why       no VRF imports its route target 64512:200\n"
        "  BGP path  from 192.168.11.2, AS path 64512, tunnel endpoint 100.64.0.1, VNI 200 of EVPN route 10.0.0.200:3:"
        " the best (First path received)"
    )


@pytest.mark.parametrize(
    ("targets", "imports", "vrf", "why"),
    [
        ("", {}, "", "it has no route target"),
        ("RT:1:1 RT:1:2 ", {"1:3": ["red"]}, "", "no VRF imports its route targets 1:1, 1:2"),
        ("RT:1:1 ", {"1:1": ["blue"]}, "red", "VRF red does not import its route target 1:1, but blue"),
        (
            "RT:1:1 ",
            {"0:1": ["red"]},
            "",
            "VRF red imports its route target 1:1, but bgpd has not taken the route: does its VNI work?",
        ),
    ],
)
async def test_why_an_evpn_route_is_not_imported(
    targets: str, imports: dict[str, list[str]], vrf: str, why: str
) -> None:
    frr = Frr([{}], {}, evpn=in_evpn("10.60.0.0/24", "10.0.0.200:3", targets), imports=imports)
    [route] = (await find_routes(frr, "10.60.0.0/24", vrf)).evpn
    assert route.not_imported == why


@pytest.mark.parametrize(
    ("prefix", "path", "vrf"),
    [
        ("10.50.0.0/24", {}, ""),
        # bgpd names the longest match of a VRF only: it may have this one, too.
        ("10.0.0.0/8", {}, ""),
        ("10.50.0.0/25", {"sourced": True, "peer": {"peerId": "0.0.0.0"}}, ""),
        # Another tenant's.
        ("10.50.0.0/25", {}, "red"),
        ("10.50.0.0/25", {}, "default"),
    ],
)
async def test_an_evpn_route_that_is_there_or_not_missed_is_not_shown_as_not_imported(
    prefix: str, path: dict[str, Any], vrf: str
) -> None:
    frr = Frr(
        [{"10.50.0.0/24": [IN_RED]}],
        {"red": in_bgp("10.50.0.0/24", FROM_LEAF)},
        evpn=in_evpn(prefix, "10.0.0.200:4", **path),
        imports={"0:200": ["red"]},
    )
    assert (await find_routes(frr, "10.50.0.7", vrf)).evpn == ()


async def test_one_vrf_is_asked_alone() -> None:
    frr = Frr([{"10.50.0.0/24": [IN_RED]}, {"10.50.0.0/24": [LEAKED]}], {})
    found = await find_routes(frr, "10.50.0.0/24", "red")
    assert [route.vrf for route in found.routes] == ["red"]
    assert frr.asked[2] == "bgpd: show bgp vrf red ipv4 unicast 10.50.0.0/24 json"
    assert not [command for command in frr.asked if "default" in command or "bgp ipv4" in command]


async def test_the_underlay_comes_first_and_a_leaked_route_names_its_vrf() -> None:
    frr = Frr([{"10.50.0.0/24": [IN_RED]}, {"10.50.0.0/24": [LEAKED]}], {})
    found = await find_routes(frr, "10.50.0.0/24")
    assert [route.vrf for route in found.routes] == ["default", "red"]
    assert "  next hop  100.64.0.1 on br-pe-100 in VRF red\n" in shown(found)


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (STALE, "next hop  100.64.0.1 on br-pe-100: not in the kernel"),
        (IN_RED | {"selected": False, "installed": False}, "for 00:00:12: not selected, another route is better"),
        (IN_RED | {"installed": False}, "for 00:00:12: selected, not installed"),
        (IN_RED | {"installed": False, "failed": True}, "for 00:00:12: selected, refused by the kernel"),
    ],
)
async def test_why_zebra_does_not_use_a_route(entry: dict[str, Any], line: str) -> None:
    assert line in shown(await find_routes(Frr([{"10.50.0.0/24": [entry]}], {}), "10.50.0.0/24"))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (
            FROM_LEAF | {"valid": False, "bestpath": {}, "nexthops": [{"ip": "100.64.0.1", "accessible": False}]},
            "of EVPN route 10.0.0.200:4: not used, the next hop is not reachable",
        ),
        (FROM_LEAF | {"bestpath": {}}, "of EVPN route 10.0.0.200:4: not used, another path is better"),
    ],
)
async def test_what_only_bgpd_has_says_why(path: dict[str, Any], line: str) -> None:
    text = shown(await find_routes(Frr([{}], {"red": in_bgp("10.50.0.0/24", path)}), "10.50.0.0/24"))
    assert "  zebra     has no route to it\n" in text
    assert line in text


@pytest.mark.parametrize("peer", ["0.0.0.0", "(unspec)"])
async def test_an_own_route_and_one_of_the_host_beside_it(peer: str) -> None:
    own = {"valid": True, "bestpath": {"overall": True, "selectionReason": "Weight"}, "peer": {"peerId": peer}}
    host = FROM_LEAF | {"importedFrom": "", "bestpath": {}, "peer": {"peerId": "fe80::1", "interface": "eth1"}}
    text = shown(await find_routes(Frr([{}], {"default": in_bgp("100.65.0.1/32", host, own)}), "100.65.0.1"))
    assert text.splitlines()[2:] == [
        "  BGP path  the router's own: the best (Weight)",
        "  BGP path  from eth1, AS path 64512, next hop 100.64.0.1: not used, another path is better",
    ]


async def test_the_default_route_that_rejects_packets_is_no_route() -> None:
    assert await find_routes(Frr([{"0.0.0.0/0": [REJECTED]}], {}), "203.0.113.1") == FoundRoutes()
    beside = await find_routes(Frr([{"0.0.0.0/0": [REJECTED, IN_RED]}], {}), "203.0.113.1")
    assert "  next hop  none: packets are rejected\n" in shown(beside)


async def test_an_ipv6_prefix_is_asked_as_such_and_has_an_ipv4_tunnel_endpoint() -> None:
    entry = IN_RED | {"nexthops": [TUNNELLED | {"ip": "::ffff:100.64.0.1", "afi": "ipv6"}]}
    frr = Frr([{"2001:db8::/64": [entry]}], {})
    assert "next hop  100.64.0.1 on br-pe-100" in shown(await find_routes(frr, "2001:db8::/64", "red"))
    assert frr.asked[0] == "zebra: show ipv6 route vrf all 2001:db8::/64 json"
    assert frr.asked[2] == "bgpd: show bgp vrf red ipv6 unicast 2001:db8::/64 json"


async def test_a_shorter_prefix_of_bgpd_is_left_out_and_a_longer_one_is_not_in_zebra() -> None:
    shorter, longer = in_bgp("10.0.0.0/8", FROM_LEAF), in_bgp("10.50.0.0/25", FROM_LEAF)
    found = await find_routes(Frr([{"10.50.0.0/24": [IN_RED]}], {"red": shorter}), "10.50.0.7")
    assert [(route.prefix, len(route.paths)) for route in found.routes] == [("10.50.0.0/24", 0)]
    found = await find_routes(Frr([{"10.50.0.0/24": [IN_RED]}], {"red": longer}), "10.50.0.7")
    assert [(route.prefix, len(route.zebra)) for route in found.routes] == [("10.50.0.0/24", 1), ("10.50.0.0/25", 0)]


async def test_without_bgpd_there_are_zebras_routes() -> None:
    class Alone(Frr):
        async def texts(self, *commands: str, daemon: str) -> list[str]:
            if daemon == "bgpd":
                raise DependencyFault("bgpd is not running")
            return await super().texts(*commands, daemon=daemon)

    found = await find_routes(Alone([{"10.50.0.0/24": [IN_RED]}], {}), "10.50.0.7", "red")
    assert [route.prefix for route in found.routes] == ["10.50.0.0/24"]
    assert found.missing == "bgpd is not running"


async def test_there_is_a_limit() -> None:
    entries = [{"0.0.0.0/0": [IN_RED | {"vrfName": f"v{number}"}]} for number in range(MOST_ROUTES + 3)]
    found = await find_routes(Frr(list(entries), {}), "0.0.0.0/0")
    assert (len(found.routes), found.more) == (MOST_ROUTES, 3)


async def test_members_that_are_missing_or_strange_cost_a_detail_only() -> None:
    strange: list[object] = [{"10.50.0.0/24": [{"nexthops": [{}, "x"], "distance": "n/a"}, 7]}, [], {"x": None}]
    found = await find_routes(Frr(strange, {"red": {"prefix": 3, "paths": [{}]}}, {"vrfs": {"red": None}}), "10.50.0.1")
    assert [(route.vrf, route.prefix) for route in found.routes] == [("default", "10.50.0.0/24"), ("red", "")]


async def test_an_unknown_vrf_and_an_answer_that_is_no_json_are_errors() -> None:
    with pytest.raises(CommandError, match="FRR has no BGP in VRF blue"):
        await find_routes(Frr([{}], {}), "10.50.0.1", "blue")

    class Broken(Frr):
        async def texts(self, *commands: str, daemon: str) -> list[str]:
            return ["{} % oops" for _ in commands]

    with pytest.raises(CommandError, match="FRR's answer is not JSON: '% oops'"):
        await find_routes(Broken([], {}), "10.50.0.1")


@pytest.mark.parametrize(
    "text", ["red", "10.0.0.1/24", "10.0.0.0/33", "1.2.3.4 json\nshow x", "fe80::1%a json", "-x", ""]
)
def test_what_is_no_prefix_is_refused_before_frr_is_asked(text: str) -> None:
    with pytest.raises(CommandError, match="is not an address or prefix"):
        parse_target(text)
