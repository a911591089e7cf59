"""Other programs that configure networks, and systemd's units: do they leave the router's devices and routes alone?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from actors.netlink.planning.observed import NIC_GROUP
from config.settings import Settings
from supervisor.process.subprocesses import run_command
from supervisor.runtime.faults import DependencyFault

from ..paths import frr_units
from .findings import Finding, error, ok, warning
from .machine import QUERY_SECONDS

#: What networkd must be configured with, or it removes what FRR makes (systemd/systemd#29034).
NETWORKD_KEYS = ("ManageForeignRoutes", "ManageForeignRoutingPolicyRules", "ManageForeignNextHops")
_NO = frozenset({"no", "false", "off", "0"})
#: Where each program's configuration lies, in order of precedence.
_ROOTS = (Path("/etc"), Path("/run"), Path("/usr/local/lib"), Path("/usr/lib"))
_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainStatus,ActiveEnterTimestampUSec,"
    "ActiveEnterTimestamp,DropInPaths"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit as ``systemctl show`` describes it. ``started`` is in Unix seconds, 0 when it is not active."""

    name: str
    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    enabled: str = ""
    result: str = "success"
    exit_status: int = 0
    started: float = 0.0
    drop_ins: tuple[str, ...] = ()


Units = Mapping[str, Unit]


@dataclass(frozen=True, slots=True)
class NetworkManagers:
    """What other programs that configure networks were configured to do with our devices.

    ``networkd`` has the keys of networkd's [Network] section; ``networkd_changed`` is when a file of it last changed,
    Unix seconds; ``unmanaged`` whether a ``.network`` file keeps networkd off our devices; ``network_manager`` whether
    NetworkManager leaves them alone; ``link`` whether udev leaves their hardware addresses alone, ``rules`` whether it
    keeps the name of a NIC that is returned to the host.
    """

    networkd: Mapping[str, str] = field(default_factory=dict)
    networkd_changed: float = 0.0
    unmanaged: bool = False
    network_manager: bool = False
    link: bool = False
    rules: bool = False


async def read_units(settings: Settings) -> dict[str, Unit]:
    """Read the state of our units and of those that matter to us from systemd."""
    names = (
        "openperouter.service",
        "openperouter-netns.service",
        *frr_units(settings),
        "systemd-networkd.service",
        "NetworkManager.service",
    )
    command = ("systemctl", "show", "--timestamp=unix", f"--property={_PROPERTIES}", *names)
    done = await run_command(command, seconds=QUERY_SECONDS)
    if done.returncode != 0:
        raise DependencyFault(done.stderr.strip() or "systemctl failed")
    found = [_unit(block) for block in done.stdout.split("\n\n") if block.strip()]
    return {unit.name: unit for unit in found}


