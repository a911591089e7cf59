"""``openperouter reload``: read all files again, and wait for what became of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from supervisor.operations import exit_codes
from supervisor.operations.control_client import ANSWER_SECONDS, NoAnswerError, NotRunningError, ask

from ..options import CONTROL_SOCKET, CommandError, add_settings, complain, run_dir

DEFAULT_SECONDS = 60.0


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "reload",
        help="make the daemon read its files again and wait for the outcome",
        description="Ask the running daemon to read all configuration files again, and wait until the result is "
        "applied and verified. Exits with 0 when everything configured is in force, with 1 and the reasons when not, "
        "and with 4 when the outcome did not come in time (the daemon then goes on by itself).",
    )
    add_settings(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help=f"how long to wait for the outcome (default: {DEFAULT_SECONDS:g}, at most 600)",
    )
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask for a reload and follow it."""
    request = {"verb": "reload", "seconds": arguments.timeout}
    path = run_dir(arguments.settings) / CONTROL_SOCKET
    try:
        return _follow(ask(path, request, seconds=arguments.timeout + ANSWER_SECONDS))
    except NotRunningError as error:
        raise CommandError(str(error), exit_codes.NOT_RUNNING) from None
    except NoAnswerError as error:
        raise CommandError(str(error), exit_codes.NO_ANSWER) from None


def _follow(answers: Iterator[Any]) -> int:
    for answer in answers:
        if "error" in answer:
            raise CommandError(str(answer["error"]), exit_codes.USAGE)
        if answer.get("event") == "progress":
            print(answer.get("summary", ""), flush=True)
        if answer.get("event") == "done":
            return _finish(answer)
    raise CommandError("the daemon ended before the reload did", exit_codes.NOT_RUNNING)


def _finish(done: dict[str, Any]) -> int:
    if done.get("ok"):
        print(done.get("summary", ""))
        return exit_codes.OK
    complain(f"reload: {done.get('reason')}")
    for problem in done.get("problems", ()):
        print(f"  {problem}", flush=True)
    return exit_codes.NO_ANSWER if done.get("timeout") else exit_codes.DEGRADED
