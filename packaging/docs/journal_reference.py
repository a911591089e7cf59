"""Write ``docs/journal.md`` from the log calls, the message IDs and the catalog, so that it cannot differ from them.

``python3 packaging/docs/journal_reference.py`` prints it; ``--write`` replaces the file; a test compares both.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from print_or_write import print_or_write  # noqa: E402

from supervisor.logs import message_ids  # noqa: E402
from supervisor.logs.logger import journal_name  # noqa: E402

TARGET: Final = ROOT / "docs" / "journal.md"
CATALOG: Final = ROOT / "packaging" / "catalog" / "openperouter.catalog"
# ruff: noqa: E501 - the document below is prose in tables
INTRODUCTION: Final = """\
# The journal

Generated from the log calls and the catalog by `packaging/docs/journal_reference.py`; do not edit.

Each line of the daemon has these fields (`journalctl -u openperouter -o verbose`):

| field | content |
|---|---|
| `MESSAGE`, `PRIORITY` | the text and its level: 3 error, 4 warning, 6 info, 7 debug |
| `SYSLOG_IDENTIFIER` | `openperouter` |
| `ACTOR` | the part of the daemon that wrote it ([architecture](architecture.md)) |
| `CODE_FILE`, `CODE_LINE`, `CODE_FUNC` | where in the program |
| `MESSAGE_ID` | the event, one of those below, in every warning and error and in what else matters to an administrator. An ID keeps its meaning |

The values that a message names are fields as well, with the names in the table (some lines have more): `journalctl -u openperouter RESOURCE='L3VNI red'` finds a resource's lines, and so does `openperouter logs red`. No field has a secret.
`journalctl -x` adds the explanation, and `journalctl MESSAGE_ID=ID` shows the lines of one event.
"""


@dataclass
class CatalogEvent:
    """One message ID with the fields of its log calls."""

    name: str
    number: str
    fields: set[str] = field(default_factory=set)


def events() -> list[CatalogEvent]:
    """Return the events in the order of their names' definition."""
    found = {name: CatalogEvent(name, number) for name, number in vars(message_ids).items() if name.isupper()}
    for call in calls():
        given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        event = given.pop("message_id", None)
        if not isinstance(event, ast.Attribute) or event.attr not in found:
            continue
        found[event.attr].fields |= {journal_name(name) for name in given}
    return list(found.values())


def calls() -> Iterator[ast.Call]:
    """Yield every call of the modules that name events."""
    for folder in ("actors", "supervisor"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "message_ids." in (text := path.read_text()):
                yield from (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def explanations() -> dict[str, tuple[str, str]]:
    """Return each ID's subject and explanation from the catalog."""
    found = {}
    for entry in re.split(r"^-- ", CATALOG.read_text(), flags=re.MULTILINE)[1:]:
        number, _, rest = entry.partition("\n")
        head, _, text = rest.partition("\n\n")
        [subject] = re.findall(r"^Subject: (.*)$", head, re.MULTILINE)
        found[number] = subject, text.strip()
    return found


def marked(text: str) -> str:
    """Return a text of the catalog with its fields as code, and without what Markdown would take for its own."""
    return re.sub(r"@([A-Z_0-9]+)@", r"`\1`", text.replace("<", "&lt;").replace("*", r"\*"))


def reference() -> str:
    """Return the whole document."""
    known, texts = events(), explanations()
    rows = ["| event | fields besides those above |", "|---|---|"]
    sections = []
    for event in known:
        subject, text = texts[event.number]
        fields = sorted(event.fields | set(re.findall(r"@([A-Z_0-9]+)@", subject + text)))
        listed = ", ".join(f"`{name}`" for name in fields)
        rows.append(f"| [{marked(subject)}](#{event.name.lower()}) | {listed} |")
        sections.append(f"## {event.name}\n\n`MESSAGE_ID={event.number}`: {marked(subject)}\n\n{marked(text)}\n")
    return "\n".join([INTRODUCTION, "## Events", "", *rows, "", *sections])


if __name__ == "__main__":
    sys.exit(print_or_write(TARGET, reference()))
