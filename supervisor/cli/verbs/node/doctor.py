"""``openperouter doctor``: what is wrong with this machine or with the router on it, and how to fix it."""

from __future__ import annotations

import argparse
import errno
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.paths import conf_d

from ...options import add_output, add_quiet, add_verb, complain, note, print_document, run_and_show
from ...terminal import Painter, Style, is_quiet, wants_colour

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from config.settings import Settings
    from supervisor.operations.doctor import Finding
    from supervisor.operations.doctor.findings import Emphasis, Level

_STYLES: dict[str, Style] = {"ok": "good", "warning": "warn", "error": "bad", "plain": "plain", "bold": "bold"}


DESCRIPTION: Final = (
    "Check what the router needs and what it does: kernel, clock, disk, file modes, other network managers, FRR, the "
    "network namespace, the configuration, the API server's credentials, NICs, MTU, sysctls, the daemon. Works whether "
    "or not the daemon runs, or has ever run, and changes nothing. Each problem comes with its fix. With --fix, it "
    "first takes excess permissions from files that other users must not read or write, and leaves everything else to "
    "you. Exits with 0 when all is well, 1 when there are warnings only, 2 when there are errors."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    summary = "check this machine and the router, with a fix for each problem"
    parser = add_verb(verbs, "doctor", run, summary=summary, description=DESCRIPTION)
    add_quiet(add_output(parser, "json and yaml: all findings as one document"), "print problems only")
    parser.add_argument("--fix", action="store_true", help="first take excess permissions from files (root only)")


def run(arguments: argparse.Namespace) -> int:
    """Examine, print the findings, and return how bad they are."""
    from config.problems import errors
    from config.settings import load_settings
    from supervisor.operations.doctor import as_document, as_lines, examine

    settings, problems = load_settings(arguments.settings, conf_d(arguments.settings))
    for problem in errors(problems):
        complain(f"{problem}; continuing without it")
    if arguments.fix:
        _fix(settings, arguments.settings)
    painter = Painter(colour=wants_colour())

    def paint(text: str, style: Level | Emphasis) -> str:
        return painter.paint(text, _STYLES[style])

    def show(findings: Sequence[Finding]) -> None:
        if arguments.output != "text":
            print_document(as_document(findings), arguments.output)
        elif lines := as_lines(findings, paint, only_problems=is_quiet()):
            print("\n".join(lines))

    return exit_code(run_and_show(partial(examine, settings, arguments.settings), show))


def _fix(settings: Settings, settings_file: Path) -> None:
    from supervisor.operations.doctor.files import narrow, read_files

    if os.geteuid() != 0:
        raise PermissionError(errno.EPERM, "not root", "doctor --fix")
    for done in narrow(settings, read_files(settings, settings_file)):
        note(f"fixed: {done}")


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 2 for errors, 1 for warnings only, else 0."""
    levels = {finding.level.value for finding in findings}
    return 2 if "error" in levels else 1 if "warning" in levels else exit_codes.OK
