"""Sessions with mgmtd while a configuration is written: ours keep out of its way, a stranger's is got over."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from actors.lib.frr.vtysh import Vtysh
from config.settings import Settings
from tests.actors.frr.cases import CASES

from .harness import FrrInstance, is_alive
from .test_apply import Bench

#: With two others that read all the time, one of the first thirty was spoiled whenever nobody kept out of the way.
ROUNDS = 60
MOST_ROUNDS = 400
ADDED = "vrf red\n vni 100\nexit-vrf\n"
REMOVED = "vrf red\n no vni 100\nexit-vrf\n"


async def test_our_own_readers_spoil_no_commit(frr: FrrInstance, settings: Settings) -> None:
    bench = Bench(frr, settings)
    # Whoever starts FRR just before finds the daemons still being given their configuration.
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
def strangers(frr: FrrInstance) -> Iterator[None]:
    """Two shells that read all the time and know of no lock."""
    command = f"while :; do vtysh -N {frr.name} -c 'show running-config' >/dev/null 2>&1; done"
    shells = [subprocess.Popen(["sh", "-c", command], process_group=0) for _ in range(2)]
    try:
        yield
    finally:
        for shell in shells:
            shell.kill()
            shell.wait()


async def test_a_commit_that_a_strangers_session_spoiled_is_got_over(frr: FrrInstance, settings: Settings) -> None:
    bench = Bench(frr, settings)
    await bench.applied(CASES["basic"])
    mgmtd = frr.pid("mgmtd")
    with strangers(frr):
        for _ in range(MOST_ROUNDS):
            await bench.driver.send(REMOVED)
            await bench.driver.send(ADDED)
            if not is_alive(mgmtd):
                break
        else:
            pytest.skip("this FRR's mgmtd does not mind other sessions")
    # It was ended for its lock, or ended by itself. watchfrr's part: a new one, which reads what is on disk.
    frr.start("mgmtd")
    frr.boot("mgmtd")
    await bench.applied(CASES["basic"])
