"""The commands that the bundle runs, on real FRR."""

from __future__ import annotations

import pytest

from supervisor.operations.bundle.sources import SHOWS

from .harness import FrrInstance


@pytest.mark.parametrize("command", SHOWS)
def test_frr_has_the_command(shared_frr: FrrInstance, command: str) -> None:
    answer = shared_frr.vtysh(command)
    for complaint in ("Unknown command", "Command incomplete", "Ambiguous command"):
        assert complaint not in answer
