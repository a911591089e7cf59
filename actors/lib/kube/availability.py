"""Whether the API server can be used: one probe for all reflectors, a circuit breaker.

A reflector that loses its connection reports it (:meth:`Availability.lost`) and waits with all others
(:meth:`Availability.wait`). Meanwhile one task polls ``/readyz`` until the server answers, with full jitter, so that
thousands of nodes do not reconnect at the same moment. It begins as unavailable: a server that is not ready yet
answers that kinds are not installed.

If the probe fails as well, all watches are ended: one over a connection that died silently would stay open
for minutes. After such an outage one kind is listed, which shows whether the server's data was restored from a backup.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

import trio

from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.faults import summarize

from .client import KubeClient
from .errors import (
    ApiError,
    CredentialsError,
    ForbiddenError,
    ServerError,
    ThrottledError,
    UnreachableError,
)

log = get_logger("api")

#: Most seconds before a probe: the first ones after a loss, and later ones. In between it is as long as the server has
#: been unreachable, so that its return is noticed within twice the time that it took.
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 10.0
#: The longest after the credentials were refused: a starting server may refuse them for a moment, but after that only
#: other credentials help.
LONGEST_REFUSED_SECONDS: Final = 60.0
#: A starting server forbids the request for its readiness because it has not read its rules yet (seen with 1.36). One
#: that still does so after this time means it.
RULES_SECONDS: Final = 10.0
#: A server that answers, but not that it is ready, may still serve us: some of its checks do not concern us.
UNREADY_SECONDS: Final = 60.0
#: A healthy server answers within milliseconds.
PROBE_SECONDS: Final = 5.0


class AvailabilityListener(Protocol):
    """What follows the server: the cache of the reflectors."""

    def set_trouble(self, trouble: str, /) -> None:
        """Set what is wrong with the connection, "" for nothing."""

    def interrupt_all(self) -> None:
        """End all watches."""

    def list_one(self) -> None:
        """List the kind again whose list shows whether the server has older data than before."""


class Availability:
    """Unavailable at first. ``client`` is the one to use, ``chance`` returns a random number in [0, 1)."""

    def __init__(self, client: KubeClient, cache: AvailabilityListener, chance: Callable[[], float]) -> None:
        self.client = client
        self.chance = chance
        self._cache = cache
        self._available = trio.Event()
        self._lost = trio.Event()
        self._lost.set()
        self._seen = False

    async def wait(self) -> None:
        """Wait until the server answers."""
        await self._available.wait()

    def lost(self) -> None:
        """Report that the server did not answer, or refused the credentials."""
        if not self._lost.is_set():
            self._available = trio.Event()
            self._lost.set()

    async def run(self) -> None:
        """Probe whenever the server is lost; indefinitely."""
        # At the start nothing was lost, so there is nothing to wait for.
        await self._find_server(most_seconds=0.0)
        while True:
            self._lost = trio.Event()
            self._available.set()
            await self._lost.wait()
            await self._find_server(most_seconds=FIRST_SECONDS)

    async def _find_server(self, *, most_seconds: float) -> None:
        """Probe until the server answers, and log the first failure."""
        began_at = trio.current_time()
        logged = lost = False
        try:
            while True:
                await trio.sleep(self.chance() * most_seconds)
                error = await self._probe()
                elapsed = trio.current_time() - began_at
                if error is None or elapsed >= _patience(error):
                    break
                if not logged and not isinstance(error, ForbiddenError):
                    logged = True
                    self._log_lost(error)
                self._cache.set_trouble(summarize(error))
                if isinstance(error, UnreachableError) and not lost:
                    lost = True
                    self._cache.interrupt_all()
                most_seconds = _most_seconds(error, elapsed)
        finally:
            # Also when other credentials end the wait: those of another cluster at the same address, for example.
            if lost:
                self._cache.list_one()
        self._cache.set_trouble("")
        if logged:
            fields = {"server": self.client.credentials.server, "away_seconds": round(elapsed, 1)}
            log.info("the API server is available again", message_id=message_ids.API_BACK, **fields)
        self._seen = True

    def _log_lost(self, error: ApiError) -> None:
        problems = {UnreachableError: "does not answer", CredentialsError: "refuses the credentials"}
        log.warning(
            f"the API server {problems.get(type(error), 'is not ready')}",
            message_id=message_ids.API_REFUSED if isinstance(error, CredentialsError) else message_ids.API_LOST,
            server=self.client.credentials.server,
            error=summarize(error),
            in_force="its last known state" if self._seen else "the state known without it",
        )

    async def _probe(self) -> ApiError | None:
        """Return what is wrong; None for any answer of an API server: the reflectors see what each request gets."""
        try:
            with trio.move_on_after(PROBE_SECONDS):
                await self.client.text("/readyz")
                return None
        except (UnreachableError, CredentialsError, ForbiddenError, ServerError, ThrottledError) as error:
            return error
        except ApiError:
            return None
        return UnreachableError(f"{self.client.credentials.server}: no answer within {PROBE_SECONDS:g} s")


def _patience(error: ApiError) -> float:
    """Return after how many seconds a server with such an answer is used anyway."""
    match error:
        case ForbiddenError():
            return RULES_SECONDS
        case ServerError():
            return UNREADY_SECONDS
        case _:
            return math.inf


def _most_seconds(error: ApiError, elapsed: float) -> float:
    """Return the most seconds before the next probe of a server that has been unavailable for ``elapsed``."""
    longest = LONGEST_REFUSED_SECONDS if isinstance(error, CredentialsError) else LONGEST_SECONDS
    # Full jitter halves on average what the server asks for. All nodes get the same, so the waits still have to grow.
    asked = 2 * (error.retry_after or 0.0) if isinstance(error, ThrottledError) else 0.0
    return max(asked, min(max(elapsed, FIRST_SECONDS), longest))
