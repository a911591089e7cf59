"""The router's FRR: installed, configured to run in the router's namespace, and running?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from actors.lib.frr.daemon_socket import DaemonSockets
from actors.lib.frr.frr_lock import session_lock
from actors.lib.frr.pod_processes import processes_of
from actors.lib.frr.processes import CORE_DAEMONS, DAEMONS, start_of
from actors.lib.frr.vtysh import FrrUnavailable, lock_file
from actors.lib.network_namespace import NAMESPACES
from config.settings import Settings
from supervisor.process.subprocesses import CommandMissing, run_command
from supervisor.runtime.faults import DependencyFault

from ..paths import frr_units
from .files import File, read_file
from .findings import Finding, error, ok, warning
from .machine import QUERY_SECONDS
from .network_managers import Unit, Units

#: The first FRR with everything that our configuration needs, Debian 13's.
OLDEST = (10, 3)
#: FRR that can leave an L3VNI stale after it went down and up quickly (0f2cb27310, reverted for 10.5 by aab7420bd6).
STALE_L3VNI = ((10, 3), (10, 4))
#: FRR whose mgmtd loses the commit of one session when another one ends (FRR #18541; #18601 removed the cause later).
LOSES_COMMITS = ((10, 3),)
#: FRR of which a daemon may die while it prints a long answer to a session that has ended (FRR #19109 fixes it).
CRASHES_ON_CLOSED_SESSIONS = ((10, 3), (10, 4))
#: Where cron keeps its tables and scripts.
CRON = tuple(map(Path, ("/etc/crontab", "/etc/cron.d", "/etc/cron.daily", "/var/spool/cron/crontabs")))
#: The exporter for Prometheus under its own name and Debian's, as the kernel cuts it off.
EXPORTERS = ("frr_exporter", "prometheus-frr-")
#: The first FRR that surely has the fix of #16614: before, zebra may crash upon a route whose VRF it learns of later.
TABLES_FIXED = (10, 7)
#: Those of the daemons that its ``daemons`` file decides about; the others always run.
SWITCHED = ("bgpd", "bfdd")
#: How long another process's session with mgmtd is waited for.
LOCK_SECONDS = 2.0
#: What every daemon answers at once.
_QUESTION = "show version"
PROCESSES = Path("/proc")
ZEBRA = Path("/usr/lib/frr/zebra")
_REPLACED = " (deleted)"
#: What keeps FRR's scripts from signalling whatever a PID file names, in the package's "daemons".
_GUARD = re.compile(r"^\s*kill\s*\(\)", re.MULTILINE)
_ASSIGNMENT = re.compile(r"^\s*(\w+)\s*=\s*[\"']?([^\"'#]*?)[\"']?\s*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Frr:
    """FRR as it is installed and as it runs.

    ``version`` is empty without FRR; ``daemons_file`` None without that file, else its assignments; ``guarded`` says
    whether it limits what PID files decide; ``running`` None when FRR does not answer, for the reason ``silence``;
    ``inside`` says whether zebra is in the router's namespace, None when there is no zebra; ``outdated`` are the
    daemons whose program was replaced since they started; ``vtysh_users`` are cron's files and the exporters that run
    vtysh without limiting it to a daemon.
    """

    version: str = ""
    vtysh: bool = False
    daemons_file: Mapping[str, str] | None = None
    guarded: bool = True
    running: frozenset[str] | None = None
    silence: str = ""
    conf: File | None = None
    inside: bool | None = None
    outdated: tuple[str, ...] = ()
    vtysh_users: tuple[str, ...] = ()


async def read_frr(settings: Settings) -> Frr:
    """Read everything of FRR's that concerns the router."""
    running, silence = await _answering(settings)
    directory = settings.frr_etc_dir / settings.frr_pathspace
    daemons = _text(directory / "daemons")
    return Frr(
        version=await _version(settings),
        vtysh=settings.vtysh.is_file(),
        daemons_file=None if daemons is None else dict(_ASSIGNMENT.findall(daemons)),
        guarded=daemons is None or _GUARD.search(daemons) is not None,
        running=running or None,
        silence=silence,
        conf=read_file(directory / "frr.conf"),
        inside=_inside(settings),
        # A container's programs are never replaced, and PID files count in the pod.
        outdated=_outdated(settings.frr_run_dir / settings.frr_pathspace) if settings.runtime == "native" else (),
        vtysh_users=await trio.to_thread.run_sync(_vtysh_users, abandon_on_cancel=True),
    )


async def _answering(settings: Settings) -> tuple[frozenset[str], str]:
    """Return the daemons that answer, and why the first of the others does not."""
    daemons, answering, faults = DaemonSockets.of(settings, QUERY_SECONDS), set(), {}

    async def ask(daemon: str) -> None:
        try:
            await _ask(daemons, daemon, settings)
        except DependencyFault as fault:
            faults[daemon] = str(fault)
        else:
            answering.add(daemon)

    async with trio.open_nursery() as nursery:
        for daemon in DAEMONS:
            nursery.start_soon(ask, daemon)
    return frozenset(answering), next((faults[daemon] for daemon in sorted(faults)), "")


