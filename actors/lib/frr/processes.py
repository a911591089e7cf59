"""FRR's processes, seen through their PID files and /proc: connecting to them would be a session (:mod:`.frr_lock`).

:class:`FrrProcesses` is what the daemon needs from them. Here is how an FRR that runs in the host's PID namespace
is seen, and by the reloader that of its own pod; :mod:`.pod_processes` sees the pod's FRR from the host.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

import trio

from actors.lib.network_namespace import enter
from supervisor.process.subprocesses import run_command
from supervisor.runtime.faults import DependencyFault

PROC: Final = Path("/proc")
#: The daemons that every configuration is sent to, and all that ours may be sent to.
CORE_DAEMONS: Final = frozenset({"zebra", "mgmtd", "bgpd"})
DAEMONS: Final = CORE_DAEMONS | {"bfdd", "staticd"}
#: The script that watchfrr runs to start daemons; it lasts until the configuration is loaded. Its pathspace is in its
#: environment, which a process with fewer capabilities may not read; any will do, since it takes only seconds.
_START_SCRIPT: Final = "watchfrr.sh"
#: Bytes of a PID file, or of a process's name, and more.
_SHORT: Final = 64
#: Deadline of what systemd runs for us, in seconds; an emulated machine needs one.
_SYSTEMD_SECONDS: Final = 20.0


class FrrProcesses(Protocol):
    """The daemons of one FRR, whose sockets and PID files are in ``run_dir``. Process IDs are those of the caller."""

    run_dir: Path

    def running(self) -> frozenset[str]:
        """Return the running daemons, watchfrr among them; :class:`DependencyFault` says why there are surely none."""

    def pid_of(self, daemon: str) -> int | None:
        """Return a daemon's process, None if it does not run."""

    def is_loading(self) -> bool:
        """Return whether FRR is still starting (:func:`is_loading`). May block."""

    def restarts(self) -> frozenset[tuple[str, int, int]]:
        """Return what changes, besides the daemons' sockets, when FRR is started again."""

    async def end(self, daemon: str, pid: int) -> bool:
        """Kill a daemon, if it still is that process; return whether it was. Raises OSError, DependencyFault."""

    async def abandoned(self, daemon: str) -> frozenset[int]:
        """Return the connections to a daemon's socket whose clients are gone. Raises OSError, DependencyFault."""


class NativeProcesses:
    """The FRR of a pathspace in our own PID namespace: :class:`FrrProcesses`. ``netns`` is its network namespace."""

    def __init__(self, run_dir: Path, pathspace: str, netns: Path | None = None) -> None:
        self.run_dir = run_dir
        self._pathspace = pathspace
        self._netns = netns

    def running(self) -> frozenset[str]:
        """Return the running daemons."""
        return running_daemons(self.run_dir)

    def pid_of(self, daemon: str) -> int | None:
        """Return the process that a daemon's PID file names."""
        return pid_of(self.run_dir, daemon)

    def is_loading(self) -> bool:
        """Return whether FRR's start script runs."""
        return is_loading(self._pathspace)

    def restarts(self) -> frozenset[tuple[str, int, int]]:
        """Return nothing: a restarted daemon has a new socket."""
        return frozenset()

    async def end(self, daemon: str, pid: int) -> bool:
        """Kill a daemon by a signal, or have systemd do it."""
        return await end_daemon(self.run_dir, daemon, pid)

    async def abandoned(self, daemon: str) -> frozenset[int]:
        """Return the connections of our own network namespace, and of FRR's: each lists its own."""
        return await trio.to_thread.run_sync(self._abandoned, self.run_dir / f"{daemon}.vty")

    def _abandoned(self, path: Path) -> frozenset[int]:
        found = abandoned(path)
        if self._netns is not None and self._netns.exists():
            # Its thread ends in the namespace.
            with ThreadPoolExecutor(max_workers=1) as thread:
                found |= thread.submit(_abandoned_in, self._netns, path).result()
        return found


def pid_of(run_dir: Path, daemon: str) -> int | None:
    """Return the process that a daemon's PID file names, if it really is that daemon."""
    try:
        pid = int(start_of(f"{run_dir}/{daemon}.pid"))
        name = start_of(f"{PROC}/{pid}/comm").strip().decode()
    except (OSError, ValueError):
        return None
    return pid if name == daemon else None


def start_of(path: str) -> bytes:
    """Return a short file's content. Several are read at each poll, and pathlib takes twice as long."""
    # FRR's user can put a FIFO in the place of a PID file.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _SHORT)
    finally:
        os.close(descriptor)


def pids(proc: Path) -> Iterator[int]:
    """Yield all process IDs."""
    return (int(name) for name in os.listdir(proc) if name.isdecimal())  # noqa: PTH208 - as above


async def end_daemon(run_dir: Path, daemon: str, pid: int, *, by_systemd: bool = True) -> bool:
    """Kill a daemon, if that process still is the one that its PID file names; return whether it was.

    Where we may not, systemd does it, if ``by_systemd`` says that there is one.

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
            if not by_systemd:
                raise
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
    try:
        names = os.listdir(run_dir)  # noqa: PTH208 - as above
    except OSError:
        return frozenset()
    daemons = (name.removesuffix(".pid") for name in names if name.endswith(".pid"))
    return frozenset(daemon for daemon in daemons if pid_of(run_dir, daemon) is not None)


def is_loading(pathspace: str, proc: Path = PROC) -> bool:
    """Return whether FRR's start script still runs: it starts all daemons and then loads the configuration on disk.

    The daemons accept sessions long before that. In mgmtd 10.3 a second configuration during the load may leave the
    datastores locked, and zebra without lines that the running configuration shows. Only the command
    lines of these two programs are read: that of a process which hangs in the kernel may block the reader.
    """
    return any(_loads(f"{proc}/{pid}", pathspace) for pid in pids(proc))


def _loads(process: str, pathspace: str) -> bool:
    try:
        name = start_of(f"{process}/comm").strip().decode(errors="replace")
        if name not in (_START_SCRIPT, "vtysh"):
            return False
        words = Path(f"{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    # One that has ended, and that nothing has waited for yet, has a name and no command line.
    return words != [""] and (name == _START_SCRIPT or ("-b" in words and pathspace in words))


def _abandoned_in(netns: Path, path: Path) -> frozenset[int]:
    enter(netns)
    return abandoned(path)


def abandoned(path: Path) -> frozenset[int]:
    """Return the inodes of a server's ends of connections to the UNIX socket ``path`` whose clients are gone.

    Only connections of the thread's network namespace are listed, which is the client's and not the server's. Raises
    OSError if the kernel does not list them. Blocks, most of all for the first import.
    """
    # Twelve megabytes, for what most daemons never need.
    from pyroute2 import DiagSocket
    from pyroute2.netlink.diag import SS_ESTABLISHED, UDIAG_SHOW_NAME, UDIAG_SHOW_PEER

    resolved = path.resolve()
    with DiagSocket() as diag:
        diag.bind()
        connections = diag.get_sock_stats(states=1 << SS_ESTABLISHED, show=UDIAG_SHOW_NAME | UDIAG_SHOW_PEER)
    found = set()
    for connection in connections:
        name = connection.get_attr("UNIX_DIAG_NAME")
        bound_there = isinstance(name, str) and name.endswith(f"/{path.name}") and Path(name).resolve() == resolved
        if bound_there and not connection.get_attr("UNIX_DIAG_PEER"):
            found.add(connection["udiag_ino"])
    return frozenset(found)
