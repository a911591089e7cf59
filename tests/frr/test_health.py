"""The health actor on a real fabric: faults are planted behind the router's back, and found, named and repaired.

All cases share one fabric, which the first finds unconfigured, and which each leaves as healthy as it found it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address

import pytest
import trio

from actors.health import actor, entries, repair
from actors.health.query import PolledFrr
from actors.health.routes import announced_networks
from actors.lib.network_namespace import NAMESPACES
from actors.netlink.wire.neighbors import tunnel_entries
from config.desired import Bfd, DesiredState, DesiredUnderlay
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, ProbeReport, SessionHealth
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from tests.actors.frr.cases import l2vni

from .conftest import settings_for
from .harness import eventually, sh, until_a_port
from .router import vrf_with_vni
from .test_fabric import LEAF_CONFIG, ROUTER, Fabric, running_fabric

VTEP = "100.65.0.1"
STATE = replace(
    ROUTER,
    l2vnis=tuple(replace(vni, vtep=ip_address(VTEP)) for vni in (l2vni(110), l2vni(111, vrf=None, gateways=()))),
)
#: The leaf takes the router's route targets for the L2VNIs: the automatic ones contain each side's own AS number.
L2_TARGETS = "".join(
    f"  vni {vni}\n   route-target import 64514:{vni}\n   route-target export 64514:{vni}\n  exit-vni\n"
    for vni in (110, 111)
)
PREFIXES = "".join(f"  network 10.60.{index}.0/24\n" for index in range(200))
LEAF = (
    LEAF_CONFIG.replace("  advertise-all-vni\n", f"  advertise-all-vni\n{L2_TARGETS}")
    .replace(
        "  network 10.50.0.0/24\n exit-address-family\n",
        f"  network 10.50.0.0/24\n{PREFIXES} exit-address-family\n"
        " address-family ipv6 unicast\n  network 2001:db8:50::/64\n exit-address-family\n",
    )
    .replace("  advertise ipv4 unicast\n", "  advertise ipv4 unicast\n  advertise ipv6 unicast\n")
)
#: A busy machine may take long.
SECONDS = 180.0


def segment(netns: str, vtep: str, vni: int, vrf: str = "") -> None:
    """Make the devices of an L2VNI."""
    bridge = f"br-pe-{vni}"
    sh(
        f"ip -n {netns} link add {bridge} type bridge"
        + (f" && ip -n {netns} link set {bridge} master {vrf}" if vrf else "")
    )
    sh(
        f"ip -n {netns} link add vni{vni} type vxlan id {vni} local {vtep} dstport 4789 nolearning && "
        f"ip -n {netns} link set vni{vni} addrgenmode none master {bridge} && "
        f"ip -n {netns} link set {bridge} up && ip -n {netns} link set vni{vni} up"
    )


def devices(netns: str, vtep: str) -> None:
    vrf_with_vni(netns, vtep, 100)
    segment(netns, vtep, 110, "red")
    segment(netns, vtep, 111)


@dataclass
class Checked:
    """A fabric with the health actor beside it, and the reports so far."""

    fabric: Fabric
    reader: LatestReader[HealthReport]
    state: DesiredState = STATE
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    reports: list[HealthReport] = field(default_factory=list)

    def apply(self, state: DesiredState) -> None:
        self.state = state
        self.frr.set(FrrOutcome(state, applied=True, changed=True))
        self.kernel.set(KernelOutcome(state, applied=True, changed=True))

    async def until(self, what: str, holds: Callable[[HealthReport], bool]) -> HealthReport:
        """Wait for a report; all that come are kept."""
        with trio.move_on_after(SECONDS):
            while True:
                report = await self.reader.receive()
                self.reports.append(report)
                if holds(report):
                    return report
        raise AssertionError(f"no report in {SECONDS:g} s in which {what}: {self.reports[-1:]}")

    async def until_named(self, text: str) -> HealthReport:
        return await self.until(text, lambda report: any(text in failure.message for failure in report.failures))

    async def until_well(self) -> HealthReport:
        return await self.until("all is well", lambda report: report.verified and not report.failures)


@asynccontextmanager
async def checked(fabric: Fabric) -> AsyncIterator[Checked]:
    out = Latest[HealthReport]("health")
    found = Checked(fabric, out.reader())
    frr = PolledFrr.of(settings_for("frrtest", fabric.router.conf.parent), seconds=30)
    desired = Latest[DesiredState]("desired")
    health = actor.HealthActor(
        ActorContext("health"),
        frr,
        read_entries=partial(tunnel_entries, NAMESPACES / "frrtest"),
        desired=desired.reader(),
        frr=found.frr.reader(),
        kernel=found.kernel.reader(),
        probes=Latest[ProbeReport]("probes").reader(),
        out=out,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(health.serve)
        yield found
        nursery.cancel_scope.cancel()


@pytest.fixture(scope="module")
def fabric(vrf_kernel: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Two FRRs, of which the router has its devices; neither is configured."""
    with running_fabric(tmp_path_factory.mktemp("fabric")) as running:
        devices("frrtest", VTEP)
        yield running


