"""What zebra, bgpd and bfdd show of the simulated router: derived from the fake FRR's text and the fake kernel.

Sessions are always Established, there is no other router whose routes would arrive, and nothing lags behind: what
health has to find out here is what is configured.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from actors.health import frr_json
from actors.netlink.planning.observed import Link, LinkKind, Namespace
from tests.fakes.frr import Command, commands
from tests.fakes.kernel import FakeKernel

from .world import World, vtysh

DAEMONS = frozenset({"watchfrr", "zebra", "bgpd", "mgmtd", "bfdd", "staticd"})


class SimulatedReader:
    """Takes the place of ``PolledFrr``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._answers: Mapping[str, object] = {}

    async def send(self, asked: Mapping[str, tuple[str, ...]]) -> None:
        """Do nothing: each daemon answers when it is asked."""

    async def json(self, *commands: str, daemon: str) -> list[object]:
        """Return one daemon's answers."""
        await vtysh(self._world, daemon)
        known = self._answers if daemon != "zebra" else answers(self._world.frr.text, self._world.kernel)
        self._answers = known
        return [known.get(command) for command in commands]

    async def daemons(self) -> frozenset[str]:
        """Return the running daemons."""
        await vtysh(self._world, "daemons")
        return DAEMONS

    def close(self) -> None:
        """Keep nothing open."""


@dataclass
class _Configured:
    """What a configuration says, by VRF where nothing else is said."""

    l3vnis: dict[str, int] = field(default_factory=dict)
    peers: dict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    ranges: dict[str, Any] = field(default_factory=dict)
    bfd: list[dict[str, str]] = field(default_factory=list)
    families: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    """The lines of each address family, by VRF and family."""

    def take(self, command: Command) -> None:
        context = command.contexts[0] if command.contexts else ""
        vrf = context.partition(" vrf ")[2] or "default"
        if found := re.fullmatch(r"vrf (\S+) vni (\d+)", f"{context} {command.text}"):
            self.l3vnis[found[1]] = int(found[2])
        if not context.startswith("router bgp "):
            return
        if len(command.contexts) == 2:
            self.families[vrf, command.contexts[1].removeprefix("address-family ")].add(command.text)
        elif found := re.fullmatch(r"neighbor (\S+) (?:interface )?remote-as (\S+)", command.text):
            remote = int(found[2]) if found[2].isdigit() else 0
            self.peers[vrf][found[1]] = {"remoteAs": remote, "state": "Established", "peerUptimeMsec": 1000}
        elif found := re.fullmatch(r"bgp listen range (\S+) peer-group (\S+)", command.text):
            self.ranges[found[2]] = {"dynamicRanges": {"IPv4": {"ranges": [found[1]]}}}
        elif found := re.fullmatch(r"neighbor (\S+) bfd.*", command.text):
            self.bfd.append({"vrf": vrf, "peer": found[1], "status": "up"})

    @property
    def announces_vnis(self) -> bool:
        return "advertise-all-vni" in self.families["default", "l2vpn evpn"]

    @property
    def has_fabric(self) -> bool:
        """Whether there is a neighbour for EVPN: bgpd shows no such address family otherwise."""
        return any(line.endswith(" activate") for line in self.families["default", "l2vpn evpn"])

    def rd(self, vni: Mapping[str, Any]) -> str:
        lines = self.families[vni["tenantVrf"], "l2vpn evpn"] if vni["type"] == "L3" else ()
        return next((line.removeprefix("rd ") for line in lines if line.startswith("rd ")), f"derived:{vni['vni']}")

    def networks(self, vrf: str) -> Iterator[str]:
        """Yield the prefixes that a VRF announces as type-5 routes."""
        for family in ("ipv4 unicast", "ipv6 unicast"):
            if f"advertise {family}" in self.families[vrf, "l2vpn evpn"]:
                lines = self.families[vrf, family]
                yield from (line.removeprefix("network ") for line in lines if line.startswith("network "))


@lru_cache(maxsize=64)
def _configured(text: str) -> _Configured:
    """Return what a configuration says; only to be read."""
    configured = _Configured()
    for command in commands(text):
        configured.take(command)
    return configured


