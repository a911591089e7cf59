"""Checks raw snippets by a dry run of FRR's shell, which needs no daemon and executes nothing.

The shell has the grammar of all daemons but not their own checks: a line that it accepts may still be refused later.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from config.problems import Kind, Problem, Reason, errors
from config.resources import Resource
from config.syntax.frr_secrets import redact
from config.syntax.frr_snippets import SnippetError, canonical

from .node_configuration import Configuration

#: Deadline of one snippet, seconds; vtysh needs milliseconds per line.
SECONDS: Final = 20.0
#: vtysh's message about a line that it refuses: ``line 3: % Unknown command[28]:  neighbour 192.0.2.1``.
_COMPLAINT: Final = re.compile(r"^line \d+: % (?P<what>[^:\[]+)(?:\[\d+\])?: *(?P<line>.*)$", re.MULTILINE)


def check_snippets(read: Configuration) -> tuple[list[Problem], str]:
    """Return an error for each line of a file's snippet that FRR does not know, and why some were not checked."""
    wrong = {problem.resource for problem in errors(read.problems)}
    snippets = [
        one
        for one in read.resources
        if one.kind is Kind.RAW_FRR_CONFIG and one.is_usable and one.is_from_file and one.id not in wrong
    ]
    vtysh = read.settings.vtysh
    if not snippets or os.access(vtysh, os.X_OK):
        return [problem for one in snippets for problem in _problems(one, vtysh)], ""
    count = "1 raw snippet was" if len(snippets) == 1 else f"{len(snippets)} raw snippets were"
    return [], f"{count} not checked against FRR's grammar: {vtysh} is not there"


def _problems(snippet: Resource, vtysh: Path) -> Iterator[Problem]:
    try:
        text = canonical(snippet.spec.raw_config)
    except SnippetError as error:
        # Without an underlay nothing else has checked it.
        yield Problem(str(error), snippet.place_of("rawConfig"), "rawConfig", resource=snippet.id)
        return
    place = snippet.place_of("rawConfig")
    for what, line in _complaints(text, vtysh):
        message = f"FRR does not take this line ({what}): {redact(line)}"
        yield Problem(message, place, "rawConfig", reason=Reason.FRR_CONFIGURATION_FAILED, resource=snippet.id)


def _complaints(text: str, vtysh: Path) -> list[tuple[str, str]]:
    """Return what is wrong with which line. The text may have secrets: only its owner can read the file."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        command = [str(vtysh), "-C", "-f", file.name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return [("no answer of vtysh", "")]
    found = [(one["what"].lower(), one["line"]) for one in _COMPLAINT.finditer(f"{done.stdout}\n{done.stderr}")]
    return list(dict.fromkeys(found))
