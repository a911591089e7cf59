"""The page of the journal describes the events that exist, each with its ID, its fields and what to do."""

from __future__ import annotations

import subprocess
import sys

from supervisor.logs import message_ids

from .sources import ROOT


def test_the_journal_reference_is_current() -> None:
    """Fix it with ``python3 packaging/docs/journal_reference.py --write``."""
    command = [sys.executable, str(ROOT / "packaging/docs/journal_reference.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert (ROOT / "docs/journal.md").read_text() == printed


def test_each_event_has_a_section_with_its_id() -> None:
    page = (ROOT / "docs/journal.md").read_text()
    for name, number in vars(message_ids).items():
        if name.isupper():
            assert f"\n## {name}\n\n`MESSAGE_ID={number}`: " in page
    # The fields of a call, and those that only the explanation names.
    assert "(#kernel_not_configured) | `ERROR`, `GENERATION` |" in page
    assert "(#ending) | `EXIT_CODE`, `REASON` |" in page
