"""The configuration reference lists what the models accept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_configuration_reference_is_current() -> None:
    """Fix with ``python3 packaging/docs/configuration_reference.py --write``."""
    command = [sys.executable, str(ROOT / "packaging/docs/configuration_reference.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert (ROOT / "docs/configuration.md").read_text() == printed
