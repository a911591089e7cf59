"""One stream: a list, then a watch that goes on from it, indefinitely, whatever happens in between.

After any end of a watch the next one begins at the last version seen. A list is read only where there is no such
version or the server no longer knows it (410, as an answer or inside the stream); it is a consistent one (no
``resourceVersion``), because a list from the server's cache may be older than what we have seen. It is read in pages
and takes effect when the last one is there. What a watch says never empties anything but by the objects it names.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Final

import trio

from actors.lib.kube.client import PAGE_SIZE, Json, KubeClient
from actors.lib.kube.errors import ApiError, GoneError, NotFoundError, ThrottledError, UnreachableError, error_in
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.faults import summarize

from .availability import Gate
from .backoff import RELIST_SECONDS, Condition, Reaction, react
from .cache import World
from .decoding import is_behind, items, version_of
from .watch_state import Track

log = get_logger("crd_watch")

#: A watch that ends sooner, without a word, did not work.
LIVELY_SECONDS: Final = 5.0
#: Troubles that somebody has to mend, and that are told when they begin and when they end.
_TOLD: Final[Mapping[Condition, str]] = MappingProxyType(
    {
        Condition.REFUSED: message_ids.API_FORBIDDEN,
        Condition.MISSING: message_ids.API_KIND_MISSING,
        Condition.FAILING: message_ids.API_OBJECTS_UNREADABLE,
    }
)


class Stream:
    """Fills one track over one connection."""

    def __init__(
        self, track: Track, world: World, client: KubeClient, gate: Gate, chance: Callable[[], float] = random.random
    ) -> None:
        self._track = track
        self._world = world
        self._client = client
        self._gate = gate
        self._chance = chance
        self._failures = 0
        self._suffered: type[ApiError] | None = None

    async def run(self) -> None:
        """Go on until cancelled. Raises only what is a bug."""
        try:
            while True:
                await self._gate.passage()
                if self._track is not self._world.node:
                    await self._world.labels_known.wait()
                try:
                    await self._go_on()
                except ApiError as error:
                    await self._suffer(error)
        finally:
            self._down(Condition.WAITING)

    async def _go_on(self) -> None:
        """List if need be, then watch until the watch ends."""
        if self._track.needs_list:
            if self._failures == 0 and self._is_everybody_s():
                # With one place for all kinds of a node: what they say together is told together.
                await self._wait_for_turn(self._world.cluster_size.place * self._row())
            await self._list()
        if not self._track.needs_list:
            await self._watch()

    def _is_everybody_s(self) -> bool:
        """Whether all nodes may want this list at the moment: they got the same label, or the server has other data."""
        track = self._track
        return track is not self._world.node and track.store.known and (track.store.stale or track.version is None)

    def _row(self) -> float:
        """Return over how many seconds the nodes' lists of one kind are spread."""
        return self._world.cluster_size.row(RELIST_SECONDS)

    async def _wait_for_turn(self, seconds: float) -> None:
        self._track.postpone(seconds)
        self._world.stir()
        await trio.sleep(seconds)

    async def _list(self) -> None:
        track = self._track
        track.verb, version = "list", ""
        fresh = track.store.fresh()
        async with aclosing(self._client.pages(track.path, track.params, limit=PAGE_SIZE)) as pages:
            async for page in pages:
                version = version or version_of(page)
                for raw in items(page):
                    fresh.put(raw)
        track.store.replace(fresh)
        self._heard()
        self._world.take_in_list(track, version)
        self._recovered()

    async def _watch(self) -> None:
        track = self._track
        track.verb = "watch"
        # How long it lasts is the client's business, which tells silence from death by it.
        params = {**track.params, "resourceVersion": str(track.version), "allowWatchBookmarks": "true"}
        opened_at, version = trio.current_time(), track.version
        try:
            with track.interruptible():
                async with self._client.watch(track.path, params) as told:
                    self._opened()
                    async for event in told:
                        self._take(event)
        finally:
            self._down(Condition.LOST)
            worked = track.version != version or trio.current_time() - opened_at >= LIVELY_SECONDS
            self._failures = 0 if worked else self._failures
        if not worked and not track.needs_list:
            raise UnreachableError(f"{track.path}: the watch ended as soon as it had begun")

    def _opened(self) -> None:
        """Say that changes arrive again; those that were missed come first."""
        self._up(Condition.WATCHING)
        self._heard()
        self._recovered()
        self._world.stir()

    def _take(self, event: Json) -> None:
        if (error := error_in(event)) is not None:
            raise error
        track, what, raw = self._track, event.get("type"), event.get("object")
        version = version_of(raw)
        if is_behind(version, track.version):
            raise GoneError(f"{track.path}: the watch went back from {track.version} to {version}")
        changed = self._apply(str(what), raw)
        track.version = version
        self._heard()
        if what != "BOOKMARK":
            self._world.last_event = track.heard_at
        if changed:
            self._world.take_in(track)

    def _apply(self, what: str, raw: Any) -> bool:
        match what:
            case "ADDED" | "MODIFIED":
                return self._track.store.put(raw)
            case "DELETED":
                return self._track.store.remove(raw)
            case "BOOKMARK":
                return False
        raise UnreachableError(f"{self._track.path}: what answered sends events of type {what[:40]!r}")

    async def _suffer(self, error: ApiError) -> None:
        """Remember what is wrong and wait as long as it asks for."""
        if isinstance(error, NotFoundError) and not self._track.custom:
            error = UnreachableError(f"what answered has no {self._track.resource}, so it is no API server")
        # Another trouble begins at its own beginning: a server that was away has often forgotten as well.
        self._failures = self._failures + 1 if type(error) is self._suffered else 1
        self._suffered = type(error)
        reaction = react(error, self._failures, self._chance())
        self._tell(reaction, error)
        if reaction.relist:
            self._track.recheck = True
        if reaction.condition in (Condition.MISSING, Condition.REFUSED):
            # An answer all the same: the server is not away because something is wrong with one kind.
            self._up(reaction.condition)
            if self._track is self._world.node:
                self._world.choose_without_node()
        else:
            self._down(reaction.condition)
        self._world.stir()
        if reaction.closes_gate:
            self._gate.close()
        if isinstance(error, GoneError) and self._track is not self._world.node:
            # All nodes hear it within a moment.
            await self._wait_for_turn(max(reaction.seconds, self._chance() * self._row()))
        else:
            await trio.sleep(reaction.seconds)

    def _tell(self, reaction: Reaction, error: ApiError) -> None:
        track = self._track
        condition = reaction.condition
        if condition is track.told or condition not in _TOLD or isinstance(error, ThrottledError):
            log.debug("a stream goes on", resource=track.resource, condition=condition, error=summarize(error))
            return
        track.told = condition
        fields = {"message_id": _TOLD[condition], "resource": track.resource, "verb": track.verb}
        fields["error"] = summarize(error)
        if condition is not Condition.MISSING:
            in_force = "what is known of them" if track.store.known else "what is remembered of them"
            log.warning(f"the API server's objects cannot be read: {condition}", **fields, in_force=in_force)
        elif track.store.empty:
            log.info("a kind is not installed on the API server", **fields)
        else:
            log.warning("a kind is not installed any more; its objects as last known stay in force", **fields)

    def _recovered(self) -> None:
        """Tell that a trouble is over: that of a kind that was missing with its list, others with the watch."""
        told = self._track.told
        if told is Condition.MISSING or (told is not None and self._track.verb == "watch"):
            log.info(
                "the API server's objects can be read again",
                message_id=message_ids.API_OBJECTS_READABLE,
                resource=self._track.resource,
                was=told,
            )
            self._track.told = None

    def _up(self, condition: Condition) -> None:
        """Say that the server is there for this track; where it was not that is worth telling, whatever it says."""
        if self._track.down_since is not None:
            self._world.edits += 1
        self._track.up(condition)

    def _down(self, condition: Condition) -> None:
        self._track.down(condition)
        self._world.stir()

    def _heard(self) -> None:
        self._track.heard_at = time.time()