def _unit(block: str) -> Unit:
    values = dict(line.split("=", 1) for line in block.strip().splitlines() if "=" in line)
    stamp = values.get("ActiveEnterTimestamp", "").lstrip("@")
    return Unit(
        name=values.get("Id", ""),
        load=values.get("LoadState", "not-found"),
        active=values.get("ActiveState", "inactive"),
        sub=values.get("SubState", "dead"),
        enabled=values.get("UnitFileState", ""),
        result=values.get("Result", "success"),
        exit_status=_number(values.get("ExecMainStatus", "")),
        started=float(stamp) if stamp.isdigit() else 0.0,
        drop_ins=tuple(values.get("DropInPaths", "").split()),
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


async def read_managers() -> NetworkManagers:
    """Read how networkd, NetworkManager and udev are configured."""
    done = await run_command(("systemd-analyze", "cat-config", "systemd/networkd.conf"), seconds=QUERY_SECONDS)
    names = re.findall(r"^# (/\S+)$", done.stdout, re.MULTILINE)
    changed = max((_changed(Path(name)) for name in names), default=0.0)
    return NetworkManagers(
        networkd=_section(done.stdout, "Network"),
        networkd_changed=changed,
        unmanaged=_mentions("systemd/network", ".network", "host-e-*"),
        network_manager=_mentions("NetworkManager/conf.d", ".conf", "host-e-*"),
        link=_mentions("systemd/network", ".link", "host-e-*"),
        rules=_mentions("udev/rules.d", ".rules", f'ATTR{{netdev_group}}=="{NIC_GROUP}"'),
    )


def _changed(path: Path) -> float:
    try:
        return path.stat().st_ctime
    except OSError:
        return 0.0


def _section(text: str, name: str) -> dict[str, str]:
    """Return the assignments in one section of systemd configuration, the last of each key."""
    section, found = "", {}
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif section == name and "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            found[key.strip()] = value.strip()
    return found


def _mentions(directory: str, suffix: str, word: str) -> bool:
    """Whether a file in force in one of the roots' directories contains a word."""
    seen: set[str] = set()
    for root in _ROOTS:
        for path in sorted((root / directory).glob(f"*{suffix}")):
            # A file shadows those of its name in the roots after it.
            if path.name not in seen and word in path.read_text(errors="replace"):
                return True
            seen.add(path.name)
    return False


def networkd(managers: NetworkManagers, units: Units) -> Iterator[Finding]:
    """Does systemd-networkd leave FRR's routes and our devices alone?"""
    unit = units.get("systemd-networkd.service", Unit("systemd-networkd.service"))
    if unit.active != "active":
        yield ok("networkd", "systemd-networkd does not run")
        return
    missing = [key for key in NETWORKD_KEYS if managers.networkd.get(key, "").lower() not in _NO]
    fix = "systemctl restart systemd-networkd"
    if missing:
        yield error(
            "networkd",
            f"systemd-networkd removes routes and rules of FRR: {', '.join(missing)} is not 'no'",
            f"put {', '.join(f'{key}=no' for key in missing)} into [Network] of "
            f"/etc/systemd/networkd.conf.d/openperouter.conf, then {fix}",
        )
    elif managers.networkd_changed > unit.started > 0:
        yield warning(
            "networkd", "systemd-networkd has run since before it was configured to leave foreign routes alone", fix
        )
    else:
        yield ok("networkd", "systemd-networkd leaves foreign routes, rules and nexthops alone")
    if not managers.unmanaged:
        yield warning(
            "networkd",
            "no .network file keeps systemd-networkd off the router's devices on this host",
            "restore /usr/lib/systemd/network/10-openperouter.network (reinstall the package), then networkctl reload",
        )


def network_manager(managers: NetworkManagers, units: Units) -> Iterator[Finding]:
    """Does NetworkManager leave our devices alone?"""
    unit = units.get("NetworkManager.service", Unit("NetworkManager.service"))
    if unit.active != "active":
        yield ok("network-manager", "NetworkManager does not run")
    elif managers.network_manager:
        yield ok("network-manager", "NetworkManager is configured to leave the router's devices alone")
    else:
        yield error(
            "network-manager",
            "NetworkManager is not configured to leave the router's devices alone",
            "restore /usr/lib/NetworkManager/conf.d/openperouter.conf (reinstall the package), nmcli general reload",
        )


def udev(managers: NetworkManagers) -> Iterator[Finding]:
    """Does udev leave the addresses and names of our devices alone?"""
    fix = "restore /usr/lib/{} (reinstall the package), then udevadm control --reload"
    if not managers.link:
        message = "no .link file keeps udev from changing the hardware addresses of the router's devices on this host"
        yield warning("udev", message, fix.format("systemd/network/10-openperouter.link"))
    if not managers.rules:
        message = "no udev rule keeps the name of a NIC that is returned to the host"
        yield warning("udev", message, fix.format("udev/rules.d/70-openperouter.rules"))
    if managers.link and managers.rules:
        yield ok("udev", "udev is configured to leave the router's devices alone")


CHECKS = (networkd, network_manager, udev)
