"""What survives of a stream when it breaks: the content, the version at which to go on, and how it is doing.

A track belongs to a server, a stream to a connection: other credentials for the same server go on where the old ones
were.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from config.api import Hindrance

from .backoff import Condition
from .stores import Store

#: A stream that is taken up again within so many seconds was never away: a server restarts in less.
GRACE_SECONDS: Final = 10.0
#: After so many seconds of failing the server is believed to mean it.
FAILING_SECONDS: Final = GRACE_SECONDS
#: After so many seconds of failing the rest goes on without a kind that was never listed: no start of a server, with
#: its conversion webhooks and its aggregated API servers, is known to take as long.
LEFT_OUT_SECONDS: Final = 120.0
_HINDRANCES: Final = {
    Condition.REFUSED: Hindrance.REFUSED,
    Condition.MISSING: Hindrance.MISSING,
    Condition.FAILING: Hindrance.FAILING,
}


@dataclass(eq=False)
class Track:
    """One collection. ``resource`` is its plural, for messages; ``params`` narrow it down. ``custom``: its kind may be
    absent from a server, as those that every server has may not.

    ``version`` None: a list is needed; so it is with ``recheck``, which remembers how far the server was.
    ``down_since`` (trio's clock) None: the server is there for it, as far as it goes for us.
    ``heard_at`` (Unix seconds): when the server last said something about it, 0 for never.
    ``hindrance``: why nothing new is heard of it, since ``hindered_at`` (Unix seconds), until a watch is open again;
    ``failing_since`` (trio's clock) is when it became that the server fails, ``unlisted`` whether nothing was known by
    then.
    ``told``: the trouble that the log has last told of.
    """

    resource: str
    path: str
    store: Store
    params: dict[str, str] = field(default_factory=dict)
    custom: bool = False
    version: str | None = None
    recheck: bool = False
    condition: Condition = Condition.WAITING
    verb: str = "list"
    down_since: float | None = field(default_factory=trio.current_time)
    heard_at: float = 0.0
    hindrance: Hindrance | None = None
    hindered_at: float = 0.0
    failing_since: float = 0.0
    unlisted: bool = False
    told: Condition | None = None
    _scope: trio.CancelScope | None = None

    @property
    def needs_list(self) -> bool:
        """Whether going on with a watch would not give the whole content."""
        return self.version is None or self.recheck or self.store.stale

    @property
    def settled(self) -> bool:
        """Whether the whole content is known, by the node's present labels."""
        return self.store.known and not self.store.stale

    @property
    def given_up(self) -> bool:
        """Whether nothing new will be heard soon: no right, no such kind, or objects that the server cannot read."""
        return self._fails_for(FAILING_SECONDS) if self.hindrance is Hindrance.FAILING else self.hindrance is not None

    @property
    def left_out(self) -> bool:
        """Whether the server failed to list it for so long that the rest goes on without it, until a watch is open."""
        return self.unlisted and self._fails_for(LEFT_OUT_SECONDS)

    def _fails_for(self, seconds: float) -> bool:
        return self.hindrance is Hindrance.FAILING and trio.current_time() >= self.failing_since + seconds

    def up(self, condition: Condition = Condition.WATCHING) -> None:
        """Say that changes arrive as they happen, or that the server is there and says that none will."""
        self.down_since = None
        self._turn(condition)

    def down(self, condition: Condition) -> None:
        """Say that changes may be missed from now on."""
        self._turn(condition)
        if self.down_since is None:
            self.down_since = trio.current_time()

    def _turn(self, condition: Condition) -> None:
        self.condition = condition
        if condition is Condition.WATCHING:
            self.hindrance = None
        elif condition in _HINDRANCES:
            if self.hindrance is None:
                self.hindered_at = time.time()
            if condition is Condition.FAILING and self.hindrance is not Hindrance.FAILING:
                self.failing_since, self.unlisted = trio.current_time(), not self.store.known
            self.hindrance = _HINDRANCES[condition]

    def postpone(self, seconds: float) -> None:
        """Say that it catches up in so many seconds, when its turn comes: until then the server is not away for it."""
        now = trio.current_time()
        if self.down_since is not None and now - self.down_since < GRACE_SECONDS:
            self.down_since = now + seconds

    def doubt(self) -> None:
        """Have the list read again, and end the watch that is open, if any."""
        self.recheck = True
        self.interrupt()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let :meth:`interrupt` end what is inside, as if it had ended by itself."""
        try:
            with trio.CancelScope() as self._scope:
                yield
        finally:
            self._scope = None

    def interrupt(self) -> None:
        """End the watch that is open, if any: something else has to be done first."""
        if self._scope is not None:
            self._scope.cancel()
