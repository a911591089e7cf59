"""Changes that move a tenant's devices: its routes return, the other tenant notices nothing.

``tests/router`` has the other changes, of a whole node with traffic.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import pytest

from config.desired import DesiredL3VNI, DesiredState
from tests.actors.frr.cases import l3vni, session, state, underlay

from .harness import FrrInstance, eventually, sh
from .router import LEAF, NAME, Router, leaf_bgp, peers, running_router, settings_of, vrf_with_vni

VNIS: Final = (100, 101, 102)

LEAF_CONFIG: Final = leaf_bgp()
TENANT: Final = """\
vrf v{vni}
 vni {vni}
exit-vrf
router bgp 64512 vrf v{vni}
 bgp router-id 10.0.0.200
 no bgp network import-check
 address-family ipv4 unicast
  network 10.50.{vni}.0/24
 exit-address-family
 address-family l2vpn evpn
  route-target import 64512:{vni}
  route-target export 64512:{vni}
  advertise ipv4 unicast
 exit-address-family
exit
"""


def tenant(vrf: str, vni: int) -> DesiredL3VNI:
    """A routed network whose route targets are the leaf's for this VNI, with a session of its own."""
    pair = (f"172.27.{vni}.1/24", f"172.27.{vni}.2/24")
    targets = (f"64512:{vni}",)
    vtep = ip_address("100.65.0.1")
    return replace(l3vni(vrf, vni, session(pair), vtep=vtep), export_rts=targets, import_rts=targets)


RED, GREEN, BLUE = tenant("red", 100), tenant("green", 101), tenant("blue", 102)
BASE: Final = state(underlay=underlay(vteps=("100.65.0.1/32",)), l3vnis=(BLUE, GREEN, RED))


MOVED: Final = replace(BASE, l3vnis=(BLUE, tenant("green", 100)))
SWAPPED: Final = replace(BASE, l3vnis=(BLUE, tenant("green", 100), tenant("red", 101)))


@pytest.fixture(scope="module")
def machines(vrf_kernel: None) -> Iterator[tuple[FrrInstance, FrrInstance]]:
    with peers() as (router, leaf):
        leaf.conf.write_text(LEAF_CONFIG + "".join(TENANT.format(vni=vni) for vni in VNIS))
        leaf.load()
        for vni in VNIS:
            vrf_with_vni(LEAF, "100.64.0.1", vni, f"v{vni}", 1000 + vni)
        yield router, leaf


@pytest.fixture
async def router(machines: tuple[FrrInstance, FrrInstance], tmp_path: Path) -> AsyncIterator[Router]:
    async with running_router(settings_of(tmp_path), machines[0]) as running:
        yield running


def shown(instance: FrrInstance, command: str) -> Any:
    return json.loads(instance.vtysh(f"{command} json") or "{}")


def lacking(machines: tuple[FrrInstance, FrrInstance], desired: DesiredState) -> list[str]:
    """Return which routes of which tenants are missing, in both directions."""
    router, leaf = machines
    missing = []
    for vni in desired.l3vnis:
        assert vni.session is not None
        if f"10.50.{vni.vni}.0/24" not in shown(router, f"show ip route vrf {vni.vrf}"):
            missing.append(f"the router's VRF {vni.vrf} has no route of VNI {vni.vni}")
        host = f"{vni.session.addresses[0].host.ip}/32"
        if host not in shown(leaf, f"show ip route vrf v{vni.vni}"):
            missing.append(f"the leaf's VRF v{vni.vni} has no route to {host}")
    return missing


def forwards(machines: tuple[FrrInstance, FrrInstance], desired: DesiredState) -> None:
    try:
        eventually("all routes", lambda: not lacking(machines, desired), 90)
    except AssertionError as error:
        raise AssertionError(f"{error}: {lacking(machines, desired)}") from None


def fingerprint(machines: tuple[FrrInstance, FrrInstance], router: Router) -> object:
    """Return what changes when the untouched tenant's devices are made again or its routes are withdrawn."""
    indices = [router.link(name)["ifindex"] for name in ("blue", "br-pe-102", "vni102", "pe-e-102")]
    paths = shown(machines[1], "show bgp l2vpn evpn route rd 10.0.0.1:102 type prefix")
    learnt = [
        path["lastUpdate"]["epoch"]
        for prefix in paths.values()
        if isinstance(prefix, dict)
        for group in prefix.get("paths", ())
        for path in (group if isinstance(group, list) else [group])
        if "lastUpdate" in path
    ]
    return indices, learnt


async def test_routes_come_back_after_a_vni_moves_to_another_vrf(
    machines: tuple[FrrInstance, FrrInstance], router: Router
) -> None:
    base, changed = replace(BASE, generation=1), replace(MOVED, generation=2)
    await router.applied(base)
    forwards(machines, base)
    before = fingerprint(machines, router)
    await router.applied(changed)
    forwards(machines, changed)
    assert fingerprint(machines, router) == before
    back = replace(base, generation=3)
    await router.applied(back)
    forwards(machines, back)
    assert fingerprint(machines, router) == before


async def test_a_daemon_that_was_killed_amid_a_swap_ends_it(
    machines: tuple[FrrInstance, FrrInstance], tmp_path: Path
) -> None:
    """The next process knows nothing of what FRR ran before: only the kernel shows what has to be moved."""
    swapped = replace(SWAPPED, generation=1)
    async with running_router(settings_of(tmp_path), machines[0]) as router:
        await router.applied(BASE)
    async with running_router(settings_of(tmp_path), machines[0]) as router:
        outcomes = router.kernel.reader()
        router.desired.set(swapped)
        assert (await outcomes.receive()).withdraw == {100, 101}
        assert router.link("br-pe-100")["master"] == "red"
        await router.applied(swapped)
        assert router.link("br-pe-100")["master"] == "green"
    forwards(machines, swapped)
    assert NAME in sh("ip netns list")
