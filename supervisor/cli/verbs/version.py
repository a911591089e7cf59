"""``openperouter version``."""

from __future__ import annotations

import argparse
from typing import Any

from supervisor.operations.exit_codes import OK
from supervisor.version import VERSION


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser("version", help="print the version", description="Print the version.")
    parser.set_defaults(function=run)


def run(_arguments: argparse.Namespace) -> int:
    """Print the version."""
    print(f"openperouter {VERSION}")
    return OK
