"""The router against a real peer and real VRF and VXLAN devices: what zebra and bgpd make of our configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.frr import actor as frr_actor
from actors.health import actor as health_actor
from actors.lib.frr.daemon_socket import DaemonSockets
from actors.lib.frr.vtysh import Vtysh
from actors.lib.network_namespace import NAMESPACES
from actors.netlink import actor as netlink_actor
from actors.netlink.wire.neighbors import tunnel_entries
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, ProbeReport
from supervisor.operations.inspection.routes import FoundRoutes, find_routes
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.frr.cases import CASES, RED, l3vni, state, underlay

from .conftest import settings_for
from .harness import FrrInstance, eventually, running_frr, sh
from .router import leaf_bgp, vrf_with_vni
from .test_apply import Bench

LEAF_CONFIG = f"""\
vrf red
 vni 100
exit-vrf
{leaf_bgp(remote_as="64514")}\
router bgp 64512 vrf red
 bgp router-id 10.0.0.200
 no bgp network import-check
 address-family ipv4 unicast
  network 10.50.0.0/24
 exit-address-family
 address-family l2vpn evpn
  route-target import 64512:100
  route-target export 64512:100
  advertise ipv4 unicast
 exit-address-family
exit
"""

#: A VRF of the leaf's whose routes the router receives and imports nowhere.
FOREIGN = """\
vrf blue
 vni 200
exit-vrf
router bgp 64512 vrf blue
 bgp router-id 10.0.0.200
 no bgp network import-check
 address-family ipv4 unicast
  network 10.50.0.0/23
  network 10.60.0.0/24
 exit-address-family
 address-family ipv6 unicast
  network 2001:db8:60::/48
 exit-address-family
 address-family l2vpn evpn
  route-target export 64512:200
  advertise ipv4 unicast
  advertise ipv6 unicast
 exit-address-family
