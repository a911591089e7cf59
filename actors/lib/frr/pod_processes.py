"""FRR's processes in a podman pod, seen from the host: :class:`.processes.FrrProcesses` for ``runtime: podman``.

    frr.pid (podman) ──> first process of FRR's container ──┐
    DAEMON.pid (FRR, the pod's numbers) ──> /proc ──────────┴─> the host's process ID

FRR's own PID files count in the pod's PID namespace. The host's process is the one of the daemon's name whose innermost
number (``NSpid``, proc(5)) is that of the file, in the PID namespace's depth and control group of the container's first
process. That one comes from ``frr.pid``, which podman writes. It is checked: it must be a container's process, in the
router's network namespace where that can be read, and as long as the file stays the same so must the moment at which
its process started, since the kernel uses numbers again. A new ``frr.pid`` means that FRR was restarted.

Nothing here opens a session with a daemon. What has to be done or seen inside the pod, the reloader does: killing a
daemon, and listing the connections of its network namespace.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from actors.lib.network_namespace import NAMESPACES
from config.settings import Settings
from supervisor.runtime.faults import DependencyFault

from .processes import PROC, FrrProcesses, NativeProcesses, abandoned, is_loading, pids, start_of
from .reloader_protocol import SOCKET

if TYPE_CHECKING:
    from .reloader_client import ReloaderClient

PID_FILE: Final = "frr.pid"
_NUMBERS: Final = re.compile(r"^NSpid:\t([\d\t]+)", re.MULTILINE)
#: Fields of /proc/PID/stat after the name: state first, and the start in clock ticks since boot (proc_pid_stat(5)).
_STARTED: Final = 19


class PodFault(DependencyFault):
    """FRR's container does not run, or its PID file does not name it."""


@dataclass(frozen=True, slots=True)
class PodProcess:
    """One process: its number in each PID namespace, the host's first; ``started`` in clock ticks since boot."""

    pid: int
    name: str
    started: int
    numbers: tuple[int, ...]
    cgroup: str


def read_process(pid: int, proc: Path) -> PodProcess | None:
    """Return a process that runs, None if there is none of that number."""
    directory = proc / str(pid)
    try:
        name, _, rest = (directory / "stat").read_text().partition(" (")[2].rpartition(") ")
        numbers = _NUMBERS.search((directory / "status").read_text())
        cgroup = (directory / "cgroup").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    fields = rest.split()
    if not numbers or len(fields) <= _STARTED or fields[0] in ("Z", "X"):
        return None
    return PodProcess(pid, name, int(fields[_STARTED]), tuple(map(int, numbers[1].split())), cgroup)


