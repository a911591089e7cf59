"""The custom resource definitions in packaging match the models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_definitions_are_current() -> None:
    """Fix it with ``python3 packaging/crds/generate.py --write``."""
    command = [sys.executable, str(ROOT / "packaging/crds/generate.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    files = sorted((ROOT / "packaging/crds").glob("*.yaml"), key=lambda path: printed.find(path.read_text()))
    assert "".join(path.read_text() for path in files) == printed
