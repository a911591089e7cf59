"""Every kind of session with the fabric, against a second FRR: the session, its routes, and packets over them.

    router (frrtest) 192.168.11.3 toswitch1 ─ fsswitch ─ torouter1 192.168.11.2 leaf (frrleaf): 10.77.0.1, fd00:77::1
                     192.168.12.3 toswitch2 ──────────── torouter2 192.168.12.2

All cases share the daemons; the leaf's BGP is set up again for each. Behind the switch a side notices a lost link by
itself only.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from config.desired import Bfd, BGPFamily, EndpointKind, FabricNeighbor, GracefulRestart, Secret
from tests.actors.frr.cases import V6_NEIGHBOR, neighbor, state, underlay

from .conftest import settings_for
from .harness import FrrInstance, eventually, pinging, running_frr, sh
from .test_apply import Bench

ROUTER, LEAF = "frrtest", "frrleaf"
V4, V6 = BGPFamily.IPV4_UNICAST, BGPFamily.IPV6_UNICAST
#: What a busy machine adds to BFD's 1.5 s: far below the hold time of 180 s.
BFD_SECONDS = 60
TARGETS: Final = {V4: ("100.65.0.0", "10.77.0.1"), V6: ("fd00:65::", "fd00:77::1")}


@dataclass(frozen=True)
class Kind:
    """One kind of session: the router's neighbour, the leaf's lines for it, and its name in FRR."""

    router: FabricNeighbor
    leaf: str
    peer: str = "192.168.11.2"
    families: tuple[BGPFamily, ...] = (V4,)
    leaf_as: int = 64512
    before: str = ""
    shown: dict[str, Any] = field(default_factory=dict)


def plain(**changes: Any) -> FabricNeighbor:
    return neighbor(**{"families": (V4,), "connect_time": 1, **changes})


def of_leaf(lines: str = "", peer: str = "192.168.11.3", remote_as: str = "64514") -> str:
    own = "".join(f" neighbor {peer} {line}\n" for line in lines.splitlines())
    return f" neighbor {peer} remote-as {remote_as}\n neighbor {peer} timers connect 1\n{own}"


INTERNAL: Final = {"ebgp": False, "remote_as": "internal"}
KINDS: Final = {
    "eBGP by number": Kind(plain(), of_leaf()),
    "eBGP by type": Kind(plain(remote_as="external"), of_leaf(remote_as="external")),
    "iBGP by number": Kind(plain(ebgp=False, remote_as=64514), of_leaf(), leaf_as=64514),
    "iBGP by type": Kind(plain(**INTERNAL), of_leaf(remote_as="internal"), leaf_as=64514),
    "unnumbered": Kind(
        plain(
            endpoint="toswitch1", endpoint_kind=EndpointKind.INTERFACE, extended_nexthop=True, remote_as="external",
            families=(V4, V6),
        ),
        " neighbor torouter1 interface remote-as external\n neighbor torouter1 timers connect 1\n",
        peer="toswitch1",
        families=(V4, V6),
    ),
    "IPv6 only": Kind(
        replace(V6_NEIGHBOR, endpoint="fd00:11::2", families=(V6,), extended_nexthop=False, connect_time=1),
        of_leaf(peer="fd00:11::3"), peer="fd00:11::2", families=(V6,),
    ),
    "both families over IPv6": Kind(
        replace(V6_NEIGHBOR, endpoint="fd00:11::2", families=(V4, V6), connect_time=1),
        of_leaf("capability extended-nexthop", peer="fd00:11::3"), peer="fd00:11::2", families=(V4, V6),
    ),
    "listen range": Kind(
        plain(endpoint="192.168.11.0/24", endpoint_kind=EndpointKind.LISTEN_RANGE, remote_as="external"), of_leaf()
    ),
    "IPv6 listen range": Kind(
        replace(
            V6_NEIGHBOR, endpoint="fd00:11::/64", endpoint_kind=EndpointKind.LISTEN_RANGE, remote_as="external",
            families=(V4, V6),
        ),
        of_leaf("capability extended-nexthop", peer="fd00:11::3"), peer="fd00:11::2", families=(V4, V6),
    ),
    "multihop": Kind(
        plain(endpoint="100.64.0.1", ebgp_multihop=3),
        of_leaf("ebgp-multihop 3\nupdate-source 100.64.0.1"),
        peer="100.64.0.1",
        before=f"ip -n {ROUTER} route replace 100.64.0.1/32 via 192.168.11.2",
        shown={"externalBgpNbrMaxHopsAway": 3},
    ),
    "multihop with the tunnel endpoint": Kind(
        plain(endpoint="100.64.0.1", ebgp_multihop=3),
        of_leaf("ebgp-multihop 3\nupdate-source 100.64.0.1", peer="100.65.0.0"),
        peer="100.64.0.1",
        before=f"ip -n {ROUTER} route replace 100.64.0.1/32 via 192.168.11.2; "
        f"ip -n {LEAF} route replace 100.65.0.0/32 via 192.168.11.3",
        shown={"hostLocal": "100.65.0.0"},
    ),
    "MD5": Kind(plain(password=Secret("s3cret|?!#%&")), of_leaf("password s3cret|?!#%&")),
    "timers": Kind(plain(hold_time=9, keepalive_time=3), of_leaf(), shown={"bgpTimerHoldTimeMsecs": 9000}),
}  # fmt: skip


@dataclass
class Fabric:
    """Router and leaf with cables between them."""

    router: FrrInstance
    leaf: FrrInstance
    bench: Bench

    def load(self, lines: str, *, asn: int = 64512) -> None:
        """Set up the leaf's BGP from nothing; all its neighbours have both unicast families."""
        names = dict.fromkeys(re.findall(r"^ neighbor (\S+)", lines, re.MULTILINE))
        activated = "".join(f"  neighbor {name} activate\n" for name in names)
        self.leaf.vtysh("configure", "no router bgp")
        self.leaf.conf.write_text(
            f"router bgp {asn}\n bgp router-id 10.0.0.200\n no bgp ebgp-requires-policy\n"
            f" no bgp default ipv4-unicast\n{lines}"
            f" address-family ipv4 unicast\n  network 10.77.0.1/32\n{activated} exit-address-family\n"
            f" address-family ipv6 unicast\n  network fd00:77::1/128\n{activated} exit-address-family\nexit\n"
        )
        self.leaf.load()

    def session(self, peer: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.router.vtysh(f"show bgp neighbors {peer} json") or "{}")
        return dict(found.get(peer, {}))

    def is_up(self, peer: str) -> bool:
        return self.session(peer).get("bgpState") == "Established"

    async def apply(self, *neighbors: FabricNeighbor, **changes: Any) -> None:
        vteps = ("100.65.0.0/32", "fd00:65::/128")
        await self.bench.applied(state(underlay=underlay(*neighbors, vteps=vteps, advertise_evpn=False, **changes)))


