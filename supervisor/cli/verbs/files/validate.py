"""``openperouter validate``: every problem of the configuration, with file, line and column."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import require_readable, require_readable_settings

from ...options import StoreFile, add_output, add_quiet, add_verb, note, print_document
from ...terminal import print_problems, say

if TYPE_CHECKING:
    from config.problems import Problem
    from supervisor.operations.node_configuration import Configuration

#: The version of SARIF that forges and editors read (OASIS, 2020).
_SARIF: Final = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0"}


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "validate",
        run,
        summary="check the configuration, or some files of it",
        description="Check the whole configuration (settings, node configuration, router configuration), or only the "
        "given files together, without changing anything. The API objects that the daemon has saved are taken into "
        "account, since files and objects may conflict with and refer to one another. Where FRR is installed, its "
        "shell checks raw snippets. Prints every problem as "
        "FILE:LINE:COLUMN. Exits with 0 when there are at most warnings, with 78 when there are errors.",
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        action=StoreFile,
        metavar="FILE",
        help="files to check instead of everything; a directory stands for its openpe_*.yaml, - for standard input",
    )
    about = "json and yaml: a list; github: annotations of a workflow run; sarif: for editors and code scanning"
    add_quiet(add_output(parser, about, tuple(_WRITERS)), "print errors only")


def run(arguments: argparse.Namespace) -> int:
    """Print all problems, then one line with the result."""
    from config.problems import errors
    from supervisor.operations.node_configuration import STDIN, problems_of_files, read_all, read_files
    from supervisor.operations.snippet_check import check_snippets

    files: list[Path] = arguments.files
    missing = next((path for path in files if path != STDIN and not path.exists()), None)
    if missing is not None:
        raise CommandError(f"{missing}: no such file", exit_codes.NO_INPUT)
    settings: Path = arguments.settings
    require_readable_settings(settings)
    require_readable(path for path in files if path != STDIN)
    read = read_files(settings, files) if files else read_all(settings, remembered=False)
    if not files:
        require_readable([read.settings.node_config_file, read.settings.configs_dir])
    refused, unchecked = check_snippets(read)
    problems = (*problems_of_files(read), *refused)
    if unchecked:
        note(unchecked)
    if arguments.output == "text":
        print_problems(problems)
        say(_result(read, problems, files or [read.settings.configs_dir]), "bold")
    elif arguments.output in _WRITERS:
        print(_WRITERS[arguments.output](problems))
    else:
        from supervisor.operations.documents import problem_document

        print_document([problem_document(problem) for problem in problems], arguments.output)
    return exit_codes.CONFIG if errors(problems) else exit_codes.OK


def _result(read: Configuration, problems: Sequence[Problem], paths: Sequence[Path]) -> str:
    from config.problems import errors
    from supervisor.operations.node_configuration import STDIN

    wrong = len(errors(problems))
    warnings = len(problems) - wrong
    if wrong:
        return f"not valid: {_count(wrong, 'error')}, {_count(warnings, 'warning')}"
    rest = f", {_count(warnings, 'warning')}" if warnings else ""
    if not read.resources and STDIN in paths:
        return f"valid, but nothing is configured: standard input has no entries{rest}"
    directory = next((path for path in paths if path == read.settings.configs_dir or path.is_dir()), None)
    if not read.resources and directory is not None:
        return f"valid, but nothing is configured: {directory} {_why_nothing(directory)}{rest}"
    return f"valid: {_count(len(read.resources), 'resource')}{rest}"


def _why_nothing(directory: Path) -> str:
    from config.sources.static_files import is_router_file

    if not directory.exists():
        return "does not exist"
    if any(is_router_file(path.name) for path in directory.iterdir()):
        return "has only empty openpe_*.yaml"
    return "has no openpe_*.yaml"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _as_github(problems: Sequence[Problem]) -> str:
    """Write workflow commands; their escapes are those of GitHub's toolkit."""
    lines = []
    for problem in problems:
        place = {"file": problem.origin.path, "line": problem.origin.line, "col": problem.origin.column}
        given = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in place.items() if value)
        lines.append(f"::{problem.severity} {given}::{_escaped(_text(problem))}")
    return "\n".join(lines)


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(one):02X}" if one in f"%\r\n{more}" else one for one in text)


def _text(problem: Problem) -> str:
    parts = (str(problem.resource or ""), problem.field, problem.message)
    return ": ".join(part for part in parts if part)


def _as_sarif(problems: Sequence[Problem]) -> str:
    results = [
        {
            "ruleId": str(problem.reason),
            "level": str(problem.severity),
            "message": {"text": _text(problem)},
            "locations": [{"physicalLocation": _location(problem)}],
        }
        for problem in problems
    ]
    driver = {"name": "openperouter", "rules": [{"id": one} for one in sorted({str(p.reason) for p in problems})]}
    return json.dumps({**_SARIF, "runs": [{"tool": {"driver": driver}, "results": results}]}, indent=2)


def _location(problem: Problem) -> Mapping[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(os.fsencode(problem.origin.path))}}
    if problem.origin.line:
        region = {"startLine": problem.origin.line, "startColumn": max(problem.origin.column, 1)}
        place["region"] = region
    return place


_WRITERS: Final[Mapping[str, Callable[[Sequence[Problem]], str]]] = {
    "github": _as_github,
    "sarif": _as_sarif,
}
