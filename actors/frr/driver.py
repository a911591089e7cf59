"""Reads and changes FRR, through its daemons' sockets or through vtysh.

:class:`FrrDriver` is what applying a configuration needs; :class:`VtyshDriver` implements it. A text comes in. What one
daemon alone takes is sent in a session with it (:mod:`.config_session`). The rest, and what is to be checked, is
written to a working file that only root can read, and vtysh is run on it. Both have a deadline, and the lock of
:mod:`actors.lib.frr.frr_lock`; what FRR complained about goes out, redacted. It is not transactional and its answers
are hints at best, so the caller verifies by reading. After a commit that broke, one that mgmtd's lock prevented, and a
deadline, :mod:`.mgmtd_recovery` makes sure that mgmtd does not stay locked or silent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

import trio

from actors.lib.frr.daemon_socket import DaemonSockets, DaemonTooSlow
from actors.lib.frr.frr_lock import session_lock
from actors.lib.frr.pod_processes import processes_of
from actors.lib.frr.processes import CORE_DAEMONS
from actors.lib.frr.vtysh import FrrUnavailable, Vtysh, lock_file
from actors.lib.metrics.counters import FRR_WRITES
from config.settings import Settings
from config.syntax.frr_grammar import Line, scan
from config.syntax.frr_secrets import redact
from supervisor.process.atomic_file import write_atomic
from supervisor.process.subprocesses import CommandTimeout, Completed

from .config_session import TOGETHER, configure
from .diff.difference import part
from .mgmtd_recovery import DAEMON, LOCKED, MgmtdRecovery

#: Deadlines in seconds.
CHECK_SECONDS: Final = 30.0
LOAD_SECONDS: Final = 60.0
#: How long FRR's own start is waited for: it loads the configuration on disk, with the deadline of one that we send.
START_SECONDS: Final = LOAD_SECONDS
POLL_SECONDS: Final = 0.5

_STATIC_ROUTES: Final = frozenset({("ip", "route"), ("ipv6", "route"), ("ip", "mroute")})
#: In lines that may be of a daemon besides the core ones: few of a long configuration, and only they are read by word.
_HINTS: Final = re.compile(r"bfd|route |static-sids")

#: Which daemon alone takes a top-level block, in the order of sending; "" is every daemon. Policies come before the
#: neighbours that name them, since a missing route-map denies everything, and bgpd has a VRF's instance before its VNI.
#: What bgpd and bfdd take opens no session with mgmtd, and no commit in it that another session could break.
_BLOCKS: Final = ((re.compile(r"(?!router bgp|bfd$|vrf )"), ""), (re.compile(r"router bgp"), "bgpd"),
                  (re.compile(r"bfd$"), "bfdd"), (re.compile(r"vrf "), DAEMON), (re.compile(r"vrf "), ""))  # fmt: skip
#: All that mgmtd alone takes of a VRF's block: zebra's part of the VNI comes from there.
_VNI: Final = re.compile(r"(no )?vni \d+")

_RUNNING: Final = "show running-config"
#: It restarts the daemons, and nothing of it is in our configuration.
_WITHOUT_CONFIGURATION: Final = frozenset({"watchfrr"})
#: The first line of "show version": "FRRouting 10.3 (host) on Linux(6.12.0)."
_VERSION: Final = re.compile(r"^FRRouting (\S+)", re.MULTILINE)
#: A line of zebra's "show vrf".
_INACTIVE: Final = re.compile(r"^vrf (\S+) inactive", re.MULTILINE)

#: What mgmtd answers when a daemon has disconnected in the middle of a commit.
_BROKEN_COMMIT: Final = "Backend daemon disconnected while processing commit"
#: A complaint about a line, before that line's text: it may be a secret, and vtysh may have read it from elsewhere.
_COMPLAINT: Final = re.compile(
    r"((?:line \d+: )?% (?:\[\w+\] )?(?:Unknown command|Command incomplete|Ambiguous command)(?:\[\d+\])?"
    r"|line \d+: Failure to communicate\[\d+\] to \w+).*"
)
#: What vtysh prints about its progress, rather than about what went wrong.
_PROGRESS: Final = (
    "sending configuration",
    "done",
    "Waiting for children",
    "Graceful restart configuration changed",
    "No changes found to be committed",
    "% Can't open configuration file",
    "Configuration file[",
)


class FrrDriver(Protocol):
    """What applying a configuration needs. Every method has a deadline and raises ``DependencyFault`` beyond it."""

    async def wait_ready(self, needed: frozenset[str]) -> None:
        """Return once FRR has started; raise :class:`FrrUnavailable` if a needed daemon does not accept commands."""

    async def running(self) -> str:
        """Return the running configuration, secrets included, as parts of its daemons (:mod:`.diff.difference`)."""

    async def version(self) -> str:
        """Return FRR's version, for example ``10.3``."""

    async def inactive_vrfs(self) -> frozenset[str]:
        """Return the VRFs that are configured in FRR and have no device in the kernel."""

    async def refusal(self, text: str) -> str:
        """Check a text without applying it; return why it is refused, redacted, or nothing."""

    async def send(self, commands: str) -> str:
        """Run configuration commands; return what FRR complained about, redacted."""


