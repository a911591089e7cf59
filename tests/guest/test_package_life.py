"""The end of the node's life with the package: upgrades and downgrades under traffic, removal, purge.

These are the package's own tests (debian/tests), on the node that all the others have used.
"""

from __future__ import annotations

import autopkgtest
import pytest

from guestvm.machine import Machine


@pytest.mark.parametrize("test", ["upgrade", "purge"])
def test_package(node: Machine, test: str) -> None:
    done = autopkgtest.run_test(node, test)
    assert done.returncode == 0, done.stdout
