"""``openperouter status``: what the router is doing, from the daemon or, when that is dead, from its state file."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from config.status import Status, StatusFormatError
from supervisor.operations import exit_codes
from supervisor.operations.control_client import follow
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.inspection.current_status import CurrentStatus, read_status, statuses
from supervisor.operations.paths import run_dir

from ...options import add_output, add_quiet, add_verb, complain, note_last, print_document
from ...terminal import Painter, moment, wants_colour
from .status_page import render

#: Moves to the top left and clears a terminal (ECMA-48).
_CLEAR = "\033[H\033[2J"


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "status",
        run,
        summary="show what the router is doing",
        description="Show problems, the underlay, BGP sessions and VNIs with their state and where each is "
        "configured; of long lists what is down comes first, and the rest is counted. Exits with 0 when the router is "
        "ready, 1 when it is degraded, 2 when it is not ready yet, 3 when the daemon is not running (its last status "
        "is shown then) and 4 when it does not answer. With --watch, waits up to a minute for a daemon that restarts.",
    )
    add_quiet(
        add_output(parser, "json and yaml: one document (schema_version 1)"),
        "print nothing: the exit code has the state",
    )
    parser.add_argument(
        "--watch", action="store_true", help="keep running and show each change; with --json, one document per line"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="list every session, VNI and actor")


def run(arguments: argparse.Namespace) -> int:
    """Show the status once, or until interrupted."""
    if arguments.quiet and (arguments.watch or arguments.verbose):
        raise CommandError("--quiet shows nothing: it goes neither with --watch nor with --verbose", exit_codes.USAGE)
    directory = run_dir(arguments.settings)
    if arguments.quiet:
        return _code_alone(directory)
    if arguments.watch:
        _watch(directory, output=arguments.output, everything=arguments.verbose)
    seen = read_status(directory)
    if seen.is_last:
        return _show_last(seen, output=arguments.output)
    _show(seen.status, output=arguments.output, everything=arguments.verbose)
    return exit_code(seen.status)


def _code_alone(directory: Path) -> int:
    """Return the exit code; that the daemon does not run, or does not answer, is an answer and no error."""
    try:
        seen = read_status(directory)
    except CommandError as error:
        return error.exit_code
    return seen.code or exit_code(seen.status)


def exit_code(status: Status) -> int:
    """Return the exit code for a status."""
    if status.phase == "degraded":
        return exit_codes.DEGRADED
    return exit_codes.OK if status.ready else exit_codes.PENDING


def _show(status: Status, *, output: str, everything: bool = False) -> None:
    if output != "text":
        print_document(json.loads(status.to_json()), output)
    else:
        print(render(status, Painter(colour=wants_colour()), time.time(), everything=everything))


def _watch(directory: Path, *, output: str, everything: bool) -> NoReturn:
    """Show every change: on a terminal the whole page again, elsewhere a line each."""
    show = partial(_show_change, output=output, everything=everything)
    try:
        follow(lambda: map(show, statuses(directory, "watch")), complain)
    except StatusFormatError as error:
        raise CommandError(str(error), exit_codes.NO_ANSWER) from None


def _show_change(status: Status, *, output: str, everything: bool) -> None:
    if output != "text":
        print_document(json.loads(status.to_json()), output, stream=True)
    elif sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        page = render(status, Painter(colour=wants_colour()), time.time(), everything=everything)
        print(_CLEAR + page, flush=True)
    else:
        print(f"{moment(status.updated_at)} {status.summary}", flush=True)


def _show_last(seen: CurrentStatus, *, output: str) -> int:
    """Show a status that is history, after a clear warning."""
    note_last(seen)
    status = seen.status
    _show(replace(status, summary=f"last known: {status.summary}") if output == "text" else status, output=output)
    return seen.code
