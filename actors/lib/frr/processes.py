"""FRR's processes, seen through their PID files and /proc: connecting to them would be a session (:mod:`.frr_lock`)."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Final

from supervisor.process.subprocesses import run_command
from supervisor.runtime.faults import DependencyFault

PROC: Final = Path("/proc")
#: The daemons that every configuration is sent to, and all that ours may be sent to.
CORE_DAEMONS: Final = frozenset({"zebra", "mgmtd", "bgpd"})
DAEMONS: Final = CORE_DAEMONS | {"bfdd", "staticd"}
#: The script that watchfrr runs to start daemons; it lasts until the configuration is loaded. Its pathspace is in its
#: environment, which a process with fewer capabilities may not read; any will do, since it takes only seconds.
_START_SCRIPT: Final = "watchfrr.sh"
#: Deadline of what systemd runs for us, in seconds; an emulated machine needs one.
_SYSTEMD_SECONDS: Final = 20.0


def pid_of(run_dir: Path, daemon: str) -> int | None:
    """Return the process that a daemon's PID file names, if it really is that daemon."""
    try:
        pid = int((run_dir / f"{daemon}.pid").read_text())
        name = (PROC / f"{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return pid if name == daemon else None


async def end_daemon(run_dir: Path, daemon: str, pid: int) -> bool:
    """Kill a daemon, if that process still is the one that its PID file names; return whether it was.

    The file is the daemons' to write, so a process of another user than the file's is not ended: the file's owner could
    not end that one without us either. Raises OSError if the kernel refuses, DependencyFault if systemd does.
    """
    process = os.pidfd_open(pid)
    try:
        # With the descriptor open, what is read now is about the process that gets the signal.
        user = (run_dir / f"{daemon}.pid").stat().st_uid
        if pid_of(run_dir, daemon) != pid or _user_of(pid) != user:
            return False
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
        except PermissionError:
            # The daemon's unit has no CAP_KILL.
            await _end_as(user, daemon, pid)
    finally:
        os.close(process)
    return True


async def _end_as(user: int, daemon: str, pid: int) -> None:
    """Have systemd end a process as its own user, which needs no capability. Raises DependencyFault."""
    # systemd would replace a "$", so there is none. A oneshot unit has ended when it has started.
    script = f"grep -qx {daemon} /proc/{pid}/comm && kill -KILL {pid}"
    options = ("--quiet", "--collect", "--service-type=oneshot", f"--uid={user}")
    done = await run_command(("systemd-run", *options, "--", "/bin/sh", "-c", script), seconds=_SYSTEMD_SECONDS)
    if done.returncode != 0:
        raise DependencyFault(f"systemd-run: {done.stderr.strip() or done.returncode}")


def _user_of(pid: int) -> int | None:
    """Return a process's real user. The owner of its directory is root if it may not be traced."""
    found = re.search(r"^Uid:\t(\d+)", (PROC / f"{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) if found else None


def running_daemons(run_dir: Path) -> frozenset[str]:
    """Return the running daemons of one FRR, watchfrr among them."""
    return frozenset(file.stem for file in run_dir.glob("*.pid") if pid_of(run_dir, file.stem) is not None)


def is_loading(pathspace: str, proc: Path = PROC) -> bool:
    """Return whether FRR's start script still runs: it starts all daemons and then loads the configuration on disk.

    The daemons accept sessions long before that. In mgmtd 10.3 a second configuration during the load may leave the
    datastores locked, and zebra without lines that the running configuration shows. Only the command
    lines of these two programs are read: that of a process which hangs in the kernel may block the reader.
    """
    return any(_loads(process, pathspace) for process in proc.glob("[0-9]*"))


def _loads(process: Path, pathspace: str) -> bool:
    try:
        name = (process / "comm").read_text().strip()
        if name not in (_START_SCRIPT, "vtysh"):
            return False
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    # One that has ended, and that nothing has waited for yet, has a name and no command line.
    return words != [""] and (name == _START_SCRIPT or ("-b" in words and pathspace in words))
