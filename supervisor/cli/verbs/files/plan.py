"""``openperouter plan``: what the configuration would change in FRR and in the kernel, without doing it."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any

from supervisor.operations import exit_codes
from supervisor.operations.paths import load_usable_settings

from ...options import add_verb, complain, read_desired


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    add_verb(
        verbs,
        "plan",
        run,
        summary="show what the configuration would change, without changing it",
        description="Resolve the configuration files as the daemon would, together with the API objects that it has "
        "saved, and show what would be added to and removed from FRR and the kernel. Exits with 0 when there is "
        "nothing to do, with 2 when there is, with 78 when the configuration is not usable, and with 69 when FRR or "
        "the network namespace is not available.",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print both differences."""
    import actors.frr.preview
    import actors.netlink.preview

    settings = load_usable_settings(arguments.settings)
    desired = read_desired(arguments.settings, all_problems=True)

    async def kernel_difference() -> str:
        plan = await actors.netlink.preview.preview(desired, settings)
        return plan.text if plan.steps else ""

    codes = {
        _show("FRR", lambda: actors.frr.preview.preview(desired, settings)),
        _show("kernel", kernel_difference),
    }
    return exit_codes.UNAVAILABLE if exit_codes.UNAVAILABLE in codes else max(codes)


def _show(title: str, difference: Callable[[], Awaitable[str]]) -> int:
    """Print one difference; return its exit code."""
    import trio

    from supervisor.runtime.faults import DependencyFault

    print(f"{title}:")
    try:
        text = trio.run(difference)
    except DependencyFault as fault:
        complain(f"{title} is not available: {fault}")
        return exit_codes.UNAVAILABLE
    for line in (text or "nothing to do").splitlines():
        print(f"  {line}")
    return exit_codes.PENDING if text else exit_codes.OK
