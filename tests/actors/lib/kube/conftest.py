"""A clock for real sockets."""

from __future__ import annotations

import pytest
import trio.testing


@pytest.fixture
def mock_clock() -> trio.testing.MockClock:
    """Return a clock that jumps over silence, but not over the moment that the loopback needs."""
    return trio.testing.MockClock(autojump_threshold=0.1)
