"""What zebra, bgpd and bfdd show of the simulated router: derived from the fake FRR's text and the fake kernel.

Sessions are always Established, and nothing lags behind: what health has to find out here is what is configured.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from actors.health import frr_json
from actors.netlink.planning.observed import LinkKind, Namespace, router_bridge, vxlan_device
from tests.fakes.frr import commands
from tests.fakes.kernel import FakeKernel

from .world import World, vtysh

DAEMONS = frozenset({"watchfrr", "zebra", "bgpd", "mgmtd", "bfdd", "staticd"})


class SimulatedReader:
    """Takes the place of ``PolledFrr``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._answers: Mapping[str, object] = {}

    async def json(self, *commands: str, daemon: str) -> list[object]:
        """Return one daemon's answers."""
        await vtysh(self._world)
        known = self._answers if daemon != "zebra" else answers(self._world.frr.text, self._world.kernel)
        self._answers = known
        return [known.get(command) for command in commands]

    async def daemons(self) -> frozenset[str]:
        """Return the running daemons."""
        await vtysh(self._world)
        return DAEMONS


def answers(text: str, kernel: FakeKernel) -> Mapping[str, object]:
    """Return the answer to each command that health uses."""
    links = {name: link for (namespace, name), link in kernel.links.items() if namespace is Namespace.ROUTER}
    l3vnis: dict[str, int] = {}
    peers: dict[str, dict[str, Any]] = defaultdict(dict)
    ranges: dict[str, Any] = {}
    bfd = []
    for command in commands(text):
        context = command.contexts[0] if command.contexts else ""
        vrf = context.partition(" vrf ")[2] or "default"
        words = command.text.split()
        if context.startswith("vrf ") and words[0] == "vni":
            l3vnis[context.split()[1]] = int(words[1])
        if context.startswith("router bgp ") and len(command.contexts) == 1:
            if found := re.fullmatch(r"neighbor (\S+) (?:interface )?remote-as (\S+)", command.text):
                remote = int(found[2]) if found[2].isdigit() else 0
                peers[vrf][found[1]] = {"remoteAs": remote, "state": "Established", "peerUptimeMsec": 1000}
            if found := re.fullmatch(r"bgp listen range (\S+) peer-group (\S+)", command.text):
                ranges[found[2]] = {"dynamicRanges": {"IPv4": {"ranges": [found[1]]}}}
            if found := re.fullmatch(r"neighbor (\S+) bfd.*", command.text):
                bfd.append({"vrf": vrf, "peer": found[1], "status": "up"})
    return {
        frr_json.INTERFACES: {name: {"status": "up" if link.up else "down"} for name, link in links.items()},
        frr_json.VNIS: list(_vnis(l3vnis, links)),
        frr_json.SUMMARY: {vrf: {"ipv4Unicast": {"peers": found}} for vrf, found in peers.items()},
        frr_json.INSTANCES: {"vrfs": {vrf: {"l3vni": vni} for vrf, vni in l3vnis.items()}},
        frr_json.PEER_GROUPS: ranges,
        frr_json.BFD_PEERS: bfd,
    }


def _vnis(l3vnis: Mapping[str, int], links: Mapping[str, Any]) -> Any:
    for vrf, vni in l3vnis.items():
        devices = (vxlan_device(vni), router_bridge(vni), vrf)
        up = all(name in links and links[name].up for name in devices)
        yield {"vni": vni, "type": "L3", "tenantVrf": vrf, "vxlanIntf": devices[0], "sviIntf": devices[1],
               "state": "Up" if up else "Down"}  # fmt: skip
    for link in links.values():
        if link.kind == LinkKind.VXLAN and link.vxlan is not None and link.vxlan.vni not in l3vnis.values():
            bridge = links.get(link.master)
            master = bridge.master if bridge else ""
            yield {"vni": link.vxlan.vni, "type": "L2", "tenantVrf": master or "default", "vxlanInterface": link.name}
