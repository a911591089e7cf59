"""``openperouter status``: what the router is doing, from the daemon or, when that is dead, from its state file."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from config.status import Status, StatusFormatError
from supervisor.operations import exit_codes
from supervisor.operations.control_client import NoAnswerError, NotRunningError
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.inspection.current_status import CurrentStatus, read_status, statuses
from supervisor.operations.paths import run_dir

from ...options import add_settings, complain, complain_of_last
from ...terminal import Painter, wants_colour
from .status_page import render

#: How long ``--watch`` waits for a daemon that has ended, and how often it tries; an upgrade takes seconds.
RESTART_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 0.5
#: Moves to the top left and clears a terminal (ECMA-48).
_CLEAR = "\033[H\033[2J"


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "status",
        help="show what the router is doing",
        description="Show problems, the underlay, BGP sessions and VNIs with their state and where each is "
        "configured; of long lists what is down comes first, and the rest is counted. Exits with 0 when the router is "
        "ready, 1 when it is degraded, 2 when it is not ready yet, 3 when the daemon is not running (its last status "
        "is shown then) and 4 when it does not answer. With --watch, waits up to a minute for a daemon that restarts.",
    )
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="print the status as one JSON document (schema_version 1)")
    parser.add_argument(
        "--watch", action="store_true", help="keep running and show each change; with --json, one document per line"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="list every session, VNI and actor")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the status once, or until interrupted."""
    directory = run_dir(arguments.settings)
    if arguments.watch:
        return _watch(directory, as_json=arguments.json, everything=arguments.verbose)
    seen = read_status(directory)
    if seen.is_last:
        return _show_last(seen, as_json=arguments.json)
    _show(seen.status, as_json=arguments.json, everything=arguments.verbose)
    return exit_code(seen.status)


def exit_code(status: Status) -> int:
    """Return the exit code for a status."""
    if status.phase == "degraded":
        return exit_codes.DEGRADED
    return exit_codes.OK if status.ready else exit_codes.PENDING


def _show(status: Status, *, as_json: bool, everything: bool = False) -> None:
    if as_json:
        print(status.to_json(indent=2))
    else:
        print(render(status, Painter(colour=wants_colour()), time.time(), everything=everything))


def _watch(directory: Path, *, as_json: bool, everything: bool) -> int:
    """Show every change: on a terminal the whole page again, elsewhere a line each.

    A daemon that ends, as in an upgrade, has some time to come back.
    """
    seen, until = False, 0.0
    while True:
        gone: CommandError = NotRunningError("the daemon has stopped")
        try:
            for status in statuses(directory, "watch"):
                _show_change(status, as_json=as_json, everything=everything)
                seen, until = True, 0.0
        except (NotRunningError, NoAnswerError) as error:
            gone = error
        except StatusFormatError as error:
            raise CommandError(str(error), exit_codes.NO_ANSWER) from None
        if until == 0.0 and seen:
            until = time.monotonic() + RESTART_SECONDS
            complain(f"{gone}; waiting {RESTART_SECONDS:g} s for it to come back")
        if time.monotonic() >= until:
            raise gone
        _pause()


def _pause() -> None:
    threading.Event().wait(RETRY_SECONDS)


def _show_change(status: Status, *, as_json: bool, everything: bool) -> None:
    if as_json:
        print(status.to_json(), flush=True)
    elif sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        page = render(status, Painter(colour=wants_colour()), time.time(), everything=everything)
        print(_CLEAR + page, flush=True)
    else:
        print(f"{_clock(status.updated_at)} {status.summary}", flush=True)


def _clock(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(moment))


def _show_last(seen: CurrentStatus, *, as_json: bool) -> int:
    """Show a status that is history, after a clear warning."""
    complain_of_last(seen)
    status = seen.status
    _show(status if as_json else replace(status, summary=f"last known: {status.summary}"), as_json=as_json)
    return seen.code
