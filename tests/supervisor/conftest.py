"""Fixtures for tests of the tree."""

from __future__ import annotations

import pytest

from tests.supervisor.runtime.trees import Diary


@pytest.fixture
def diary() -> Diary:
    return Diary()
