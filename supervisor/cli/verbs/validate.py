"""``openperouter validate``: every problem of the configuration, with file, line and column."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from supervisor.operations import exit_codes

from ..options import StoreFile, add_settings
from ..terminal import Painter, wants_colour


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "validate",
        help="check the configuration, or some files of it",
        description="Check the whole configuration (settings, node configuration, router configuration), or only the "
        "given files together, without touching anything. What the daemon remembers of the API's objects is taken into "
        "account, since files and objects may clash and name one another. Prints every problem as FILE:LINE:COLUMN. "
        "Exits with 0 when there are at most warnings, with 78 when there are errors.",
    )
    add_settings(parser)
    parser.add_argument(
        "files", nargs="*", type=Path, action=StoreFile, metavar="FILE", help="files to check instead of everything"
    )
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    """Print all problems, then one line with the verdict."""
    from config.problems import errors
    from supervisor.operations.node_configuration import problems_of_files, read_all, read_files

    files: list[Path] = arguments.files
    read = read_files(arguments.settings, files) if files else read_all(arguments.settings, remembered=False)
    painter = Painter(colour=wants_colour())
    problems = problems_of_files(read)
    wrong = errors(problems)
    for problem in problems:
        print(painter.paint(str(problem), "bad" if problem in wrong else "warn"))
    warnings = len(problems) - len(wrong)
    if wrong:
        print(painter.paint(f"not valid: {_count(len(wrong), 'error')}, {_count(warnings, 'warning')}", "bold"))
        return exit_codes.CONFIG
    told = f", {_count(warnings, 'warning')}" if warnings else ""
    print(painter.paint(f"valid: {_count(len(read.resources), 'resource')}{told}", "bold"))
    return exit_codes.OK


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