def pings(family: BGPFamily) -> bool:
    """Ping the leaf's prefix from the router's tunnel endpoint, which the leaf has from the session only."""
    source, target = TARGETS[family]
    answer = sh(f"ip netns exec {ROUTER} ping -n -c 1 -W 1 -I {source} {target}", check=False)
    return " 0% packet loss" in answer


@contextmanager
def cables() -> Iterator[None]:
    sh("ip link add fsswitch type bridge && ip link set fsswitch up")
    try:
        for number in (1, 2):
            for name, device, host in ((ROUTER, f"toswitch{number}", 3), (LEAF, f"torouter{number}", 2)):
                if number == 1:
                    sh(f"ip link add {device}p type veth peer name {device} netns {name}")
                    sh(f"ip link set {device}p master fsswitch up")
                elif name == ROUTER:
                    sh(f"ip -n {ROUTER} link add {device} type veth peer name torouter2 netns {LEAF}")
                sh(f"ip -n {name} address add 192.168.1{number}.{host}/24 dev {device}")
                sh(f"ip -n {name} address add fd00:1{number}::{host}/64 dev {device} nodad")
                sh(f"ip -n {name} link set {device} up")
        for name, loopbacks in ((ROUTER, ("100.65.0.0/32", "fd00:65::/128")), (LEAF, LEAF_ADDRESSES)):
            for address in loopbacks:
                sh(f"ip -n {name} address add {address} dev lo {'nodad' if ':' in address else ''}")
            for key in ("ipv4.ip_forward", "ipv6.conf.all.forwarding", "ipv4.fib_multipath_hash_policy"):
                sh(f"ip netns exec {name} sysctl -qw net.{key}=1", check=False)
        yield
    finally:
        sh("ip link del fsswitch; ip link del toswitch1p; ip link del torouter1p", check=False)


LEAF_ADDRESSES: Final = ("100.64.0.1/32", "10.77.0.1/32", "fd00:77::1/128")


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running_frr(ROUTER, start=False) as router, running_frr(LEAF, start=False) as leaf, cables():
        router.start()
        leaf.start()
        settings = settings_for(ROUTER, tmp_path_factory.mktemp("fabric"))
        yield Fabric(router, leaf, Bench(router, settings))


