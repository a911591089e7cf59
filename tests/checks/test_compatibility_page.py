"""The page on compatibility has each rule of upstream's once, with a test that exists, and what the code writes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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
#: How many rules the inventory of upstream's behaviour has in each area; they are numbered from 1.
AREAS = """
ARCH:17 FILE:5 NC:8 VAL-U:14 VAL-3:8 VAL-2:5 VAL-V:1 VAL-P:1 VAL-H:3 CNV:13 WH:9 MRG:8 MIR:8 CRD:6
IPAM:3 KRN:3 KRN-U:8 KRN-3:1 KRN-2:2 SYS:4 IDEM:4 REM:8 BR:4 OVS:6 HAZ:3 RLD:15 TRG:5 STS:7 UNIT:9 HST:6
E-ST:3 E-MI:10 E-SR:4 E-CN:8 E-HC:16 E-SE:23 E-L3:5 E-L2:4 E-RR:1 E-SV:2 E-PT:2 E-RC:3 E-RS:8 E-NS:1 E-WH:28 E-SC:1
"""
RULES = {area: int(most) for area, most in re.findall(r"(\S+):(\d+)", AREAS)}
#: One rule, or several with consecutive numbers: ``E-HC-5 to 7``.
RULE = re.compile(r"((?:[A-Z]+-)?(?:[A-Z]+[0-9]?|[0-9]))-([0-9]+)(?: to ([0-9]+))?")
#: What a row has instead of a test. ``measured``: by a benchmark, whose figures are in the documentation.
WITHOUT_TEST = {"not built", "no goal", "measured"}


def rules(text: str) -> Iterator[str]:
    """Yield each rule that a cell of the table or a list names."""
    for one in text.split(", "):
        match = RULE.fullmatch(one)
        assert match, f"{one!r} is not a rule"
        area, first, last = match.groups()
        yield from (f"{area}-{number}" for number in range(int(first), int(last or first) + 1))


#: The rows of the tables whose first column is a rule, with the rules of each; without those about no rule.
RULE_ROWS = [(row, list(rules(row[0]))) for row in ROWS if RULE.fullmatch(row[0])]


def test_each_rule_has_one_row_or_is_matched_exactly() -> None:
    matched = [one for line in re.findall(r"^Matched exactly: (.+)\.$", PAGE, re.MULTILINE) for one in rules(line)]
    found = sorted([*matched, *(one for _, named in RULE_ROWS for one in named)])
    assert found == sorted(f"{area}-{number}" for area, most in RULES.items() for number in range(1, most + 1))


@pytest.mark.parametrize(("row", "named"), RULE_ROWS, ids=[row[0] for row, _ in RULE_ROWS])
def test_a_row_of_a_rule_names_a_test_or_what_it_is_instead(row: list[str], named: list[str]) -> None:
    assert named
    assert row[-1] in WITHOUT_TEST or re.fullmatch(r"`tests/[\w/]+\.py::\w+`(, `tests/[\w/]+\.py::\w+`)*", row[-1])


def test_every_row_has_as_many_cells_as_the_head_of_its_table() -> None:
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        head, _, *rows = table.splitlines()
        assert [row for row in rows if row.count("|") != head.count("|")] == []


def test_operator_and_grout_are_said_to_be_elsewhere_or_no_goal() -> None:
    _, section = PAGE.split("## Elsewhere, and no goal\n")
    rows = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")]
    for word in ("operator", "grout"):
        [row] = [row for row in rows[1:] if row.startswith(f"| {word}")]
        assert "| elsewhere: " in row or "| no goal: " in row


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


def test_frr_keeps_routes_over_a_restart_and_opens_no_port_for_terminals() -> None:
    lines = (ROOT / "packaging/frr/perouter/daemons").read_text().splitlines()
    options = {
        name: value.strip('"').split() for name, _, value in (line.partition("_options=") for line in lines) if value
    }
    assert options["zebra"][-2:] == ["-K", "120"]
    assert set(options) == {"zebra", "mgmtd", "bgpd", "staticd", "bfdd"}
    assert [name for name, given in options.items() if given[:2] != ["-P", "0"]] == []
