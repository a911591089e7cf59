"""Segments and routed networks over IPv6 tunnel endpoints in a fabric without IPv4, with packets of both families.

    near 172.27.1.11 ─ router (frrtest) fd00:65::1 ~ fd00:64::1 leaf ─ far 172.27.1.12, and 10.50.0.1 in VRF red

Needs FRR 10.6, which Debian 13 does not have: "make test-frr-next" runs it with Debian 14's. The router is what the
actors make of it, health included; the leaf is set up by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import pytest
import trio

from actors.frr.abilities import has_ipv6_tunnels
from actors.health import actor as health_actor
from actors.lib.network_namespace import NAMESPACES
from actors.netlink.wire.neighbors import tunnel_entries
from config.desired import BGPFamily, HostMasterKind
from config.outcomes import HealthReport, ProbeReport
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.frr.cases import RED, V6_NEIGHBOR, l2vni, state, underlay

from .harness import FrrInstance, sh
from .router import LEAF, NAME, Router, peers, running_router, settings_of, vrf_with_vni
from .test_segments import GATEWAYS, HOSTS, addresses, attach, namespaces, pings, send, stretch, waited

pytestmark = pytest.mark.timeout(900)

VTEP, LEAFS_VTEP = "fd00:65::1", "fd00:64::1"
V6, EVPN = BGPFamily.IPV6_UNICAST, BGPFamily.EVPN
#: Addresses behind the leaf's end of the routed network.
ROUTED: Final = ("10.50.0.1", "2001:db8:50::1")
#: Of NICs with 1500 bytes: 40 for IPv6, 8 for UDP, 8 for VXLAN, 14 for Ethernet.
INNER_MTU = 1430

DESIRED: Final = state(
    underlay=underlay(
        replace(
            V6_NEIGHBOR, endpoint="fd00:11::2", families=(V6, EVPN), extended_nexthop=False,
            connect_time=1,
        ),
        vteps=(f"{VTEP}/128",),
    ),
    l3vnis=(
        replace(
            RED, vtep=ip_address(VTEP), session=None, export_rts=("64512:100",), import_rts=("64512:100",),
            gateway_networks=("172.27.1.0/24", "2001:db8:2::/64"),
        ),
    ),
    l2vnis=(
        replace(
            l2vni(130, "red", GATEWAYS[130]), vtep=ip_address(VTEP), host_master=HostMasterKind.MANAGED_BRIDGE,
            bridge="br-hs-130",
        ),
    ),
)  # fmt: skip
LEAF_CONFIG: Final = """\
vrf red
 vni 100
exit-vrf
router bgp 64512
 bgp router-id 10.0.0.200
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 no bgp network import-check
 neighbor fd00:11::3 remote-as external
 neighbor fd00:11::3 timers connect 1
 address-family ipv6 unicast
  network fd00:64::1/128
  neighbor fd00:11::3 activate
 exit-address-family
 address-family l2vpn evpn
  neighbor fd00:11::3 activate
  advertise-all-vni
 exit-address-family
exit
router bgp 64512 vrf red
 bgp router-id 10.0.0.200
 no bgp network import-check
 address-family ipv4 unicast
  network 10.50.0.0/24
 exit-address-family
 address-family ipv6 unicast
  network 2001:db8:50::/64
 exit-address-family
 address-family l2vpn evpn
  advertise ipv4 unicast
  advertise ipv6 unicast
  route-target import 64512:100
  route-target export 64512:100
 exit-address-family
