"""What a guest test runs of docs/alerts.md and docs/journal.md: every command has its place, and each run can fail."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.guest.runbook import NOT_RUN, RUN, commands, on_the_node, script


def run(expected: dict[str, tuple[int, ...]]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", script(expected.items())], capture_output=True, text=True, check=False)


def test_every_command_of_the_pages_is_run_or_says_why_not() -> None:
    assert set(commands()) == RUN.keys() | NOT_RUN.keys()
    assert RUN.keys() & NOT_RUN.keys() == set()


def test_every_placeholder_is_replaced() -> None:
    # What is written in capitals beside fields of the journal.
    left = {command: re.findall(r"(?<![\w-])[A-Z]{2,}[0-9]*(?![\w=])", on_the_node(command)) for command in RUN}
    assert {command: words for command, words in left.items() if set(words) - {"L3VNI"}} == {}
    assert on_the_node("ip link show dev NAME") == "ip link show dev toswitch1"
    assert on_the_node("journalctl -u openperouter RESOURCE='L3VNI red'").endswith("RESOURCE='L3VNI red'")
    assert on_the_node("journalctl MESSAGE_ID=ID") == f"journalctl MESSAGE_ID={'0' * 32}"


@pytest.mark.parametrize("expected", [{"true": (0,)}, {"exit 3": (3,), "true": (0, 1)}, {"echo ' a'": (0,)}])
def test_what_ends_as_expected_passes_and_prints_nothing(expected: dict[str, tuple[int, ...]]) -> None:
    done = run(expected)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        ({"false": (0,), "true": (0,)}, "false exits with 1, not 0:\n"),
        ({"true": (1,)}, "true exits with 0, not 1:\n"),
        ({"echo 'no such NIC'; exit 2": (0, 1)}, "exits with 2, not 0|1:\nno such NIC\n"),
        ({"openperouter-that-is-not-there": (0, 1)}, "exits with 127, not 0|1:\n"),
    ],
)
def test_what_ends_otherwise_fails_and_is_shown(expected: dict[str, tuple[int, ...]], says: str) -> None:
    done = run(expected)
    assert done.returncode == 1
    assert says in done.stdout
