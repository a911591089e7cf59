"""The commands that the pages, the catalog and the alerts have for operators are commands that the program takes.

Those of docs/operations.md run on a guest (``tests/guest/test_operations_page.py``); all are parsed here, each by the
program's own parser: a verb, option or subject that is gone or misspelt is found.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli.program import build_parser
from tests.checks.sources import ROOT

PAGES = (
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "recipes").glob("*.md")),
    ROOT / "README.md",
    ROOT / "packaging" / "catalog" / "openperouter.catalog",
    ROOT / "packaging" / "monitoring" / "openperouter-rules.yaml",
)
#: In Markdown a span or a line of a shell block; in the catalog and the rules a quotation.
_MARKDOWN = re.compile(r"`(openperouter [^`\n]+)`|^(?:\w+[$#] )?(openperouter [^\n]+)$", re.MULTILINE)
_QUOTED = re.compile(r"""["'`](openperouter [a-z][^"'`]+)["'`]""")
#: What only shows how a command is called.
_SYNOPSIS = re.compile(r"[\[\]{}|…]|\.\.\.|@")


def commands(page: Path) -> Iterator[str]:
    text = page.read_text()
    if page.suffix == ".md":
        found = [span or line for span, line in _MARKDOWN.findall(text)]
    else:
        found = _QUOTED.findall(re.sub(r"\s+", " ", text))
    for command in found:
        bare = re.split(r" #|\s[|<>&;]+\s|\s2?>", command)[0].strip().rstrip("\\").strip().rstrip(".,:")
        if not _SYNOPSIS.search(bare):
            yield bare


FOUND = sorted({command for page in PAGES for command in commands(page)})


def words(command: str) -> list[str]:
    given = shlex.split(command)[1:]
    return [re.sub(r"^[A-Z][A-Z0-9-]*$", "7", word) for word in given]


def test_the_commands_are_found() -> None:
    verbs = {words(command)[0] for command in FOUND}
    assert {"status", "doctor", "show", "vtysh", "plan", "reload", "bundle", "try", "logs"} <= verbs
    assert len(FOUND) > 60
    for page in (ROOT / "docs" / "alerts.md", ROOT / "packaging" / "catalog" / "openperouter.catalog"):
        assert len(list(commands(page))) > 5, page


@pytest.mark.parametrize("command", FOUND)
def test_the_program_takes_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert build_parser().parse_args(words(command)).verb
    except SystemExit:
        # A text may name a command without its arguments; then it names nothing else.
        assert "the following arguments are required" in capsys.readouterr().err
        assert all(word.isalpha() for word in words(command))


def test_a_misspelt_one_would_be_found(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("openperouter show sesion red", "openperouter status --wach", "openperouter stats"):
        with pytest.raises(SystemExit):
            build_parser().parse_args(words(wrong))
    assert "sesion" in capsys.readouterr().err
