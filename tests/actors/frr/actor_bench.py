"""The actor on a fake FRR and a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import trio

from actors.frr.actor import FrrActor
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.fakes.frr import FakeFrr

from .cases import CASES

BASIC = CASES["basic"]
MOVED = replace(BASIC, generation=2, l3vnis=(replace(BASIC.l3vnis[0], vrf="crimson"),))


class Bench:
    def __init__(self, directory: Path) -> None:
        self.frr = FakeFrr()
        self.settings = Settings(
            frr_etc_dir=directory / "etc", frr_run_dir=directory / "run", frr_pathspace="p", audit_interval_seconds=60
        )
        (directory / "etc" / "p").mkdir(parents=True)
        self.sockets = directory / "run" / "p"
        self.sockets.mkdir(parents=True)
        self.context = ActorContext("frr")
        self.desired: Latest[DesiredState] = Latest("desired")
        self.kernel: Latest[KernelOutcome] = Latest("kernel")
        self.health: Latest[HealthReport] = Latest("health")
        self.changing = trio.Lock()
        self.out: Latest[FrrOutcome] = Latest("frr")

    async def serve(self) -> None:
        await FrrActor(
            self.context,
            self.settings,
            self.frr,
            desired=self.desired.reader(),
            kernel=self.kernel.reader(),
            health=self.health.reader(),
            changing=self.changing,
            out=self.out,
            jitter=lambda: 0.5,
        ).serve()

    def outcome(self) -> FrrOutcome:
        outcome = self.out.peek()
        assert outcome is not None
        return outcome


async def until(check: Callable[[], bool], seconds: float = 600) -> None:
    with trio.fail_after(seconds):
        while not check():  # noqa: ASYNC110 - a virtual clock, and nothing else to wait for
            await trio.sleep(0.05)


async def in_force(bench: Bench) -> None:
    """Apply the first state; the kernel has it as well."""
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1)
    bench.kernel.set(KernelOutcome(BASIC, applied=True))
    await trio.sleep(1)