@pytest.fixture
async def converged(fabric: Fabric) -> Fabric:
    """The fabric with both sides configured, and the leaf's routes in the router."""
    assert (await fabric.bench.applied(STATE)).applied
    if not is_loaded(fabric):
        load_leaf(fabric)
    eventually("the leaf's routes are in the VRF", lambda: has_routes(fabric))
    return fabric


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Poll every second, so that a case takes seconds; a fault lasts sooner where nothing converges."""
    monkeypatch.setattr(actor, "INTERVAL_SECONDS", 1.0)
    monkeypatch.setattr(actor, "RETRY_LONGEST_SECONDS", 1.0)
    monkeypatch.setattr(entries, "READ_SECONDS", 1.0)
    if "converged" in request.fixturenames:
        monkeypatch.setattr(actor, "SETTLE_SECONDS", 3.0)
        monkeypatch.setattr(repair, "LASTING_SECONDS", 3.0)


def load_leaf(fabric: Fabric) -> None:
    fabric.leaf.conf.write_text(LEAF)
    fabric.leaf.load()
    devices("frrleaf", "100.64.0.1")


def is_loaded(fabric: Fabric) -> bool:
    return fabric.leaf.conf.exists()


def has_routes(fabric: Fabric) -> bool:
    routes = json.loads(fabric.router.vtysh("show ip route vrf red summary json") or "{}")
    return any(one["type"] == "ebgp" and one["fib"] >= 201 for one in routes.get("routes", ()))


def configure(fabric: Fabric, *lines: str, daemon: str = "bgpd") -> None:
    commands = " ".join(f"-c '{line}'" for line in ("configure terminal", *lines))
    sh(f"vtysh -N frrtest -d {daemon} {commands}")


def evpn(line: str) -> tuple[str, ...]:
    return ("router bgp 64514", "address-family l2vpn evpn", line)


async def bounced(health: Checked, report: HealthReport) -> None:
    """Carry out the requests as the frr actor does."""
    assert {request.vni for request in report.bounce} == {100}
    configure(health.fabric, "vrf red", "no vni 100", daemon="mgmtd")
    eventually("zebra has let go of it", lambda: health.fabric.vni(100).get("type") != "L3")
    configure(health.fabric, "vrf red", "vni 100", daemon="mgmtd")
    health.frr.set(FrrOutcome(health.state, applied=True, changed=True, bounced=report.bounce))


def kernel_routes() -> set[str]:
    return {route["dst"] for route in json.loads(sh("ip -n frrtest -j route show table 1100")) if "dst" in route}


def flap_while_bgpd_is_busy(fabric: Fabric, device: str) -> None:
    """Take a device down and up before bgpd has seen either: it finds both at once, as after a flap under load."""
    fabric.router.kill("bgpd", signal.SIGSTOP)
    sh(f"ip -n frrtest link set {device} down")
    eventually("the kernel has dropped the routes", lambda: "10.50.0.0/24" not in kernel_routes())
    # vtysh would wait for the stopped bgpd without -d.
    eventually("zebra has seen it", lambda: '"Down"' in sh("vtysh -N frrtest -d zebra -c 'show evpn vni 100 json'"))
    sh(f"ip -n frrtest link set {device} up")
    eventually("zebra has it back", lambda: '"Up"' in sh("vtysh -N frrtest -d zebra -c 'show evpn vni 100 json'"))
    os.kill(fabric.router.pid("bgpd"), signal.SIGCONT)


async def stale_or_repaired(health: Checked) -> HealthReport:
    """Return the first report with a bounce, or the first one after FRR has put the routes back itself.

    FRR is left stale almost always, but a busy machine may order its events in another way.
    """
    return await health.until(
        "a bounce is asked for, or none is needed",
        lambda report: bool(report.bounce) or "10.50.0.0/24" in kernel_routes(),
    )


async def started(health: Checked) -> None:
    """Configure both sides, and wait until the router has the leaf's routes."""
    health.apply(STATE)
    await health.until_well()
    health.reports.clear()
    load_leaf(health.fabric)
    await health.until("the leaf's routes are in the VRF", lambda _: has_routes(health.fabric))
    await health.until("a peer floods", lambda report: all(vni.remote_vteps for vni in report.vnis[1:]))