@pytest.mark.parametrize("name", KINDS)
async def test_a_session_comes_up_and_packets_follow_its_routes(fabric: Fabric, name: str) -> None:
    kind = KINDS[name]
    if kind.before:
        sh(kind.before)
    await fabric.apply(kind.router)
    fabric.load(kind.leaf, asn=kind.leaf_as)
    eventually(f"{name} is up", lambda: fabric.is_up(kind.peer))
    found = fabric.session(kind.peer)
    assert {key: found[key] for key in kind.shown} == kind.shown
    for family in kind.families:
        eventually(f"packets of {family}", lambda family=family: pings(family))  # type: ignore[misc]
    # Nothing of what bgpd learned or negotiated is a difference.
    await fabric.apply(kind.router)
    assert fabric.session(kind.peer)["connectionsEstablished"] == found["connectionsEstablished"]


def bfd_is_up(fabric: Fabric) -> bool:
    return '"status":"up"' in re.sub(r"\s", "", fabric.router.vtysh("show bfd peers json"))


async def test_bfd_notices_a_lost_peer_long_before_the_hold_time(
    fabric: Fabric, record_property: Callable[[str, object], None]
) -> None:
    # With a tenth of a second BFD may go down by itself where daemons wait that long for the processor. BGP then comes
    # up first, and a peer that is lost before BFD has come up is only noticed by the hold time.
    await fabric.apply(plain(bfd=Bfd(receive_interval=500, transmit_interval=500)))
    fabric.load(of_leaf("bfd"))
    eventually("the session and BFD are up", lambda: fabric.is_up("192.168.11.2") and bfd_is_up(fabric))
    sh("ip link set torouter1p nomaster")
    try:
        # Of the router's own link nothing has changed.
        started = time.monotonic()
        eventually("the session is down", lambda: not fabric.is_up("192.168.11.2"), BFD_SECONDS)
        record_property("seconds", round(time.monotonic() - started, 2))
        # Its detection time has passed (RFC 5880 4.1), and that has closed the session: Cease, BFD Down (RFC 9384).
        [detected] = json.loads(fabric.router.vtysh("show bfd peers json"))
        assert (detected["status"], detected["diagnostic"]) == ("down", "control detection time expired"), detected
        found = fabric.session("192.168.11.2")
        assert found["lastErrorCodeSubcode"] == "060A", found
    finally:
        sh("ip link set torouter1p master fsswitch")
    eventually("the session is up again", lambda: fabric.is_up("192.168.11.2"))


def next_hops() -> set[str]:
    [route] = json.loads(sh(f"ip -n {ROUTER} -j route show 10.77.0.1/32")) or [{}]
    hops = route.get("nexthops", [route])
    return {str(hop["gateway"]) for hop in hops if "gateway" in hop and "dead" not in hop.get("flags", ())}


def sent() -> list[int]:
    """Return how many packets the router has sent by each of its NICs."""
    shown = json.loads(sh(f"ip -n {ROUTER} -j -s link"))
    return [link["stats64"]["tx"]["packets"] for link in shown if link["ifname"].startswith("toswitch")]


async def test_two_nics_share_the_packets_and_one_of_them_can_be_pulled(fabric: Fabric) -> None:
    await fabric.apply(plain(), plain(endpoint="192.168.12.2"), interfaces=("toswitch1", "toswitch2"))
    fabric.load(of_leaf() + of_leaf(peer="192.168.12.3"))
    eventually("both next hops", lambda: next_hops() == {"192.168.11.2", "192.168.12.2"})
    # The leaf may learn its way back a moment later.
    eventually("packets", lambda: pings(V4))
    before = sent()
    # Flows of different ports, as those of tunnels are.
    sh(f"ip netns exec {ROUTER} bash -c 'for port in {{5000..5063}}; do echo >/dev/udp/10.77.0.1/$port; done'")
    assert all(after - earlier >= 10 for after, earlier in zip(sent(), before, strict=True)), (before, sent())
    sh(f"ip -n {LEAF} link set torouter2 down")
    try:
        eventually("one next hop", lambda: next_hops() == {"192.168.11.2"})
        eventually("packets", lambda: pings(V4))
    finally:
        sh(f"ip -n {LEAF} link set torouter2 up")
        sh(f"ip -n {LEAF} address replace fd00:12::2/64 dev torouter2 nodad")
    eventually("both next hops again", lambda: next_hops() == {"192.168.11.2", "192.168.12.2"})


