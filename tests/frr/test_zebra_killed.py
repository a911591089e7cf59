"""zebra is killed under watchfrr, which starts all daemons again: with graceful restart no packet is lost.

The routes stay in the kernel (zebra's option -K, as packaged), and the leaf waits for bgpd.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from config.desired import GracefulRestart
from tests.actors.frr.cases import state, underlay

from .conftest import settings_for
from .harness import RUN, FrrInstance, eventually, namespace, running_frr
from .test_apply import Bench
from .test_fabric_sessions import LEAF, ROUTER, V4, bird, cables, next_hops, no_packet_lost, pings, plain

LEAF_ADDRESS = "192.168.11.2"
DESIRED = state(
    underlay=underlay(plain(), vteps=("100.65.0.0/32",), advertise_evpn=False, graceful_restart=GracefulRestart())
)


def pid(daemon: str) -> int:
    """Return a daemon's process, or 0 while there is none."""
    with suppress(OSError, ValueError):
        return int((RUN / ROUTER / f"{daemon}.pid").read_text())
    return 0


def session(router: FrrInstance) -> dict[str, Any]:
    with suppress(json.JSONDecodeError):
        found: dict[str, Any] = json.loads(router.vtysh(f"show bgp neighbors {LEAF_ADDRESS} json") or "{}")
        return dict(found.get(LEAF_ADDRESS, {}))
    return {}


def is_up(router: FrrInstance) -> bool:
    return session(router).get("bgpState") == "Established"


async def test_a_killed_zebra_loses_no_packet(tmp_path: Path) -> None:
    with running_frr(ROUTER, watched=True) as router, namespace(LEAF), cables(), bird(tmp_path):
        bench = Bench(router, settings_for(ROUTER, tmp_path))
        await bench.applied(DESIRED)
        eventually("the session is up", lambda: is_up(router))
        eventually("packets", lambda: pings(V4))
        before = {daemon: pid(daemon) for daemon in ("zebra", "bgpd")}
        with no_packet_lost():
            os.kill(before["zebra"], signal.SIGKILL)
            eventually("both run again", lambda: all(pid(daemon) not in (0, old) for daemon, old in before.items()))
            assert next_hops() == {LEAF_ADDRESS}
            eventually("the session is up again", lambda: is_up(router))
            eventually("zebra has the route", lambda: "10.77.0.1" in router.vtysh("show ip route bgp"))
