"""How FRR is read and changed: the one place that knows the programs.

:class:`FrrDriver` is what applying needs; :class:`VtyshDriver` does it with vtysh and with FRR's own reload program.
Neither of those is transactional, and their exit codes are hints at best: whoever calls them verifies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import trio

from actors.lib.frr.frr_lock import access
from actors.lib.frr.processes import CORE_DAEMONS, DAEMONS, is_loading
from actors.lib.frr.vtysh import FrrUnavailable, Vtysh, lock_file
from config.settings import Settings
from config.syntax.frr_secrets import redact
from supervisor.process.atomic_file import write_atomic
from supervisor.process.subprocesses import CommandTimeout, Completed, run_command

from .diff.grammar import scan
from .mgmtd_recovery import MgmtdRecovery

#: Deadlines in seconds. The reload program needs 20 s to remove fifty VRFs line by line on a small node.
CHECK_SECONDS: Final = 30.0
LOAD_SECONDS: Final = 60.0
RELOAD_SECONDS: Final = 300.0

#: How long a daemon is waited for that may just be starting, in seconds, and between two looks. FRR's start script
#: starts them within moments of one another, and mgmtd locks its datastores while one connects.
LATECOMER_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.5
#: How long FRR's own start is waited for once its daemons answer: it loads the configuration on disk, with the same
#: deadline as one that we send.
START_SECONDS: Final = LOAD_SECONDS

_STATIC_ROUTES: Final = frozenset({("ip", "route"), ("ipv6", "route"), ("ip", "mroute")})

#: A line of zebra's "show vrf".
_INACTIVE: Final = re.compile(r"^vrf (\S+) inactive", re.MULTILINE)

#: What vtysh says when a daemon has broken mgmtd's connection in the middle of a commit.
_BROKEN_COMMIT: Final = "Backend daemon disconnected while processing commit"
#: What vtysh says while it works, rather than about what went wrong.
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

    async def wake(self, needed: frozenset[str]) -> None:
        """Return once daemons accept commands; raise :class:`FrrUnavailable` when a needed one does not.

        Others are not waited for, but for a moment while FRR starts.
        """

    async def running(self) -> str:
        """Return the running configuration, secrets included."""

    async def inactive_vrfs(self) -> frozenset[str]:
        """Return the VRFs that FRR knows and the kernel has no device for."""

    async def refusal(self, text: str) -> str:
        """Check a text without applying it; return why it is refused, redacted, or nothing."""

    async def send(self, commands: str) -> str:
        """Run configuration commands; return what FRR complained about, redacted."""

    async def reload(self, text: str) -> str:
        """Make the running configuration equal a text; return what FRR complained about, redacted."""


class VtyshDriver:
    """Drives the FRR of ``settings.frr_pathspace``.

    Its working files hold secrets: they live in a directory of root's own, and not under FRR's configuration directory,
    because the reload program ends by writing an unverified ``frr.conf`` into the directory that it is told unless the
    text came from exactly there.
    """

    def __init__(self, settings: Settings) -> None:
        self._vtysh = Vtysh.of(settings)
        self._lock = lock_file(settings)
        self._reload = str(settings.frr_reload)
        self._bindir = str(settings.vtysh.parent)
        self._pathspace = settings.frr_pathspace
        self._directory = settings.run_dir / "frr"
        #: Daemons that have been waited for in vain.
        self._given_up: frozenset[str] = frozenset()
        self._recovery = MgmtdRecovery(self._vtysh, settings.frr_run_dir / settings.frr_pathspace)

    async def wake(self, needed: frozenset[str]) -> None:
        """Ask for the daemons that vtysh reaches."""
        loaded_by = trio.current_time() + START_SECONDS
        absent = await self._absent(loaded_by)
        with trio.move_on_after(LATECOMER_SECONDS):
            while not absent <= self._given_up:
                await trio.sleep(LOOK_SECONDS)
                absent = await self._absent(loaded_by)
        self._given_up = absent
        if absent & needed:
            raise FrrUnavailable(f"FRR runs without {', '.join(sorted(absent & needed))}")
        await self._loaded(loaded_by)

    async def _loaded(self, deadline: float) -> None:
        """Let FRR's own start be over: not even a question may come in between (:mod:`actors.lib.frr.frr_lock`)."""
        with trio.move_on_at(deadline):
            while is_loading(self._pathspace):  # noqa: ASYNC110 - other processes tell nobody
                await trio.sleep(LOOK_SECONDS)

    async def _absent(self, loaded_by: float) -> frozenset[str]:
        await self._loaded(loaded_by)
        try:
            return DAEMONS - await self._vtysh.daemons()
        except FrrUnavailable:
            # Whoever comes next is a new FRR, of which nothing is known.
            self._given_up = frozenset()
            raise

    async def running(self) -> str:
        """Ask all daemons at once."""
        return await self._vtysh.text("show running-config")

    async def inactive_vrfs(self) -> frozenset[str]:
        """Ask zebra, who tells the others."""
        return frozenset(_INACTIVE.findall(await self._vtysh.text("show vrf", daemon="zebra")))

    async def refusal(self, text: str) -> str:
        """Let vtysh parse the text: it knows every daemon's grammar, but nothing of what the daemons think."""
        with self._file("check.conf", text) as path:
            done = await self._vtysh.run("-C", "-f", str(path), seconds=CHECK_SECONDS)
        return "" if done.returncode == 0 else _complaints(done) or "the dry run failed without a reason"

    async def send(self, commands: str) -> str:
        """Send a file to all daemons, each of which takes what it understands, in no order between daemons."""
        with self._file("commands.conf", commands) as path:
            try:
                done = await self._vtysh.run("-f", str(path), seconds=LOAD_SECONDS, writes=True)
            except CommandTimeout:
                await self._recovery.recover(broken=False)
                raise
        if _BROKEN_COMMIT in f"{done.stdout}{done.stderr}":
            await self._recovery.recover(broken=True)
        return _complaints(done)

    async def reload(self, text: str) -> str:
        """Let FRR's reload program work out the commands and send them."""
        # Not below a directory of the pathspace's name: the target of the final write is <confdir>/frr.conf.
        with self._file("frr.conf", text) as path:
            # Each vtysh that the program starts would complain of its absence, in pieces that mix with the others'.
            below = self._directory / self._pathspace
            below.mkdir(mode=0o700, exist_ok=True)
            write_atomic(below / "vtysh.conf", "", mode=0o600)
            places = ("--bindir", self._bindir, "--confdir", str(self._directory), "--rundir", str(self._directory))
            options = ("--reload", "--stdout", "--log-level", "error", "-N", self._pathspace)
            async with access(self._lock, alone=True):
                done = await run_command((self._reload, *options, *places, str(path)), seconds=RELOAD_SECONDS)
        return _complaints(done)

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
        """Remove all working files: the reload program has one of its own, and a process that is killed leaves its."""
        for entry in self._directory.iterdir():
            if not entry.is_dir():
                entry.unlink(missing_ok=True)


def daemons_for(text: str) -> frozenset[str]:
    """Return the daemons without which FRR would not run a configuration: those that none of its lines is for may go.

    Sent without its daemon, a line of a raw snippet would count as refused, and the snippet as no good.
    """
    needed = set(CORE_DAEMONS)
    for line in scan(text):
        words = f" {line.text}".partition(" description ")[0].split()
        if "bfd" in words:
            needed.add("bfdd")
        if tuple(words[:2]) in _STATIC_ROUTES or "static-sids" in words:
            needed.add("staticd")
    return frozenset(needed)


def _complaints(done: Completed) -> str:
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines()]
    spoken = dict.fromkeys(line for line in lines if line and not any(phrase in line for phrase in _PROGRESS))
    return redact("\n".join(spoken))