async def _ask(daemons: DaemonSockets, daemon: str, settings: Settings) -> None:
    """Return if a daemon answers; raise ``DependencyFault`` if not.

    While FRR is being changed a session with mgmtd could break that, so that its process has to do.
    """
    if daemon != "mgmtd":
        await daemons.text(_QUESTION, daemon=daemon)
        return
    with trio.move_on_after(LOCK_SECONDS) as waiting:
        async with session_lock(lock_file(settings), exclusive=False):
            waiting.deadline = math.inf
            await daemons.text(_QUESTION, daemon=daemon)
            return
    if processes_of(settings).pid_of(daemon) is None:
        raise FrrUnavailable(f"FRR does not answer: {daemon} is not running")


async def _version(settings: Settings) -> str:
    """Return the version of zebra's program: vtysh does not print its own. Of a pod's FRR it is that which runs."""
    if settings.runtime == "podman":
        return await _running_version(settings)
    try:
        done = await run_command((str(ZEBRA), "--version"), seconds=QUERY_SECONDS)
    except CommandMissing:
        return ""
    found = re.search(r"version (\S+)", done.stdout)
    return found[1] if found else ""


async def _running_version(settings: Settings) -> str:
    try:
        answer = await DaemonSockets.of(settings, QUERY_SECONDS).text(_QUESTION, daemon="zebra")
    except DependencyFault:
        return ""
    found = re.search(r"^FRRouting (\S+)", answer, re.MULTILINE)
    return found[1] if found else ""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None


def _outdated(run_dir: Path) -> tuple[str, ...]:
    """Return the daemons that run a program which is no longer on disk (proc_pid_exe(5)): FRR was upgraded."""
    found = []
    for file in sorted(run_dir.glob("*.pid")):
        try:
            program = str((PROCESSES / str(int(start_of(str(file)))) / "exe").readlink())
        except (OSError, ValueError):
            continue
        if program.endswith(_REPLACED):
            found.append(file.stem)
    return tuple(found)


def _vtysh_users() -> tuple[str, ...]:
    files = [file for place in CRON for file in (sorted(place.iterdir()) if place.is_dir() else [place])]
    return (*(str(file) for file in files if _runs_vtysh(file)), *_exporters())


def _runs_vtysh(file: Path) -> bool:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(re.match(r"[^#]*\bvtysh\b(?!.* -d)", line) for line in lines)


def _exporters() -> Iterator[str]:
    for process in PROCESSES.glob("[0-9]*"):
        try:
            if (process / "comm").read_text(errors="replace").startswith(EXPORTERS):
                words = (process / "cmdline").read_text(errors="replace").split("\0")
                option = next((word for word in words if word.startswith("--frr.vtysh")), "")
                if option:
                    yield f"{Path(words[0]).name} {option} (process {process.name})"
        except OSError:
            continue


def _inside(settings: Settings) -> bool | None:
    """Whether zebra's namespace is the router's; None when one of the two does not exist."""
    pid = processes_of(settings).pid_of("zebra")
    if pid is None:
        return None
    try:
        zebra, router = Path(f"/proc/{pid}/ns/net").stat(), (NAMESPACES / settings.netns).stat()
    except (OSError, ValueError):
        return None
    return (zebra.st_dev, zebra.st_ino) == (router.st_dev, router.st_ino)


def version(settings: Settings, frr: Frr) -> Iterator[Finding]:
    """Is FRR installed and new enough?"""
    found = re.match(r"(\d+)\.(\d+)", frr.version)
    if found is None and settings.runtime == "podman":
        # It is in the image. Whether that runs, the checks of the pod say.
        return
    if found is None:
        yield error("frr-version", "FRR is not installed", "apt install frr")
        return
    number = (int(found[1]), int(found[2]))
    if number < OLDEST:
        yield error("frr-version", f"FRR {frr.version} is too old", "install FRR 10.3 or newer")
        return
    known = []
    if number in STALE_L3VNI:
        known.append("an L3VNI may stay stale after going down and up within a second (fixed in 10.5)")
    if number < TABLES_FIXED:
        known.append("zebra may crash after a route is added to a VRF that was just created (fixed in 10.7)")
    if number in CRASHES_ON_CLOSED_SESSIONS:
        known.append("a daemon may crash if a session ends while it prints a long answer (FRR #19109)")
    avoided = f" has known bugs, which openperouter avoids: {'; '.join(known)}" if known else ""
    yield ok("frr-version", f"FRR {frr.version}{avoided}")


def programs(settings: Settings, frr: Frr) -> Iterator[Finding]:
    """Is the program installed that drives FRR?"""
    if not frr.version or settings.runtime == "podman":
        return
    if not frr.vtysh:
        yield error("frr-programs", f"{settings.vtysh} does not exist", "apt install frr")


