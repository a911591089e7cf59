"""What ``openperouter run`` imports before it does anything: on a slow node that is half of a start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Every library that a start needs, with what those need themselves. A further one costs each start, on every node.
LIBRARIES = frozenset({
    "attr", "attrs", "idna", "outcome", "sniffio", "sortedcontainers", "trio",
    "annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection",
    "jinja2", "markupsafe", "yaml", "sdnotify",
})  # fmt: skip
#: Large modules that other programs of ours need, or the daemon in some cases only, where they are imported.
LATER = frozenset({
    "asyncio", "html", "http", "multiprocessing", "urllib.request", "wsgiref", "xml",
    "actors.controller", "actors.webhook", "config.admission", "config.reference", "supervisor.operations.bundle",
    "supervisor.operations.cluster", "supervisor.operations.doctor", "supervisor.process.http_server",
})  # fmt: skip
_CODE = """
import json, sys
before = set(sys.modules)
from supervisor.cli.program import build_parser
build_parser("run")
import supervisor.main
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def imported() -> frozenset[str]:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True, timeout=100)
    return frozenset(json.loads(done.stdout))


def test_a_start_imports_no_other_libraries(imported: frozenset[str]) -> None:
    ours = {"actors", "config", "supervisor"}
    packages = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names - ours
    # Compiled modules and Python's own description of its build have names that differ by platform.
    assert {name for name in packages if not name.startswith(("_", "cython"))} <= LIBRARIES
    assert {"trio", "pydantic", "jinja2", "yaml"} <= packages


def test_a_start_imports_nothing_that_it_needs_only_later(imported: frozenset[str]) -> None:
    assert "supervisor.wiring" in imported
    assert not imported & LATER
