"""Random walks through small valid configurations, resolved as users' own are.

Each part has few values, the awkward ones among them, so that a walk soon takes every step between two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from config.desired import DesiredState
from config.outcomes import NodeIdentity
from config.resolve.resolution import resolve
from config.resources import Resource
from tests.config.samples import interface, l2vni, l3vni, passthrough, session, underlay

Spec = dict[str, Any]

#: The last has the 16 bits of the first, which is what automatic route targets have of an AS number.
ASNS: Final = (64514, 64514, 64520, 4200000001, 64514 + 65536)
#: The automatic route distinguishers have numbers from 1.
VNIS: Final = (1, 2, 3, 100, 200, 70000, 16777215)
VRFS: Final = ("red", "blue", "green")
SEGMENTS: Final = (6001, 70001)


@dataclass
class Walk:
    """A configuration that changes at random; the same seed takes the same steps."""

    seed: int
    underlay: Spec | None = None
    l3vnis: dict[str, Spec] = field(default_factory=dict)
    gateways: dict[str, list[str]] = field(default_factory=dict)
    segments: dict[int, Spec] = field(default_factory=dict)
    passthrough: Spec | None = None
    debug: bool = False

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311 - no secret

    def step(self) -> DesiredState:
        """Change the configuration, mostly one part of it, and return what it resolves to."""
        draw = self._random
        if self.underlay is None or draw.random() < 0.1:
            self._draw_all()
        elif self.l3vnis and draw.random() < 0.6:
            self._change_l3vni(draw.choice(sorted(self.l3vnis)))
        else:
            changes = self._draw_underlay, self._change_underlay, self._draw_passthrough, self._add_l3vni, self._segment
            draw.choice(changes)()
        if draw.random() < 0.05:
            self.debug = not self.debug
        return self.state()

    def state(self) -> DesiredState:
        parts: list[Resource] = []
        if self.underlay is not None:
            parts.append(underlay(**self.underlay))
            parts += [l3vni(vrf, **spec) for vrf, spec in self.l3vnis.items()]
            parts += [
                l2vni(f"l2-{vrf}", 5000 + VRFS.index(vrf), vrf, gatewayIPs=addresses)
                for vrf, addresses in self.gateways.items() if vrf in self.l3vnis and addresses
            ]  # fmt: skip
            parts += [l2vni(f"flat-{vni}", vni, **spec) for vni, spec in self.segments.items()]
            if self.passthrough is not None:
                parts.append(passthrough(**self.passthrough))
        desired = resolve(parts, NodeIdentity("node", 0)).desired
        assert desired is not None
        return replace(desired, log_level="debug" if self.debug else "info")

    def _draw_all(self) -> None:
        draw = self._random
        self.underlay, self.l3vnis, self.passthrough, self.segments = None, {}, None, {}
        if draw.random() < 0.15:
            return
        self._draw_underlay()
        for _ in range(draw.choice((0, 1, 2, 3))):
            self._add_l3vni()
        self._draw_passthrough()
        self._segment()

    def _draw_underlay(self) -> None:
        draw = self._random
        endpoints = [
            {"address": "192.168.11.2"},
            {"address": "192.168.12.2"},
            {"address": "fd00:1::2"},
            {"interface": "toswitch1"},
            {"listenRange": "192.168.13.0/24"},
            {"listenRange": "fd00:2::/64"},
        ]
        chosen = draw.sample(endpoints, draw.choice((1, 1, 2, 3)))
        self.underlay = _some(
            asn=draw.choice(ASNS),
            routerIDCIDR=draw.choice((None, None, "10.3.0.0/24")),
            interfaces=[interface("toswitch1")],
            neighbors=[self._neighbor(endpoint) for endpoint in chosen],
            gracefulRestart=draw.choice(
                (None, None, {}, {"restartTimeSeconds": 60, "stalePathTimeSeconds": 180}, {"restartTimeSeconds": 7})
            ),
        )
        # Without a tunnel endpoint there are no VNIs.
        cidrs = draw.choice((*[["100.65.0.0/24"]] * 6, ["100.65.0.0/24", "fd00:65::/64"], None))
        self.underlay["tunnelEndpoint"] = {"cidrs": cidrs} if cidrs else None

    def _change_underlay(self) -> None:
        """Change one neighbour: the step that FRR has most rules for."""
        assert self.underlay is not None
        draw = self._random
        neighbors = self.underlay["neighbors"]
        position = draw.randrange(len(neighbors))
        kept = {
            key: value for key, value in neighbors[position].items() if key in ("address", "interface", "listenRange")
        }
        neighbors[position] = self._neighbor(kept)

    def _neighbor(self, endpoint: Spec) -> Spec:
        """Return a neighbour of this endpoint, drawn again until it is valid."""
        draw = self._random
        hold, keepalive = draw.choice(((None, None), (None, None), (180, 60), (9, 3), (0, 0), (65535, 0)))
        families = draw.choice(
            (
                [],
                [],
                [],
                ["ipv4unicast", "evpn"],
                ["ipv4unicast", "ipv6unicast", "evpn"],
                ["ipv4unicast"],
                ["ipv6unicast"],
            )
        )
        multihop = draw.choice((None, None, None, {}, {"ttl": 1}, {"ttl": 2}, {"ttl": 255}))
        remote = draw.choice(
            ({"asn": 64512}, {"asn": 64514}, {"asn": 4200000002}, {"type": "External"}, {"type": "Internal"})
        )
        return endpoint | remote | _some(
            port=draw.choice((None, None, None, 179, 0, 1179)),
            password=draw.choice((None, None, "s3cret|?!#", "another")),
            holdTimeSeconds=hold,
            keepaliveTimeSeconds=keepalive,
            connectTimeSeconds=draw.choice((None, None, 1, 5, 120, 65535)),
            properties=None if multihop is None else [{"type": "ebgpMultiHop", "ebgpMultiHop": multihop}],
            bfd=draw.choice(
                (
                    None,
                    None,
                    None,
                    {},
                    {"receiveInterval": 300, "transmitInterval": 300, "detectMultiplier": 3},
                    {"receiveInterval": 10, "minimumTTL": 254},
                    {"transmitInterval": 60000, "detectMultiplier": 255, "sessionMode": "Passive", "minimumTTL": 1},
                )
            ),
            addressFamilies=[{"type": family} for family in families],
        )  # fmt: skip

    def _draw_passthrough(self) -> None:
        draw = self._random
        self.passthrough = None
        if draw.random() < 0.5:
            self.passthrough = self._session("172.26.0.0/24", "2001:db9:99::/64")

    def _add_l3vni(self) -> None:
        draw = self._random
        free = sorted(set(VRFS) - set(self.l3vnis))
        if free:
            vrf = draw.choice(free)
            self.l3vnis[vrf] = {"vni": draw.choice(self._free_vnis())}
            for change in (self._targets, self._host_session, self._gateways):
                change(vrf)

    def _change_l3vni(self, vrf: str) -> None:
        draw = self._random
        changes: tuple[Callable[[str], object], ...] = (
            self._targets, self._targets, self._targets, self._number, self._host_session, self._gateways,
            self.l3vnis.pop,
        )  # fmt: skip
        draw.choice(changes)(vrf)

    def _free_vnis(self) -> list[int]:
        return sorted(set(VNIS) - {spec["vni"] for spec in self.l3vnis.values()})

    def _number(self, vrf: str) -> None:
        self.l3vnis[vrf]["vni"] = self._random.choice(self._free_vnis())

    def _targets(self, vrf: str) -> None:
        """Draw route targets; the one that FRR derives by itself is frequent."""
        assert self.underlay is not None
        draw, spec = self._random, self.l3vnis[vrf]
        asn = spec.get("hostSession", self.underlay)["asn"]
        automatic = f"{asn & 0xFFFF}:{spec['vni']}"
        others = [
            f"{self.underlay['asn'] & 0xFFFF}:{spec['vni']}", f"{asn}:{spec['vni'] & 0xFFFF}", "64514:7", "10.0.0.1:9",
            "65535:4294967295", "4294967295:65535", "0:5", "064520:0008", "255.255.255.255:0",
        ]  # fmt: skip
        for direction in ("importRTs", "exportRTs"):
            targets = draw.sample(others, draw.choice((0, 0, 1, 2)))
            if draw.random() < 0.5:
                targets.insert(draw.randint(0, len(targets)), automatic)
            spec[direction] = targets

    def _segment(self) -> None:
        """Draw the route targets and the distinguisher of a segment, or remove it."""
        assert self.underlay is not None
        draw, vni = self._random, self._random.choice(SEGMENTS)
        if draw.random() < 0.25:
            self.segments.pop(vni, None)
            return
        targets = [f"{self.underlay['asn'] & 0xFFFF}:{vni}", "64514:7", "10.0.0.1:9", "4294967295:65535", "0:5"]
        drawn = {key: draw.sample(targets, draw.choice((0, 0, 1, 2, 3))) for key in ("importRTs", "exportRTs")}
        distinguishers = (
            None,
            None,
            f"10.0.0.0:{vni & 0xFFFF}",
            f"10.3.0.0:{vni & 0xFFFF}",
            f"4200000001:{vni & 0xFFF}",
        )
        self.segments[vni] = drawn | _some(rd=draw.choice(distinguishers))

    def _host_session(self, vrf: str) -> None:
        draw, third = self._random, VRFS.index(vrf)
        self.l3vnis[vrf].pop("hostSession", None)
        if draw.random() < 0.6:
            self.l3vnis[vrf]["hostSession"] = self._session(f"172.27.{third}.0/24", f"2001:db9:{third}::/64")

    def _session(self, ipv4: str, ipv6: str) -> Spec:
        draw = self._random
        pools = draw.choice(((ipv4, None), (None, ipv6), (ipv4, ipv6)))
        remote = draw.choice(
            ({"hostType": "External"}, {"hostType": "Internal"}, {"hostASN": 65001}, {"hostASN": 4200000009})
        )
        return session(*pools, asn=draw.choice(ASNS), **remote)

    def _gateways(self, vrf: str) -> None:
        third = VRFS.index(vrf)
        addresses = [f"172.28.{third}.1/24", f"2001:db8:{third}::1/64"]
        self.gateways[vrf] = self._random.choice(([], addresses[:1], addresses[1:], addresses))


def _some(**fields: Any) -> Spec:
    return {key: value for key, value in fields.items() if value is not None}
