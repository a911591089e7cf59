"""``openperouter reload``: read all files again, and wait for the outcome."""

from __future__ import annotations

import argparse
from typing import Any, Final

from supervisor.operations import control_client, exit_codes
from supervisor.operations.paths import CONTROL_SOCKET, run_dir

from ...options import add_quiet, add_verb, complain
from ...terminal import print_line, say

DEFAULT_SECONDS: Final = 60.0


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "reload",
        run,
        summary="make the daemon read its files again and wait for the outcome",
        description="Ask the running daemon to read all configuration files again, and wait until the result is "
        "applied and verified. Exits with 0 when everything configured is in force, with 1 and the reasons when it is "
        "not, and with 4 when there is no outcome in time (the daemon then continues by itself).",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help=f"how long to wait for the outcome (default: {DEFAULT_SECONDS:g}, at most 600)",
    )
    parser.add_argument(
        "--forget-api",
        action="store_true",
        help="drop the objects that the API server does not confirm now: all of them if it does not answer",
    )
    add_quiet(parser, "print only why not everything is in force")


def run(arguments: argparse.Namespace) -> int:
    """Request a reload and follow it."""
    socket = run_dir(arguments.settings) / CONTROL_SOCKET
    outcome = control_client.reload(socket, arguments.timeout, say, forget_api=arguments.forget_api)
    if outcome.ok:
        say(outcome.text)
        return exit_codes.OK
    complain(f"reload: {outcome.text}")
    for problem in outcome.problems:
        print_line(f"  {problem}")
    return exit_codes.NO_ANSWER if outcome.timed_out else exit_codes.DEGRADED
