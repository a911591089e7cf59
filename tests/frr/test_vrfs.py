"""VRFs come and go, with routes in them, and zebra lives (FRR #16614)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from actors.lib.frr.daemon_socket import DaemonSockets
from actors.netlink.actor import await_zebra
from actors.netlink.converge import converge
from actors.netlink.kernel import LinuxKernel
from actors.netlink.state_files import StateFiles
from tests.actors.frr.cases import l2vni

from .harness import RUN, FrrInstance, eventually, running_frr, sh
from .router import LEAF, NAME, peers, running_router, settings_of, vrf_with_vni
from .test_moves import BASE, LEAF_CONFIG, TENANT, tenant

#: VRFs to remove in all. ``make soak-vrfs`` has 300, ten at a time, with more routes.
REMOVALS = int(os.environ.get("OPENPEROUTER_VRF_REMOVALS", "5"))
LONG = "OPENPEROUTER_VRF_REMOVALS" in os.environ
VRFS = 10 if LONG else 2
#: What the leaf announces into the first VRF, and into each of the others.
PREFIXES = (5000, 500) if LONG else (1500, 1500)
pytestmark = pytest.mark.timeout(600 + 60 * REMOVALS)


@pytest.fixture
def zebra(vrf_kernel: None) -> Iterator[FrrInstance]:
    with running_frr(NAME, start=False) as instance:
        sh("ip link add toswitch1 type veth peer name leaf0")
        instance.start("zebra", "mgmtd")
        try:
            yield instance
        finally:
            sh("ip link del leaf0", check=False)


def _wait_for_vrf(instance: FrrInstance) -> None:
    """Let zebra sleep until the kernel has the VRF, so that it finds its device and its routes at the same time."""
    try:
        eventually("the VRF is made", lambda: " red:" in sh(f"ip -n {NAME} -o link"))
    finally:
        instance.kill("zebra", signal.SIGCONT)


async def test_routes_of_a_new_vrf_wait_for_a_slow_zebra(zebra: FrrInstance, tmp_path: Path) -> None:
    daemons = DaemonSockets(RUN / NAME)
    kernel = LinuxKernel(
        Path("/run/netns") / NAME,
        StateFiles(tmp_path),
        lambda vrfs: trio.from_thread.run(await_zebra, daemons, dict(vrfs)),
    )
    desired = replace(BASE, l3vnis=(tenant("red", 100),))
    try:
        for _ in range(5):
            zebra.kill("zebra", signal.SIGSTOP)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, _wait_for_vrf, zebra)
                await trio.to_thread.run_sync(converge, desired, kernel)
            routes = zebra.vtysh("show ip route vrf red")
            assert "unreachable" in routes, routes
            await trio.to_thread.run_sync(converge, replace(desired, l3vnis=()), kernel)
            eventually("zebra has noticed", lambda: "vrf red id" not in zebra.vtysh("show vrf"))
            assert not zebra.dead()
    finally:
        await trio.to_thread.run_sync(kernel.close)


async def test_vrfs_with_many_routes_come_and_go(
    vrf_kernel: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With sessions, gateways and a peer that announces thousands of prefixes, their routes still on the way."""
    with peers() as (frr, leaf):
        _announce(leaf, tmp_path)
        tenants = tuple(tenant(f"red{number}", 100 + number) for number in range(VRFS))
        gateways = tuple(replace(l2vni(210 + number, one.vrf), vtep=one.vtep) for number, one in enumerate(tenants[:2]))
        full = replace(BASE, l3vnis=tenants, l2vnis=gateways)
        half = replace(full, l3vnis=tenants[1::2], l2vnis=gateways[1:])
        none = replace(full, l3vnis=(), l2vnis=())
        async with running_router(settings_of(tmp_path), frr) as router:
            turn = removed = generation = 0
            while removed < REMOVALS:
                started, states = trio.current_time(), (full, half, full, none) if turn % 2 == 0 else (full, none)
                for before, desired in pairwise((none, *states)):
                    generation += 1
                    await router.applied(replace(desired, generation=generation), seconds=600)
                    assert not frr.dead(), f"{frr.dead()} died in round {turn}"
                    removed += max(0, len(before.l3vnis) - len(desired.l3vnis))
                    # Every third round removes what has all its routes; otherwise they are on the way.
                    if desired is full and turn % 3 == 0:
                        await _has_routes(frr)
                turn += 1
                with capsys.disabled():
                    seconds = trio.current_time() - started
                    sys.stdout.write(f"\nround {turn}: {removed} of {REMOVALS} VRFs removed, {seconds:.1f} s")


def _announce(leaf: FrrInstance, directory: Path) -> None:
    """Give the leaf a VRF for each of the router's, and routes in them that it announces."""
    config = LEAF_CONFIG
    kernels = TENANT.replace(" address-family ipv4 unicast\n", " address-family ipv4 unicast\n  redistribute kernel\n")
    for number in range(VRFS):
        vni = 100 + number
        vrf_with_vni(LEAF, "100.64.0.1", vni, f"v{vni}", 1000 + vni)
        routes = "".join(
            f"route add blackhole {_prefix(number, route)} table {1000 + vni}\n"
            for route in range(PREFIXES[min(number, 1)])
        )
        (directory / "routes").write_text(routes)
        sh(f"ip -n {LEAF} -batch {directory / 'routes'}")
        config += kernels.format(vni=vni)
    leaf.conf.write_text(config)
    leaf.load()


def _prefix(vrf: int, route: int) -> str:
    return f"10.{60 + vrf}.{route >> 8}.{route & 255}/32"


async def _has_routes(frr: FrrInstance) -> None:
    """Wait until zebra has the last route of the first VRF, which has most of them."""
    last = _prefix(0, PREFIXES[0] - 1)
    with trio.fail_after(300):
        while last not in frr.vtysh(f"show ip route vrf red0 {last}"):  # noqa: ASYNC110 - zebra gives no notice
            await trio.sleep(0.2)
