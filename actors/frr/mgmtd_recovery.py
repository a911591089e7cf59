"""Frees FRR's management daemon from a configuration lock that nobody will ever give back.

FRR 10.3's mgmtd keeps its datastores locked while a commit waits for another daemon, and while it sends a daemon that
has just connected its configuration. When the answer gets lost, everybody else hears "locked by another session" for
ever. Nothing but a new mgmtd helps; watchfrr starts one as soon as the old one is gone, and forwarding does not depend
on it. But a lock is mostly somebody's good right, and a machine that is short of CPU is slow everywhere, so slowness
proves nothing and the holder decides (seen with FRR 10.3; a version that does not show its sessions is left alone):

===================================  ============================================================================
a session whose client lives         an operator, or another program: left alone, for as long as it takes
a session whose client is gone       mgmtd drops those at once, unless it waits for its commit: see below
a commit, or a daemon's first load   a slow or frozen daemon may be to blame, which is watchfrr's business at first:
                                     ended when the same transaction holds it for :data:`COMMIT_SECONDS`
a commit that a daemon broke         ended when :data:`LOOKS` looks agree: :meth:`Unwedger.after_broken_commit`
nobody, and no transaction           ended when :data:`LOOKS` looks agree
mgmtd says nothing                   ended when it goes on for :data:`SILENCE_SECONDS`
===================================  ============================================================================

Long proofs grow over several calls. One call takes at most ``LOOKS * PROBE_SECONDS + (LOOKS - 1) *
LOOK_AGAIN_SECONDS``, which is 40 s, mostly less than one or ten seconds, and can be cancelled anywhere.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import trio

from actors.lib.frr.frr_daemons import pid_of
from actors.lib.frr.vtysh import Vtysh
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.subprocesses import CommandTimeout
from supervisor.runtime.faults import DependencyFault

from .unix_diag import abandoned

log = get_logger("frr")

DAEMON: Final = "mgmtd"
#: One look needs milliseconds, on an emulated machine tenths of a second.
PROBE_SECONDS: Final = 10.0
#: Looks that have to agree, and the seconds between them: a lock that is only passed on looks different each time.
LOOKS: Final = 3
LOOK_AGAIN_SECONDS: Final = 5.0
#: Three times what a whole configuration may take, and beyond watchfrr's patience with a daemon that hangs (90 s).
COMMIT_SECONDS: Final = 180.0
#: watchfrr ends a mgmtd that does not answer at all after 90 s; what is slower than that is given a few of our loads.
SILENCE_SECONDS: Final = 300.0
#: Seconds between two kills: a new mgmtd needs time to be started and to load its configuration.
PAUSE_SECONDS: Final = 120.0

_SESSIONS: Final = "show mgmt frontend-adapter all"
_TRANSACTIONS: Final = "show mgmt transaction all"
#: "file-lock" is what vtysh itself says before a file: without it entering configuration mode takes no lock. vtysh ends
#: at the first command that fails, so the refusal is only heard from a mgmtd that has answered the other two.
_PROBE: Final = ("-c", _SESSIONS, "-c", _TRANSACTIONS, "-c", "configure terminal file-lock", "-c", "end")
_REFUSAL: Final = re.compile(r"^% .*locked by another session", re.MULTILINE)
_SESSION: Final = re.compile(r"Session-Id:\s+(\d+)\s+DS-Locks:((?:\s+(?:running|candidate|operational|None)$)*)", re.M)
_NO_LOCKS: Final[tuple[list[str], ...]] = ([], ["None"])
_TRANSACTION: Final = re.compile(r"Txn-Id:\s+(\d+)\s+Session-Id:\s+\d+\s+Type:\s+CONFIG")


@dataclass(frozen=True, slots=True)
class _Sight:
    """What one look saw against mgmtd, and what has not changed since an earlier one."""

    pid: int | None
    refused: bool
    """False for a mgmtd that said nothing; then the rest is empty."""
    owners: tuple[str, ...] = ()
    """Ids of the sessions that hold a lock."""
    transactions: tuple[str, ...] = ()
    """Ids of the configuration transactions under way; mgmtd never uses one twice."""
    orphans: frozenset[int] = field(default=frozenset(), compare=False)
    """Connections whose client is gone, which mgmtd does not notice while it waits for something on their behalf."""

    @property
    def patience(self) -> float | None:
        """Seconds for which this must last before mgmtd is to blame; None when it never is."""
        if not self.refused:
            return SILENCE_SECONDS
        if self.owners and not self.orphans:
            return None
        return COMMIT_SECONDS if self.transactions else 0.0

    def again(self, later: _Sight | None) -> _Sight | None:
        """Return what a later look has in common with this one; nothing if something has moved in between."""
        if later is None or later != self:
            return None
        # A client that has just gone is gone from mgmtd's connections, too, in a moment: only what stays counts.
        lasting = self.orphans & later.orphans
        if self.owners and not lasting and (self.orphans or later.orphans):
            return None
        return replace(later, orphans=lasting)


class Unwedger:
    """Looks for a stuck mgmtd after a configuration did not end in time, and ends it, at most once in a while."""

    def __init__(self, vtysh: Vtysh, run_dir: Path) -> None:
        self._vtysh = vtysh
        self._run_dir = run_dir
        self._socket = run_dir / f"{DAEMON}.vty"
        self._sight: _Sight | None = None
        self._since = 0.0
        self._quiet_until = 0.0

    def after_success(self) -> None:
        """Forget what was seen: mgmtd has let somebody configure."""
        self._sight = None

    async def after_broken_commit(self) -> None:
        """Kill mgmtd if it is locked after a daemon broke the connection in the middle of a commit.

        What is left of the commit keeps the daemon, which is back at once, from being given its configuration: mgmtd
        waits for one that does not know of it. Looks that agree are proof enough then.
        """
        for _ in range(LOOKS):
            if trio.current_time() < self._quiet_until:
                return
            sight = self._remember(await self._look())
            if sight is not None and sight.refused and sight.transactions and (sight.orphans or not sight.owners):
                if await self._stays():
                    self._end(sight)
                return
            # The daemon has to come back first.
            await trio.sleep(LOOK_AGAIN_SECONDS)

    async def after_timeout(self) -> None:
        """Kill mgmtd if nobody will ever give its lock back; do nothing when somebody else is to blame."""
        if trio.current_time() < self._quiet_until:
            return
        before = self._sight
        sight = self._remember(await self._look())
        if sight is None:
            return
        if sight.patience is None:
            if sight != before:
                sessions = ", ".join(sight.owners)
                message = "another session holds FRR's configuration lock"
                log.warning(message, message_id=message_ids.FRR_LOCKED, sessions=sessions)
        elif sight.patience > 0.0:
            if trio.current_time() - self._since >= sight.patience:
                self._end(sight)
        elif await self._stays():
            self._end(sight)

    def _remember(self, later: _Sight | None) -> _Sight | None:
        """Take what a look saw into account, and return what there is against mgmtd since :attr:`_since`."""
        common = None if self._sight is None else self._sight.again(later)
        if common is None:
            self._since = trio.current_time()
        self._sight = common or later
        return self._sight

    async def _stays(self) -> bool:
        """Return whether further looks see nothing but what the last one saw."""
        since = self._since
        for _ in range(LOOKS - 1):
            await trio.sleep(LOOK_AGAIN_SECONDS)
            if self._remember(await self._look()) is None or self._since != since:
                return False
        return True

    async def _look(self) -> _Sight | None:
        """Return what there is against mgmtd: nothing if it lets us configure, is not there, or cannot be judged."""
        pid = pid_of(self._run_dir, DAEMON)
        # Before our own client comes and goes.
        orphans = self._orphans()
        try:
            done = await self._vtysh.run("-d", DAEMON, *_PROBE, seconds=PROBE_SECONDS)
        except CommandTimeout:
            return _Sight(pid, refused=False)
        except DependencyFault:
            return None
        if not _REFUSAL.search(f"{done.stdout}\n{done.stderr}"):
            return None
        owners = tuple(session for session, locks in _SESSION.findall(done.stdout) if locks.split() not in _NO_LOCKS)
        return _Sight(pid, True, owners, tuple(_TRANSACTION.findall(done.stdout)), orphans)

    def _orphans(self) -> frozenset[int]:
        try:
            return abandoned(self._socket)
        except OSError as error:
            log.debug("the kernel does not tell about connections", error=error)
            return frozenset()

    def _end(self, sight: _Sight) -> None:
        self._quiet_until = trio.current_time() + PAUSE_SECONDS
        self._sight = None
        pid = pid_of(self._run_dir, DAEMON)
        if pid is None or pid != sight.pid:
            message = "mgmtd does not accept configuration, and its process cannot be told"
            log.warning(message, message_id=message_ids.FRR_STAYS_LOCKED, directory=self._run_dir)
            return
        reason = "its configuration is locked for good" if sight.refused else "it does not answer any more"
        message = "ending mgmtd, so that watchfrr starts a new one"
        log.warning(message, message_id=message_ids.FRR_UNLOCKED, pid=pid, reason=reason)
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError as error:
            log.warning("mgmtd cannot be ended", message_id=message_ids.FRR_STAYS_LOCKED, pid=pid, error=error)
