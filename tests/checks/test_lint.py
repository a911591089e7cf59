"""The linter, the formatter and the type checker find nothing. Their settings are in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .sources import ROOT

#: On a machine that has much else to do.
_SECONDS = 900


@pytest.mark.timeout(_SECONDS)
@pytest.mark.parametrize(
    "tool",
    [
        ("ruff", "check", "--quiet", "."),
        ("ruff", "format", "--quiet", "--check", "."),
        # Its cache once hid an error: files that change while mypy runs may be missed by the next run.
        ("mypy", "--cache-dir=/dev/null"),
    ],
    ids=" ".join,
)
def test_nothing_is_found_by(tool: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
