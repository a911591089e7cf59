"""The actor's fixture."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from .actor_bench import Bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.serve)
        await trio.testing.wait_all_tasks_blocked()
        yield bench
        nursery.cancel_scope.cancel()
