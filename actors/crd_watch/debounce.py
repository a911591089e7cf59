"""When changes are published: a single one soon, many of them in few steps.

    Cache.edits ──> Debounce.saw ──> Debounce.due ──> Cache.snapshot ──> channel

``kubectl apply`` creates ten to fifty objects a second, one after the other, and the router needs seconds for each
snapshot: a hundred objects should be two or three snapshots, and one object should not wait for a second. So a lone
change waits for a quarter of a second, one of several for half a second of quiet, longer than the gap between two
objects on a slow machine. A burst without such a gap is published after five seconds, and then at growing intervals.

The publisher also marks the last snapshot as not live once watches have been down for longer than a server's restart.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Final

import trio

from actors.lib.kube.reflector import GRACE_SECONDS
from config.api import ApiSnapshot, NotFollowed, WatchFailure
from config.crd.conditions import timestamp
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext, Fact
from supervisor.runtime.channel import Latest

from .cache import Cache

log = get_logger("crd_watch")

LONE_SECONDS: Final = 0.25
QUIET_SECONDS: Final = 0.5
FIRST_CEILING_SECONDS: Final = 5.0
MOST_ROUNDS: Final = 2
#: How long after a loss other watches' changes wait for those that the lost watch has missed, seconds.
RESUMING_SECONDS: Final = 5.0


@dataclass
class Debounce:
    """The changes that are not published yet. Times in seconds of any one clock."""

    first: float = math.inf
    last: float = -math.inf
    count: int = 0
    #: How often in a row a burst was published before it had ended.
    rounds: int = 0

    def saw(self, now: float, changes: int) -> None:
        """Count changes, possibly none."""
        if changes:
            self.first = min(self.first, now)
            self.last = now
            self.count += changes

    def due(self, *, calm: bool) -> float:
        """Return when to publish, infinity when there is nothing.

        While watches are being opened again (not ``calm``) more changes will follow, so only the ceiling counts.
        """
        quiet = LONE_SECONDS if self.count == 1 else QUIET_SECONDS
        return min(self.last + quiet if calm and self.count else math.inf, self._ceiling())

    def published(self, now: float) -> None:
        """Start over: everything so far was published."""
        in_time = now < self._ceiling()
        self.rounds = 0 if in_time else min(self.rounds + 1, MOST_ROUNDS)
        self.first, self.last, self.count = math.inf, -math.inf, 0

    def _ceiling(self) -> float:
        return self.first + FIRST_CEILING_SECONDS * 2.0**self.rounds


class Publisher:
    """The one writer of the snapshot, whose channel keeps the last one across restarts of the actor.

    The cache sets ``changes`` whenever there may be something to do.
    """

    def __init__(self, ctx: ActorContext, out: Latest[ApiSnapshot], changes: Latest[None]) -> None:
        self._ctx = ctx
        self._out = out
        self._changes = changes
        self._cache: Cache | None = None
        self._waiting_for = ""
        self._debounce = Debounce()
        self._edits = 0
        self._not_followed: tuple[NotFollowed, ...] = ()
        #: Since when there has been no cache at all.
        self._without_since = trio.current_time()

    def follow(self, cache: Cache | None, waiting_for: str = "") -> None:
        """Publish what is in this cache from now on; ``waiting_for`` is what it takes to fill it."""
        if cache is not self._cache:
            self._cache, self._debounce, self._edits, self._not_followed = cache, Debounce(), 0, ()
        self._waiting_for = waiting_for
        self._changes.set(None)

    async def run(self) -> None:
        """Publish indefinitely. The actor is idle whenever this task is: the reflectors' waits are waits for input."""
        changes = self._changes.reader()
        while True:
            changes.take()
            again_at = self._publish_due(trio.current_time())
            self._ctx.note(**facts(self._cache, self._waiting_for))
            with self._ctx.idle(), trio.CancelScope(deadline=again_at):
                await changes.wait_pending()

    def _publish_due(self, now: float) -> float:
        """Publish what is due; return when something will be although nothing changes."""
        cache = self._cache
        down = [self._without_since] if cache is None else cache.down_times
        lost_at = min(down, default=math.inf) + GRACE_SECONDS
        # What was missed comes as the watches are opened again, each in its own time.
        calm_at = max(down, default=-math.inf) + RESUMING_SECONDS
        due = self._due(now, calm=now >= calm_at)
        live = now < lost_at
        if cache is not None and cache.complete and due <= now:
            self._debounce.published(now)
            self._publish(cache.snapshot(self._synced_at(live=live), live=live))
        elif not live and (last := self._out.peek()) is not None and last.live:
            self._publish(replace(last, live=False, synced_at=self._synced_at(live=False)))
        return min((moment for moment in (due, lost_at) if moment > now), default=math.inf)

    def _due(self, now: float, *, calm: bool) -> float:
        """Return when to publish the changes."""
        if self._cache is None:
            return math.inf
        not_followed = self._cache.not_followed()
        self._debounce.saw(now, self._cache.edits - self._edits + (not_followed != self._not_followed))
        self._edits, self._not_followed = self._cache.edits, not_followed
        return self._debounce.due(calm=calm)

    def _publish(self, snapshot: ApiSnapshot) -> None:
        """Publish a snapshot unless only its time is new."""
        last = self._out.peek()
        if last is not None and replace(snapshot, synced_at=last.synced_at) == last:
            return
        self._out.set(snapshot)
        if last is None or last.live != snapshot.live:
            fields = {"objects": len(snapshot.objects), "mirrored": len(snapshot.mirrored)}
            if snapshot.live:
                log.info("following the API server", message_id=message_ids.API_FOLLOWED, **fields)
            else:
                message = "no longer following the API server; its last known state stays in force"
                log.warning(message, message_id=message_ids.API_NOT_FOLLOWED, **fields)

    def _synced_at(self, *, live: bool) -> float:
        """Return until when the content is known to be true (Unix seconds)."""
        last = self._out.peek()
        known = last.synced_at if last is not None else 0.0
        if live:
            doubtful_since = self._cache.doubtful_since() if self._cache is not None else math.inf
            return min(time.time(), max(known, doubtful_since))
        return max(known, self._cache.confirmed_at() if self._cache is not None else 0.0)


def facts(cache: Cache | None, waiting_for: str) -> dict[str, Fact]:
    """Return what ``openperouter status`` shows, None for what does not apply. Nothing of a Secret's content."""
    if cache is None:
        return {"state": f"waiting for {waiting_for}"}
    objects, mirrored = cache.counts()
    return {
        "state": _state(cache, waiting_for),
        "objects": objects,
        "mirrored": mirrored,
        "secrets": len(cache.secrets) or None,
        "not_installed": _failing(cache, WatchFailure.MISSING),
        "refused": _failing(cache, WatchFailure.REFUSED),
        "failing": _failing(cache, WatchFailure.FAILING),
        "ignored_secrets": cache.ignored_secrets or None,
        "trouble": cache.trouble or None,
        "last_event": None if cache.last_event is None else timestamp(cache.last_event),
    }


def _state(cache: Cache, waiting_for: str) -> str:
    if waiting_for:
        return f"waiting for {waiting_for}"
    if not cache.complete:
        return "waiting for the server" if cache.trouble else "listing"
    return "reconnecting" if cache.down_times else "watching"


def _failing(cache: Cache, failure: WatchFailure) -> str | None:
    """Return what fails, with the verb that a role would have to allow; None for nothing."""
    found = {
        one.resource if failure is WatchFailure.MISSING else f"{one.verb} {one.resource}"
        for one in cache.all_reflectors()
        if one.failure is failure
    }
    return ", ".join(sorted(found)) or None
