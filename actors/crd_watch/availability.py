"""One gate for all streams of a node: when the server is away, one of them asks for it, and not all of them.

A stream that loses its connection closes the gate and waits at it. Behind it a single prober asks ``/readyz`` until the
server is there, with full jitter, so that thousands of nodes do not come back in the same moment. The gate is closed at
the start too: a server that is not ready yet answers that kinds are not installed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import (
    ApiError,
    CredentialsError,
    ForbiddenError,
    ServerError,
    ThrottledError,
    UnreachableError,
)
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.faults import summarize

log = get_logger("crd_watch")

#: Most seconds before a probe: the first ones after a loss, and later ones. In between it is as long as the server has
#: been away, so that it is missed for no more than twice the time that it needs.
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 10.0
#: The last after a refusal of the credentials: a starting server may refuse them for a moment, but then others are
#: needed, which come by another way.
LONGEST_REFUSED_SECONDS: Final = 60.0
#: A starting server says that nobody may ask for its readiness, because it has not read its rules yet (seen with 1.36).
#: One that still says so after this time means it.
RULES_SECONDS: Final = 10.0
#: A server that answers, but not that it is ready, may serve us all the same: some of its checks are not about us.
UNREADY_SECONDS: Final = 60.0
#: A server in good health answers within milliseconds.
PROBE_SECONDS: Final = 5.0


class Gate:
    """Closed at first. ``tell`` gets what is wrong in one line, "" when nothing is.

    A stream may have been alone in its trouble. ``lost`` is called when a probe finds no server either, ``returned``
    when it is back after that.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        tell: Callable[[str], None],
        lost: Callable[[], None],
        returned: Callable[[], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._tell = tell
        self._lost = lost
        self._returned = returned
        self._chance = chance
        self._opened = trio.Event()
        self._closed = trio.Event()
        self._closed.set()
        self._server_seen = False

    async def passage(self) -> None:
        """Wait until the server is believed to be there."""
        await self._opened.wait()

    def close(self) -> None:
        """Say that the server did not answer, or not us."""
        if not self._closed.is_set():
            self._opened = trio.Event()
            self._closed.set()

    async def keep(self) -> None:
        """Open the gate whenever the server is there; indefinitely."""
        # At the start nobody has lost anything yet, so there is nothing to wait for.
        await self._find_server(most_seconds=0.0)
        while True:
            self._closed = trio.Event()
            self._opened.set()
            await self._closed.wait()
            await self._find_server(most_seconds=FIRST_SECONDS)

    async def _find_server(self, *, most_seconds: float) -> None:
        """Probe until something answers, telling the first failure."""
        begun_at = trio.current_time()
        told = lost = False
        while True:
            await trio.sleep(self._chance() * most_seconds)
            error = await self._probe()
            away = trio.current_time() - begun_at
            if error is None or away >= _patience(error):
                break
            if not told and not isinstance(error, ForbiddenError):
                told = True
                self._tell_lost(error)
            self._tell(summarize(error))
            if isinstance(error, UnreachableError) and not lost:
                lost = True
                self._lost()
            most_seconds = _most_seconds(error, away)
        self._tell("")
        if told:
            fields = {"server": self._client.credentials.server, "away_seconds": round(away, 1)}
            log.info("the API server is there", message_id=message_ids.API_BACK, **fields)
        if lost:
            self._returned()
        self._server_seen = True

    def _tell_lost(self, error: ApiError) -> None:
        words = {UnreachableError: "does not answer", CredentialsError: "refuses the credentials"}
        in_force = "what it said last" if self._server_seen else "what is known without it"
        log.warning(
            f"the API server {words.get(type(error), 'is not ready')}",
            message_id=message_ids.API_REFUSED if isinstance(error, CredentialsError) else message_ids.API_LOST,
            server=self._client.credentials.server,
            error=summarize(error),
            in_force=in_force,
        )

    async def _probe(self) -> ApiError | None:
        """Return what is wrong; None when an API server answers, whatever: the streams hear what it thinks of each."""
        try:
            with trio.move_on_after(PROBE_SECONDS):
                await self._client.text("/readyz")
                return None
        except (UnreachableError, CredentialsError, ForbiddenError, ServerError, ThrottledError) as error:
            return error
        except ApiError:
            return None
        return UnreachableError(f"{self._client.credentials.server}: no answer within {PROBE_SECONDS:g} s")


def _patience(error: ApiError) -> float:
    """Return after how many seconds such an answer is as good as another."""
    match error:
        case ForbiddenError():
            return RULES_SECONDS
        case ServerError():
            return UNREADY_SECONDS
        case _:
            return math.inf


def _most_seconds(error: ApiError, away: float) -> float:
    """Return the most seconds before the next probe of a server that has been away for so many."""
    longest = LONGEST_REFUSED_SECONDS if isinstance(error, CredentialsError) else LONGEST_SECONDS
    # Full jitter halves on average what the server asks for. It asks the same of everybody, so the waits grow all the
    # same.
    asked = 2 * (error.retry_after or 0.0) if isinstance(error, ThrottledError) else 0.0
    return max(asked, min(max(away, FIRST_SECONDS), longest))
