"""``openperouter validate``: every problem of the configuration, with file, line and column."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from supervisor.operations import exit_codes

from ..options import StoreFile, add_verb
from ..terminal import print_line, print_problems


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "validate",
        run,
        summary="check the configuration, or some files of it",
        description="Check the whole configuration (settings, node configuration, router configuration), or only the "
        "given files together, without changing anything. The API objects that the daemon has saved are taken into "
        "account, since files and objects may conflict with and refer to one another. Prints every problem as "
        "FILE:LINE:COLUMN. Exits with 0 when there are at most warnings, with 78 when there are errors.",
    )
    parser.add_argument(
        "files", nargs="*", type=Path, action=StoreFile, metavar="FILE", help="files to check instead of everything"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print all problems, then one line with the result."""
    from supervisor.operations.node_configuration import problems_of_files, read_all, read_files

    files: list[Path] = arguments.files
    read = read_files(arguments.settings, files) if files else read_all(arguments.settings, remembered=False)
    problems = problems_of_files(read)
    wrong = print_problems(problems)
    warnings = len(problems) - wrong
    if wrong:
        print_line(f"not valid: {_count(wrong, 'error')}, {_count(warnings, 'warning')}", "bold")
        return exit_codes.CONFIG
    rest = f", {_count(warnings, 'warning')}" if warnings else ""
    print_line(f"valid: {_count(len(read.resources), 'resource')}{rest}", "bold")
    return exit_codes.OK


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
