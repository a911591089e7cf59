"""``openperouter trace``: the routers on the path to an address, from the router or from one of its VRFs."""

from __future__ import annotations

import argparse
from typing import Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import load_usable_settings
from supervisor.operations.router.inside import router_namespace, vrf_option

from ...options import add_verb, add_vrf

DEFAULT_HOPS: Final = 30

DESCRIPTION: Final = (
    "Show the routers on the path to TARGET, as traceroute does: UDP packets with a growing hop limit, three per hop. "
    "Needs no other program. Exits with 0 when the target answered, with 1 when it did not."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    summary = "show the path to an address from the router or one of its VRFs"
    parser = add_verb(verbs, "trace", run, summary=summary, description=DESCRIPTION)
    add_vrf(parser)
    parser.add_argument(
        "-m", "--hops", type=int, default=DEFAULT_HOPS, metavar="N", help=f"most hops to try (default: {DEFAULT_HOPS})"
    )
    parser.add_argument("target", metavar="TARGET", help="an IPv4 or IPv6 address")


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each hop."""
    from ipaddress import ip_address

    if not 1 <= arguments.hops <= 255:
        raise CommandError("--hops must be 1 to 255", exit_codes.USAGE)
    try:
        target = ip_address(arguments.target)
    except ValueError:
        raise CommandError(f"{arguments.target} is not an IPv4 or IPv6 address", exit_codes.USAGE) from None
    namespace = router_namespace(load_usable_settings(arguments.settings))
    vrf = vrf_option(arguments.settings, arguments.vrf)

    from actors.netlink.wire.namespace import enter
    from supervisor.operations.router.path_probe import hops

    # This thread never leaves: the process ends with the verb.
    enter(namespace)
    reached = False
    for hop in hops(target, vrf, arguments.hops):
        print(hop, flush=True)
        reached = hop.reached
    return exit_codes.OK if reached else exit_codes.DEGRADED
