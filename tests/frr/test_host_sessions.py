"""Every kind of session with the host, in a VRF and as passthrough: the session, its routes, and packets over them.

    router (frrtest)                                                                   host (frrhost)
    VRF red      pe-red 172.27.10.1, 2001:db9:1::1 ─ red 172.27.10.2, 2001:db9:1::2  10.50.0.1, 2001:db8:50::1
    passthrough  pe     172.26.10.1, 2001:db9:2::1 ─ pt  172.26.10.2, 2001:db9:2::2

All cases share the daemons; the host's BGP is set up again for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from config.desired import DesiredSession, DesiredState
from tests.actors.frr.cases import PASSTHROUGH, RED, session, state, underlay

from .conftest import settings_for
from .harness import FrrInstance, eventually, running_frr, sh
from .test_apply import Bench

ROUTER, HOST = "frrtest", "frrhost"
#: The router's and the host's addresses, of the session in the VRF and of the passthrough.
ENDS: Final = {
    4: (("172.27.10.1/24", "172.27.10.2/24"), ("172.26.10.1/24", "172.26.10.2/24")),
    6: (("2001:db9:1::1/64", "2001:db9:1::2/64"), ("2001:db9:2::1/64", "2001:db9:2::2/64")),
}
#: The host's network and an address in it; what the router announces, of a gateway in the VRF, else of its endpoints.
HOSTS_NETWORK: Final = {4: ("10.50.0.0/24", "10.50.0.1"), 6: ("2001:db8:50::/64", "2001:db8:50::1")}
ROUTERS_NETWORKS: Final = {4: ("10.60.0.0/24", "100.65.0.0/32"), 6: ("2001:db8:60::/64", "fd00:65::/128")}
GATEWAYS: Final = tuple(networks[0] for networks in ROUTERS_NETWORKS.values())


@dataclass(frozen=True)
class Kind:
    """One kind of session: how the router names the host's AS, and what the host's is."""

    remote_as: int | str = 64515
    host_as: int = 64515
    versions: tuple[int, ...] = (4,)

    @property
    def ebgp(self) -> bool:
        return self.host_as != 64514

    def session(self, place: int) -> DesiredSession:
        """Return the session of the VRF (0) or of the passthrough (1)."""
        ends = (ENDS[version][place] for version in self.versions)
        return session(*ends, remote_as=self.remote_as, ebgp=self.ebgp)

    def desired(self) -> DesiredState:
        return state(
            underlay=underlay(vteps=("100.65.0.0/32", "fd00:65::/128")),
            l3vnis=(replace(RED, session=self.session(0), gateway_networks=GATEWAYS),),
            passthrough=replace(PASSTHROUGH, session=self.session(1)),
        )

    def peers(self) -> Iterator[tuple[int, str, str]]:
        """Yield place, the router's address and the host's of each BGP session."""
        for place in (0, 1):
            for version in self.versions:
                router, host = (end.partition("/")[0] for end in ENDS[version][place])
                yield place, router, host

    def of_host(self) -> str:
        """Return the host's configuration."""
        routers = [router for _, router, _ in self.peers()]
        sessions = "".join(
            f" neighbor {router} remote-as 64514\n neighbor {router} timers connect 1\n" for router in routers
        )
        families = "".join(
            f" address-family ipv{version} unicast\n  network {HOSTS_NETWORK[version][0]}\n"
            + "".join(f"  neighbor {router} activate\n" for router in routers if (":" in router) == (version == 6))
            + " exit-address-family\n"
            for version in self.versions
        )
        return (
            f"router bgp {self.host_as}\n bgp router-id 172.27.10.2\n no bgp ebgp-requires-policy\n"
            f" no bgp default ipv4-unicast\n no bgp network import-check\n{sessions}{families}exit\n"
        )


KINDS: Final = {
    "eBGP by number": Kind(),
    "eBGP by type": Kind("external"),
    "iBGP by number": Kind(64514, 64514),
    "iBGP by type": Kind("internal", 64514),
    "IPv6 only": Kind(versions=(6,)),
    "both families": Kind(versions=(4, 6)),
}