exit
"""


def use_ipv6() -> None:
    """Take IPv4 out of the fabric: no address of it is left."""
    sh("ip -4 address flush dev toswitch1 && ip address add fd00:11::3/64 dev toswitch1 nodad")
    sh(f"ip -n {LEAF} -4 address flush dev torouter && ip -n {LEAF} address add fd00:11::2/64 dev torouter nodad")
    sh(f"ip -n {LEAF} address del 100.64.0.1/32 dev lo && ip -n {LEAF} address add {LEAFS_VTEP}/128 dev lo nodad")
    sh(f"ip netns exec {LEAF} sysctl -qw net.ipv6.conf.all.forwarding=1")


@contextmanager
def fabric() -> Iterator[FrrInstance]:
    with peers() as (instance, leaf), namespaces():
        if not has_ipv6_tunnels(re.sub(r"(?s).*?FRRouting (\S+).*", r"\1", instance.vtysh("show version"))):
            pytest.skip("this FRR is older than 10.6: make test-frr-next")
        use_ipv6()
        leaf.conf.write_text(LEAF_CONFIG)
        leaf.load()
        vrf_with_vni(LEAF, LEAFS_VTEP, 100)
        stretch(130, LEAFS_VTEP)
        sh(f"ip -n {LEAF} link add routed master red up type dummy")
        for address in ROUTED:
            flags = "nodad" if ":" in address else ""
            sh(f"ip -n {LEAF} address add {address}/{64 if flags else 24} dev routed {flags}")
        yield instance


async def reported(router: Router, directory: Path, holds: Callable[[HealthReport], bool]) -> HealthReport:
    """Return the first report of a health actor for which something holds."""
    health: Latest[HealthReport] = Latest("health")
    run = partial(
        health_actor.run, ActorContext("health"), settings=settings_of(directory),
        read_entries=partial(tunnel_entries, NAMESPACES / NAME), desired=router.desired.reader(),
        frr=router.frr.reader(), kernel=router.kernel.reader(), probes=Latest[ProbeReport]("probes").reader(),
        out=health,
    )  # fmt: skip
    version, report = 0, None
    with trio.move_on_after(240):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            while report is None or not holds(report):
                version = await health.wait_newer(version)
                report = health.peek()
            nursery.cancel_scope.cancel()
    assert report is not None
    assert holds(report), report
    return report


def all_work(report: HealthReport) -> bool:
    return report.verified and all(vni.ok for vni in report.vnis)


def lacks_bridge_entry(report: HealthReport) -> bool:
    """Say whether the entry of the leaf's router MAC is missing: FRR's next hop has the form of the kernel's."""
    return any(f"of {LEAFS_VTEP}" in vni.detail and "no bridge entry" in vni.detail for vni in report.vnis)


async def test_packets_cross_segments_and_routed_networks_over_ipv6(vrf_kernel: None, tmp_path: Path) -> None:
    with fabric() as instance:
        async with running_router(settings_of(tmp_path), instance) as router:
            await router.applied(DESIRED)
            assert " inet " not in sh(f"ip -n {NAME} address show dev toswitch1")
            for name in HOSTS:
                if HOSTS[name][0] == 130:
                    attach(name, to_leaf=name == "far")
            for name in ("near", "far"):
                for version in (4, 6):
                    await trio.to_thread.run_sync(send, name, version)
            for source, target in (("near", "far"), ("far", "near")):
                for address in addresses(target):
                    await waited(f"{source} reaches {address}", partial(pings, source, address))
            for address in ROUTED:
                await waited(f"near reaches {address}", partial(pings, "near", address))

            # The largest packet fits into one packet of the fabric.
            assert {router.link(name)["mtu"] for name in ("br-pe-130", "pe-e-130")} == {INNER_MTU}
            whole = f"ip netns exec near ping -n -c 1 -W 5 -M do -s {INNER_MTU - 28} {addresses('far')[0]}"
            sh("ip -n near link set eth0 mtu 1430")
            assert " 0% packet loss" in await trio.to_thread.run_sync(sh, whole)

            report = await reported(router, tmp_path, all_work)
            # That is: zebra has the endpoint, and bgpd announces it.
            assert {vni.vni: vni.ok for vni in report.vnis} == {100: True, 130: True}
            assert {vni.remote_vteps for vni in report.vnis if vni.vni == 130} == {1}

            [rmac] = {line.split()[0] for line in fdb("show dev vni100").splitlines() if f" dst {LEAFS_VTEP} " in line}
            fdb(f"del {rmac} dev vni100 dst {LEAFS_VTEP} self")
            await reported(router, tmp_path, lacks_bridge_entry)


def fdb(arguments: str) -> str:
    return sh(f"bridge -n {NAME} fdb {arguments}")
