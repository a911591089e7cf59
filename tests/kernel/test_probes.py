"""Real pings from a namespace with a VRF: what answers, what does not, and what cannot be reached at all."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from actors.lib.network_namespace import NAMESPACES
from actors.netlink.planning.sysctls import ROUTER_SYSCTLS
from actors.netlink.probes import pinger
from actors.netlink.probes.pinger import RouterPinger
from actors.netlink.probes.schedule import PingResult, ProbeTarget
from actors.netlink.wire.namespace import NamespaceMissing
from config.problems import Kind, ResourceId
from tests.kernel.node import ip

ROUTER, HOST = "probe-router", "probe-host"
RED = ResourceId(Kind.L3VNI, "tenants", "red")
PING_RANGE = "net.ipv4.ping_group_range"


def target(address: str, vrf: str = "red") -> ProbeTarget:
    return ProbeTarget(RED, vrf, ip_address(address), "host", 10, 3)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave an answer the time that it needs on a busy machine; what never comes costs it all."""
    monkeypatch.setattr(pinger, "ANSWER_SECONDS", 10.0)


@pytest.fixture
def router() -> Iterator[RouterPinger]:
    """A router with 192.0.2.1 and 2001:db8::1 in the VRF red, and the same link in no VRF for nothing else."""
    for name in (ROUTER, HOST):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    try:
        ip("-n", ROUTER, "link", "add", "red", "up", "type", "vrf", "table", "100")
        ip("-n", ROUTER, "link", "add", "pe", "type", "veth", "peer", "name", "host", "netns", HOST)
        ip("-n", ROUTER, "link", "set", "pe", "master", "red", "up")
        ip("-n", HOST, "link", "set", "host", "up")
        for name, device, end in ((ROUTER, "pe", 1), (HOST, "host", 2)):
            ip("-n", name, "addr", "add", f"192.0.2.{end}/24", "dev", device)
            ip("-n", name, "addr", "add", f"2001:db8::{end}/64", "dev", device, "nodad")
        ip("-n", ROUTER, "route", "add", "unreachable", "default", "table", "100", "metric", "4278198272")
        [value] = [value for key, value, _ in ROUTER_SYSCTLS if key == PING_RANGE]
        ip("netns", "exec", ROUTER, "sysctl", "-qw", f"{PING_RANGE}={value}")
        yield RouterPinger(NAMESPACES / ROUTER)
    finally:
        for name in (ROUTER, HOST):
            ip("netns", "del", name)


def without_net_raw() -> subprocess.CompletedProcess[str]:
    """Ping the host from a process without the capability."""
    program = (
        "import trio; from tests.kernel.test_probes import target; from actors.netlink.probes import pinger as p;"
        "print(trio.run(p._ask, p._socket(target('192.0.2.2')), target('192.0.2.2')).rtt is not None)"
    )
    command = ["ip", "netns", "exec", ROUTER, "setpriv", "--bounding-set=-net_raw", "--inh-caps=-all"]
    return subprocess.run(
        [*command, "python3", "-c", program], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )


def threads_inside() -> list[Path]:
    """Return the threads of this process that are in the router's namespace."""
    inode = (NAMESPACES / ROUTER).stat().st_ino
    links = Path("/proc/self/task").glob("*/ns/net")
    return [link for link in links if link.exists() and link.stat().st_ino == inode]


async def test_hosts_of_both_families_answer_in_their_vrf_and_nowhere_else(router: RouterPinger) -> None:
    v4, v6, elsewhere = await router.ping([target("192.0.2.2"), target("2001:db8::2"), target("192.0.2.2", vrf="")])
    for found in (v4, v6):
        assert found.rtt is not None
        assert 0 < found.rtt < 10
    assert elsewhere == PingResult(problem="Network is unreachable")


async def test_what_does_not_answer_differs_from_what_cannot_be_reached(
    router: RouterPinger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinger, "ANSWER_SECONDS", 1.0)
    ip("-n", ROUTER, "neigh", "add", "192.0.2.9", "lladdr", "02:00:00:00:00:09", "dev", "pe")
    silent, nowhere, no_vrf = await router.ping(
        [target("192.0.2.9"), target("198.51.100.1"), target("192.0.2.2", vrf="green")]
    )
    assert silent == PingResult()
    assert nowhere.rtt is None
    assert nowhere.problem in {"No route to host", "Network is unreachable"}
    assert no_vrf == PingResult(problem="No such device")


async def test_no_capability_is_needed_for_the_socket(router: RouterPinger) -> None:
    """And without the sysctl it cannot be opened, so that it is what counts."""
    ip("netns", "exec", ROUTER, "sysctl", "-qw", f"{PING_RANGE}=1 0")
    [refused] = await router.ping([target("192.0.2.2")])
    assert refused == PingResult(problem="Permission denied")
    ip("netns", "exec", ROUTER, "sysctl", "-qw", f"{PING_RANGE}=0\t0")
    found = without_net_raw()
    assert found.stdout == "True\n", found.stderr


async def test_without_its_namespace_there_is_no_router() -> None:
    with pytest.raises(NamespaceMissing):
        await RouterPinger(NAMESPACES / "probe-none").ping([target("192.0.2.2")])


async def test_an_idle_pinger_does_not_keep_the_namespace(router: RouterPinger) -> None:
    await router.ping([target("192.0.2.2")])
    assert not threads_inside()
