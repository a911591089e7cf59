"""``openperouter plan``: what the configuration would change in FRR and in the kernel, without doing it."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from supervisor.operations import exit_codes

from ..options import CommandError, add_settings, complain

if TYPE_CHECKING:
    from config.desired import DesiredState
    from config.settings import Settings


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "plan",
        help="show what the configuration would change, without changing it",
        description="Resolve the configuration files, together with what the daemon remembers of the API's objects, as "
        "the daemon would, and show what FRR and the kernel lack or have too much. Exits with 0 "
        "when there is nothing to do, with 2 when there is, with 78 when the configuration is not usable, and with 69 "
        "when FRR or the network namespace cannot be asked.",
    )
    add_settings(parser)
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    """Print both differences."""
    from config.problems import errors
    from supervisor.operations.node_configuration import load_usable_settings, read_all

    settings = load_usable_settings(arguments.settings)
    read = read_all(arguments.settings, remembered=True)
    if told := read.api_summary(time.time()):
        complain(told)
    for problem in read.problems:
        complain(str(problem))
    if read.desired is None:
        raise CommandError(f"nothing would change: {errors(read.problems)[0]}", exit_codes.CONFIG)
    parts = [_frr(read.desired, settings), _kernel(read.desired, settings)]
    if exit_codes.UNAVAILABLE in parts:
        return exit_codes.UNAVAILABLE
    return max(parts)


def _frr(desired: DesiredState, settings: Settings) -> int:
    import trio

    from actors.frr.preview import preview
    from supervisor.runtime.faults import DependencyFault

    print("FRR:")
    try:
        difference = trio.run(preview, desired, settings)
    except DependencyFault as fault:
        complain(f"FRR cannot be asked: {fault}")
        return exit_codes.UNAVAILABLE
    _print_indented(difference or "nothing to do")
    return exit_codes.PENDING if difference else exit_codes.OK


def _kernel(desired: DesiredState, settings: Settings) -> int:
    import trio

    from actors.netlink.preview import preview
    from supervisor.runtime.faults import DependencyFault

    print("kernel:")
    try:
        plan = trio.run(preview, desired, settings)
    except DependencyFault as fault:
        complain(f"the kernel cannot be asked: {fault}")
        return exit_codes.UNAVAILABLE
    _print_indented(plan.text)
    return exit_codes.PENDING if plan.steps else exit_codes.OK


def _print_indented(text: str) -> None:
    for line in text.splitlines():
        print(f"  {line}")
