"""The frr and netlink actors as the daemon wires them, on real daemons and a real kernel, with a leaf as their peer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import trio

from actors.frr import actor as frr_actor
from actors.netlink import actor as netlink_actor
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

from .harness import FrrInstance, running_frr, sh

NAME, LEAF = "frrtest", "frrleaf"


def leaf_bgp(evpn: str = "", remote_as: str = "external") -> str:
    """Return the leaf's session with the router, with more lines of its EVPN address family."""
    return f"""\
router bgp 64512
 bgp router-id 10.0.0.200
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 no bgp network import-check
 neighbor 192.168.11.3 remote-as {remote_as}
 neighbor 192.168.11.3 timers connect 1
 address-family ipv4 unicast
  network 100.64.0.1/32
  neighbor 192.168.11.3 activate
 exit-address-family
 address-family l2vpn evpn
  neighbor 192.168.11.3 activate
  advertise-all-vni
{evpn} exit-address-family
exit
"""


def vrf_with_vni(netns: str, vtep: str, vni: int, vrf: str = "red", table: int = 1100) -> None:
    """Make the devices of one routed tenant network, as the kernel side of the router does.

    The bridge's address is the router MAC of its routes: were it the same on both sides, each would ignore the other's.
    """
    *_, high, _, low = ip_address(vtep).packed
    if f" {vrf}:" not in sh(f"ip -n {netns} -o link"):
        sh(f"ip -n {netns} link add {vrf} up type vrf table {table}")
    sh(
        f"ip -n {netns} link add br-pe-{vni} address 02:00:00:00:{high:02x}:{low:02x} type bridge && "
        f"ip -n {netns} link set br-pe-{vni} addrgenmode none master {vrf} && "
        f"ip -n {netns} link add vni{vni} type vxlan id {vni} local {vtep} dstport 4789 nolearning && "
        f"ip -n {netns} link set vni{vni} addrgenmode none master br-pe-{vni} && "
        f"ip -n {netns} link set br-pe-{vni} up && ip -n {netns} link set vni{vni} up"
    )


@contextmanager
def peers() -> Iterator[tuple[FrrInstance, FrrInstance]]:
    """FRR of a router and of a leaf, both running; the router's NIC ``toswitch1`` is still in the host."""
    with running_frr(NAME, start=False) as router, running_frr(LEAF, start=False) as leaf:
        sh(
            f"ip link add toswitch1 type veth peer name torouter netns {LEAF} && "
            "ip address add 192.168.11.3/24 dev toswitch1 && ip link set toswitch1 up && "
            f"ip -n {LEAF} address add 192.168.11.2/24 dev torouter && ip -n {LEAF} link set torouter up && "
            f"ip -n {LEAF} address add 100.64.0.1/32 dev lo && ip netns exec {LEAF} sysctl -qw net.ipv4.ip_forward=1"
        )
        router.start()
        leaf.start()
        try:
            yield router, leaf
        finally:
            sh("ip link del toswitch1", check=False)
            sh(f"ip -n {NAME} link del toswitch1", check=False)


@dataclass
class Router:
    """The two actors with their channels."""

    settings: Settings
    instance: FrrInstance
    desired: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))
    frr: Latest[FrrOutcome] = field(default_factory=lambda: Latest("frr"))
    kernel: Latest[KernelOutcome] = field(default_factory=lambda: Latest("kernel"))
    health: Latest[HealthReport] = field(default_factory=lambda: Latest("health"))
    changing: trio.Lock = field(default_factory=trio.Lock)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._netlink)
            nursery.start_soon(self._frr)

    async def _netlink(self) -> None:
        await netlink_actor.run(
            ActorContext("netlink"),
            settings=self.settings,
            frr=self.frr.reader(),
            changing=self.changing,
            out=self.kernel,
        )

    async def _frr(self) -> None:
        await frr_actor.run(
            ActorContext("frr"),
            settings=self.settings,
            desired=self.desired.reader(),
            kernel=self.kernel.reader(),
            health=self.health.reader(),
            changing=self.changing,
            out=self.frr,
        )

    def is_in_force(self, desired: DesiredState) -> bool:
        frr, kernel = self.frr.peek(), self.kernel.peek()
        if frr is None or kernel is None or frr.desired is not desired or kernel.desired is not desired:
            return False
        return frr.applied and kernel.applied and not frr.withdrawn and not kernel.withdraw

    async def applied(self, desired: DesiredState, seconds: float = 180) -> None:
        """Publish a state and wait until FRR and the kernel have all of it."""
        self.desired.set(desired)
        with trio.move_on_after(seconds):
            while not self.is_in_force(desired):  # noqa: ASYNC110 - two cells, and a deadline
                await trio.sleep(0.02)
        assert self.is_in_force(desired), (self.frr.peek(), self.kernel.peek())

    def link(self, name: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(sh(f"ip -n {NAME} -j -d link show dev {name}"))
        return found[0]


@asynccontextmanager
async def running_router(settings: Settings, instance: FrrInstance) -> AsyncIterator[Router]:
    router = Router(settings, instance)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(router.run)
        yield router
        nursery.cancel_scope.cancel()


def settings_of(directory: Path) -> Settings:
    return Settings(
        netns=NAME,
        frr_pathspace=NAME,
        run_dir=directory / "run",
        state_dir=directory / "state",
        audit_interval_seconds=30.0,
    )
