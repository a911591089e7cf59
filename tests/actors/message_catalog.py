"""What ``journalctl -x`` makes of what was logged."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from supervisor.logs import message_ids
from supervisor.logs.logger import journal_name

CATALOG = Path(__file__).resolve().parents[2] / "packaging/catalog/openperouter.catalog"
NAMES = {value: name for name, value in vars(message_ids).items() if name.isupper()}
ENTRIES = {entry.partition("\n")[0]: entry for entry in re.split(r"^-- ", CATALOG.read_text(), flags=re.MULTILINE)[1:]}


def explained(records: Iterable[logging.LogRecord]) -> list[str]:
    """Return the names of the lines' events. Each field that an explanation names must be one of its line."""
    names = []
    for record in records:
        fields = record.__dict__["fields"]
        identifier = str(fields.get("message_id"))
        named = set(re.findall(r"@([A-Z_]+)@", ENTRIES.get(identifier, "")))
        assert named <= {journal_name(key) for key in fields}, record.getMessage()
        names.append(NAMES.get(identifier, ""))
    return names
