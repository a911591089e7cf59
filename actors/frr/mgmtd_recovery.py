"""Ends FRR's management daemon when it will never take configuration again; watchfrr then starts a new one.

FRR 10.3's mgmtd keeps its datastores locked while a commit waits for another daemon, and while it sends a daemon that
has just connected its configuration. If the answer is lost, every other session gets "locked by another session" until
mgmtd is restarted. A mgmtd that hangs answers no session at all, and watchfrr only interrupts it (SIGINT), again and
again, which one that hangs does not notice (FRR #17163). Forwarding does not depend on mgmtd, and watchfrr starts a new
one within seconds of its end.

The driver calls :meth:`MgmtdRecovery.recover` after a commit that a daemon broke off, after one that mgmtd refused
because it is locked, and after any deadline. The rule:

    mgmtd is ended if no live session holds its lock, it does not grant it, and nothing about that changes for a while.

A live session is one whose client still runs. mgmtd drops the sessions of clients that have ended, except while it
waits for their commit; those are found by the kernel's list of connections (``abandoned`` in
:mod:`actors.lib.frr.processes`). "A while" is :data:`STEADY_SECONDS`. Silence gets :data:`COMMIT_SECONDS`, and so does
a transaction, because a slow daemon may still complete it, unless a daemon has already broken it off. An operator's
session is never ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import trio

from actors.lib.frr.processes import FrrProcesses
from actors.lib.frr.vtysh import Vtysh
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.subprocesses import CommandTimeout
from supervisor.runtime.faults import DependencyFault

log = get_logger("frr")

DAEMON: Final = "mgmtd"
#: In each refusal for a lock, whichever datastore it is about.
LOCKED: Final = "locked by another session"
#: One probe needs milliseconds, on an emulated machine tenths of a second.
PROBE_SECONDS: Final = 10.0
#: Between two probes. A lock that is only passed on looks different each time.
POLL_SECONDS: Final = 5.0
#: How long a lock without a live owner has to stay the same.
STEADY_SECONDS: Final = 10.0
#: The same for silence and while a transaction is under way: three times what a whole configuration may take, and
#: longer than watchfrr waits for a daemon that hangs (90 s).
COMMIT_SECONDS: Final = 180.0
#: After ending mgmtd: the new one needs time to start and to load its configuration.
PAUSE_SECONDS: Final = 120.0
#: A daemon that broke a commit reconnects within seconds, and only then does what is left of the commit lock mgmtd.
RECONNECT_PROBES: Final = 3

_SESSIONS: Final = "show mgmt frontend-adapter all"
_TRANSACTIONS: Final = "show mgmt transaction all"
#: "file-lock" is what vtysh itself sends before a file: without it entering configuration mode takes no lock. vtysh
#: ends at the first command that fails, so a refusal comes only from a mgmtd that has answered the other two.
_PROBE: Final = ("-c", _SESSIONS, "-c", _TRANSACTIONS, "-c", "configure terminal file-lock", "-c", "end")
_REFUSAL: Final = re.compile(rf"^% .*{LOCKED}", re.MULTILINE)
_SESSION: Final = re.compile(r"Session-Id:\s+(\d+)\s+DS-Locks:((?:\s+(?:running|candidate|operational|None)$)*)", re.M)
_NO_LOCKS: Final[tuple[list[str], ...]] = ([], ["None"])
_TRANSACTION: Final = re.compile(r"Txn-Id:\s+(\d+)\s+Session-Id:\s+(\d+)\s+Type:\s+CONFIG")


@dataclass(frozen=True, slots=True)
class _Lock:
    """A configuration lock that mgmtd did not grant us, as one probe shows it."""

    pid: int | None
    sessions: tuple[str, ...]
    """Ids of the sessions that hold a part of it. One that is being refused has a part for a moment."""
    transactions: tuple[tuple[str, str], ...]
    """Ids of the configuration transactions under way, which mgmtd never uses twice, and of their sessions; those that
    send a daemon its configuration have session 0."""
    orphans: frozenset[int]
    """Connections to mgmtd whose client is gone."""
    silent: bool = False
    """It did not answer at all."""

    @property
    def has_live_owner(self) -> bool:
        if self.transactions and all(session not in self.sessions for _, session in self.transactions):
            return False
        return bool(self.sessions) and not self.orphans

    def is_unchanged(self, later: _Lock) -> bool:
        """Return whether nothing moves: the same transactions, or with none the same sessions."""
        same = (self.pid, self.silent, self.transactions) == (later.pid, later.silent, later.transactions)
        return same and (bool(self.transactions) or self.sessions == later.sessions)


class MgmtdRecovery:
    """Looks at mgmtd after a commit has failed, and ends it if it is stuck, at most once in a while."""

    def __init__(self, vtysh: Vtysh, processes: FrrProcesses) -> None:
        self._vtysh = vtysh
        self._processes = processes
        self._paused_until = 0.0
        self._reported_owner: tuple[int | None, tuple[str, ...]] | None = None

    async def recover(self, *, broken: bool) -> None:
        """End mgmtd if it will never grant its lock. ``broken``: a daemon disconnected in the middle of the commit.

        Returns as soon as one probe shows otherwise, and can be cancelled anywhere.
        """
        if trio.current_time() < self._paused_until:
            return
        lock = await self._first_refusal(RECONNECT_PROBES if broken else 1)
        patience, since = STEADY_SECONDS, trio.current_time()
        if lock is not None and (lock.silent or (lock.transactions and not lock.has_live_owner and not broken)):
            patience = COMMIT_SECONDS
            transactions = ", ".join(transaction for transaction, _ in lock.transactions) or None
            log.info("waiting for mgmtd", silent=lock.silent, transactions=transactions, seconds=patience)
        while lock is not None and not lock.has_live_owner:
            if trio.current_time() - since >= patience:
                await self._end(lock)
                return
            await trio.sleep(POLL_SECONDS)
            later = await self._probe()
            if later is None or not lock.is_unchanged(later):
                return
            # A client that has just ended leaves mgmtd's connections in a moment: only those that stay count.
            lock = replace(later, orphans=lock.orphans & later.orphans)
        if lock is not None and self._reported_owner != (lock.pid, lock.sessions):
            self._reported_owner = (lock.pid, lock.sessions)
            message, sessions = "another session holds FRR's configuration lock", ", ".join(lock.sessions)
            log.warning(message, message_id=message_ids.FRR_LOCKED, sessions=sessions)

    async def _first_refusal(self, probes: int) -> _Lock | None:
        lock = await self._probe()
        for _ in range(probes - 1):
            if lock is not None:
                break
            await trio.sleep(POLL_SECONDS)
            lock = await self._probe()
        return lock

    async def _probe(self) -> _Lock | None:
        """Return the lock, or nothing if mgmtd grants it or cannot be judged."""
        try:
            pid = self._processes.pid_of(DAEMON)
            # Before our own client connects and disconnects.
            orphans = await self._orphans()
            done = await self._vtysh.run("-d", DAEMON, *_PROBE, seconds=PROBE_SECONDS)
        except CommandTimeout:
            return _Lock(pid, (), (), orphans, silent=True)
        except DependencyFault:
            return None
        if not _REFUSAL.search(f"{done.stdout}\n{done.stderr}"):
            return None
        owners = tuple(session for session, locks in _SESSION.findall(done.stdout) if locks.split() not in _NO_LOCKS)
        return _Lock(pid, owners, tuple(_TRANSACTION.findall(done.stdout)), orphans)

    async def _orphans(self) -> frozenset[int]:
        try:
            return await self._processes.abandoned(DAEMON)
        except OSError as error:
            log.debug("the kernel does not list UNIX connections", error=error)
            return frozenset()

    async def _end(self, lock: _Lock) -> None:
        self._paused_until = trio.current_time() + PAUSE_SECONDS
        try:
            ended = lock.pid is not None and await self._processes.end(DAEMON, lock.pid)
        except (OSError, DependencyFault) as error:
            log.warning("cannot end mgmtd", message_id=message_ids.FRR_STAYS_LOCKED, pid=lock.pid, error=error)
            return
        if not ended:
            message = "mgmtd does not accept configuration, and its PID file does not name its process"
            log.warning(message, message_id=message_ids.FRR_STAYS_LOCKED, directory=self._processes.run_dir)
            return
        message = "ended mgmtd, so that watchfrr starts a new one"
        reason = "it does not answer" if lock.silent else "no live session holds its lock"
        log.warning(message, message_id=message_ids.FRR_UNLOCKED, pid=lock.pid, reason=reason)
