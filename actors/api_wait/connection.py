"""The connection to the API server: which credentials the files give, what a server answers to them, what is due when.

Reading and probing are separate: files change under a server that answers, and a server comes and goes under files
that stay. Neither is repeated without a reason, and every repetition has a backoff with jitter.

Not knowing is not "none": credentials to which a server answered stay in force when their file disappears or becomes
unreadable, and while a server does not answer to newer ones.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from actors.lib.kube.credentials import Loaded, LoadingError
from config.api import ApiAccess, ApiCredentials, ApiReach
from config.crd.conditions import timestamp
from supervisor.runtime.restart_policy import Backoff

from .credential_files import CredentialFiles, Wake
from .probe import Connect, ProbeResult, probe

#: Reads a kubeconfig, or raises :class:`actors.lib.kube.credentials.LoadingError`.
Load = Callable[[Path], Awaitable[Loaded]]

#: Between probes of a server that does not answer, or refuses us.
PROBING: Final = Backoff(first=1.0, longest=15.0)
#: Between readings that failed for a reason that may pass without a file changing, such as a plugin without a network.
READING: Final = Backoff(first=1.0, longest=60.0)
#: For credentials of a plugin that does not say when they expire, and for files that only a change can fix.
RELOAD_SECONDS: Final = 300.0
#: For credentials that have expired and still work: API servers allow for a minute of difference between clocks, and
#: ours may be wrong by more.
EXPIRED_SECONDS: Final = 75.0
IN_FORCE: Final = "the credentials read before stay in force"


class Connection:
    """What is known, and when each part of it is due.

    ``candidate``: the credentials to use, None without any; ``proven``: the last to which a server answered;
    ``problem``: why the file gives none, "" where it does; ``answer``: the server's answer to ``candidate``.
    """

    def __init__(
        self,
        kubeconfig: Path,
        proven: ApiCredentials | None,
        *,
        connect: Connect,
        load: Load,
        wall: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self.files = CredentialFiles(kubeconfig, wall)
        self.candidate: ApiCredentials | None = None
        self.proven = proven
        self.problem = ""
        self.answer: ProbeResult | None = None
        self._connect, self._load, self._wall, self._chance = connect, load, wall, chance
        self._missing = False
        self._program = False
        self._probed: ApiCredentials | None = None
        self._failed_probes = self._failed_readings = 0
        # In trio's time.
        self._probe_at = self._read_at = math.inf

    async def attempt(self, wake: Wake) -> bool:
        """Read and probe what is due. Returns True; an attempt that was given up returns nothing."""
        if wake is Wake.CHANGED:
            self._failed_probes = self._failed_readings = 0
        reading = wake is not Wake.TIMER or trio.current_time() >= self._read_at
        if reading:
            await self._read()
        if self.candidate is not None and self._must_probe(self.candidate, read=reading):
            await self._probe(self.candidate)
        return True

    def pause(self) -> tuple[float, float | None]:
        """Return for how many seconds nothing is due, and when (Unix seconds) the credentials expire, if before."""
        expires_at = None if self.candidate is None or self._expired(self.candidate) else self.candidate.expires_at
        return max(0.0, min(self._probe_at, self._read_at) - trio.current_time()), expires_at

    def access(self, before: ApiAccess | None) -> ApiAccess:
        """Return what to publish: ``before`` itself where a reader would learn nothing from anything else."""
        reach, detail = self._reach()
        since = before.since if before is not None and before.reach is reach else self._wall()
        access = ApiAccess(reach, self.proven, detail, since)
        if before is None or not same_credentials(before.credentials, self.proven):
            return access
        return before if replace(access, credentials=before.credentials) == before else access

    def _reach(self) -> tuple[ApiReach, str]:
        if self.candidate is None or self.answer is None:
            # A file that exists and cannot be used is more than a file that may still come: an operator has to fix it.
            if self._missing:
                return ApiReach.UNCONFIGURED, f"waiting for {self.files.kubeconfig}"
            return ApiReach.UNREACHABLE, self.problem
        kept = f"{self.problem}; {IN_FORCE}" if self.problem else ""
        return self.answer.reach, "; ".join(filter(None, (self._trouble(self.candidate, self.answer), kept)))

    def _trouble(self, credentials: ApiCredentials, answer: ProbeResult) -> str:
        if answer.reach is ApiReach.REACHABLE:
            return ""
        expired = ""
        if credentials.expires_at is not None and self._expired(credentials):
            expired = f", which expired {timestamp(credentials.expires_at)}"
        if answer.reach is ApiReach.REFUSED:
            return f"{credentials.server} refuses the credentials in {credentials.source}{expired}: {answer.reason}"
        return f"{credentials.server} (credentials in {credentials.source}{expired}): {answer.reason}"

    async def _read(self) -> None:
        """Read the credentials that the files have now."""
        self._read_at = math.inf
        self.files.begin()
        if not self.files.exist():
            self._lack({}, "")
            return
        try:
            loaded = await self._load(self.files.kubeconfig)
        except LoadingError as error:
            self._lack(error.files, str(error), passing=error.passing)
            return
        self.files.remember(loaded.files)
        self._failed_readings = 0
        self._program = bool(loaded.program)
        self.candidate, self.problem, self._missing = loaded.credentials, "", False
        if self._program and loaded.credentials.expires_at is None:
            self._read_at = trio.current_time() + RELOAD_SECONDS
        elif self._program and self._expired(loaded.credentials):
            self._read_at = trio.current_time() + EXPIRED_SECONDS

    def _lack(self, digests: Mapping[Path, str], problem: str, *, passing: bool = False) -> None:
        """Continue with the credentials to which a server answered, if ever one did."""
        self._missing = not self.files.exist()
        if self._missing:
            self.files.remember({})
            self.problem = f"{self.files.kubeconfig} was removed"
        else:
            self.files.remember(digests)
            self._failed_readings += 1
            delay = READING.delay(self._failed_readings, self._chance()) if passing else RELOAD_SECONDS
            self._read_at = trio.current_time() + delay
            self.problem = problem
        if not same_credentials(self.candidate, self.proven):
            self.candidate = self.proven
        if self.candidate is None:
            self.answer, self._probe_at = None, math.inf

    def _must_probe(self, candidate: ApiCredentials, *, read: bool) -> bool:
        if self.answer is None or not same_credentials(candidate, self._probed):
            return True
        due = read or trio.current_time() >= self._probe_at
        return due and (self.answer.reach is not ApiReach.REACHABLE or self._expired(candidate))

    async def _probe(self, candidate: ApiCredentials) -> None:
        answer = await probe(candidate, self._connect)
        self._probed, self.answer = candidate, answer
        if answer.reach is ApiReach.REACHABLE:
            self._failed_probes = 0
            self._probe_at = trio.current_time() + EXPIRED_SECONDS if self._expired(candidate) else math.inf
            self.proven = candidate
            return
        self._failed_probes += 1
        delay = max(PROBING.delay(self._failed_probes, self._chance()), answer.retry_after)
        self._probe_at = trio.current_time() + delay
        if self._program and answer.reach is ApiReach.REFUSED:
            # The plugin may have something newer by then.
            self._read_at = min(self._read_at, self._probe_at)

    def _expired(self, credentials: ApiCredentials) -> bool:
        return credentials.expires_at is not None and credentials.expires_at <= self._wall()


def same_credentials(one: ApiCredentials | None, other: ApiCredentials | None) -> bool:
    """Whether both do the same: when they expire does not matter to a user of them."""
    if one is None or other is None:
        return one is other
    return replace(one, expires_at=None) == replace(other, expires_at=None)
