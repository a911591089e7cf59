"""``openperouter reloader``: in FRR's pod, runs vtysh for the daemon on the host."""

from __future__ import annotations

import argparse
from typing import Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.paths import load_usable_settings

from ...options import add_verb

DESCRIPTION: Final = (
    "Run in FRR's podman pod (runtime: podman): run vtysh for the daemon on the host, which reaches it by a unix "
    "socket in podRunDir. Changes are made one after the other, each with a deadline; nothing but vtysh is run. Runs "
    "until SIGTERM, which waits for the change in hand. With --check: ask the one that runs, and exit with 69 unless "
    "FRR's daemons answer."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    summary = "in FRR's podman pod: run vtysh for the daemon on the host"
    parser = add_verb(verbs, "reloader", run, summary=summary, description=DESCRIPTION)
    parser.add_argument("--check", action="store_true", help="only ask the running reloader whether FRR answers")


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal, or ask once."""
    settings = load_usable_settings(arguments.settings)
    from supervisor.logs.logger import configure
    from supervisor.operations.router.reloader import check_reloader, run_reloader

    if arguments.check:
        print(check_reloader(settings))
        return exit_codes.OK
    configure(settings.log_level)
    return run_reloader(settings)
