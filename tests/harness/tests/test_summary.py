"""What ``make test`` says last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUMMARY = Path(__file__).resolve().parents[3] / "tests/harness/summary.py"
SUITE = (
    '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}" time="2.4">{}</testsuite></testsuites>'
)


def leave(directory: Path, run: str, status: int, counts: tuple[int, int, int, int], inside: str = "") -> None:
    (directory / f"{run}.xml").write_text(SUITE.format(*counts, inside))
    (directory / f"{run}.status").write_text(f"{status}\n")


def summary(directory: Path, *runs: str) -> tuple[int, list[str]]:
    command = [sys.executable, str(SUMMARY), str(directory), *runs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.splitlines()


def test_runs_are_added_up(tmp_path: Path) -> None:
    leave(tmp_path, "check", 0, (10, 0, 0, 1))
    leave(tmp_path, "guest", 1, (5, 1, 1, 0))
    assert summary(tmp_path, "check", "guest") == (
        1,
        [
            "   check: 9 passed, 0 failed, 1 skipped in 2s",
            "   guest: 3 passed, 2 failed, 0 skipped in 2s",
            "total: 12 passed, 2 failed, 1 skipped",
        ],
    )


def test_a_run_without_results_or_with_a_bad_end_is_a_failure(tmp_path: Path) -> None:
    leave(tmp_path, "check", 3, (10, 0, 0, 0))
    code, lines = summary(tmp_path, "check", "guest")
    assert code == 1
    assert lines[-1] == "total: 10 passed, 2 failed, 0 skipped"


def test_a_run_that_was_skipped_as_a_whole_says_why(tmp_path: Path) -> None:
    skipped = '<testcase><skipped message="no Go 1.13 or newer" /></testcase>'
    leave(tmp_path, "check", 0, (2, 0, 0, 1), skipped)
    leave(tmp_path, "cluster", 0, (2, 0, 0, 2), skipped * 2)
    code, lines = summary(tmp_path, "check", "cluster")
    assert code == 0
    assert lines[0] == "   check: 1 passed, 0 failed, 1 skipped in 2s"
    assert lines[1] == " cluster: 0 passed, 0 failed, 2 skipped in 2s: no Go 1.13 or newer"
