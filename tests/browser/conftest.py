"""Tests of the page in a real browser: they need Debian's headless Chromium, and run without any network.

``make test-browser`` installs the browser and starts the tests in a network namespace that has only loopback. Anywhere
else they are skipped, with the reason; where CI is set, a missing browser is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.browser import Browser

SWITCH = "OPENPEROUTER_BROWSER_TESTS"
#: The small one first; a machine that has the whole browser needs no other.
PROGRAMS = ("chromium-headless-shell", "chromium")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if os.environ.get(SWITCH) == "1":
        return
    for item in items:
        if here in item.path.parents:
            item.add_marker(
                pytest.mark.skip(reason=f"needs a browser and no network: make test-browser sets {SWITCH}=1")
            )


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser, started once."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        assert not os.environ.get("CI"), "no chromium-headless-shell or chromium"
        pytest.skip("no chromium-headless-shell or chromium")
    with Browser(program, tmp_path_factory.mktemp("browser")) as started:
        yield started
