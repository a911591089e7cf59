"""The way to the API server as far as it is known: what the files gave, what a server said, what is due when.

Reading and asking are separate: files change under a server that answers, and a server comes and goes under files that
stay. Neither is repeated without a reason, and every repetition has a backoff with jitter.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from actors.lib.kube.credentials import Loaded, LoadingError
from config.api import ApiCredentials, ApiReach
from supervisor.runtime.restart_policy import Backoff

from .access import Knowledge, same_credentials
from .credential_files import Files, Wake
from .probe import Connect, ask

#: Reads a kubeconfig, or raises :class:`actors.lib.kube.credentials.LoadingError`.
Reader = Callable[[Path], Awaitable[Loaded]]

#: Between questions to a server that does not answer, or refuses us.
ASKING: Final = Backoff(first=1.0, longest=15.0)
#: Between readings that failed for a reason that may pass without a file changing, such as a program without a network.
READING: Final = Backoff(first=1.0, longest=60.0)
#: Credentials made by a program that does not say when they end, and files whose fault only a change mends.
RELOAD_SECONDS: Final = 300.0
#: Credentials that have ended and still work: API servers allow for a minute of difference between clocks, and ours may
#: be wrong by more.
ENDED_SECONDS: Final = 75.0


class Way:
    """What is known of the way to the server, and when each part of it is due for another look."""

    def __init__(
        self,
        known: Knowledge,
        connect: Connect,
        read: Reader,
        wall: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self.known = known
        self.files = Files(Path(known.kubeconfig), wall)
        self._connect, self._read, self._wall, self._chance = connect, read, wall, chance
        self._asked: ApiCredentials | None = None
        self._program = False
        self._refusals = self._misreadings = 0
        # In trio's time.
        self._ask_at = self._read_at = math.inf

    async def attempt(self, wake: Wake) -> bool:
        """Read and ask what is due. Returns True, which tells a finished attempt from one that was given up."""
        if wake is Wake.CHANGED:
            self._refusals = self._misreadings = 0
        reading = wake is not Wake.TIMER or trio.current_time() >= self._read_at
        if reading:
            await self._load()
        if self.known.candidate is not None and self._must_ask(self.known.candidate, read=reading):
            await self._ask(self.known.candidate)
        return True

    def pause(self) -> tuple[float, float | None]:
        """Return for how many seconds nothing is due, and the moment (Unix seconds) when credentials end until then."""
        candidate = self.known.candidate
        ends = None if candidate is None or self._ended(candidate) else candidate.expires_at
        return max(0.0, min(self._ask_at, self._read_at) - trio.current_time()), ends

    async def _load(self) -> None:
        """Read the credentials that the files have now."""
        self._read_at = math.inf
        self.files.begin()
        try:
            loaded = await self._read(self.files.kubeconfig) if self.files.there() else None
        except LoadingError as error:
            self._misread(error)
        else:
            if loaded is None:
                self._missing()
            else:
                self._take(loaded)

    def _take(self, loaded: Loaded) -> None:
        self.files.remember(loaded.files)
        self._misreadings = 0
        self._program = bool(loaded.program)
        self.known = replace(self.known, candidate=loaded.credentials, complaint="", missing=False)
        if self._program and loaded.credentials.expires_at is None:
            self._read_at = trio.current_time() + RELOAD_SECONDS
        elif self._program and self._ended(loaded.credentials):
            self._read_at = trio.current_time() + ENDED_SECONDS

    def _misread(self, error: LoadingError) -> None:
        if not self.files.there():
            self._missing()
            return
        self.files.remember(error.files)
        self._misreadings += 1
        delay = READING.delay(self._misreadings, self._chance()) if error.passing else RELOAD_SECONDS
        self._read_at = trio.current_time() + delay
        self._fall_back(str(error), missing=False)

    def _missing(self) -> None:
        self.files.remember({})
        self._fall_back(f"{self.known.kubeconfig} is gone", missing=True)

    def _fall_back(self, complaint: str, *, missing: bool) -> None:
        """Go on with what a server answered to, if ever one did."""
        known = replace(self.known, complaint=complaint, missing=missing)
        if not same_credentials(known.candidate, known.proven):
            known = replace(known, candidate=known.proven)
        if known.candidate is None:
            known = replace(known, answer=None)
            self._ask_at = math.inf
        self.known = known

    def _must_ask(self, candidate: ApiCredentials, *, read: bool) -> bool:
        if self.known.answer is None or not same_credentials(candidate, self._asked):
            return True
        due = read or trio.current_time() >= self._ask_at
        return due and (self.known.answer.reach is not ApiReach.REACHABLE or self._ended(candidate))

    async def _ask(self, candidate: ApiCredentials) -> None:
        answer = await ask(candidate, self._connect)
        self._asked = candidate
        self.known = replace(self.known, answer=answer)
        if answer.reach is ApiReach.REACHABLE:
            self._refusals = 0
            self._ask_at = trio.current_time() + ENDED_SECONDS if self._ended(candidate) else math.inf
            self.known = replace(self.known, proven=candidate)
            return
        self._refusals += 1
        delay = max(ASKING.delay(self._refusals, self._chance()), answer.retry_after)
        self._ask_at = trio.current_time() + delay
        if self._program and answer.reach is ApiReach.REFUSED:
            # The program may have something newer by then.
            self._read_at = min(self._read_at, self._ask_at)

    def _ended(self, credentials: ApiCredentials) -> bool:
        return credentials.expires_at is not None and credentials.expires_at <= self._wall()