def answers(text: str, kernel: FakeKernel) -> Mapping[str, object]:
    """Return the answer to each command that health uses."""
    links = {name: link for (namespace, name), link in kernel.links.items() if namespace is Namespace.ROUTER}
    configured = _configured(text)
    vnis = list(_vnis(configured.l3vnis, links))
    in_bgpd = [vni for vni in vnis if configured.announces_vnis and vni.get("state") != "Down"]
    type3, type5 = _routes(configured, in_bgpd)
    summary: dict[str, Any] = {vrf: {"ipv4Unicast": {"peers": found}} for vrf, found in configured.peers.items()}
    if configured.has_fabric:
        summary["default"]["l2VpnEvpn"] = {"peers": {}, "ribCount": len(type3) + len(type5)}
    return {
        frr_json.INTERFACES: {
            name: {"status": "up" if link.up else "down", "vrfName": _vrf(link, links)} for name, link in links.items()
        },
        frr_json.VNIS: vnis,
        frr_json.SUMMARY: summary,
        frr_json.INSTANCES: {"vrfs": {vrf: {"l3vni": vni} for vrf, vni in configured.l3vnis.items()}},
        frr_json.PEER_GROUPS: configured.ranges,
        frr_json.BFD_PEERS: configured.bfd,
        frr_json.EVPN_VNIS: {
            "advertiseAllVnis": "Enabled" if configured.announces_vnis else "Disabled",
            **{
                str(vni["vni"]): {
                    "vni": vni["vni"],
                    "rd": configured.rd(vni),
                    "originatorIp": _vtep(vni),
                    "rmac": vni.get("routerMac"),
                }
                for vni in in_bgpd
            },
        },
        frr_json.TYPE_3: type3,
        frr_json.TYPE_5: type5,
    }


def _vnis(l3vnis: Mapping[str, int], links: Mapping[str, Link]) -> Iterator[dict[str, Any]]:
    """Yield what zebra has: an L3VNI for each line of a VRF, an L2VNI for each other VXLAN device."""
    devices = {link.vxlan.vni: link for link in links.values() if link.kind == LinkKind.VXLAN and link.vxlan}
    for vrf, vni in l3vnis.items():
        link = devices.pop(vni, None)
        bridge = links.get(link.master) if link else None
        up = link is not None and bridge is not None and all(one and one.up for one in (link, bridge, links.get(vrf)))
        yield {"vni": vni, "type": "L3", "tenantVrf": vrf, "vxlanIntf": link.name if link else "None",
               "sviIntf": bridge.name if bridge else "None", "state": "Up" if up else "Down",
               "localVtepIp": _local(link), "routerMac": bridge.mac if bridge else "None"}  # fmt: skip
    for vni, link in devices.items():
        svi = links.get(link.master)
        yield {"vni": vni, "type": "L2", "tenantVrf": _vrf(svi, links) if svi else "default",
               "vxlanInterface": link.name, "sviInterface": link.master, "vtepIp": _local(link)}  # fmt: skip


def _routes(configured: _Configured, vnis: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return our own type-3 and type-5 routes, in bgpd's form."""
    type3: dict[str, Any] = {}
    type5: dict[str, Any] = {}
    for vni in vnis:
        path = {"valid": True, "bestpath": True, "peerId": "(unspec)", "nexthops": [{"ip": _vtep(vni)}]}
        if vni["type"] == "L2":
            type3[configured.rd(vni)] = {"multicast": {"paths": [[path | {"routeType": 3}]]}}
            continue
        for prefix in configured.networks(vni["tenantVrf"]):
            address, length = prefix.split("/")
            routed = {"routeType": 5, "ip": address, "ipLen": int(length)}
            path |= {"extendedCommunity": {"string": f"ET:8 Rmac:{vni['routerMac']}"}}
            type5.setdefault(configured.rd(vni), {})[prefix] = {"paths": [[path | routed]]}
    return type3, type5


def _local(link: Link | None) -> str:
    return str(link.vxlan.local) if link is not None and link.vxlan is not None else ""


def _vtep(vni: Mapping[str, Any]) -> str:
    return str(vni.get("vtepIp") or vni.get("localVtepIp"))


def _vrf(link: Link, links: Mapping[str, Link]) -> str:
    """Return the VRF of a device, a VRF's own device included."""
    names = (name for name in (link.name, link.master) if name in links and links[name].kind == LinkKind.VRF)
    return next(names, "default")
