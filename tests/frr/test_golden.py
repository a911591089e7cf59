"""Every golden configuration means to real FRR exactly what we think it means.

One FRR takes them one after the other, so that each is also reached from one that has nothing to do with it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.frr.render.render import render
from tests.actors.frr.cases import CASES

from .conftest import settings_for
from .harness import FrrInstance
from .test_apply import HOST, Bench


@pytest.mark.parametrize("name", CASES)
async def test_a_golden_configuration_is_accepted_and_reads_back_equal(
    name: str, shared_frr: FrrInstance, tmp_path: Path
) -> None:
    bench = Bench(shared_frr, settings_for(shared_frr.name, tmp_path))
    outcome = await bench.applied(CASES[name])
    assert not outcome.failures
    assert shared_frr.conf.read_text() == render(CASES[name], hostname=HOST).text
