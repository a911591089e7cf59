"""CPU of a restart and of a minute at rest, and memory after many changes; a part of :mod:`.performance`.

    python -m tests.bench.life [--networks 100] [--changes 1000]

The whole daemon with its wiring, in one process on a virtual clock. Kernel, FRR and API server are the fakes of the
simulation, and threads run where they are called: CPU is the daemon's own with that of the fakes, after imports and
schemas. Each change replaces one network by another with a name, a VNI and addresses of its own, and is verified before
the next. What the process has at the end is compared with what it had after the first 300, when most of what is bounded
is full: the last 2,000 events, and the texts that the fakes remember, but not the 1,024 addresses of each kind.
"""

from __future__ import annotations

import argparse
import gc
import logging
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import trio

from actors.frr.diff import difference
from actors.frr.diff.difference import _parse_block
from config.sources import static_files
from config.sources.router_file import parse_router_file
from supervisor.wiring import Daemon
from tests.simulation.daemon import SimulatedDaemon, simulated
from tests.simulation.episode import NICS
from tests.simulation.world import Life, RecordingNotifier, World

from .files import configuration, l3vni, net
from .stopwatch import compare

#: How much larger resident memory may be at the end, as a part: what the allocator keeps between pieces of any size,
#: most of them the fakes' texts.
GROWTH = 0.05
#: So many changes fill most of what is bounded.
WARM = 300
#: Virtual seconds that are more than a change, its verification and the poll of health after it take.
SETTLED = 20.0
RESTARTS = 3
MINUTES = 3


def resident() -> float:
    """Return this process's resident memory, in MB."""
    gc.collect()
    found = re.search(r"^VmRSS:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


class Node:
    """A node in memory, on which one daemon lives after the other."""

    def __init__(self, world: World, networks: int, changes: int) -> None:
        self.world, self.networks, self.changes = world, networks, changes
        self.kept = True
        self.notifier = RecordingNotifier(world)

    def write(self, replaced: int | None = None) -> None:
        """Write the file, with another network in the place of the last one."""
        text = configuration(self.networks if replaced is None else self.networks - 1).replace("eth1", NICS[0])
        more = "" if replaced is None else l3vni(f"x{replaced}", 5000 + replaced, f"{net(1000 + replaced)}.0/24")
        self.world.write_file(self.world.settings.configs_dir / "openpe_bench.yaml", text + more)

    async def run(self) -> None:
        """Print all figures."""
        self.write()
        spent: list[float] = []
        for _ in range(RESTARTS + 1):
            began = time.process_time()

            async def ready(_: Daemon, began: float = began) -> None:
                spent.append(time.process_time() - began)

            await self.live(ready)
        compare(f"a start that changes nothing, {self.networks} L3VNIs", min(spent[1:]), unit="s CPU")
        await self.live(self.rest)
        await self.live(self.change)

    async def live(self, then: Callable[[Daemon], Awaitable[None]]) -> None:
        """Run a daemon until it is ready, and then for as long as ``then`` does."""
        world = self.world
        life = world.life = Life(world)
        notifier = self.notifier = RecordingNotifier(world)
        daemon = SimulatedDaemon(world, life, {}, notifier)

        async def follow() -> None:
            with trio.fail_after(120):
                reader = daemon.channels.status.reader()
                while not (await reader.receive()).ready:
                    continue
            await then(daemon)
            daemon.supervisor.stop()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            with life.scope:
                await daemon.supervisor.run()
        world.close_monitors()

    async def rest(self, _: Daemon) -> None:
        """Measure minutes in which nothing happens."""
        await trio.sleep(120)
        spent = []
        for _minute in range(MINUTES):
            began = time.process_time()
            await trio.sleep(60)
            spent.append(time.process_time() - began)
        compare("a minute at rest", min(spent), unit="s CPU")

    async def change(self, daemon: Daemon) -> None:
        """Make all changes, and compare memory."""
        first = 0.0
        for number in range(self.changes):
            self.write(number)
            await trio.sleep(SETTLED)
            # What the fakes record without bounds.
            frr = self.world.frr
            for record in (self.world.trace.lines, self.world.kernel.applied, self.notifier.sent):
                record.clear()
            for record in (frr.calls, frr.sent, frr.checked):
                record.clear()
            status = daemon.channels.status.peek()
            assert status is not None
            assert status.ready, status.summary
            assert f"x{number}" in {vni.vrf for vni in status.vnis}
            if number in (0, WARM):
                first = compare_memory(f"resident after change {number + 1}")
        last = compare_memory(f"resident after change {self.changes}")
        self.kept = compare("growth since the one before, as a part", last / first - 1, GROWTH)


def compare_memory(what: str) -> float:
    """Print and return resident memory."""
    found = resident()
    compare(what, found, unit="MB")
    return found


def main() -> int:
    """Measure in a directory of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--changes", type=int, default=1000)
    options = parser.parse_args()
    logging.getLogger("openperouter").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory) / "disk")
        node = Node(world, options.networks, options.changes)
        with simulated(world, 1), ExitStack() as patches:
            # Episodes share what was parsed; here each file and each block is another one.
            for owner, function in ((static_files, parse_router_file), (difference, _parse_block)):
                patches.enter_context(mock.patch.object(owner, function.__name__, function))
            trio.run(node.run, clock=world.clock)
    return 0 if node.kept else 1


if __name__ == "__main__":
    sys.exit(main())
