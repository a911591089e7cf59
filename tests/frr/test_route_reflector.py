"""The router as the route reflector of two clients, with real FRR and packets between the clients.

    client4: 10.66.0.4 in br110 == vni110 ~ 100.64.0.4, 192.168.11.4 ─┐
    router (frrtest): no tunnel endpoint,                192.168.11.3 ─┼─ rrswitch
    client5: 10.66.0.5 in br110 == vni110 ~ 100.64.0.5, 192.168.11.5 ─┘

The clients have sessions with the router only. Their tunnel goes from one to the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from config.desired import BGPFamily
from tests.actors.frr.cases import neighbor, state, underlay

from .conftest import settings_for
from .harness import FrrInstance, eventually, running_frr, sh
from .test_apply import Bench

ROUTER, CLIENTS = "frrtest", {4: "frrclient4", 5: "frrclient5"}
CLUSTER = "192.0.2.1"
BOTH = (BGPFamily.IPV4_UNICAST, BGPFamily.EVPN)
DESIRED = state(
    underlay=underlay(
        *(
            neighbor(f"192.168.11.{number}", remote_as="internal", ebgp=False, reflected_families=BOTH, connect_time=1)
            for number in CLIENTS
        ),
        vteps=(),
        cluster_id=IPv4Address(CLUSTER),
    )
)


def client_config(number: int) -> str:
    return (
        f"router bgp 64514\n bgp router-id 10.0.1.{number}\n no bgp default ipv4-unicast\n"
        " neighbor 192.168.11.3 remote-as internal\n neighbor 192.168.11.3 timers connect 1\n"
        f" address-family ipv4 unicast\n  network 100.64.0.{number}/32\n  neighbor 192.168.11.3 activate\n"
        " exit-address-family\n address-family l2vpn evpn\n"
        "  neighbor 192.168.11.3 activate\n  advertise-all-vni\n exit-address-family\nexit\n"
    )


@contextmanager
def cables() -> Iterator[None]:
    """A switch with a port for each FRR."""
    sh("ip link add rrswitch type bridge && ip link set rrswitch up")
    try:
        for number, name in ((3, ROUTER), *CLIENTS.items()):
            sh(
                f"ip link add rrport{number} master rrswitch type veth peer name fabric netns {name} && "
                f"ip link set rrport{number} up && ip -n {name} address add 192.168.11.{number}/24 dev fabric && "
                f"ip -n {name} link set fabric up && ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1"
            )
        yield
    finally:
        sh("ip link del rrswitch", check=False)


def tunnel(number: int) -> None:
    """Give a client its tunnel endpoint, a segment, and a host's address in it."""
    name = CLIENTS[number]
    sh(
        f"ip -n {name} address add 100.64.0.{number}/32 dev lo && "
        f"ip -n {name} link add br110 address 02:00:00:00:01:0{number} type bridge && "
        f"ip -n {name} link add vni110 type vxlan id 110 local 100.64.0.{number} dstport 4789 nolearning && "
        f"ip -n {name} link set vni110 master br110 up && ip -n {name} link set br110 up && "
        f"ip -n {name} address add 10.66.0.{number}/24 dev br110"
    )


def shown(frr: FrrInstance, command: str) -> Any:
    return json.loads(frr.vtysh(f"{command} json") or "{}")


def pings() -> bool:
    return "1 received" in sh(f"ip netns exec {CLIENTS[4]} ping -n -c 1 -W 1 10.66.0.5", check=False)


def remote_vteps(frr: FrrInstance) -> set[str]:
    found = shown(frr, "show evpn vni 110").get("remoteVteps", [])
    return {one["ip"] if isinstance(one, dict) else one for one in found}


def forwarded() -> int:
    """Return how many IPv4 packets the router has forwarded."""
    [names, values] = [line.split() for line in sh(f"ip netns exec {ROUTER} grep ^Ip: /proc/net/snmp").splitlines()]
    return int(values[names.index("ForwDatagrams")])


def is_connected(clients: dict[int, FrrInstance]) -> bool:
    return remote_vteps(clients[4]) == {"100.64.0.5"} and remote_vteps(clients[5]) == {"100.64.0.4"} and pings()


async def test_clients_reach_one_another_directly_until_the_reflector_is_lost_and_after_its_return(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        router = stack.enter_context(running_frr(ROUTER, start=False))
        clients = {n: stack.enter_context(running_frr(name, start=False)) for n, name in CLIENTS.items()}
        stack.enter_context(cables())
        for number in CLIENTS:
            tunnel(number)
        for frr in (router, *clients.values()):
            frr.start()
        bench = Bench(router, settings_for(ROUTER, tmp_path))
        await bench.applied(DESIRED)
        for number, frr in clients.items():
            frr.conf.write_text(client_config(number))
            frr.load()
        eventually("the clients reach one another", lambda: is_connected(clients))

        # Unicast and EVPN are reflected with their next hop, their originator and the cluster's ID.
        [path] = shown(clients[4], "show bgp ipv4 unicast 100.64.0.5/32")["paths"]
        assert [hop["ip"] for hop in path["nexthops"]] == ["192.168.11.5"]
        assert (path["originatorId"], path["clusterList"]["list"]) == ("10.0.1.5", [CLUSTER])
        assert "via 192.168.11.5 " in sh(f"ip -n {CLIENTS[4]} route get 100.64.0.5")
        assert "100.64.0.5" in clients[4].vtysh("show bgp l2vpn evpn route type multicast")
        # The packets do not cross the router: it has forwarded none.
        assert forwarded() == 0
        assert not (await bench.applied(DESIRED)).changed

        router.kill("bgpd")
        eventually("the clients have lost one another", lambda: not remote_vteps(clients[4]) and not pings())
        router.start("bgpd")
        router.boot("bgpd")
        eventually("the clients reach one another again", lambda: is_connected(clients))
        assert not await bench.leftover(DESIRED)