class VtyshDriver:
    """Drives the FRR of ``settings.frr_pathspace``. Its working files hold secrets: their directory is root's own."""

    def __init__(self, settings: Settings) -> None:
        self._vtysh = Vtysh.of(settings)
        self._daemons = DaemonSockets.of(settings)
        self._directory = settings.run_dir / "frr"
        self._processes = processes_of(settings)
        self._recovery = MgmtdRecovery(self._vtysh, self._processes)
        self._lock = lock_file(settings)
        self._looking = trio.CapacityLimiter(1)

    async def wait_ready(self, needed: frozenset[str]) -> None:
        """Wait for the end of FRR's start, then look for the daemons' processes: vtysh would open a session."""
        with trio.move_on_after(START_SECONDS):
            while await self._is_loading():  # noqa: ASYNC110
                await trio.sleep(POLL_SECONDS)
        daemons = self._processes.running()
        absent = ", ".join(sorted(needed - daemons))
        if absent:
            raise FrrUnavailable(f"FRR runs without {absent}" if daemons else "FRR does not run")

    async def _is_loading(self) -> bool:
        """Look in a thread: reading the command line of a process that hangs in the kernel may block.

        The next look waits for one that does: each would keep one of the threads that all actors share.
        """
        return await trio.to_thread.run_sync(self._processes.is_loading, abandon_on_cancel=True, limiter=self._looking)

    async def running(self) -> str:
        """Read each daemon's part: vtysh takes longer to start, and only merges the blocks that several daemons have.

        mgmtd's part is a session with it.
        """
        daemons = self._processes.running() - _WITHOUT_CONFIGURATION
        if not daemons >= CORE_DAEMONS:
            raise FrrUnavailable(f"FRR runs without {', '.join(sorted(CORE_DAEMONS - daemons))}")
        try:
            parts = [part(daemon, await self._shown(daemon)) for daemon in sorted(daemons)]
        except DaemonTooSlow:
            await self._recovery.recover(broken=False)
            raise
        return "".join(parts)

    async def _shown(self, daemon: str) -> str:
        async with session_lock(self._lock if daemon == DAEMON else None, exclusive=False):
            return await self._daemons.text(_RUNNING, daemon=daemon)

    async def version(self) -> str:
        """Ask zebra, since programs on disk may be newer than those that run."""
        found = _VERSION.search(await self._daemons.text("show version", daemon="zebra"))
        return found[1] if found else ""

    async def inactive_vrfs(self) -> frozenset[str]:
        """Read from zebra, which informs the other daemons."""
        return frozenset(_INACTIVE.findall(await self._daemons.text("show vrf", daemon="zebra")))

    async def refusal(self, text: str) -> str:
        """Let vtysh parse the text: it has every daemon's grammar, but none of their semantic checks."""
        with self._file("check.conf", text) as path:
            done = await self._vtysh.run("-C", "-f", str(path), seconds=CHECK_SECONDS)
        return "" if done.returncode == 0 else _complaints(_lines(done)) or "the dry run failed without a reason"

    async def send(self, commands: str) -> str:
        """Send a file for each kind of block; of one for all daemons each takes the lines that it understands."""
        complaints = [await self._load(lines, daemon) for lines, daemon in parts(commands)]
        return "\n".join(filter(None, complaints))

    async def _load(self, commands: str, daemon: str) -> str:
        try:
            said = await (self._configure(commands, daemon) if daemon else self._load_file(commands))
        except (CommandTimeout, DaemonTooSlow):
            await self._recovery.recover(broken=False)
            raise
        broken = any(_BROKEN_COMMIT in line for line in said)
        if broken or any(LOCKED in line for line in said):
            await self._recovery.recover(broken=broken)
        complaints = _complaints(said)
        FRR_WRITES.count("refused" if complaints else "accepted")
        return complaints

    async def _configure(self, commands: str, daemon: str) -> list[str]:
        together = 1 if daemon == DAEMON else TOGETHER
        async with (
            session_lock(self._lock, exclusive=True),
            self._daemons.session(daemon, seconds=LOAD_SECONDS, writes=True) as session,
        ):
            return await configure(session, commands, together=together)

    async def _load_file(self, commands: str) -> list[str]:
        with self._file("commands.conf", commands) as path:
            return _lines(await self._vtysh.run("-f", str(path), seconds=LOAD_SECONDS, writes=True))

    @contextmanager
    def _file(self, name: str, text: str) -> Iterator[Path]:
        """Write a working file that lasts as long as the call that needs it, however that ends."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkdir's mode is subject to the umask, and the directory may be an older one.
        os.chmod(self._directory, 0o700)  # noqa: PTH101
        self._sweep()
        path = self._directory / name
        try:
            write_atomic(path, text, mode=0o600)
            yield path
        finally:
            self._sweep()

    def _sweep(self) -> None:
        """Remove all working files: a process that was killed leaves some."""
        for entry in self._directory.iterdir():
            if not entry.is_dir():
                entry.unlink(missing_ok=True)


def parts(commands: str) -> list[tuple[str, str]]:
    """Split configuration commands into files, each with the daemon that alone takes it or "", in the order to send."""
    lines = [((line.path or (line.text,))[0].removeprefix("no "), line) for line in scan(commands)]
    beyond = {top for top, line in lines if not (line.opens or (line.path and _VNI.fullmatch(line.text)))}
    files: list[list[Line]] = [[] for _ in _BLOCKS]
    for top, line in lines:
        takers = (
            number for number, (block, daemon) in enumerate(_BLOCKS)
            if block.match(top) and (daemon != DAEMON or top not in beyond)
        )  # fmt: skip
        files[next(takers)].append(line)
    return [(_text(found), daemon) for found, (_, daemon) in zip(files, _BLOCKS, strict=True) if found]


def _text(lines: Iterable[Line]) -> str:
    text, depth = "", 0
    for line in lines:
        text += "exit\n" * (depth - len(line.context)) + f"{line.text}\n"
        depth = len(line.path)
    return text + "exit\n" * depth


@lru_cache(maxsize=1)
def daemons_for(text: str) -> frozenset[str]:
    """Return the daemons that a configuration has lines for, besides the core daemons.

    If such a line were sent without its daemon, the line would count as refused, and a raw snippet as bad.
    """
    needed = set(CORE_DAEMONS)
    for line in text.expandtabs(1).splitlines():
        if not _HINTS.search(line) or line.lstrip().startswith(("!", "#")):
            continue
        words = f" {' '.join(line.split())}".partition(" description ")[0].split()
        if "bfd" in words:
            needed.add("bfdd")
        if tuple(words[:2]) in _STATIC_ROUTES or "static-sids" in words:
            needed.add("staticd")
    return frozenset(needed)


def _lines(done: Completed) -> list[str]:
    return f"{done.stdout}\n{done.stderr}".splitlines()


def _complaints(said: Iterable[str]) -> str:
    lines = [line.strip() for line in said]
    unique = dict.fromkeys(
        _COMPLAINT.sub(r"\1", line) for line in lines if line and not any(phrase in line for phrase in _PROGRESS)
    )
    return redact("\n".join(unique))
