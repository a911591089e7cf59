"""The page on compatibility describes the cluster's side as the code does it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from actors.status_writer.node_events import INDEX_REPLACED
from config.api import INDEX_ANNOTATION
from config.crd.conditions import PENDING
from config.crd.node_status import FailedKind

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/compatibility.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
#: Kinds of ``failedResources`` in upstream's definition (reference 2.9).
UPSTREAMS = {"Underlay", "L2VNI", "L3VNI", "FrrConfiguration", "L3Passthrough", "L3VPN"}
#: Tests that the page names, as pytest does.
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_each_of_upstream_s_tests_has_a_counterpart_or_is_listed_without() -> None:
    _, section = PAGE.split("## Upstream's end-to-end tests\n")
    rows = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")]
    assert [line for line in rows[1:] if "`tests/" not in line] == []
    assert len(rows) > 30


@pytest.mark.parametrize(("path", "test"), NAMED, ids=[f"{path}::{test}" for path, test in NAMED])
def test_a_named_test_exists(path: str, test: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert test in names, f"{path} has no {test}"


def test_the_api_server_is_not_promised_for_later() -> None:
    [status] = [row[1] for row in ROWS if row[0].startswith("the API server")]
    assert status == "same"


@pytest.mark.parametrize(
    "word", sorted({PENDING, INDEX_ANNOTATION, INDEX_REPLACED} | set(get_args(FailedKind)) - UPSTREAMS)
)
def test_what_upstream_does_not_write_is_named(word: str) -> None:
    assert any(f"`{word}`" in cell for row in ROWS for cell in row[1:])
