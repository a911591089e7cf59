"""The journal explains itself: each event of ours comes with what it means and what to do."""

from __future__ import annotations

import json

from guestvm.machine import Machine

from .commands import CONFIGS, reload, write

TYPO = f"{CONFIGS}/openpe_typo.yaml"
JOURNAL = "journalctl --no-pager -q -u openperouter"


def test_an_event_is_explained_below_its_line(node: Machine) -> None:
    write(node, TYPO, "l3vnis: [\n")
    try:
        reload(node, check=False)
        shown = node.remote.run(f"{JOURNAL} -x --since=-5min").stdout
    finally:
        node.remote.run(f"rm {TYPO}")
        reload(node)
    _, _, explained = shown.partition("openpe_typo.yaml:")
    assert "Subject: A configuration file has a problem" in explained
    assert "The last good content of a file that cannot be read stays in force" in explained
    assert "man:openperouter-files(5)" in explained


def test_each_event_that_was_logged_has_an_explanation(node: Machine) -> None:
    lines = node.remote.run(f"{JOURNAL} -o json").stdout
    seen = {entry["MESSAGE_ID"] for entry in map(json.loads, lines.splitlines()) if "MESSAGE_ID" in entry}
    ready = "b3c8880de1944ed5af238a86b025c799"
    assert ready in seen
    known = node.remote.run("journalctl --no-pager --list-catalog").stdout
    assert [identifier for identifier in sorted(seen) if identifier not in known] == []
