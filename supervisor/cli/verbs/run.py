"""``openperouter run``: the daemon."""

from __future__ import annotations

import argparse
from typing import Any

from ..options import add_settings


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "run",
        help="run the daemon in the foreground (systemd does)",
        description="Run the daemon in the foreground until SIGTERM or SIGINT; SIGHUP reloads. Ending it, however it "
        "ends, leaves forwarding as it is. Exits with 78 when the configuration has no usable part, which systemd does "
        "not answer with a restart, and with 75 when another daemon is running.",
    )
    add_settings(parser)
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="log at this level, whatever the settings say",
    )
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until stopped."""
    from supervisor.main import run_daemon

    return run_daemon(arguments.settings, arguments.log_level)