async def test_a_fabric_that_converges_and_vnis_without_macs_raise_no_alarm(fabric: Fabric) -> None:
    assert (await fabric.bench.applied(STATE)).applied
    async with checked(fabric) as health:
        await started(health)
        for _ in range(5):
            await health.until_well()
        assert not any(report.failures or report.bounce for report in health.reports)


def hosts_on(netns: str, verb: str, macs: int, addresses: int = 0) -> None:
    """Add hosts to segment 111 behind one side, or take them away; the first of them have an address."""
    if " hosts:" not in sh(f"ip -n {netns} -o link"):
        sh(f"ip -n {netns} link add hosts type dummy && ip -n {netns} link set hosts master br-pe-111 up")
        until_a_port(netns, "hosts")
    side = "aa" if netns == "frrleaf" else "bb"
    for number in range(1, macs + 1):
        mac = f"02:{side}:00:00:00:{number:02x}"
        sh(f"bridge -n {netns} fdb {verb} {mac} dev hosts master static")
        if number <= addresses:
            state = "nud reachable" if verb == "replace" else ""
            sh(f"ip -n {netns} neigh {verb} 10.111.0.{number} lladdr {mac} dev br-pe-111 {state}")


def leaf_announces(verb: str, prefixes: int) -> None:
    lines = ["router bgp 64512 vrf red", "address-family ipv4 unicast"]
    lines += [f"{verb} 10.60.{index}.0/24".strip() for index in range(prefixes)]
    commands = " ".join(f"-c '{line}'" for line in ("configure terminal", *lines))
    sh(f"vtysh -N frrleaf -d bgpd {commands}")


async def test_the_evpn_routes_of_each_vni_are_counted_up_and_down_again(converged: Fabric) -> None:
    """Types 2 and 3 of an L2VNI, 5 of an L3VNI, both ways; the leaf's 202 prefixes are there already."""
    own = len(announced_networks(STATE.l3vnis[0]))

    def counted(report: HealthReport) -> tuple[dict[str, int], ...]:
        routed, segment = (next(vni for vni in report.vnis if vni.vni == number) for number in (100, 111))
        return routed.evpn_received, routed.evpn_advertised, segment.evpn_received, segment.evpn_advertised

    async with checked(converged) as health:
        health.apply(STATE)

        async def until(prefixes: int, received: int, advertised: int) -> None:
            numbers = ({"5": prefixes}, {"5": own}, {"2": received, "3": 1}, {"2": advertised, "3": 1})
            await health.until(f"the routes are {numbers}", lambda report: counted(report) == numbers)

        await until(202, 0, 0)
        hosts_on("frrleaf", "replace", 7, 3)
        hosts_on("frrtest", "replace", 2)
        leaf_announces("no network", 20)
        await until(182, 10, 2)
        hosts_on("frrleaf", "del", 7, 3)
        hosts_on("frrtest", "del", 2)
        leaf_announces("network", 20)
        await until(202, 0, 0)
        for netns in ("frrleaf", "frrtest"):
            sh(f"ip -n {netns} link del hosts")
        await health.until_well()


async def test_routes_from_another_as_belong_to_a_vni_whose_route_targets_frr_derives(converged: Fabric) -> None:
    """The router derives 64514:100, the leaf announces 64512:100."""
    red = replace(STATE.l3vnis[0], import_rts=(), export_rts=())
    derived = replace(STATE, l3vnis=(red,))
    assert (await converged.bench.applied(derived)).applied
    async with checked(converged) as health:
        health.apply(derived)
        await health.until("the leaf's are counted", lambda report: report.vnis[0].evpn_received == {"5": 202})
        health.reports.clear()
        for _ in range(10):
            await health.until_well()
        assert not any(report.failures or report.bounce for report in health.reports)
        assert has_routes(converged)
    assert (await converged.bench.applied(STATE)).applied


