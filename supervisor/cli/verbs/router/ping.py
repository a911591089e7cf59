"""``openperouter ping``: ping from the router, or from one of its VRFs."""

from __future__ import annotations

import argparse
import shutil
from typing import Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import load_usable_settings
from supervisor.operations.router.inside import argv_inside, become, router_namespace, vrf_option

from ...options import add_verb, add_vrf

DEFAULT_COUNT: Final = 4
MOST_PINGS: Final = 100_000

DESCRIPTION: Final = (
    "Ping TARGET from the router's network namespace, where the fabric is, or with --vrf from a tenant's VRF. To ping "
    "from the host itself, run ping. Exits as ping does: with 0 when there was an answer, 1 when there was none, 2 for "
    "other errors."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    summary = "ping from the router or one of its VRFs"
    parser = add_verb(verbs, "ping", run, summary=summary, description=DESCRIPTION)
    add_vrf(parser)
    parser.add_argument(
        "-c", "--count", type=int, default=DEFAULT_COUNT, metavar="N", help=f"how often (default: {DEFAULT_COUNT})"
    )
    parser.add_argument("-I", "--source", metavar="ADDRESS", help="the router's address to ping from")
    parser.add_argument("target", metavar="TARGET", help="an IPv4 or IPv6 address, or a host's name")


def run(arguments: argparse.Namespace) -> int:
    """Become ping."""
    if not 0 < arguments.count <= MOST_PINGS:
        raise CommandError(f"--count must be 1 to {MOST_PINGS}", exit_codes.USAGE)
    if arguments.target.startswith("-"):
        raise CommandError(f"{arguments.target} is not an address", exit_codes.USAGE)
    namespace = router_namespace(load_usable_settings(arguments.settings))
    vrf = vrf_option(arguments.settings, arguments.vrf)
    if shutil.which("ping") is None:
        raise CommandError("there is no ping: apt-get install iputils-ping", exit_codes.UNAVAILABLE)
    # ping binds its socket to the VRF itself.
    ends = [word for value in (vrf, arguments.source) if value for word in ("-I", value)]
    return become(argv_inside(namespace, "", ["ping", "-c", str(arguments.count), *ends, "--", arguments.target]))
