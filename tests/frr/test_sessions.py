"""Sessions with mgmtd while a configuration is written: ours wait for one another, others' effects are repaired."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from actors.frr import mgmtd_recovery
from actors.frr.driver import VtyshDriver
from actors.lib.frr.vtysh import Vtysh
from config.desired import DesiredState
from config.settings import Settings
from tests.actors.frr.cases import CASES

from .harness import LOCKED, FrrInstance, is_alive
from .test_apply import Bench

#: With two other clients that read all the time and no lock, FRR 10.3 lost one commit in twelve and broke one in 150.
ROUNDS = 30
#: Changes beside other clients: about as many of them break a commit as do not.
CHANGES = 12
#: For several recoveries; watchfrr's pauses between restarts grow to ten minutes.
PATIENCE = 1200.0
ADDED = "vrf red\n vni 100\nexit-vrf\n"
REMOVED = "vrf red\n no vni 100\nexit-vrf\n"


async def test_our_own_readers_break_no_commit(frr: FrrInstance, settings: Settings) -> None:
    bench = Bench(frr, settings)
    await bench.applied(CASES["basic"])
    driver, mgmtd = bench.driver, frr.pid("mgmtd")
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
            assert await answer_to(driver, ADDED) == ""
            assert await answer_to(driver, REMOVED) == ""
            with trio.fail_after(180):
                await read.wait()
            read = trio.Event()
        nursery.cancel_scope.cancel()
    # What a broken commit leaves behind would have been recovered from.
    assert frr.pid("mgmtd") == mgmtd
    assert is_alive(mgmtd)


async def answer_to(driver: VtyshDriver, commands: str) -> str:
    """Send what is refused while mgmtd sends its configuration to a daemon that has just connected."""
    with trio.fail_after(180):
        while LOCKED in (answer := await driver.send(commands)):  # noqa: ASYNC110 - FRR gives no notice
            await trio.sleep(0.1)
    return answer


@contextmanager
def other_clients(frr: FrrInstance, enter: str) -> Iterator[None]:
    """Shells that read and configure all the time, ignore our lock, and are killed in the middle of it."""
    vtysh = f"{enter} timeout -s KILL 0.0$(shuf -i 10-99 -n 1) vtysh -N {frr.name}"
    foreign = "-c 'configure terminal' -c 'vrf foreign' -c 'vni 4711' -c 'no vni 4711'"
    commands = (f"{vtysh} -c 'show running-config'", f"{vtysh} -c 'show version'", f"{vtysh} {foreign}")
    loops = [f"while :; do {command} >/dev/null 2>&1; done" for command in commands]
    shells = [subprocess.Popen(["sh", "-c", loop], process_group=0) for loop in loops]
    try:
        yield
    finally:
        for shell in shells:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


async def until_applied(bench: Bench, desired: DesiredState) -> None:
    """Retry as the actor does, until no resource has failed either."""
    while not (outcome := await bench.apply(desired)).applied or outcome.failures:  # noqa: ASYNC110 - no notice
        await trio.sleep(1.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mgmtd_recovery, "COMMIT_SECONDS", 5.0)
    monkeypatch.setattr(mgmtd_recovery, "PAUSE_SECONDS", 5.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["where we are", "in FRR's namespace"])
async def test_the_router_ends_verified_whatever_other_clients_do(
    watched_frr: FrrInstance, settings: Settings, elsewhere: bool
) -> None:
    bench = Bench(watched_frr, settings)
    await until_applied(bench, CASES["basic"])
    with trio.fail_after(PATIENCE):
        with other_clients(watched_frr, watched_frr.enter if elsewhere else ""):
            for _ in range(CHANGES):
                # One that fails is not waited for: what counts is the end.
                await bench.apply(CASES["two_l3vnis"])
                await bench.apply(CASES["basic"])
        # One of them needs mgmtd, whichever change came through last.
        await until_applied(bench, CASES["two_l3vnis"])
        await until_applied(bench, CASES["dual_stack"])
    assert not await bench.leftover(CASES["dual_stack"])
    assert not (await bench.applied(CASES["dual_stack"])).changed


@pytest.mark.usefixtures("impatient")
@pytest.mark.timeout(2 * PATIENCE)
async def test_an_mgmtd_that_does_not_answer_is_replaced(watched_frr: FrrInstance, settings: Settings) -> None:
    bench = Bench(watched_frr, settings)
    await until_applied(bench, CASES["basic"])
    hanging = watched_frr.pid("mgmtd")
    watched_frr.kill("mgmtd", signal.SIGSTOP)
    with trio.fail_after(PATIENCE):
        await until_applied(bench, CASES["dual_stack"])
    assert not is_alive(hanging)
    assert watched_frr.pid("mgmtd") != hanging
    assert not (await bench.applied(CASES["dual_stack"])).changed
