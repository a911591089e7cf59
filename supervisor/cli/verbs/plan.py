"""``openperouter plan``: what the configuration would change in FRR and in the kernel, without doing it."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from supervisor.operations import exit_codes
from supervisor.operations.paths import load_usable_settings

from ..options import add_verb, complain, read_desired

if TYPE_CHECKING:
    from config.desired import DesiredUnderlay, RouterIdScheme


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
    if desired.underlay is not None:
        print(_router_ids(desired.underlay, desired.node_index))

    async def kernel_difference() -> str:
        plan = await actors.netlink.preview.preview(desired, settings)
        return plan.text if plan.steps else ""

    codes = {
        _show("FRR", lambda: actors.frr.preview.preview(desired, settings)),
        _show("kernel", kernel_difference),
    }
    return exit_codes.UNAVAILABLE if exit_codes.UNAVAILABLE in codes else max(codes)


def _router_ids(underlay: DesiredUnderlay, index: int) -> str:
    """Return the node's router ID and what the other scheme would give."""
    from config.resolve.ipam import PoolExhaustedError, router_id

    scheme = underlay.router_id_scheme
    other: RouterIdScheme = "v1" if scheme == "v2" else "v2"
    try:
        by_other = str(router_id(underlay.router_id_pool, index, other))
    except PoolExhaustedError as error:
        by_other = f"none: {error}"
    return f"router ID: {underlay.router_id} (routerIDScheme {scheme}; {other}: {by_other})"


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
