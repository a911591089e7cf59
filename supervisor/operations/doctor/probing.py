"""Collects the facts: each part by itself, so that one that cannot be looked at becomes a gap and spoils no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import trio

from config.settings import Settings
from supervisor.runtime.faults import Fault

from . import credentials_probes, frr_probes, machine_probes, router_probes
from .facts import Facts, Gap

T = TypeVar("T")

#: Longest time for one part, in seconds; programs that are asked have shorter deadlines of their own.
PART_SECONDS = 30.0


async def probe(settings: Settings, settings_file: Path) -> Facts:
    """Look at everything, at once."""
    gaps: list[Gap] = []
    found: dict[str, object] = {}

    async def part(name: str, look: Callable[[], Awaitable[object]]) -> None:
        try:
            with trio.fail_after(PART_SECONDS):
                found[name] = await look()
        except (Fault, OSError, ValueError) as error:
            gaps.append(Gap(name, str(error) or type(error).__name__))
        except trio.TooSlowError:
            gaps.append(Gap(name, f"took longer than {PART_SECONDS:g} s"))

    async with trio.open_nursery() as nursery:
        for name, look in _parts(settings, settings_file).items():
            nursery.start_soon(part, name, look)
    return Facts(settings, gaps=tuple(sorted(gaps, key=lambda gap: gap.area)), **found)  # type: ignore[arg-type]


def _parts(settings: Settings, settings_file: Path) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return who looks at which part of :class:`Facts`."""

    def threaded(function: Callable[..., object], *arguments: object) -> Callable[[], Awaitable[object]]:
        return lambda: trio.to_thread.run_sync(lambda: function(*arguments), abandon_on_cancel=True)

    return {
        "kinds": machine_probes.kinds,
        "units": lambda: machine_probes.units(settings),
        "managers": machine_probes.managers,
        "files": threaded(machine_probes.files, settings, settings_file),
        "clock": threaded(machine_probes.clock),
        "disks": threaded(machine_probes.disks, settings),
        "frr": lambda: frr_probes.frr(settings),
        "network": threaded(router_probes.network, settings),
        "credentials": lambda: credentials_probes.credentials(settings),
        "configuration": threaded(router_probes.configuration, settings_file),
        "daemon": threaded(router_probes.daemon, settings),
    }