@pytest.mark.parametrize("device", ["br-pe-100", "vni100"])
async def test_an_l3vni_that_frr_leaves_stale_after_a_flap_is_bounced(converged: Fabric, device: str) -> None:
    async with checked(converged) as health:
        health.apply(STATE)
        await health.until_well()
        flap_while_bgpd_is_busy(converged, device)
        report = await stale_or_repaired(health)
        if report.bounce:
            assert "is not in the kernel, although zebra shows it as installed" in report.failures[0].message
            assert "10.50.0.0/24" not in kernel_routes()
            await bounced(health, report)
        await health.until_well()
        eventually("the kernel has the routes again", lambda: "10.50.0.0/24" in kernel_routes())
        assert "100.64.0.1" in sh("bridge -n frrtest fdb show dev vni100")


async def test_a_router_mac_that_the_kernel_has_lost_is_bounced(converged: Fabric) -> None:
    """zebra adds a deleted neighbour or flood entry again, but not a router MAC, and shows nothing of the loss."""
    async with checked(converged) as health:
        health.apply(STATE)
        await health.until_well()
        rmac = "02:00:00:00:40:01"
        sh(f"bridge -n frrtest fdb del {rmac} dev vni100 dst 100.64.0.1 self")
        sh(f"bridge -n frrtest fdb del {rmac} dev vni100 master")
        report = await health.until_named(f"vni100 has no bridge entry for the router MAC {rmac} of 100.64.0.1")
        report = report if report.bounce else await health.until("a bounce", lambda one: bool(one.bounce))
        await bounced(health, report)
        # A fault that has not lasted yet is no failure: the report may be good before the leaf's routes are back.
        entry = f"{rmac} dst 100.64.0.1 self"
        eventually("the entry is back", lambda: entry in sh("bridge -n frrtest fdb show dev vni100"))
        assert not (await health.until_well()).bounce


async def test_neighbours_and_flood_entries_that_the_kernel_has_lost_are_added_again_by_zebra(
    converged: Fabric,
) -> None:
    async with checked(converged) as health:
        health.apply(STATE)
        await health.until_well()
        sh("ip -n frrtest neigh del 100.64.0.1 dev br-pe-100")
        sh("bridge -n frrtest fdb del 00:00:00:00:00:00 dev vni111 dst 100.64.0.1 self")
        eventually(
            "both are back",
            lambda: (
                "02:00:00:00:40:01" in sh("ip -n frrtest neigh show 100.64.0.1 dev br-pe-100")
                and "00:00:00:00:00:00 dst 100.64.0.1" in sh("bridge -n frrtest fdb show dev vni111")
            ),
        )
        assert not (await health.until_well()).bounce


async def test_a_bridge_that_left_its_vrf_and_came_back_leaves_frr_stale_and_is_bounced(converged: Fabric) -> None:
    async with checked(converged) as health:
        health.apply(STATE)
        await health.until_well()
        sh("ip -n frrtest link set br-pe-100 nomaster")
        report = await health.until_named("bridge br-pe-100 is in VRF default, not in red")
        assert not report.bounce
        # One that is back before FRR has acted upon its leaving is not left stale.
        for _ in range(3):
            await health.until_named("bridge br-pe-100 is in VRF default, not in red")
        sh("ip -n frrtest link set br-pe-100 master red")
        report = await stale_or_repaired(health)
        if report.bounce:
            await bounced(health, report)
        await health.until_well()
        eventually("the kernel has the routes again", lambda: "10.50.0.0/24" in kernel_routes())


async def test_faults_of_devices_are_named_and_not_bounced(converged: Fabric) -> None:
    async with checked(converged) as health:
        health.apply(STATE)
        await health.until_well()
        for plant, repaired, text in (
            ("link set vni100 down", "link set vni100 up", "down: vni100 is down"),
            ("link set vni110 nomaster", "link set vni110 master br-pe-110", "vni110 is in no bridge"),
            (
                "link set vni111 type vxlan id 111 local 100.65.0.9",
                f"link set vni111 type vxlan id 111 local {VTEP}",
                f"zebra has the tunnel endpoint 100.65.0.9, not {VTEP}",
            ),
        ):
            sh(f"ip -n frrtest {plant}")
            report = await health.until_named(text)
            assert not report.bounce
            sh(f"ip -n frrtest {repaired}")
            await health.until_well()
        # zebra and bgpd follow another MAC address of the bridge: the routes carry it, so that nothing is wrong.
        sh("ip -n frrtest link set br-pe-100 address 02:00:00:00:41:77")
        eventually("zebra has it", lambda: "41:77" in converged.router.vtysh("show evpn vni 100"))
        await health.until_well()


