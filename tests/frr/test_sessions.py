"""Sessions with mgmtd while a configuration is written: ours wait for one another, others' effects are repaired."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from actors.lib.frr.vtysh import Vtysh
from config.settings import Settings
from tests.actors.frr.cases import CASES

from .harness import FrrInstance, is_alive
from .test_apply import Bench

#: With two other clients that read all the time and no lock, FRR 10.3 broke one of the first thirty commits.
ROUNDS = 60
ADDED = "vrf red\n vni 100\nexit-vrf\n"
REMOVED = "vrf red\n no vni 100\nexit-vrf\n"


async def test_our_own_readers_break_no_commit(frr: FrrInstance, settings: Settings) -> None:
    bench = Bench(frr, settings)
    # Just after their start mgmtd is still sending the daemons their configuration.
    await bench.applied(CASES["basic"])
    driver = bench.driver
    read = trio.Event()

    async def keep_reading() -> None:
        while True:
            # Each is a session, as of "openperouter show frr" in another process.
            await Vtysh.of(settings).text("show running-config")
            read.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_reading)
        nursery.start_soon(keep_reading)
        for _ in range(ROUNDS):
            assert await driver.send(ADDED) == ""
            assert await driver.send(REMOVED) == ""
            with trio.fail_after(30):
                await read.wait()
            read = trio.Event()
        nursery.cancel_scope.cancel()


@contextmanager
def other_clients(frr: FrrInstance) -> Iterator[None]:
    """Two shells that read all the time and ignore our lock."""
    command = f"while :; do vtysh -N {frr.name} -c 'show running-config' >/dev/null 2>&1; done"
    shells = [subprocess.Popen(["sh", "-c", command], process_group=0) for _ in range(2)]
    try:
        yield
    finally:
        for shell in shells:
            shell.kill()
            shell.wait()


async def test_a_configuration_is_applied_after_commits_beside_other_clients(
    frr: FrrInstance, settings: Settings
) -> None:
    bench = Bench(frr, settings)
    await bench.applied(CASES["basic"])
    mgmtd = frr.pid("mgmtd")
    with other_clients(frr):
        for _ in range(ROUNDS):
            await bench.driver.send(REMOVED)
            await bench.driver.send(ADDED)
            if not is_alive(mgmtd):
                break
    if not is_alive(mgmtd):
        # It was ended for its lock, or crashed. watchfrr's part: a new one, which loads what is on disk.
        frr.start("mgmtd")
        frr.boot("mgmtd")
    # Whether a commit was broken or not: FRR takes the configuration, runs exactly that, and is left unlocked.
    await bench.applied(CASES["dual_stack"])
    await bench.applied(CASES["basic"])
    assert not (await bench.applied(CASES["basic"])).changed
