"""CPU of observations, and how long trio's loop stands still meanwhile; a part of :mod:`.performance`.

Runs in network namespaces of its own on this machine. Its kernel may lack VRF devices, so the networks are L2VNIs with
a host bridge and two gateways: five links each, like an L3VNI with a host session. The loop is watched by a task that
wants to run every millisecond. Of what it waits longer than that, the part in which this process computes is a stall;
the whole is printed beside it, and so is what it waits without any work.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import trio

from actors.netlink.converge import converge
from actors.netlink.kernel import LinuxKernel
from actors.netlink.planning import wanted
from actors.netlink.planning.plan import plan
from actors.netlink.state_files import StateFiles
from config.desired import DesiredState
from tests.actors.netlink.builders import l2vni, state
from tests.kernel.node import ip

from .stopwatch import compare, measure

#: Seconds of CPU of an observation of an unchanged node with 500 networks.
OBSERVATION_SECONDS = 0.050
#: Milliseconds for which the loop may stand still.
STALL_MILLISECONDS = 50.0
#: Networks with 1,000 links.
STALL_NETWORKS = 200
TICK_SECONDS = 0.001
NETNS = "bench-router"


def networks(count: int) -> DesiredState:
    """Return a state with that many L2VNIs."""
    return state(
        l2vnis=tuple(
            l2vni(
                f"t{number}",
                1000 + number,
                vrf=None,
                gateways=(f"10.{number // 250}.{number % 250}.1/24", f"2001:db8:{number:x}::1/64"),
            )
            for number in range(count)
        )
    )


def prepare() -> None:
    """Make the router's namespace and a NIC."""
    ip("netns", "add", NETNS)
    ip("link", "add", "toswitch1", "type", "veth", "peer", "name", "leaf")
    for name in ("leaf", "toswitch1"):
        ip("link", "set", name, "up")


def observations(kernel: LinuxKernel, count: int) -> bool:
    """Measure the CPU of observations; the best of five counts, since the rest is the machine's."""
    desired = networks(count)
    made = converge(desired, kernel)
    assert made.clean, (made.errors, made.failures)
    measure("observation, everything changed", lambda: kernel.observe(desired))
    best = min(measure("observation, nothing changed", lambda: kernel.observe(desired))[0] for _ in range(5))
    observed = kernel.observe(desired)
    _, found = measure("plan, nothing changed", lambda: plan(desired, observed))
    assert not found.steps, found.text
    return compare(f"observation of {count} networks", best, OBSERVATION_SECONDS * count / 500, "s CPU")


@dataclass
class Waits:
    """The longest wait of the loop, and the longest part of a wait that this process spent on computing; milliseconds.

    The rest of a wait is the machine's: the kernel at work, or other processes in their turn.
    """

    whole: float = 0.0
    computing: float = 0.0

    def add(self, seconds: float, user: float) -> None:
        """Count one wait."""
        self.whole = max(self.whole, seconds * 1000)
        self.computing = max(self.computing, min(seconds, user) * 1000)


async def waits_during(work: Callable[[], object]) -> Waits:
    """Return how long a task had to wait while a thread worked."""
    waits, done = Waits(), False

    async def tick() -> None:
        while not done:
            begin, user = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
            await trio.sleep(TICK_SECONDS)
            late = time.perf_counter() - begin - TICK_SECONDS
            waits.add(late, resource.getrusage(resource.RUSAGE_SELF).ru_utime - user)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        await trio.to_thread.run_sync(work)
        done = True
    return waits


def stalls(kernel: LinuxKernel) -> bool:
    """Measure the loop's stalls while 1,000 links come, are read and go."""
    none, some = networks(0), networks(STALL_NETWORKS)
    idle = trio.run(waits_during, lambda: time.sleep(3))
    compare("longest wait of the loop without any work", idle.whole, unit="ms")
    kept = True
    work: tuple[tuple[str, Callable[[], object]], ...] = (
        ("created", lambda: converge(some, kernel)),
        ("read ten times", lambda: [kernel.observe(some) for _ in range(10)]),
        ("read and planned ten times", lambda: [plan(some, kernel.observe(some)) for _ in range(10)]),
        ("deleted", lambda: converge(none, kernel)),
    )
    for what, function in work:
        waits = trio.run(waits_during, function)
        compare(f"longest wait while 1,000 links are {what}", waits.whole, unit="ms")
        kept &= compare("  of that, this process computing", waits.computing, STALL_MILLISECONDS, "ms")
    return kept


def main() -> int:
    """Measure; the caller has made the namespaces private."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=500)
    options = parser.parse_args()
    prepare()
    # This machine's kernel may have no VRFs, and what belongs to layer 2 only has no addresses: the segments' devices
    # are made like those of a routing domain, without being in it.
    routed = mock.patch.object(wanted, "LAYER_2_ONLY", ())
    with tempfile.TemporaryDirectory() as directory, routed:
        kernel = LinuxKernel(Path("/run/netns") / NETNS, StateFiles(Path(directory)))
        try:
            quick = stalls(kernel)
            return 0 if observations(kernel, options.networks) and quick else 1
        finally:
            kernel.close()


if __name__ == "__main__":
    sys.exit(main())
