"""A disk that takes its time with the file that FRR boots with."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.frr import apply
from actors.frr.apply import Applier
from actors.frr.render.render import render
from config.outcomes import FrrOutcome
from supervisor.process.atomic_file import write_atomic
from tests.fakes.frr import FakeFrr

from .cases import CASES, HOSTNAME


async def test_a_slow_disk_does_not_stop_the_other_actors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, others_worked = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()
    waited: list[bool] = []
    outcomes: list[FrrOutcome] = []

    def slow(path: Path, text: str, **how: Any) -> None:
        token.run_sync_soon(begun.set)
        waited.append(others_worked.wait(10))
        write_atomic(path, text, **how)

    async def change() -> None:
        rendered = render(CASES["basic"], hostname=HOSTNAME)
        outcomes.append(await applier.apply(CASES["basic"], rendered))

    monkeypatch.setattr(apply, "write_atomic", slow)
    applier = Applier(FakeFrr(vrf_devices={"red", "blue"}), tmp_path / "frr.conf", group="no-such-group")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await begun.wait()
        others_worked.set()
    assert waited == [True]
    assert outcomes[0].applied
    assert (tmp_path / "frr.conf").read_text() == render(CASES["basic"], hostname=HOSTNAME).text
