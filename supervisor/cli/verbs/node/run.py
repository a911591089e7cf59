"""``openperouter run``: the daemon."""

from __future__ import annotations

import argparse
import gc
from typing import Any

from supervisor.operations.paths import require_readable_settings
from supervisor.process import bytecode_cache, module_cache

from ...options import add_verb


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "run",
        run,
        summary="run the daemon in the foreground (systemd does)",
        description="Run the daemon in the foreground until SIGTERM or SIGINT; SIGHUP reloads. However it ends, "
        "forwarding continues. Exits with 78 when no part of the configuration becomes usable within 15 s, and "
        "with 75 when another daemon is running.",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="log at this level, overriding the settings",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until stopped."""
    require_readable_settings(arguments.settings)
    # What importing makes lives as long as the process: collecting in between takes a tenth of the start, and each
    # later collection would go through all of it again.
    gc.disable()
    with module_cache.used(), bytecode_cache.used():
        from supervisor.main import run_daemon

    bytecode_cache.of_program.cache_clear()
    gc.freeze()
    gc.enable()

    return run_daemon(arguments.settings, arguments.log_level)
