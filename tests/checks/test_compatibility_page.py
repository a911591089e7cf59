"""The page on compatibility describes the cluster's side as the code does it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from actors.status_writer.node_events import INDEX_REPLACED
from config.api import INDEX_ANNOTATION
from config.crd.conditions import PENDING
from config.crd.node_status import FailedKind

PAGE = (Path(__file__).resolve().parents[2] / "docs/compatibility.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
#: Kinds of ``failedResources`` in upstream's definition (reference 2.9).
UPSTREAMS = {"Underlay", "L2VNI", "L3VNI", "FrrConfiguration", "L3Passthrough", "L3VPN"}


def test_the_api_server_is_not_promised_for_later() -> None:
    [status] = [row[1] for row in ROWS if row[0].startswith("the API server")]
    assert status == "same"


@pytest.mark.parametrize(
    "word", sorted({PENDING, INDEX_ANNOTATION, INDEX_REPLACED} | set(get_args(FailedKind)) - UPSTREAMS)
)
def test_what_upstream_does_not_write_is_named(word: str) -> None:
    assert any(f"`{word}`" in cell for row in ROWS for cell in row[1:])