exit
"""

#: Route targets that both sides agree on: the automatic ones contain each side's own AS number.
ROUTER = state(
    underlay=underlay(vteps=("100.65.0.1/32",)),
    l3vnis=(replace(RED, vtep=ip_address("100.65.0.1"), export_rts=("64512:100",), import_rts=("64512:100",)),),
)


@dataclass
class Fabric:
    """A router, a leaf, and the applier of the router."""

    router: FrrInstance
    leaf: FrrInstance
    bench: Bench
    vtysh: Vtysh

    def shown(self, instance: FrrInstance, command: str) -> Any:
        return json.loads(instance.vtysh(f"{command} json") or "{}")

    def vni(self, number: int) -> dict[str, Any]:
        found = self.shown(self.router, "show evpn vni").get(str(number), {})
        return dict(found)

    def routes(self, instance: FrrInstance) -> set[str]:
        return set(self.shown(instance, "show ip route vrf red"))


@pytest.fixture
def fabric(vrf_kernel: None, tmp_path: Path) -> Iterator[Fabric]:
    with running_fabric(tmp_path) as running:
        yield running


@contextmanager
def running_fabric(directory: Path) -> Iterator[Fabric]:
    """Two FRRs with a cable between them, not configured."""
    with running_frr("frrtest", start=False) as router, running_frr("frrleaf", start=False) as leaf:
        sh(
            "ip link add toswitch1 netns frrtest type veth peer name torouter netns frrleaf && "
            "ip -n frrtest address add 192.168.11.3/24 dev toswitch1 && ip -n frrtest link set toswitch1 up && "
            "ip -n frrleaf address add 192.168.11.2/24 dev torouter && ip -n frrleaf link set torouter up && "
            "ip -n frrtest address add 100.65.0.1/32 dev lo && ip -n frrleaf address add 100.64.0.1/32 dev lo"
        )
        for name in ("frrtest", "frrleaf"):
            sh(f"ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1")
        router.start()
        leaf.start()
        settings = settings_for("frrtest", directory)
        yield Fabric(router, leaf, Bench(router, settings), Vtysh(vtysh="/usr/bin/vtysh", pathspace="frrtest"))


def load_leaf(fabric: Fabric) -> None:
    fabric.leaf.conf.write_text(LEAF_CONFIG)
    fabric.leaf.load()
    vrf_with_vni("frrleaf", "100.64.0.1", 100)


async def applied(fabric: Fabric, desired: DesiredState) -> None:
    assert (await fabric.bench.applied(desired)).applied


async def test_routes_are_exchanged_both_ways_and_zebra_has_the_vni(fabric: Fabric, tmp_path: Path) -> None:
    await applied(fabric, ROUTER)
    vrf_with_vni("frrtest", "100.65.0.1", 100)
    load_leaf(fabric)
    fabric.leaf.conf.write_text(FOREIGN)
    fabric.leaf.load()
    vrf_with_vni("frrleaf", "100.64.0.1", 200, "blue", 1200)
    eventually("the router has the leaf's prefix in its VRF", lambda: "10.50.0.0/24" in fabric.routes(fabric.router))
    eventually(
        "the router has the leaf's other VRF in EVPN",
        lambda: all(
            fabric.shown(fabric.router, f"show bgp l2vpn evpn {prefix}")
            for prefix in ("10.50.0.0/23", "10.60.0.0/24", "2001:db8:60::/48")
        ),
    )
    eventually("the leaf has the host's address in its VRF", lambda: "172.27.10.2/32" in fabric.routes(fabric.leaf))
    summary, vnis = await fabric.vtysh.json("show bgp l2vpn evpn summary json", "show evpn vni json")
    assert isinstance(summary, dict)
    assert summary["peers"]["192.168.11.2"]["state"] == "Established"
    assert isinstance(vnis, dict)
    assert (vnis["100"]["type"], vnis["100"]["tenantVrf"]) == ("L3", "red")
    exported = fabric.shown(fabric.leaf, "show bgp l2vpn evpn route type prefix")
    assert "10.0.0.1:100" in exported
    await routes_are_found(DaemonSockets.of(settings_for("frrtest", tmp_path)))
    assert not (await fabric.bench.applied(ROUTER)).changed
    await applied(fabric, state(underlay=ROUTER.underlay))
    eventually("the leaf has it no more", lambda: "172.27.10.2/32" not in fabric.routes(fabric.leaf))
    eventually("nor the router the leaf's", lambda: "10.50.0.0/24" not in fabric.routes(fabric.router))


async def test_the_page_about_the_leaf(fabric: Fabric) -> None:
    """Word for word, with route targets that both sides derive."""
    page = (Path(__file__).parents[2] / "docs" / "leaf.md").read_text()
    [configuration] = re.findall(r"^```frr\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    [commands] = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    derived = replace(ROUTER.l3vnis[0], export_rts=(), import_rts=())
    await applied(fabric, replace(ROUTER, l3vnis=(derived,)))
    vrf_with_vni("frrtest", "100.65.0.1", 100)
    fabric.leaf.conf.write_text(configuration)
    fabric.leaf.load()
    for line in commands.splitlines():
        sh(line.removeprefix("leaf$ ").replace("ip link", f"ip -n {fabric.leaf.name} link"))
    eventually("the router has the leaf's prefix in its VRF", lambda: "10.50.0.0/24" in fabric.routes(fabric.router))
    eventually("the leaf has the host's address in its VRF", lambda: "172.27.10.2/32" in fabric.routes(fabric.leaf))


async def routes_are_found(frr: DaemonSockets) -> None:
    """Look up the leaf's prefix, one of the router's own, and one that is nowhere."""
    [remote] = (await find_routes(frr, "10.50.0.7", "red")).routes
    assert (remote.vrf, remote.prefix, remote.vni) == ("red", "10.50.0.0/24", 100)
    [path], [route] = remote.paths, remote.zebra
    assert (path.peer, path.as_path, path.next_hop, path.vni) == ("192.168.11.2", "64512", "100.64.0.1", "100")
    assert (path.valid, path.best, path.reachable, bool(path.rd)) == (True, True, True, True)
    assert (route.protocol, route.selected) == ("bgp", True)
    assert [(hop.address, hop.device) for hop in route.hops] == [("100.64.0.1", "br-pe-100")]
    assert [route.vrf for route in (await find_routes(frr, "10.50.0.0/24")).routes] == ["red"]
    [own] = (await find_routes(frr, "172.27.10.2/32", "red")).routes
    assert [(path.peer, path.rd, path.best) for path in own.paths] == [("", "", True)]
    [connected] = (await find_routes(frr, "192.168.11.2", "default")).routes
    assert "connected" in [route.protocol for route in connected.zebra]
    assert await find_routes(frr, "203.0.113.0/24") == await find_routes(frr, "2001:db8:7::/48") == FoundRoutes()
    for target, prefix in (("10.60.0.7", "10.60.0.0/24"), ("2001:db8:60::/48", "2001:db8:60::/48")):
        found = await find_routes(frr, target)
        [foreign] = found.evpn
        assert (found.routes, foreign.prefix) == ((), prefix)
        assert foreign.not_imported == "no VRF imports its route target 64512:200"
        assert [(path.peer, path.next_hop, path.vni) for path in foreign.paths] == [
            ("192.168.11.2", "100.64.0.1", "200")
        ]
    # In no VRF, and no VRF that has a route lacks it.
    [foreign] = (await find_routes(frr, "10.50.0.7")).evpn
    assert foreign.prefix == "10.50.0.0/23"
    assert (await find_routes(frr, "10.50.0.7", "red")).evpn == (await find_routes(frr, "10.50.0.0/24")).evpn == ()


#: The first is what FRR derives for VNI 100 in AS 64514.
TARGETS = [("64514:100",), ("64514:100", "1:1"), ("1:1",), ("2:2", "64514:100"), ("64514:100",), ("3:3",), ()]


async def test_route_targets_of_a_vni_that_is_up_are_applied_whatever_frr_derives(fabric: Fabric) -> None:
    def with_targets(*lists: tuple[str, ...]) -> DesiredState:
        exported, imported = lists
        return replace(ROUTER, l3vnis=(replace(ROUTER.l3vnis[0], export_rts=exported, import_rts=imported),))

    await applied(fabric, with_targets((), ()))
    vrf_with_vni("frrtest", "100.65.0.1", 100)
    eventually("zebra has the VNI", lambda: fabric.vni(100).get("tenantVrf") == "red")
    for exported, imported in zip(TARGETS, [*TARGETS[2:], *TARGETS[:2]], strict=True):
        await applied(fabric, with_targets(exported, imported))
        shown = fabric.shown(fabric.router, "show bgp l2vpn evpn vni 100")
        in_force = {way: set(shown[f"{way}Rts"]) for way in ("export", "import")}
        assert in_force == {"export": set(exported or TARGETS[0]), "import": set(imported or TARGETS[0])}


async def test_a_vrf_whose_vni_changes_no_longer_has_the_old_one(fabric: Fabric) -> None:
    await applied(fabric, ROUTER)
    vrf_with_vni("frrtest", "100.65.0.1", 100)
    eventually("zebra has the VNI", lambda: fabric.vni(100).get("tenantVrf") == "red")
    await applied(fabric, replace(ROUTER, l3vnis=(replace(ROUTER.l3vnis[0], vni=101),)))
    sh("ip -n frrtest link del vni100 && ip -n frrtest link del br-pe-100")
    vrf_with_vni("frrtest", "100.65.0.1", 101)
    eventually("zebra has the new VNI", lambda: fabric.vni(101).get("tenantVrf") == "red")
    assert fabric.vni(100) == {}
    detail = fabric.shown(fabric.router, "show evpn vni 101")
    assert detail["state"] == "Up"


async def test_a_removed_l3vni_leaves_frr_before_its_devices_and_its_stanza_after_them(fabric: Fabric) -> None:
    await applied(fabric, ROUTER)
    vrf_with_vni("frrtest", "100.65.0.1", 100)
    eventually("zebra has the VNI", lambda: fabric.vni(100).get("tenantVrf") == "red")
    without = state(underlay=ROUTER.underlay)
    await applied(fabric, without)
    assert fabric.vni(100).get("type") != "L3"
    sh("ip -n frrtest link del vni100 && ip -n frrtest link del br-pe-100 && ip -n frrtest link del red")
    eventually("zebra has noticed", lambda: "vrf red id" not in fabric.router.vtysh("show vrf"))
    await applied(fabric, without)
    assert "vrf red" not in await fabric.bench.driver.running()


@pytest.mark.timeout(600)
async def test_a_new_network_forwards_although_another_one_has_a_line_that_frr_refuses(
    fabric: Fabric, tmp_path: Path
) -> None:
    """The real actors in the order of the data flow: FRR, kernel, health."""
    sh(
        "ip -n frrtest link del toswitch1 && ip -n frrtest address del 100.65.0.1/32 dev lo && "
        "ip link add toswitch1 type veth peer name torouter netns frrleaf && "
        "ip address add 192.168.11.3/24 dev toswitch1 && ip link set toswitch1 up && "
        "ip -n frrleaf address add 192.168.11.2/24 dev torouter && ip -n frrleaf link set torouter up"
    )
    settings = settings_for("frrtest", tmp_path).model_copy(update={"netns": "frrtest"})
    desired: Latest[DesiredState] = Latest("desired")
    outcome: Latest[FrrOutcome] = Latest("frr")
    kernel: Latest[KernelOutcome] = Latest("kernel")
    health: Latest[HealthReport] = Latest("health")
    red = replace(ROUTER, l3vnis=(replace(ROUTER.l3vnis[0], export_rts=("256.1.1.1:5",)),))
    green = l3vni("green", 300, vtep=ip_address("100.65.0.1"))

    async def verified(generation: int) -> HealthReport:
        version, report = 0, None
        with trio.move_on_after(240):
            while True:
                version = await health.wait_newer(version)
                report = health.peek()
                if report is not None and report.verified and report.generation == generation:
                    return report
        raise AssertionError(f"not verified: {report}")

    changing = trio.Lock()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(
                frr_actor.run, ActorContext("frr"), settings=settings, desired=desired.reader(), out=outcome,
                kernel=kernel.reader(), health=health.reader(), changing=changing,
            )
        )  # fmt: skip
        nursery.start_soon(
            partial(
                netlink_actor.run, ActorContext("netlink"), settings=settings, frr=outcome.reader(), out=kernel,
                changing=changing,
            )
        )  # fmt: skip
        nursery.start_soon(
            partial(
                health_actor.run, ActorContext("health"), settings=settings,
                read_entries=partial(tunnel_entries, NAMESPACES / settings.netns), desired=desired.reader(),
                frr=outcome.reader(), kernel=kernel.reader(), probes=Latest[ProbeReport]("probes").reader(), out=health,
            )
        )  # fmt: skip
        desired.set(red)
        await verified(1)
        desired.set(replace(red, generation=2, l3vnis=(*red.l3vnis, green)))
        report = await verified(2)
        nursery.cancel_scope.cancel()
    assert [(vni.vni, vni.ok) for vni in report.vnis] == [(300, True)]
    applied = outcome.peek()
    assert applied is not None
    assert [failure.resource for failure in applied.failures] == [red.l3vnis[0].resource]
    assert "256.1.1.1:5" in applied.failures[0].message
    links = sh("ip -n frrtest -o link")
    for device in ("vni300", "br-pe-300", "green", "vni100", "br-pe-100", "red"):
        assert f" {device}:" in links
    assert fabric.vni(300)["tenantVrf"] == "green"
    assert fabric.vni(100)["tenantVrf"] == "red"


async def test_everything_is_removed_with_the_underlay_while_devices_exist(fabric: Fabric) -> None:
    await applied(fabric, ROUTER)
    vrf_with_vni("frrtest", "100.65.0.1", 100)
    eventually("zebra has the VNI", lambda: fabric.vni(100).get("tenantVrf") == "red")
    await applied(fabric, CASES["empty"])
    assert "router bgp" not in await fabric.bench.driver.running()
