"""What goes into the archive, and where it comes from. Kubernetes credentials are never read."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import trio

from actors.frr.preview import rendered_redacted
from actors.lib.frr.vtysh import Vtysh
from actors.netlink.preview import observe_kernel
from actors.netlink.state_files import JOURNAL, TABLES
from config.settings import Settings
from supervisor.process.subprocesses import run_command
from supervisor.runtime.faults import DependencyFault
from supervisor.version import VERSION

from ..control_client import ask
from ..doctor import Finding, as_json, as_lines, examine
from ..documents import configuration_document, desired_document, to_yaml
from ..node_configuration import read_all
from ..paths import CONTROL_SOCKET, STATE_FILE, frr_units
from .archive import PIECE_SECONDS, Source

#: A program's own deadline, below that of the piece, so that its output until then is kept.
PROGRAM_SECONDS: Final = PIECE_SECONDS - 20
UNITS: Final = ("openperouter.service", "openperouter-netns.service")
#: Not those that hold the environment, in which people put secrets.
_UNIT_PROPERTIES: Final = (
    "Id,LoadState,ActiveState,SubState,Result,UnitFileState,FragmentPath,DropInPaths,MainPID,ExecMainStatus,ExecMainCode,"
    "ExecMainStartTimestamp,ExecMainExitTimestamp,NRestarts,StatusText,StatusErrno,MemoryCurrent,MemoryPeak,TasksCurrent,"
    "CPUUsageNSec,NetworkNamespacePath,WatchdogUSec,InvocationID"
)
#: One piece each, so that one that hangs or is huge costs only itself.
SHOWS: Final = (
    "show version",
    "show daemons",
    "show bgp vrf all summary",
    "show bgp l2vpn evpn summary",
    "show bgp vrf all neighbors",
    "show bgp vrf all ipv4 unicast",
    "show bgp vrf all ipv6 unicast",
    "show bgp l2vpn evpn vni",
    "show bgp l2vpn evpn route",
    "show evpn vni detail",
    "show evpn mac vni all",
    "show evpn rmac vni all",
    "show evpn next-hops vni all",
    "show vrf vni",
    "show bfd peers",
    "show interface brief",
    "show ip route vrf all",
    "show ipv6 route vrf all",
    "show ip nht vrf all",
    "show zebra client summary",
    "show memory",
)
#: iproute2's commands, in each namespace.
IP_COMMANDS: Final = (
    ("ip", "-d", "-s", "link"),
    ("ip", "address"),
    ("ip", "route", "show", "table", "all"),
    ("ip", "-6", "route", "show", "table", "all"),
    ("ip", "rule"),
    ("ip", "-6", "rule"),
    ("ip", "neighbour"),
    ("ip", "nexthop"),
    ("bridge", "-d", "link"),
    ("bridge", "fdb"),
    ("bridge", "vlan"),
    ("tc", "-s", "qdisc"),
    ("ss", "-tanp"),
)


class _Examination:
    """``doctor``'s findings, which both of its forms share: a loaded node would take twice as long to examine twice."""

    def __init__(self, settings: Settings, settings_file: Path) -> None:
        self._settings = settings
        self._settings_file = settings_file
        self._lock = trio.Lock()
        self._findings: list[Finding] | None = None

    async def form(self, form: Callable[[list[Finding]], str]) -> str:
        """Return the findings in a form."""
        async with self._lock:
            if self._findings is None:
                self._findings = await examine(self._settings, self._settings_file)
        return form(self._findings)


def sources(settings: Settings, settings_file: Path, *, hours: int) -> dict[str, Source]:
    """Return the source of every piece by its name in the archive."""
    examination = _Examination(settings, settings_file)
    return {
        "doctor.txt": partial(examination.form, lambda findings: "\n".join(as_lines(findings))),
        "doctor.json": partial(examination.form, as_json),
        **_own(settings, settings_file),
        **_systemd(settings, hours),
        **_frr(settings),
        **(_pod() if settings.runtime == "podman" else {}),
        **_network(settings),
        **_machine(),
    }


def _own(settings: Settings, settings_file: Path) -> dict[str, Source]:
    return {
        "versions.txt": _threaded(versions),
        "status.json": _threaded(_status, settings),
        "state.json": _file(settings.run_dir / STATE_FILE),
        "configuration.yaml": _threaded(lambda: to_yaml(configuration_document(settings))),
        "problems.txt": _threaded(lambda: _problems(settings_file)),
        "desired.yaml": _threaded(lambda: _desired(settings_file)),
        "frr/intended.conf": _threaded(lambda: _intended(settings_file)),
        "kernel.json": partial(_kernel, settings),
        f"state/{JOURNAL}": _file(settings.state_dir / JOURNAL),
        f"state/{TABLES}": _file(settings.state_dir / TABLES),
        # Exists only while the disk refuses writes.
        **{
            f"state/spare/{name}": _file(path)
            for name in (JOURNAL, TABLES)
            if (path := settings.run_dir / name).exists()
        },
        "state/node.json": _file(settings.state_dir / "node.json"),
        "files.txt": _program(
            "ls", "-laR", "--time-style=full-iso", *_directories(settings, settings_file), tolerated=(0, 1, 2)
        ),
    }


def _directories(settings: Settings, settings_file: Path) -> Iterable[str]:
    frr = settings.frr_pathspace
    places = (
        settings_file.parent,
        settings.configs_dir,
        settings.state_dir,
        settings.run_dir,
        settings.frr_etc_dir / frr,
        settings.frr_run_dir / frr,
        *((settings.pod_run_dir,) if settings.runtime == "podman" else ()),
    )
    return dict.fromkeys(str(place) for place in places)


