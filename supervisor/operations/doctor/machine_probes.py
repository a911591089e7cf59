"""Looks at the machine: kernel, systemd, clock, disk, files, other network managers."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from actors.lib.kube.credentials import kubeconfig_path
from actors.netlink.planning.observed import NIC_GROUP
from actors.static_config.trial import SAVED
from config.settings import Settings
from supervisor.process.subprocesses import run_command
from supervisor.runtime.faults import DependencyFault

from ..teardown import empty_namespace
from .facts import ClockFacts, DiskFact, FileFact, ManagersFacts, UnitFact

#: Time for a program that asks the local system something, in seconds.
ASK_SECONDS = 10.0
KINDS = ("bridge", "veth", "vrf", "vxlan")
#: ``ip link add probe type ...``: what a kind needs in order to be made.
_MAKING = {"vrf": ("vrf", "table", "99"), "vxlan": ("vxlan", "id", "1", "dstport", "4789")}
#: Where each program's configuration lies, in order of precedence.
_ROOTS = (Path("/etc"), Path("/run"), Path("/usr/local/lib"), Path("/usr/lib"))
#: adjtimex(2) returns it for an unsynchronised clock; a struct timex is 208 bytes on 64-bit machines.
_TIME_ERROR = 5
_TIMEX_BYTES = 512
_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainStatus,NRestarts,ActiveEnterTimestampUSec,"
    "ActiveEnterTimestamp,DropInPaths"
)


async def kinds() -> dict[str, bool]:
    """Say which kinds of devices this kernel can make: loaded, built in, loadable, or proven in an empty namespace."""
    known = _modules()
    return {kind: kind in known or await _makes(kind) for kind in KINDS}


def _modules() -> set[str]:
    """Return the kinds among this kernel's modules, those built in included; reading loads none."""
    found = {kind for kind in KINDS if (Path("/sys/module") / kind).is_dir()}
    for name in ("modules.builtin", "modules.dep"):
        path = Path("/lib/modules") / os.uname().release / name
        try:
            text = path.read_text()
        except OSError:
            continue
        found |= {kind for kind in KINDS if re.search(rf"/{kind}\.ko(?:\.\w+)?(?::|$)", text, re.MULTILINE)}
    return found


async def _makes(kind: str) -> bool:
    """Try it where it changes nothing: no module by that name is there that the attempt could load."""
    words = _MAKING.get(kind, (kind,))
    with empty_namespace() as path:
        command = ("nsenter", f"--net={path}", "ip", "link", "add", "probe", "type", *words)
        return (await run_command(command, seconds=ASK_SECONDS)).returncode == 0


async def units(settings: Settings) -> dict[str, UnitFact]:
    """Ask systemd about our units and those that matter to us."""
    names = (
        "openperouter.service",
        "openperouter-netns.service",
        f"frr@{settings.frr_pathspace}.service",
        "systemd-networkd.service",
        "NetworkManager.service",
    )
    command = ("systemctl", "show", "--timestamp=unix", f"--property={_PROPERTIES}", *names)
    done = await run_command(command, seconds=ASK_SECONDS)
    if done.returncode != 0:
        raise DependencyFault(done.stderr.strip() or "systemctl failed")
    found = [_unit(block) for block in done.stdout.split("\n\n") if block.strip()]
    return {unit.name: unit for unit in found}


def _unit(block: str) -> UnitFact:
    values = dict(line.split("=", 1) for line in block.strip().splitlines() if "=" in line)
    stamp = values.get("ActiveEnterTimestamp", "").lstrip("@")
    return UnitFact(
        name=values.get("Id", ""),
        load=values.get("LoadState", "not-found"),
        active=values.get("ActiveState", "inactive"),
        sub=values.get("SubState", "dead"),
        enabled=values.get("UnitFileState", ""),
        result=values.get("Result", "success"),
        exit_status=_number(values.get("ExecMainStatus", "")),
        restarts=_number(values.get("NRestarts", "")),
        started=float(stamp) if stamp.isdigit() else 0.0,
        drop_ins=tuple(values.get("DropInPaths", "").split()),
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


async def managers() -> ManagersFacts:
    """Read what networkd, NetworkManager and udev are told."""
    done = await run_command(("systemd-analyze", "cat-config", "systemd/networkd.conf"), seconds=ASK_SECONDS)
    names = re.findall(r"^# (/\S+)$", done.stdout, re.MULTILINE)
    changed = max((_changed(Path(name)) for name in names), default=0.0)
    return ManagersFacts(
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
    """Say whether a file in force in one of the roots' directories contains a word."""
    seen: set[str] = set()
    for root in _ROOTS:
        for path in sorted((root / directory).glob(f"*{suffix}")):
            # A file shadows those of its name in the roots after it.
            if path.name not in seen and word in path.read_text(errors="replace"):
                return True
            seen.add(path.name)
    return False


def files(settings: Settings, settings_file: Path) -> tuple[FileFact, ...]:
    """Read modes and owners of what root acts upon and of what may hold secrets."""
    return tuple(fact for path in _paths(settings, settings_file) if (fact := file_fact(path)) is not None)


def _paths(settings: Settings, settings_file: Path) -> Iterator[Path]:
    yield from (settings_file, settings.node_config_file)
    for directory in (settings_file.parent / "conf.d", settings.configs_dir, settings.configs_dir / "secrets"):
        yield directory
        yield from sorted(directory.glob("*"))
    yield settings.state_dir
    yield from sorted(settings.state_dir.glob("*"))
    # Directories that others cannot enter: the files in them have the modes of those that they are copies of.
    yield from sorted((settings.state_dir / SAVED).glob("*"))
    # A kubeconfig can name a program, which then runs as root.
    yield from (settings.credentials_dir, kubeconfig_path(settings))


def file_fact(path: Path) -> FileFact | None:
    """Return one file's fact; None when it is not there."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    mode = stat.S_IMODE(status.st_mode)
    owner, group = _user(status.st_uid), _group(status.st_gid)
    return FileFact(str(path), mode, owner, group, stat.S_ISDIR(status.st_mode), _sheltered(path))


def _sheltered(path: Path) -> bool:
    """Say whether a directory above keeps others out. The path is judged as it is written, links and all."""
    return any(not above.stat().st_mode & stat.S_IXOTH for above in path.absolute().parents)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def clock() -> ClockFacts:
    """Read the clock, and ask the kernel whether anybody keeps it right."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return ClockFacts(time.time(), None if state < 0 else state != _TIME_ERROR)


def disks(settings: Settings) -> tuple[DiskFact, ...]:
    """Ask how much room is left where we write; a directory that is not there yet counts as the next above."""
    written = (settings.state_dir, settings.run_dir, settings.frr_etc_dir / settings.frr_pathspace)
    places = dict.fromkeys(_existing(path) for path in written)
    return tuple(_disk(path) for path in places)


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.is_dir())


def _disk(path: Path) -> DiskFact:
    status = os.statvfs(path)
    # File systems without a fixed number of files say 0 of 0.
    inodes = status.f_ffree if status.f_files else 1 << 30
    return DiskFact(str(path), status.f_bfree * status.f_frsize, inodes)
