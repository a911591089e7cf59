"""Route targets and the distinguisher of a segment between two tunnel endpoints: what is imported, and what announced.

    router (frrtest) 100.65.0.1, segment 130 ~ leaf 100.64.0.1, segment 130 with a host

The leaf exports its host's routes with a route target that no one derives. No VRF is needed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from actors.frr.preview import preview
from config.desired import DesiredState
from tests.actors.frr.cases import l2vni, state, underlay

from .harness import FrrInstance, eventually, sh, until_a_port
from .router import LEAF, NAME, Router, leaf_bgp, peers, running_router, settings_of

pytestmark = pytest.mark.timeout(600)

VNI: Final = 130
VTEP: Final = ip_address("100.65.0.1")
HOST: Final = "02:00:00:00:00:12"
FOREIGN: Final = "64520:9130"
OWN: Final = "64520:9131"
#: The netlink actor takes an equal one for the state that it has.
GENERATIONS: Final = count(1)
LEAF_CONFIG: Final = leaf_bgp(f"  vni {VNI}\n   route-target export {FOREIGN}\n  exit-vni\n")


def desired(**values: Any) -> DesiredState:
    segment = replace(l2vni(VNI, None, ()), vtep=VTEP, **values)
    whole = state(underlay=underlay(vteps=(f"{VTEP}/32",)), l2vnis=(segment,))
    return replace(whole, generation=next(GENERATIONS))


@asynccontextmanager
async def fabric(directory: Path) -> AsyncIterator[tuple[Router, FrrInstance]]:
    """The router's actors and the leaf, which has a host's MAC in the segment."""
    with peers() as (instance, leaf):
        leaf.conf.write_text(LEAF_CONFIG)
        leaf.load()
        sh(
            f"ip -n {LEAF} link add br-pe-{VNI} address 02:00:00:00:64:01 type bridge && "
            f"ip -n {LEAF} link add vni{VNI} type vxlan id {VNI} local 100.64.0.1 dstport 4789 nolearning && "
            f"ip -n {LEAF} link set vni{VNI} addrgenmode none master br-pe-{VNI} && "
            f"ip -n {LEAF} link add port type veth peer name host && ip -n {LEAF} link set port master br-pe-{VNI} && "
            f"ip -n {LEAF} link set br-pe-{VNI} up && ip -n {LEAF} link set vni{VNI} up && "
            f"ip -n {LEAF} link set port up && ip -n {LEAF} link set host up"
        )
        until_a_port(LEAF, "port")
        sh(f"ip netns exec {LEAF} bridge fdb replace {HOST} dev port master static")
        async with running_router(settings_of(directory), instance) as router:
            yield router, leaf


def routes(instance: FrrInstance) -> dict[str, Any]:
    """Return bgpd's EVPN routes of all distinguishers; without any, FRR 10.3 may write what is no JSON."""
    try:
        found: dict[str, Any] = json.loads(instance.vtysh("show bgp l2vpn evpn route detail json") or "{}")
    except json.JSONDecodeError:
        return {}
    return found


def segment(instance: FrrInstance) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(instance.vtysh(f"show bgp l2vpn evpn vni {VNI} json") or "{}")
    return found


def imported() -> tuple[bool, bool]:
    """Return whether the router's VXLAN device floods to the leaf (type 3) and has the host's MAC there (type 2)."""
    entries = json.loads(sh(f"ip netns exec {NAME} bridge -j fdb show dev vni{VNI}"))
    to_leaf = [one["mac"] for one in entries if one.get("dst") == "100.64.0.1"]
    return "00:00:00:00:00:00" in to_leaf, HOST in to_leaf


async def until(what: str, check: Any) -> None:
    await trio.to_thread.run_sync(partial(eventually, what, check, 120.0))


async def test_routes_with_a_foreign_target_are_imported_only_where_it_is_configured(tmp_path: Path) -> None:
    async with fabric(tmp_path) as (router, leaf):
        await router.applied(desired())
        await until("the leaf's routes are here", lambda: "10.0.0.200" in json.dumps(routes(router.instance)))
        assert imported() == (False, False)
        # FRR's own values are in force, and nothing of the segment is in its configuration.
        automatic = segment(router.instance)
        assert f"vni {VNI}" not in router.instance.vtysh("show running-config")

        named = desired(import_rts=(FOREIGN, f"64514:{VNI}"), export_rts=(OWN,), rd="10.0.0.1:9130")
        found = await preview(named, router.settings)
        assert [one.name for one in found.interrupted] == [f"VNI {VNI}"]
        await router.applied(named)
        await until("both kinds of routes are imported", lambda: imported() == (True, True))
        now = segment(router.instance)
        assert (now["rd"], sorted(now["importRts"]), now["exportRts"]) == (
            "10.0.0.1:9130",
            sorted((f"64514:{VNI}", FOREIGN)),
            [OWN],
        )
        await until(
            "the leaf has the route with them", lambda: OWN in json.dumps(routes(leaf).get("10.0.0.1:9130", {}))
        )

        # One value less, then what FRR would derive by itself, then none.
        await router.applied(desired(import_rts=(f"64514:{VNI}",), rd="10.0.0.1:9130"))
        await until("the foreign routes are gone", lambda: imported() == (False, False))
        await router.applied(desired(import_rts=(f"64514:{VNI}",), export_rts=(f"64514:{VNI}",), rd=automatic["rd"]))
        await router.applied(desired())
        assert segment(router.instance) == automatic
        assert f"vni {VNI}" not in router.instance.vtysh("show running-config")
        # Of a distinguisher without routes an empty table may be left.
        await until(
            "the leaf has no old route", lambda: not any("[" in key for key in routes(leaf).get("10.0.0.1:9130", {}))
        )