def _systemd(settings: Settings, hours: int) -> dict[str, Source]:
    units = (*UNITS, *frr_units(settings))
    journal = ("journalctl", "--no-pager", "--output=short-iso-precise", f"--since=-{hours}h")
    chosen = [word for unit in units for word in ("--unit", unit)]
    return {
        "journal.txt": _program(*journal, "--lines=50000", *chosen),
        "journal-kernel.txt": _program(*journal, "--lines=3000", "--dmesg"),
        "units/properties.txt": _program("systemctl", "show", f"--property={_UNIT_PROPERTIES}", *units),
        "units/files.txt": _program("systemctl", "cat", *units, tolerated=(0, 1)),
        "units/failed.txt": _program("systemctl", "--no-pager", "--failed"),
        "networkd.txt": _program("systemd-analyze", "cat-config", "systemd/networkd.conf"),
        "networkctl.txt": _program("networkctl", "--no-pager", "--all"),
    }


def _frr(settings: Settings) -> dict[str, Source]:
    directory = settings.frr_etc_dir / settings.frr_pathspace
    found: dict[str, Source] = {
        "frr/running.conf": partial(_vtysh, settings, "show running-config"),
        "frr/frr.conf": _file(directory / "frr.conf"),
        "frr/daemons": _file(directory / "daemons"),
    }
    return found | {f"frr/{command.replace(' ', '-')}.txt": partial(_vtysh, settings, command) for command in SHOWS}


def _pod() -> dict[str, Source]:
    """Return what podman says; not of its environment or its own logs, which are in the journal."""
    return {
        "podman/containers.txt": _program("podman", "ps", "--all", "--pod", "--size"),
        "podman/pods.txt": _program("podman", "pod", "ps"),
        "podman/images.txt": _program("podman", "images", "--digests"),
        "podman/version.txt": _program("podman", "version"),
    }


def _network(settings: Settings) -> dict[str, Source]:
    inside = ("ip", "netns", "exec", settings.netns)
    found = {}
    for place, prefix in (("host", ()), ("router", inside)):
        for command in IP_COMMANDS:
            name = "-".join(word for word in command if word[0] != "-" or word == "-6").replace("--", "-")
            found[f"{place}/{name}.txt"] = _program(*prefix, *command)
        found[f"{place}/sysctl.txt"] = _program(*prefix, "sysctl", "-a", "--pattern", "^net\\.", tolerated=(0, 1, 255))
    return found


def _machine() -> dict[str, Source]:
    return {
        "os-release": _file(Path("/etc/os-release")),
        "machine/packages.txt": _program(
            "dpkg-query", "--show", "frr*", "python3-*", "iproute2", "systemd", "openperouter", tolerated=(0, 1)
        ),
        "machine/modules.txt": _file(Path("/proc/modules")),
        "machine/meminfo.txt": _file(Path("/proc/meminfo")),
        "machine/pressure.txt": _file(Path("/proc/pressure/cpu")),
        "machine/df.txt": _program("df", "-h", tolerated=(0, 1)),
    }


def _program(*argv: str, tolerated: tuple[int, ...] = (0,)) -> Source:
    async def run() -> str:
        done = await run_command(argv, seconds=PROGRAM_SECONDS)
        output = done.stdout + (f"\n*** standard error:\n{done.stderr}" if done.stderr.strip() else "")
        ended = "" if done.returncode in tolerated else f"\n*** exit code {done.returncode}\n"
        return f"$ {' '.join(argv)}\n{output}{ended}"

    return run


def _threaded(function: Callable[..., str], *arguments: object) -> Source:
    def run() -> Awaitable[str]:
        return trio.to_thread.run_sync(lambda: function(*arguments), abandon_on_cancel=True)

    return run


def _file(path: Path) -> Source:
    return _threaded(lambda: path.read_text(errors="replace"))


async def _vtysh(settings: Settings, command: str) -> str:
    vtysh = Vtysh.of(settings)
    done = await vtysh.run("-c", command, seconds=PROGRAM_SECONDS, query=True)
    if done.returncode != 0 and not done.stdout.strip():
        raise DependencyFault(done.stderr.strip() or f"vtysh ended with {done.returncode}")
    return f"# {command}\n{done.stdout}{done.stderr}"


async def _kernel(settings: Settings) -> str:
    return json.dumps(await observe_kernel(settings), indent=1, default=str)


def versions() -> str:
    """Return the versions of this program, Python, the libraries and the kernel."""
    from importlib.metadata import PackageNotFoundError, version

    lines = [f"openperouter {VERSION}", f"python {sys.version}", f"kernel {' '.join(platform.uname())}"]
    for name in ("trio", "pyroute2", "pydantic", "jinja2", "PyYAML"):
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name}: unknown")
    return "\n".join(lines) + "\n"


def _status(settings: Settings) -> str:
    return json.dumps(next(ask(settings.run_dir / CONTROL_SOCKET, {"verb": "status"}), None), indent=1)


def _problems(settings_file: Path) -> str:
    return "".join(f"{problem}\n" for problem in read_all(settings_file, remembered=False).problems) or "none\n"


def _desired(settings_file: Path) -> str:
    desired = read_all(settings_file, remembered=True).desired
    return "no usable configuration\n" if desired is None else to_yaml(desired_document(desired))


def _intended(settings_file: Path) -> str:
    read = read_all(settings_file, remembered=True)
    return "no usable configuration\n" if read.desired is None else rendered_redacted(read.desired, read.settings)
