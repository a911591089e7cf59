"""The actor for the tests of faults and refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from config.problems import Kind
from tests.actors.crd_watch.bench import Bench, running


@pytest.fixture(autouse=True)
def _at_once(no_threads: None) -> None:
    """Write the Node's labels without a thread."""


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Yield an actor that follows a server with three objects."""
    async with running(tmp_path) as bench:
        bench.server.put_node()
        for name in ("red", "green", "blue"):
            bench.server.put_kind(Kind.L3VNI, name)
        yield bench
        # Objects that existed all the time were never missing.
        assert all({one.name for one in snapshot.objects} >= {"red", "green"} for snapshot in bench.published)
