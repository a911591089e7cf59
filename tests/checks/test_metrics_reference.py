"""The page of all metrics describes those that exist, and each of them is exported by something."""

from __future__ import annotations

import re
import subprocess
import sys

from actors.lib.metrics.descriptions import DESCRIPTIONS

from .sources import ROOT


def test_the_metrics_reference_is_current() -> None:
    """Fix it with ``python3 packaging/docs/metrics_reference.py --write``."""
    command = [sys.executable, str(ROOT / "packaging/docs/metrics_reference.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert (ROOT / "docs/metrics.md").read_text() == printed


def test_each_metric_is_set_or_counted_somewhere() -> None:
    code = "".join((ROOT / "actors/lib/metrics" / name).read_text() for name in ("exposition.py", "counters.py"))
    assert set(re.findall(r'"(\w+)"', code)) >= DESCRIPTIONS.keys()
    constants = dict(re.findall(r'^([A-Z_]+): Final = \w+\("(\w+)"\)', code, re.MULTILINE))
    actors = [path.read_text() for path in (ROOT / "actors").rglob("*.py") if "lib/metrics" not in str(path)]
    unused = [name for name in constants if not any(re.search(rf"\b{name}\b", text) for text in actors)]
    assert not unused


def test_each_metric_that_a_document_names_exists() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        for name in re.findall(r"`openperouter_(\w+)`", page.read_text()):
            assert name in DESCRIPTIONS, f"{page.name}: openperouter_{name}"
