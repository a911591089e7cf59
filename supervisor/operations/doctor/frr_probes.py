"""Looks at FRR: what is installed, what its files say, what runs and where."""

from __future__ import annotations

import re
from pathlib import Path

from actors.lib.frr.vtysh import Vtysh
from actors.netlink.wire.namespace import NAMESPACES
from config.settings import Settings
from supervisor.process.subprocesses import CommandMissing, run_command
from supervisor.runtime.faults import DependencyFault

from .facts import FrrFacts
from .machine_probes import ASK_SECONDS, file_fact

PROCESSES = Path("/proc")
_REPLACED = " (deleted)"
_ASSIGNMENT = re.compile(r"^\s*(\w+)\s*=\s*[\"']?([^\"'#]*?)[\"']?\s*(?:#.*)?$", re.MULTILINE)


async def frr(settings: Settings) -> FrrFacts:
    """Look at everything of FRR's that concerns the router."""
    running: frozenset[str] | None = None
    silence = ""
    try:
        running = await Vtysh.of(settings, ASK_SECONDS).daemons()
    except DependencyFault as fault:
        silence = str(fault)
    directory = settings.frr_etc_dir / settings.frr_pathspace
    return FrrFacts(
        version=await _version(settings),
        vtysh=_there(settings.vtysh),
        reload=_there(settings.frr_reload),
        daemons_file=_switches(directory / "daemons"),
        running=running,
        silence=silence,
        conf=file_fact(directory / "frr.conf"),
        inside=_inside(settings),
        outdated=_outdated(settings.frr_run_dir / settings.frr_pathspace),
    )


async def _version(settings: Settings) -> str:
    """Ask zebra's program, which answers without a running FRR; it lies beside the reload program."""
    try:
        done = await run_command((str(settings.frr_reload.parent / "zebra"), "--version"), seconds=ASK_SECONDS)
    except CommandMissing:
        return ""
    found = re.search(r"version (\S+)", done.stdout)
    return found[1] if found else ""


def _there(path: Path) -> bool:
    return path.is_file()


def _switches(path: Path) -> dict[str, str] | None:
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return None
    return dict(_ASSIGNMENT.findall(text))


def _outdated(run_dir: Path) -> tuple[str, ...]:
    """Return the daemons that run a program which is no longer on disk (proc_pid_exe(5)): FRR was upgraded."""
    found = []
    for file in sorted(run_dir.glob("*.pid")):
        try:
            program = str((PROCESSES / file.read_text().strip() / "exe").readlink())
        except OSError:
            continue
        if program.endswith(_REPLACED):
            found.append(file.stem)
    return tuple(found)


def _inside(settings: Settings) -> bool | None:
    """Say whether zebra's namespace is the router's; None when one of the two is not there."""
    try:
        pid = int((settings.frr_run_dir / settings.frr_pathspace / "zebra.pid").read_text())
        zebra, router = Path(f"/proc/{pid}/ns/net").stat(), (NAMESPACES / settings.netns).stat()
    except (OSError, ValueError):
        return None
    return (zebra.st_dev, zebra.st_ino) == (router.st_dev, router.st_ino)
