"""A running mirror for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from config.settings import Settings

from .bench import Bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        bench = Bench(Settings(state_dir=tmp_path, namespace="ns"))
        nursery.start_soon(bench.start)
        await bench.settle()
        yield bench
        nursery.cancel_scope.cancel()
