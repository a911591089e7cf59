"""From any running configuration to any other: random walks on real FRR.

Whatever FRR runs, also after an apply that was killed midway and after bgpd's own restart: a valid configuration is
applied and verified, FRR shows what a fresh FRR shows of it, and applying it again writes nothing. There are no
devices, so no L3VNI is up: ``test_fabric`` has the route targets of one that is.

``OPENPEROUTER_WALK_SECONDS`` is the length, ``OPENPEROUTER_WALK_SEED`` repeats a walk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from actors.frr.apply import Applier
from actors.frr.diff.difference import parse
from actors.frr.driver import VtyshDriver
from config.desired import DesiredState
from supervisor.runtime.faults import DependencyFault

from .conftest import settings_for
from .harness import DAEMONS, FrrInstance, running_frr
from .random_states import Walk
from .test_apply import Bench

SECONDS = float(os.environ.get("OPENPEROUTER_WALK_SECONDS", "30"))
SEED = int(os.environ.get("OPENPEROUTER_WALK_SEED", "1"))


class MortalDriver(VtyshDriver):
    """Sends as many lines as it may, and then ends as a process that is killed does."""

    lines: int | None = None
    writes = 0

    async def send(self, commands: str) -> str:
        self.writes += 1
        if self.lines is None:
            return await super().send(commands)
        lines = commands.splitlines(keepends=True)
        complaints = await super().send("".join(lines[: self.lines]))
        self.lines -= len(lines)
        if self.lines <= 0:
            raise DependencyFault("killed")
        return complaints


@dataclass
class Walker:
    """Takes one FRR from configuration to configuration; a second one is started for a single one each time."""

    bench: Bench
    driver: MortalDriver
    fresh: Bench
    draw: Random

    async def step(self, walk: Walk) -> None:
        desired = walk.step()
        if self.draw.random() < 0.2:
            self.driver.lines = self.draw.randint(1, 60)
            await self.bench.apply(desired)
            self.driver.lines = None
            desired = walk.step()
        await self.bench.applied(desired)
        before = self.driver.writes
        assert not (await self.bench.applied(desired)).changed
        assert self.driver.writes == before
        if self.draw.random() < 0.1:
            await self.restart_bgpd(desired)
        if self.draw.random() < 0.1:
            await self.compare_with_fresh(desired)

    async def restart_bgpd(self, desired: DesiredState) -> None:
        frr = self.bench.frr
        frr.kill("bgpd")
        frr.start("bgpd")
        frr.boot("bgpd")
        await self.bench.applied(desired)

    async def compare_with_fresh(self, desired: DesiredState) -> None:
        frr = self.fresh.frr
        frr.stop()
        frr.prepare()
        frr.start()
        await self.fresh.applied(desired)
        assert parse(await self.driver.running()) == parse(await self.fresh.driver.running())


@pytest.fixture
def walker(frr: FrrInstance, tmp_path: Path) -> Iterator[Walker]:
    with running_frr("frrfresh", start=False) as fresh:
        bench, driver = Bench(frr, settings_for(frr.name, tmp_path)), MortalDriver(settings_for(frr.name, tmp_path))
        bench.driver, bench.applier = driver, Applier(driver, frr.conf)
        reference = Bench(fresh, settings_for(fresh.name, tmp_path / "fresh"))
        yield Walker(bench, driver, reference, Random(SEED))  # noqa: S311 - no secret


@pytest.mark.timeout(SECONDS + 300)
async def test_any_configuration_follows_any_other(walker: Walker) -> None:
    walk, end, steps = Walk(SEED), time.monotonic() + SECONDS, 0
    pids = {daemon: walker.bench.frr.pid(daemon) for daemon in DAEMONS if daemon != "bgpd"}
    while time.monotonic() < end:
        # Of a failure pytest shows it.
        print(f"OPENPEROUTER_WALK_SEED={SEED} step {steps}", flush=True)  # noqa: T201
        await walker.step(walk)
        steps += 1
    assert {daemon: walker.bench.frr.pid(daemon) for daemon in pids} == pids
