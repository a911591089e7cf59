"""What tests of several actors share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write files at once: a virtual clock does not wait for a thread."""

    async def run_here(function: Callable[..., object], *arguments: object) -> object:
        await trio.lowlevel.checkpoint()
        return function(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_here)
