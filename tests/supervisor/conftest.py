"""Fixtures for tests of the supervisor."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.supervisor.runtime.trees import Diary


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Restore what a test that configures logging changes for the whole process: handlers and levels."""
    root, ours = logging.getLogger(), logging.getLogger("openperouter")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    for logger, level in zip((root, ours), levels, strict=True):
        logger.setLevel(level)
