"""``openperouter exec``: any command inside the router, or in one of its VRFs."""

from __future__ import annotations

import argparse
from typing import Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import load_usable_settings
from supervisor.operations.router.inside import argv_inside, become, router_namespace, vrf_option

from ...options import add_verb, add_vrf

DESCRIPTION: Final = (
    "Run a command in the router's network namespace, such as 'ip route', 'ss' or 'tcpdump'; with --vrf all its "
    "sockets are the VRF's. Options of openperouter precede the command; everything after its first word is passed to "
    "it. The exit code is the command's. The daemon reverts changes of what it manages."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    summary = "run a command inside the router or one of its VRFs"
    parser = add_verb(verbs, "exec", run, summary=summary, description=DESCRIPTION)
    add_vrf(parser)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="the program and its arguments, optionally after --",
    )


def run(arguments: argparse.Namespace) -> int:
    """Become the command."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise CommandError("give a command, such as: openperouter exec -- ip route", exit_codes.USAGE)
    namespace = router_namespace(load_usable_settings(arguments.settings))
    vrf = vrf_option(arguments.settings, arguments.vrf)
    return become(argv_inside(namespace, vrf, command))