async def test_faults_of_bgpds_configuration_are_named(converged: Fabric) -> None:
    async with checked(converged) as health:
        health.apply(STATE)
        await health.until_well()
        base = ("router bgp 64514", "address-family ipv4 unicast")
        for lines, restored, text in (
            (evpn("no advertise-all-vni"), evpn("advertise-all-vni"), "bgpd announces no VNI"),
            ((*base, "import vrf red"), (*base, "no import vrf red"), "is in the default VRF"),
        ):
            configure(converged, *lines)
            report = await health.until_named(text)
            assert not report.bounce
            configure(converged, *restored)
            await health.until_well()
        in_vrf = ("router bgp 64514 vrf red", "address-family l2vpn evpn")
        configure(converged, *in_vrf, "no advertise ipv4 unicast")
        await health.until_named("bgpd announces no type-5 route for 172.27.10.2/32")
        configure(converged, *in_vrf, "advertise ipv4 unicast")
        await health.until_well()


async def test_a_neighbour_that_does_not_use_bfd_is_named(converged: Fabric) -> None:
    underlay = STATE.underlay
    assert isinstance(underlay, DesiredUnderlay)
    (neighbor,) = underlay.neighbors
    state = replace(STATE, underlay=replace(underlay, neighbors=(replace(neighbor, bfd=Bfd()),)))
    assert (await converged.bench.applied(state)).applied

    def fabric_session(report: HealthReport) -> SessionHealth:
        return next(session for session in report.sessions if session.role == "fabric")

    def silent(report: HealthReport) -> bool:
        session = fabric_session(report)
        return session.bfd == "down" and "sends no BFD packets" in session.detail

    def answered(report: HealthReport) -> bool:
        session = fabric_session(report)
        return (session.up, session.bfd, session.detail) == (True, "up", "")

    # Whether BGP comes up without BFD depends on which of the two is first.
    async with checked(converged) as health:
        health.apply(state)
        await health.until("the peer is named", silent)
        with_bfd = "vtysh -N frrleaf -c 'configure terminal' -c 'router bgp 64512' -c '{}neighbor 192.168.11.3 bfd'"
        sh(with_bfd.format(""))
        await health.until("session and BFD are up", answered)
    sh(with_bfd.format("no "))
    assert (await converged.bench.applied(STATE)).applied


async def test_the_same_routes_from_two_sessions_raise_no_alarm(converged: Fabric) -> None:
    """zebra has each next hop twice then, and the kernel once."""
    ends = (("frrtest", "toswitch1", "192.168.12.3/24"), ("frrleaf", "torouter", "192.168.12.2/24"))
    for netns, device, address in ends:
        sh(f"ip -n {netns} address add {address} dev {device}")
    leaf = "neighbor 192.168.12.3"
    lines = ("router bgp 64512", f"{leaf} remote-as 64514", "address-family l2vpn evpn", f"{leaf} activate")
    commands = " ".join(f"-c '{line}'" for line in ("configure terminal", *lines))
    sh(f"vtysh -N frrleaf -d bgpd {commands}")
    assert STATE.underlay is not None
    first = STATE.underlay.neighbors[0]
    underlay = replace(STATE.underlay, neighbors=(first, replace(first, endpoint="192.168.12.2")))
    twice = replace(STATE, underlay=underlay)
    assert (await converged.bench.applied(twice)).applied

    def next_hops() -> list[dict[str, object]]:
        routes = converged.shown(converged.router, "show ip route vrf red 10.50.0.0/24").get("10.50.0.0/24", [])
        return [hop for route in routes for hop in route["nexthops"]]

    eventually("both sessions bring the route", lambda: len(next_hops()) == 2)
    async with checked(converged) as health:
        health.apply(twice)
        for _ in range(6):
            await health.until_well()
        assert not any(report.failures or report.bounce for report in health.reports), next_hops()
        # What FRR then leaves stale, it shows in another way than with one session.
        flap_while_bgpd_is_busy(converged, "vni100")
        report = await stale_or_repaired(health)
        if report.bounce:
            await bounced(health, report)
        await health.until_well()
        eventually("the kernel has the routes again", lambda: "10.50.0.0/24" in kernel_routes())
    assert (await converged.bench.applied(STATE)).applied
    sh(f"vtysh -N frrleaf -d bgpd -c 'configure terminal' -c 'router bgp 64512' -c 'no {leaf}'")
    for netns, device, address in ends:
        sh(f"ip -n {netns} address del {address} dev {device}")
