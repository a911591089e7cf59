"""What a guest test runs of docs/operations.md: each command can fail, and the page has what operators ask for."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.guest.test_operations_page import COMPLETE, PAGE, blocks, runnable


def status_of(block: str) -> int:
    return subprocess.run(["sh", "-c", runnable(block)], check=False, capture_output=True).returncode


@pytest.mark.parametrize(
    ("block", "passes"),
    [
        ("true\n", True),
        ("false\ntrue\n", False),
        ("sh -c 'exit 78'    # exits with 78\n", True),
        ("sh -c 'exit 1'    # exits with 78\ntrue\n", False),
        ("true    # exits with 78\ntrue\n", False),
    ],
)
def test_a_block_fails_where_something_else_happens_than_the_page_says(block: str, *, passes: bool) -> None:
    assert (status_of(block) == 0) is passes


def test_no_command_hides_its_failure() -> None:
    hiding = re.compile(r"\|\| *(true|:)|; *true|\|\| test \$\? -(ne|ge|le)")
    assert [block for block in blocks() if hiding.search(block)] == []


@pytest.mark.parametrize(
    "words",
    [
        "openperouter validate              # exits with 78",
        "journalctl --no-pager -x",
        "openperouter try --timeout 300 --detach /root/openpe_underlay.yaml",
        "apt-get install -y ./newer/openperouter_*.deb",
        "apt-get install -y --allow-downgrades",
        "openperouter teardown --yes",
    ],
)
def test_what_operators_ask_for_is_run(words: str) -> None:
    assert any(words in block for block in blocks())


def test_each_topic_has_its_section() -> None:
    sections = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    assert {"Installing", "First configuration", "Reading the journal", "Changing the underlay"} <= set(sections)
    assert {"Upgrading", "Getting out of trouble"} <= set(sections)


def test_the_runbook_is_run_once() -> None:
    assert [COMPLETE in block for block in blocks()].count(True) == 1