@dataclass
class Node:
    router: FrrInstance
    host: FrrInstance
    bench: Bench

    def load(self, lines: str) -> None:
        """Set up the host's BGP from nothing."""
        self.host.vtysh("configure", "no router bgp")
        self.host.conf.write_text(lines)
        self.host.load()

    def session(self, place: int, peer: str) -> dict[str, Any]:
        """Return what the router's bgpd has of a session with the host."""
        vrf = "" if place else "vrf red "
        found: dict[str, Any] = json.loads(self.router.vtysh(f"show bgp {vrf}neighbors {peer} json") or "{}")
        return dict(found.get(peer, {}))

    def is_up(self, place: int, peer: str) -> bool:
        return self.session(place, peer).get("bgpState") == "Established"

    def has(self, instance: FrrInstance, vrf: str, version: int, prefix: str) -> bool:
        """Return whether BGP's route to a prefix is in force."""
        command = f"show {'ip' if version == 4 else 'ipv6'} route {vrf} {prefix} json"
        routes = json.loads(instance.vtysh(command) or "{}").get(prefix, [])
        return any(route["protocol"] == "bgp" and route.get("installed") for route in routes)


def make_cables() -> None:
    """Connect the router to the host twice; a VRF's device gets its addresses inside the VRF."""
    sh(f"ip -n {ROUTER} link add red up type vrf table 1100")
    for place, (inside, outside) in enumerate((("pe-red", "red"), ("pe", "pt"))):
        sh(f"ip -n {ROUTER} link add {inside} type veth peer name {outside} netns {HOST}")
        if place == 0:
            sh(f"ip -n {ROUTER} link set {inside} master red")
        for name, device, end in ((ROUTER, inside, 0), (HOST, outside, 1)):
            sh(f"ip -n {name} link set {device} up")
            for version in ENDS:
                flags = "nodad" if version == 6 else ""
                sh(f"ip -n {name} address add {ENDS[version][place][end]} dev {device} {flags}")
    for _, address in HOSTS_NETWORK.values():
        sh(f"ip -n {HOST} address add {address} dev lo {'nodad' if ':' in address else ''}")


@pytest.fixture(scope="module")
def node(vrf_kernel: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running_frr(ROUTER, start=False) as router, running_frr(HOST, start=False) as host:
        make_cables()
        router.start()
        host.start("zebra", "mgmtd", "bgpd")
        yield Node(router, host, Bench(router, settings_for(ROUTER, tmp_path_factory.mktemp("node"))))


def pings(version: int, target: str) -> bool:
    """Ping the router from the host's network, to which the router has BGP's route only."""
    source = HOSTS_NETWORK[version][1]
    return " 0% packet loss" in sh(f"ip netns exec {HOST} ping -n -c 1 -W 1 -I {source} {target}", check=False)


@pytest.mark.parametrize("name", KINDS)
async def test_a_session_comes_up_and_routes_and_packets_go_both_ways(node: Node, name: str) -> None:
    kind = KINDS[name]
    await node.bench.applied(kind.desired())
    node.load(kind.of_host())
    for place, router, host in kind.peers():
        version, vrf = (6 if ":" in host else 4), ("" if place else "vrf red")
        eventually(f"{host} is up", lambda place=place, host=host: node.is_up(place, host))  # type: ignore[misc]
        learned = (node.router, vrf, version, HOSTS_NETWORK[version][0])
        eventually("the router has the host's route", lambda learned=learned: node.has(*learned))  # type: ignore[misc]
        advertised = (node.host, "", version, ROUTERS_NETWORKS[version][place])
        eventually("the host has the router's route", lambda advertised=advertised: node.has(*advertised))  # type: ignore[misc]
        eventually("packets", lambda version=version, router=router: pings(version, router))  # type: ignore[misc]
    # Nothing of what bgpd negotiated is a difference.
    before = {host: node.session(place, host)["connectionsEstablished"] for place, _, host in kind.peers()}
    assert not (await node.bench.applied(kind.desired())).changed
    assert {host: node.session(place, host)["connectionsEstablished"] for place, _, host in kind.peers()} == before


async def test_sessions_go_with_their_resources(node: Node) -> None:
    kind = KINDS["both families"]
    await node.bench.applied(kind.desired())
    node.load(kind.of_host())
    eventually("all are up", lambda: all(node.is_up(place, host) for place, _, host in kind.peers()))
    await node.bench.applied(replace(kind.desired(), l3vnis=()))
    routes = [(node.host, "", version, ROUTERS_NETWORKS[version][0]) for version in kind.versions]
    eventually("the VRF's routes have gone", lambda: not any(node.has(*route) for route in routes))
    assert [node.is_up(place, host) for place, _, host in kind.peers()] == [False, False, True, True]
    await node.bench.applied(replace(kind.desired(), l3vnis=(), passthrough=None))
    assert not any(node.session(place, host) for place, _, host in kind.peers())
