"""The bundle's questions to FRR, asked of a real one."""

from __future__ import annotations

import pytest

from supervisor.operations.bundle.sources import SHOWS

from .harness import FrrInstance


@pytest.mark.parametrize("command", SHOWS)
def test_frr_knows_the_command(shared_frr: FrrInstance, command: str) -> None:
    answer = shared_frr.vtysh(command)
    for complaint in ("Unknown command", "Command incomplete", "Ambiguous command"):
        assert complaint not in answer
