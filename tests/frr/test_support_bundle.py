"""The commands that the bundle and the doctor run, on real FRR."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.lib.frr.processes import DAEMONS
from supervisor.operations.bundle.sources import SHOWS
from supervisor.operations.doctor.frr import read_frr

from .conftest import settings_for
from .harness import FrrInstance


@pytest.mark.parametrize("command", SHOWS)
def test_frr_has_the_command(shared_frr: FrrInstance, command: str) -> None:
    answer = shared_frr.vtysh(command)
    for complaint in ("Unknown command", "Command incomplete", "Ambiguous command"):
        assert complaint not in answer


async def test_each_daemon_answers_the_doctor(shared_frr: FrrInstance, tmp_path: Path) -> None:
    found = await read_frr(settings_for(shared_frr.name, tmp_path))
    assert (found.running, found.silence) == (DAEMONS, "")
