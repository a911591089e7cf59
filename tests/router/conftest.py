"""Tests of a whole node need root, a kernel with VRF devices and FRR's programs: ``OPENPEROUTER_KERNEL_TESTS=1``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="needs a kernel with VRF and FRR: make test-uml")
    for item in items:
        if HERE in item.path.parents and os.environ.get("OPENPEROUTER_KERNEL_TESTS") != "1":
            item.add_marker(skip)
