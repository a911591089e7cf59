"""VRFs come and go, with routes in them, and zebra lives (FRR #16614)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from actors.lib.frr.daemon_socket import DaemonSockets
from actors.netlink.actor import await_zebra
from actors.netlink.converge import converge
from actors.netlink.kernel import LinuxKernel
from actors.netlink.state_files import StateFiles
from config.desired import DesiredState
from tests.actors.frr.cases import l2vni

from .harness import RUN, FrrInstance, eventually, running_frr, sh
from .router import LEAF, NAME, peers, running_router, settings_of, vrf_with_vni
from .test_moves import BASE, LEAF_CONFIG, TENANT, tenant

#: A round makes both VRFs and removes them again. ``make soak-vrfs`` has many, with more routes.
ROUNDS = int(os.environ.get("OPENPEROUTER_VRF_ROUNDS", "2"))
PREFIXES = 5000 if "OPENPEROUTER_VRF_ROUNDS" in os.environ else 1500
pytestmark = pytest.mark.timeout(600 + 60 * ROUNDS)


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


async def test_vrfs_with_many_routes_come_and_go(vrf_kernel: None, tmp_path: Path) -> None:
    """With a session, a gateway and a peer that announces thousands of prefixes, their routes still on the way."""
    with peers() as (frr, leaf):
        for vni in (100, 101):
            vrf_with_vni(LEAF, "100.64.0.1", vni, f"v{vni}", 1000 + vni)
            routes = "".join(
                f"route add blackhole 10.{60 + vni % 2}.{number >> 8}.{number & 255}/32 table {1000 + vni}\n"
                for number in range(PREFIXES)
            )
            (tmp_path / "routes").write_text(routes)
            sh(f"ip -n {LEAF} -batch {tmp_path / 'routes'}")
        kernels = TENANT.replace(
            " address-family ipv4 unicast\n", " address-family ipv4 unicast\n  redistribute kernel\n"
        )
        leaf.conf.write_text(LEAF_CONFIG + "".join(kernels.format(vni=vni) for vni in (100, 101)))
        sh(f"vtysh -N {LEAF} -f {leaf.conf}")
        gateway = replace(l2vni(210, "red"), vtep=BASE.l3vnis[0].vtep)
        full = replace(BASE, l3vnis=(tenant("green", 101), tenant("red", 100)), l2vnis=(gateway,))
        some = replace(full, l3vnis=(tenant("green", 101),), l2vnis=())
        none = replace(full, l3vnis=(), l2vnis=())
        async with running_router(settings_of(tmp_path), frr) as router:
            generation = 0
            for turn in range(ROUNDS):
                states: tuple[DesiredState, ...] = (full, none) if turn % 2 else (full, some, full, none)
                for desired in states:
                    generation += 1
                    await router.applied(replace(desired, generation=generation))
                    assert not frr.dead(), f"{frr.dead()} died in round {turn}"
                    if desired is full and turn == 0:
                        await _has_routes(frr)


async def _has_routes(frr: FrrInstance) -> None:
    with trio.fail_after(120):
        while "10.60.0.0/32" not in frr.vtysh("show ip route vrf red"):  # noqa: ASYNC110 - zebra gives no notice
            await trio.sleep(0.2)
