"""Reads the machine area by area, then judges each area with pure checks.

:func:`read_machine` reads all areas at the same time, each with a deadline; an area that cannot be read becomes a
warning and leaves the others alone. :func:`judge` then calls the checks in the order in which a person would look: the
ground first, then what stands on it. A check is a function of the areas that its parameters name, as the fields of
:class:`HostState` do; it is skipped when one of them was not read, unless the parameter has a default.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from config.settings import Settings
from config.syntax.printable import one_line
from supervisor.process.subprocesses import CommandMissing
from supervisor.runtime.faults import Fault

from ..paths import SYSTEMD_BOOTED
from . import cni, credentials, files, frr, machine, network_managers, pod, policies, router
from .cni import Plugins
from .credentials import Credentials
from .files import File
from .findings import Finding, warning
from .frr import Frr
from .machine import Clock, Disk
from .network_managers import NetworkManagers, Units
from .pod import Pod
from .policies import Policies
from .router import ConfigurationFiles, DaemonState, Network

#: Longest time for one area, in seconds; the programs that are run have shorter deadlines of their own.
AREA_SECONDS = 30.0
#: Areas that are read by asking systemd.
_OF_SYSTEMD = frozenset({"units", "managers"})
#: Returns the findings of one aspect; its parameters name the fields of :class:`HostState` that it judges.
Check = Callable[..., Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    *machine.CHECKS,
    *files.CHECKS,
    *network_managers.CHECKS,
    *pod.CHECKS,
    *frr.CHECKS,
    *credentials.CHECKS,
    *policies.CHECKS,
    *router.CHECKS,
    *cni.CHECKS,
)


@dataclass(frozen=True, slots=True)
class HostState:
    """What was read, an area each; None for one that could not be read, whose reason is in ``unreadable``."""

    settings: Settings
    device_kinds: Mapping[str, bool] | None = None
    units: Units | None = None
    frr: Frr | None = None
    pod: Pod | None = None
    network: Network | None = None
    managers: NetworkManagers | None = None
    files: tuple[File, ...] | None = None
    clock: Clock | None = None
    disks: tuple[Disk, ...] | None = None
    configuration: ConfigurationFiles | None = None
    credentials: Credentials | None = None
    policies: Policies | None = None
    daemon: DaemonState | None = None
    cni: Plugins | None = None
    unreadable: Mapping[str, str] | None = None


async def examine(settings: Settings, settings_file: Path) -> list[Finding]:
    """Return every finding, good ones included. Changes nothing: no lock, no module loaded, no file written."""
    return judge(await read_machine(settings, settings_file))


async def read_machine(settings: Settings, settings_file: Path) -> HostState:
    """Read every area, all at once."""
    unreadable: dict[str, str] = {}
    found: dict[str, object] = {}

    async def read(area: str, reader: Callable[[], Awaitable[object]]) -> None:
        try:
            with trio.fail_after(AREA_SECONDS):
                found[area] = await reader()
        except CommandMissing as missing:
            # The daemon in a pod has no systemd: there are no units to judge.
            if area not in _OF_SYSTEMD or SYSTEMD_BOOTED.is_dir():
                unreadable[area] = str(missing)
        except (Fault, OSError, ValueError) as error:
            unreadable[area] = str(error) or type(error).__name__
        except trio.TooSlowError:
            unreadable[area] = f"took longer than {AREA_SECONDS:g} s"

    async with trio.open_nursery() as nursery:
        for area, reader in _readers(settings, settings_file).items():
            nursery.start_soon(read, area, reader)
    return HostState(settings, unreadable=dict(sorted(unreadable.items())), **found)  # type: ignore[arg-type]


def _readers(settings: Settings, settings_file: Path) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return the reader of each area of :class:`HostState`."""

    def threaded(function: Callable[..., object], *arguments: object) -> Callable[[], Awaitable[object]]:
        return lambda: trio.to_thread.run_sync(lambda: function(*arguments), abandon_on_cancel=True)

    return {
        "device_kinds": machine.read_device_kinds,
        "units": lambda: network_managers.read_units(settings),
        "managers": network_managers.read_managers,
        "files": threaded(files.read_files, settings, settings_file),
        "clock": threaded(machine.read_clock),
        "disks": threaded(machine.read_disks, settings),
        "frr": lambda: frr.read_frr(settings),
        "pod": lambda: pod.read_pod(settings),
        "network": threaded(router.read_network, settings),
        "credentials": lambda: credentials.read_credentials(settings),
        "policies": lambda: policies.read_policies(settings),
        "configuration": threaded(router.read_configuration, settings_file),
        "daemon": threaded(router.read_daemon, settings),
        "cni": threaded(cni.read_plugins, settings),
    }


def judge(seen: HostState) -> list[Finding]:
    """Return every finding about a machine, good ones included."""
    findings = [finding for check in CHECKS for finding in _apply(check, seen)]
    fix = "run 'openperouter doctor' as root, and remove the cause"
    return [
        *findings,
        *(
            # What a program says has several lines.
            warning(area, f"could not be examined: {one_line(reason)}", fix)
            for area, reason in (seen.unreadable or {}).items()
        ),
    ]


def _apply(check: Check, seen: HostState) -> Iterator[Finding]:
    areas = {name: getattr(seen, name) for name in inspect.signature(check).parameters}
    required = [
        name
        for name, parameter in inspect.signature(check).parameters.items()
        if parameter.default is inspect.Parameter.empty
    ]
    if all(areas[name] is not None for name in required):
        yield from check(**areas)