def path_at_leaf() -> dict[str, Any]:
    """Return the leaf's path to the router's tunnel endpoint."""
    found = json.loads(sh(f"vtysh -N {LEAF} -c 'show bgp ipv4 unicast 100.65.0.0/32 json'"))
    [path] = found.get("paths") or [{}]
    return dict(path)


async def test_bgpd_that_is_killed_restarts_gracefully(fabric: Fabric) -> None:
    """Its routes stay on both sides meanwhile, and packets follow them."""
    await fabric.apply(plain(), graceful_restart=GracefulRestart())
    fabric.load(of_leaf())
    eventually("the session is up", lambda: fabric.is_up("192.168.11.2"))
    eventually("packets", lambda: pings(V4))
    fabric.router.kill("bgpd")
    try:
        eventually("the leaf keeps the route", lambda: bool(path_at_leaf().get("stale")))
        assert next_hops() == {"192.168.11.2"}
        assert pings(V4)
    finally:
        fabric.router.start("bgpd")
        fabric.router.boot("bgpd")
    eventually("the session is up again", lambda: fabric.is_up("192.168.11.2"))
    eventually("the leaf has it again", lambda: path_at_leaf().get("stale") is None and "nexthops" in path_at_leaf())
    shown = fabric.leaf.vtysh("show bgp neighbors 192.168.11.3 graceful-restart json")
    found = json.loads(shown)["192.168.11.3"]
    # It says that it restarted, and that it kept forwarding (RFC 4724 section 3).
    assert (found["rBit"], found["ipv4Unicast"]["fBit"]) == (True, True), shown


BIRD: Final = """\
router id 10.0.0.200;
protocol device {}
protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }
protocol static { ipv4; route 10.77.0.1/32 blackhole; }
protocol bgp router {
    local as 64512; neighbor 192.168.11.3 as 64514;
    connect delay time 1; connect retry time 1; error wait time 1, 2;
    ipv4 { import all; export where source = RTS_STATIC; next hop self; };
}
"""


@contextmanager
def bird(directory: Path) -> Iterator[Callable[[str], str]]:
    """BIRD as the leaf; the function runs its client."""
    (directory / "bird.conf").write_text(BIRD)
    command = ["ip", "netns", "exec", LEAF, "bird", "-f", "-c", f"{directory}/bird.conf", "-s", f"{directory}/ctl"]
    with subprocess.Popen(command) as daemon:
        try:
            yield lambda words: sh(f"birdc -s {directory}/ctl {words}", check=False)
        finally:
            daemon.terminate()


@contextmanager
def bird_as_leaf(fabric: Fabric, directory: Path) -> Iterator[Callable[[str], str]]:
    """BIRD in the place of the leaf's bgpd."""
    fabric.leaf.kill("bgpd")
    try:
        with bird(directory) as ask:
            yield ask
    finally:
        fabric.leaf.start("bgpd")


@contextmanager
def no_packet_lost() -> Iterator[None]:
    """Ping the leaf's prefix twenty times a second meanwhile."""
    source, target = TARGETS[V4]
    with pinging(ROUTER, f"-i 0.05 -I {source} {target}") as flow:
        yield
    assert flow.received > 20, flow.output
    # One may be on its way.
    assert flow.sent - flow.received <= 1, flow.output


async def test_a_graceful_restart_of_bgpd_loses_no_packet(fabric: Fabric, tmp_path: Path) -> None:
    """With a leaf that has not restarted itself: FRR says so in its first two minutes, and BIRD does not."""
    await fabric.apply(plain(), graceful_restart=GracefulRestart())
    with bird_as_leaf(fabric, tmp_path) as ask:
        eventually("the session is up", lambda: fabric.is_up("192.168.11.2"))
        eventually("packets", lambda: pings(V4))
        with no_packet_lost():
            fabric.router.kill("bgpd")
            eventually("the leaf waits", lambda: "Neighbor graceful restart active" in ask("show protocols all router"))
            assert next_hops() == {"192.168.11.2"}
            fabric.router.start("bgpd")
            fabric.router.boot("bgpd")
            eventually("the session is up again", lambda: fabric.is_up("192.168.11.2"))
            eventually("the restart is over", lambda: "graceful restart active" not in ask("show protocols all router"))
            eventually("bgpd has the route", lambda: "10.77.0.1" in fabric.router.vtysh("show bgp ipv4 unicast"))
