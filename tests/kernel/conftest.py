"""Fixtures of the tests on a real kernel: two throw-away namespaces, and a NIC in one of them.

They need root and a kernel with VRF, so they run in the machine of ``tests/harness/uml/run.py``, which sets
OPENPEROUTER_KERNEL_TESTS=1. Anywhere else they are skipped, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.node import Node

#: Of one test: a case for each step of a plan takes a minute on an idle machine, and it may be busy.
LIMIT_SECONDS = 900
SWITCH = "OPENPEROUTER_KERNEL_TESTS"
REASON = f"needs root and a kernel with VRF: run in tests/harness/uml/run.py, which sets {SWITCH}=1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kernel)
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))
            if os.environ.get(SWITCH) != "1":
                item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Return a node whose host namespace is the machine's own, cleaned before and after."""
    node = Node(tmp_path / "state")
    node.build()
    try:
        yield node
    finally:
        node.close()