def daemons_file(settings: Settings, frr: Frr) -> Iterator[Finding]:
    """Does FRR start the daemons that we need?"""
    path = settings.frr_etc_dir / settings.frr_pathspace / "daemons"
    switches = frr.daemons_file
    if switches is None:
        yield error(
            "frr-daemons",
            f"{path} does not exist: FRR cannot know which daemons to start",
            "apt install --reinstall -o Dpkg::Options::=--force-confmiss openperouter",
        )
        return
    if not frr.guarded:
        message = f"{path} lacks the function kill: a compromised FRR daemon can end other processes"
        yield warning("frr-daemons", message, "copy it from the package's file, which dpkg left beside it")
    off = [name for name in SWITCHED if switches.get(name, "no") != "yes"]
    for name in off:
        yield error("frr-daemons", f"{path} does not start {name}", f"set {name}=yes there, then {_restart(settings)}")
    if switches.get("vtysh_enable", "yes") == "no":
        fix = f"set vtysh_enable=yes there, then {_restart(settings)}"
        yield error("frr-daemons", f"{path} keeps FRR from loading its configuration at start", fix)
    elif not off:
        yield ok("frr-daemons", f"{path} starts {' and '.join(SWITCHED)}")


def unit(settings: Settings, units: Units) -> Iterator[Finding]:
    """Is FRR's unit installed, with our drop-in, and active?"""
    if settings.runtime == "podman":
        return
    name = frr_unit(settings)
    found = units.get(name, Unit(name))
    if found.load != "loaded":
        yield error("frr-unit", f"{found.name} is {found.load}", "apt install --reinstall frr")
        return
    if not any(path.endswith("/openperouter.conf") for path in found.drop_ins):
        yield error(
            "frr-unit",
            f"{found.name} lacks openperouter's drop-in: it runs in the host's network namespace",
            f"apt install --reinstall openperouter, systemctl daemon-reload, {_restart(settings)}",
        )
    if found.active == "active":
        yield ok("frr-unit", f"{found.name} is active")
    else:
        why = "" if found.result == "success" else f", {found.result}"
        yield error(
            "frr-unit",
            f"{found.name} is {found.active} ({found.sub}{why})",
            f"journalctl -u {found.name} -n 50, then {_restart(settings)}",
        )


def running(settings: Settings, frr: Frr) -> Iterator[Finding]:
    """Do all daemons answer, and in the right place?"""
    if not frr.version:
        return
    answering = frr.running
    if answering is None:
        yield error("frr-running", frr.silence or "FRR does not answer", _restart(settings))
        return
    missing = sorted(DAEMONS - answering)
    fix = f"journalctl -u {frr_unit(settings)} -n 50, then {_restart(settings)}"
    if CORE_DAEMONS.intersection(missing):
        yield error("frr-running", f"FRR runs without {', '.join(missing)}", fix)
    elif missing:
        message = f"FRR runs without {', '.join(missing)}: a configuration with BFD or static routes is not applied"
        yield warning("frr-running", message, fix)
    else:
        yield ok("frr-running", f"{', '.join(sorted(DAEMONS))} answer")
    if frr.outdated:
        message = f"FRR was upgraded, and {', '.join(frr.outdated)} still run the old version"
        yield warning("frr-running", message, f"{_restart(settings)} when sessions may be down for a few seconds")
    if frr.inside is False:
        yield error(
            "frr-running",
            f"zebra does not run in the network namespace {settings.netns}",
            _restart(settings),
        )


def conf(settings: Settings, frr: Frr) -> Iterator[Finding]:
    """Can FRR, and no other user, read the configuration with which it boots?"""
    if not frr.version:
        return
    path = settings.frr_etc_dir / settings.frr_pathspace / "frr.conf"
    file = frr.conf
    fix = f"chown root:frr {path}; chmod 0640 {path}"
    if file is None:
        fix = "systemctl restart openperouter writes it once it has something to apply"
        yield warning("frr-conf", f"{path} does not exist: FRR restarts without any configuration", fix)
    elif file.mode & 0o007:
        yield error("frr-conf", f"{path} has mode {file.mode:04o} and may hold passwords", fix)
    elif file.owner != "root":
        message = f"{path} belongs to {file.owner}, who could run commands as root when FRR starts"
        yield error("frr-conf", message, fix)
    else:
        yield ok("frr-conf", f"{path} is private to FRR")


def sessions(frr: Frr) -> Iterator[Finding]:
    """Does something run vtysh time and again, where that may break a change?"""
    found = re.match(r"(\d+)\.(\d+)", frr.version)
    if found is None or (int(found[1]), int(found[2])) not in LOSES_COMMITS:
        return
    fault = f"FRR {frr.version} loses a change if a session with mgmtd ends during it (FRR #18541)"
    if frr.vtysh_users:
        fix = "let it use vtysh -d bgpd or -d zebra, and frr_exporter the daemons' sockets (no --frr.vtysh)"
        yield warning("frr-sessions", f"{', '.join(frr.vtysh_users)}: {fault}", fix)
    else:
        yield ok("frr-sessions", f"{fault}; no cron job and no frr_exporter was found that opens one")


def frr_unit(settings: Settings) -> str:
    """Return the name of the unit of the router's FRR, with podman that of its pod."""
    return frr_units(settings)[0]


def _restart(settings: Settings) -> str:
    return f"systemctl restart {frr_unit(settings)}"


CHECKS = (version, programs, daemons_file, unit, running, conf, sessions)
