"""Publishes what is known when it is complete and settled, and says once when it is no longer live."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Final

import trio

from config.api import ApiSnapshot, NotFollowed
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

from .cache import World
from .debounce import Settling
from .facts import facts
from .watch_state import GRACE_SECONDS

log = get_logger("crd_watch")

#: For so long after a loss the other streams' changes wait for what the lost one has missed, seconds.
RESUMING_SECONDS: Final = 5.0


class Publisher:
    """The one writer of the snapshot, whose cell remembers the last one across restarts of the actor.

    ``changes`` is set by the world whenever it is worth a look.
    """

    def __init__(
        self,
        ctx: ActorContext,
        out: Latest[ApiSnapshot],
        changes: Latest[None],
    ) -> None:
        self._ctx = ctx
        self._out = out
        self._changes = changes
        self._world: World | None = None
        self._waiting_for = ""
        self._settling = Settling()
        self._edits = 0
        self._unheard: tuple[NotFollowed, ...] = ()
        #: Since when there has been no world that could be lost.
        self._alone_since = trio.current_time()

    def follow(self, world: World | None, waiting_for: str = "") -> None:
        """Publish what is in this world from now on; ``waiting_for`` is what it takes to look for news of it."""
        if world is not self._world:
            self._world, self._settling, self._edits, self._unheard = world, Settling(), 0, ()
        self._waiting_for = waiting_for
        self._changes.set(None)

    async def run(self) -> None:
        """Publish indefinitely. The actor is idle whenever this task is: the streams' waits are waits for input."""
        changes = self._changes.reader()
        while True:
            changes.take()
            again_at = self._look(trio.current_time())
            self._ctx.note(**facts(self._world, self._waiting_for))
            with self._ctx.idle(), trio.CancelScope(deadline=again_at):
                await changes.wait_pending()

    def _look(self, now: float) -> float:
        """Publish what is due; return when to look again although nothing changes."""
        down = [self._alone_since] if self._world is None else self._world.down_times
        away_at = min(down, default=math.inf) + GRACE_SECONDS
        # What was missed while streams were down comes as they are taken up again, in each in its own time.
        calm_at = max(down, default=-math.inf) + RESUMING_SECONDS
        due = self._due(now, calm=now >= calm_at)
        live = now < away_at
        if self._world is not None and self._world.complete and due <= now:
            self._settling.told(now)
            self._publish(self._world.snapshot(self._synced_at(live=live), live=live))
        elif not live:
            self._publish_away()
        return min((moment for moment in (due, away_at) if moment > now), default=math.inf)

    def _due(self, now: float, *, calm: bool) -> float:
        """Return when what has changed is to be told."""
        if self._world is None:
            return math.inf
        unheard = self._world.not_followed()
        self._settling.saw(now, self._world.edits - self._edits + (unheard != self._unheard))
        self._edits, self._unheard = self._world.edits, unheard
        return self._settling.due(calm=calm)

    def _publish_away(self) -> None:
        """Say that what was published last is not live any more, and since when."""
        last = self._out.peek()
        if last is not None and last.live:
            self._publish(replace(last, live=False, synced_at=self._synced_at(live=False)))

    def _publish(self, snapshot: ApiSnapshot) -> None:
        """Publish what is news; a later time alone is none."""
        last = self._out.peek()
        if last is not None and replace(snapshot, synced_at=last.synced_at) == last:
            return
        self._out.set(snapshot)
        if last is None or last.live != snapshot.live:
            fields = {"objects": len(snapshot.objects), "mirrored": len(snapshot.mirrored)}
            if snapshot.live:
                log.info("follows the API server", message_id=message_ids.API_FOLLOWED, **fields)
            else:
                message = "the API server's state is not followed any more"
                log.warning(message, message_id=message_ids.API_NOT_FOLLOWED, **fields)

    def _synced_at(self, *, live: bool) -> float:
        """Return until when the content is known to be true."""
        last = self._out.peek()
        known = last.synced_at if last is not None else 0.0
        if live:
            doubted_at = self._world.doubted_at() if self._world is not None else math.inf
            return min(time.time(), max(known, doubted_at))
        return max(known, self._world.heard_at() if self._world is not None else 0.0)
