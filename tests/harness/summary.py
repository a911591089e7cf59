#!/usr/bin/env python3
"""Adds up the test runs of ``make test``: one line a run, and one line for all of them, last.

    summary.py DIRECTORY RUN...

Each run has to have left ``DIRECTORY/RUN.xml`` (JUnit's format) and its exit status in ``DIRECTORY/RUN.status``; a run
that left none, or that ended badly without naming a failed test, counts as a failure of its own. A run whose tests were
all skipped says why. The exit code is 1 when anything failed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree


@dataclass(frozen=True, slots=True)
class Counts:
    """Tests by outcome; an error (in a fixture, say) is a failure. ``seconds`` is what the run says it took.

    ``excuse`` is why a test was skipped, if one was.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    excuse: str = ""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.seconds + other.seconds,
            self.excuse or other.excuse,
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped in {self.seconds:.0f}s"


def read_run(directory: Path, run: str) -> Counts:
    """Return one run's counts."""
    try:
        # Our own test runner's file, no foreign input.
        suites = list(ElementTree.parse(directory / f"{run}.xml").iter("testsuite"))  # noqa: S314
        status = int((directory / f"{run}.status").read_text())
    except (OSError, ValueError, ElementTree.ParseError):
        return Counts(failed=1)
    counts = sum((_of_suite(suite) for suite in suites), Counts())
    if status != 0 and counts.failed == 0:
        return counts + Counts(failed=1)
    return counts


def summarise(directory: Path, runs: Iterable[str]) -> Counts:
    """Print the lines; return the total."""
    total = Counts()
    for run in runs:
        counts = read_run(directory, run)
        all_skipped = counts.skipped and not counts.passed and not counts.failed
        print(f"{run:>8}: {counts}{f': {counts.excuse}' if all_skipped else ''}")
        total += counts
    # Alone on the last line, in the form that is read for the outcome.
    print(f"total: {total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return total


def _of_suite(suite: ElementTree.Element) -> Counts:
    tests, failures, errors, skipped = (
        int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    excuse = next((skip.get("message", "") for skip in suite.iter("skipped")), "")
    return Counts(tests - failed - skipped, failed, skipped, float(suite.get("time", "0")), excuse)


if __name__ == "__main__":
    sys.exit(1 if summarise(Path(sys.argv[1]), sys.argv[2:]).failed else 0)