def _by_name(proc: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for pid in pids(proc):
        with suppress(OSError):
            found[start_of(f"{proc}/{pid}/comm").strip().decode(errors="replace")].append(pid)
    return found


class PodProcesses:
    """The FRR of the pod whose directory is ``pod_dir``."""

    def __init__(self, run_dir: Path, pod_dir: Path, pathspace: str, netns: str, *, proc: Path = PROC) -> None:
        self.run_dir = run_dir
        self.pid_file = pod_dir / PID_FILE
        self._pathspace = pathspace
        self._namespace = NAMESPACES / netns
        self._proc = proc
        self._socket = pod_dir / SOCKET
        #: The PID file as it was when it was first read, and the process that it named then.
        self._seen: tuple[tuple[int, int], PodProcess] | None = None
        #: The last process of each daemon.
        self._known: dict[str, PodProcess] = {}

    def first(self) -> PodProcess:
        """Return the first process of FRR's container; raise :class:`PodFault` if the file names no such process."""
        try:
            status, text = self.pid_file.stat(), self.pid_file.read_text()
        except FileNotFoundError:
            raise PodFault(f"FRR's container does not run: there is no {self.pid_file}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise PodFault(f"{self.pid_file}: {getattr(error, 'strerror', None) or 'not text'}") from None
        process = read_process(int(text), self._proc) if text.strip().isdecimal() else None
        if process is None:
            raise PodFault(f"FRR's container does not run: {self.pid_file} names no process")
        mark = (status.st_ino, status.st_mtime_ns)
        if self._seen is None or self._seen[0] != mark:
            self._seen = (mark, process)
        known = self._seen[1]
        if (known.pid, known.started) != (process.pid, process.started):
            raise PodFault(f"FRR's container has ended: process {process.pid} in {self.pid_file} is another one now")
        if len(process.numbers) < 2 or self._elsewhere(process.pid):
            raise PodFault(f"{self.pid_file} names process {process.pid} ({process.name}), which is not of FRR's pod")
        return process

    def _elsewhere(self, pid: int) -> bool:
        """Return whether a process is surely not in the router's network namespace; the daemon may not look."""
        try:
            found, router = (self._proc / f"{pid}/ns/net").stat(), self._namespace.stat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) != (router.st_dev, router.st_ino)

    def running(self) -> frozenset[str]:
        """Return the running daemons; raise :class:`PodFault` if the container does not run."""
        first, listed = self.first(), self._once_listed()
        files = self.run_dir.glob("*.pid")
        return frozenset(file.stem for file in files if self._process(file.stem, first, listed) is not None)

    def pid_of(self, daemon: str) -> int | None:
        """Return the host's number of a daemon's process."""
        try:
            found = self._process(daemon, self.first(), self._once_listed())
        except PodFault:
            return None
        return None if found is None else found.pid

    def _once_listed(self) -> Callable[[], Mapping[str, list[int]]]:
        """Return what lists all processes by name when it is first called: a Kubernetes node has thousands."""
        return cache(partial(_by_name, self._proc))

    def _process(
        self, daemon: str, first: PodProcess, listed: Callable[[], Mapping[str, list[int]]]
    ) -> PodProcess | None:
        try:
            inner = int(start_of(f"{self.run_dir}/{daemon}.pid"))
        except (OSError, ValueError):
            return None
        known = self._known.get(daemon)
        if known is None or known.numbers[-1] != inner or read_process(known.pid, self._proc) != known:
            known = next(self._candidates(listed().get(daemon, ()), inner, first), None)
        if known is None:
            self._known.pop(daemon, None)
        else:
            self._known[daemon] = known
        return known

    def _candidates(self, named: Iterable[int], inner: int, first: PodProcess) -> Iterator[PodProcess]:
        for pid in named:
            found = read_process(pid, self._proc)
            if found is None or found.numbers[-1] != inner:
                continue
            if len(found.numbers) == len(first.numbers) and found.cgroup == first.cgroup:
                yield found

    def is_loading(self) -> bool:
        """Return whether FRR's start script runs: the host sees the pod's processes too."""
        return is_loading(self._pathspace, self._proc)

    def restarts(self) -> frozenset[tuple[str, int, int]]:
        """Return the PID file's identity: podman writes a new one for each container."""
        try:
            status = self.pid_file.stat()
        except OSError:
            return frozenset()
        return frozenset({(PID_FILE, status.st_ino, status.st_ctime_ns)})

    async def end(self, daemon: str, pid: int) -> bool:
        """Have the reloader kill a daemon, if it still is the host's process ``pid``."""
        if self.pid_of(daemon) != pid:
            return False
        return await self._reloader().end(daemon, self._known[daemon].numbers[-1])

    async def abandoned(self, daemon: str) -> frozenset[int]:
        """Return the connections of our network namespace, and of the pod's: those of each list their own."""
        ours = await trio.to_thread.run_sync(abandoned, self.run_dir / f"{daemon}.vty")
        return ours | await self._reloader().abandoned(daemon)

    def _reloader(self) -> ReloaderClient:
        # Most nodes do not use HTTP, and the parser of it is a twentieth of what the daemon imports.
        from .reloader_client import ReloaderClient

        return ReloaderClient(self._socket)


def processes_of(settings: Settings) -> FrrProcesses:
    """Return the processes of the router's FRR, wherever it runs."""
    run_dir, pathspace = settings.frr_run_dir / settings.frr_pathspace, settings.frr_pathspace
    if settings.runtime == "podman":
        return PodProcesses(run_dir, settings.pod_run_dir, pathspace, settings.netns)
    return NativeProcesses(run_dir, pathspace, NAMESPACES / settings.netns)
