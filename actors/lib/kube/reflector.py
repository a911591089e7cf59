"""One reflector per collection: a list, then a watch from its version on, indefinitely, whatever happens in between.

    list in pages ──> Store.replace ──> watch ──> Store.put/remove ──> ServerCache.changed
         ^                               │ ends, breaks: watch again from the last version
         └── 410, or labels that may ────┘
             select other objects

A list is read only where there is no version to watch from, or the server no longer has it (410, as an answer or as
an ERROR event). It is a consistent one (no ``resourceVersion``), because a list from the server's cache may be older
than what was seen, and it takes effect when its last page is there. BOOKMARK events move the version and nothing else.

A reflector belongs to a server, a run of it to a connection: with other credentials for the same server it continues
from the same version. What each error means for it is in :func:`retry_after`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import trio

from actors.lib.metrics.counters import WATCH_RESTARTS
from config.api import ApiCredentials, WatchFailure
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.channel import Latest
from supervisor.runtime.faults import summarize
from supervisor.runtime.restart_policy import Backoff

from .availability import Availability
from .client import PAGE_SIZE, Json, KubeClient
from .cluster_size import ClusterSize
from .decoding import is_behind, items, version_of
from .errors import (
    ApiError,
    CredentialsError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    ThrottledError,
    UnreachableError,
    error_in,
)
from .store import Store

log = get_logger("api")

#: A watch that ends sooner, without an event, counts as failed.
LIVELY_SECONDS: Final = 5.0
#: A watch that continues within this many seconds does not count as lost: a server restarts in less.
GRACE_SECONDS: Final = 10.0
#: After this many seconds a failure counts as lasting.
FAILING_SECONDS: Final = GRACE_SECONDS
#: After so many seconds of failing the rest continues without a kind that was never listed: no start of a server, with
#: its conversion webhooks and its aggregated API servers, is known to take as long.
EXCLUDED_SECONDS: Final = 120.0
#: After so many failures in a row of an unknown kind the version may be the reason.
RELIST_AFTER: Final = 3

#: For what only an operator can fix: the first attempts are quick because a starting server may refuse for a moment.
SLOW: Final = Backoff(first=2, longest=60, jitter=0.5)
#: For transient errors.
USUAL: Final = Backoff(first=1, longest=30, jitter=0.5)
#: Most seconds before a list is read again: a restarted server must not get all nodes' lists at the same moment.
RELIST_SECONDS: Final = 3.0
GONE: Final = Backoff(first=RELIST_SECONDS, longest=60, jitter=0)
#: For a watch that keeps breaking although the server answers.
LOST: Final = Backoff(first=2, longest=10, jitter=0)
#: For a throttling server. It asks all nodes for the same wait, mostly a second, as long as they are too many: only
#: ever longer waits make them fewer.
BUSY: Final = Backoff(first=1, longest=60, jitter=0.5)

_MESSAGE_IDS: Final[Mapping[WatchFailure, str]] = MappingProxyType(
    {
        WatchFailure.REFUSED: message_ids.API_FORBIDDEN,
        WatchFailure.MISSING: message_ids.API_KIND_MISSING,
        WatchFailure.FAILING: message_ids.API_OBJECTS_UNREADABLE,
    }
)


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The reaction to an error: seconds to wait, whether to list again, whether to probe the server.

    ``failure`` is why a server that answers does not serve the collection, None for any other error.
    """

    seconds: float
    failure: WatchFailure | None = None
    relist: bool = False
    lost: bool = False


def retry_after(error: ApiError, failures: int, chance: float) -> RetryDecision:
    """Return the reaction to the last of ``failures`` errors of its kind in a row; ``chance`` is random in [0, 1)."""
    match error:
        case UnreachableError() | CredentialsError():
            # The probe waits for the server, or for other credentials: this is for a watch that fails alone.
            seconds = chance * LOST.delay(failures, 0.5) if failures > 1 else 0.0
            return RetryDecision(seconds, lost=True)
        case GoneError():
            return RetryDecision(chance * GONE.delay(failures, 0.5), relist=True)
        case NotFoundError():
            return RetryDecision(SLOW.delay(failures, chance), WatchFailure.MISSING, relist=True)
        case ForbiddenError():
            return RetryDecision(SLOW.delay(failures, chance), WatchFailure.REFUSED)
        case ThrottledError():
            asked = (error.retry_after or 0.0) * (1 + chance / 2)
            # Never a list: a busy server is the last that should have to send one.
            return RetryDecision(max(asked, BUSY.delay(failures, chance)), WatchFailure.FAILING)
        case _:
            return RetryDecision(USUAL.delay(failures, chance), WatchFailure.FAILING, relist=failures >= RELIST_AFTER)


class ServerCache:
    """One server's objects, the reflectors that fill it, and what a change of one means for the others.

    ``changes`` is set whenever a publisher may have something to do. ``node`` is the reflector of the Nodes, one of
    ``reflectors``.
    """

    node: Reflector
    reflectors: Sequence[Reflector]

    def __init__(self, server: str, changes: Latest[None]) -> None:
        self.server = server
        self.changes = changes
        #: Changes of content so far.
        self.edits = 0
        #: What is wrong with the connection, in one line.
        self.trouble = ""
        #: As long as the size is not known the waits are those of a small cluster, and grow with refusals.
        self.cluster_size = ClusterSize(nodes=1)
        #: When the last event came (Unix seconds).
        self.last_event: float | None = None
        #: Set when it is known which objects to select: from the start, unless a node's labels do that.
        self.labels_known = trio.Event()
        self.labels_known.set()

    def all_reflectors(self) -> Iterable[Reflector]:
        """Return the present reflectors, also those that come and go."""
        return self.reflectors

    def wake(self) -> None:
        """Have the publisher check what to do."""
        self.changes.set(None)

    def set_trouble(self, trouble: str) -> None:
        """Set what is wrong with the connection, "" for nothing."""
        self.trouble = trouble
        self.wake()

    def interrupt_all(self) -> None:
        """End all watches."""
        for reflector in self.all_reflectors():
            reflector.interrupt()

    def list_one(self) -> None:
        """List the Nodes again."""
        self.node.list_again()

    def changed(self, reflector: Reflector) -> None:
        """React to a changed store."""
        self.edits += 1
        self.wake()

    def listed(self, reflector: Reflector, version: str) -> None:
        """React to a list, which also shows the age of the server's data.

        A server with older data than was seen (etcd was restored from a backup) answers watches from our versions not
        with an error, but with silence: then everything is listed again.
        """
        if is_behind(version, reflector.version):
            for other in self.all_reflectors():
                other.version = None
            self.interrupt_all()
        reflector.listed(version)
        self.changed(reflector)

    def dead_at(self, *needed: Reflector) -> float:
        """Return when the content of some reflectors is out of date, in trio's time; infinity while it is followed."""
        ends = (
            -math.inf if one.blocked else math.inf if one.down_since is None else one.down_since + GRACE_SECONDS
            for one in needed
        )
        return min(ends, default=math.inf)

    def select_without_node(self) -> None:
        """Do what is possible where the Nodes may not be read: nothing, unless one of them selects the objects."""

    async def follow(
        self,
        credentials: ApiCredentials,
        connect: Callable[[ApiCredentials], KubeClient],
        *also: Callable[[Availability], Awaitable[None]],
    ) -> None:
        """Fill the cache over one connection until cancelled, beside ``also``, which get the server's availability."""
        async with AsyncExitStack() as stack:
            stack.callback(self.set_trouble, "")
            try:
                client = await stack.enter_async_context(connect(credentials))
            except UnreachableError as error:
                self.set_trouble(summarize(error))
                log.warning(
                    "the API server's credentials are not usable",
                    message_id=message_ids.API_CREDENTIALS_UNUSABLE,
                    error=summarize(error),
                )
                # Only other credentials can help, and they cancel this.
                await trio.sleep_forever()
                return
            server = Availability(client, self, random.random)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.run)
                for run in (*also, *(reflector.run for reflector in self.reflectors)):
                    nursery.start_soon(run, server)


class Reflector:
    """Fills one store. ``resource`` is its plural, for messages; ``only`` and ``labels`` narrow it down.

    ``optional``: its kind may be absent from a server, as those that every server has may not.
    """

    def __init__(
        self,
        cache: ServerCache,
        resource: str,
        path: str,
        store: Store[Any],
        *,
        only: str = "",
        labels: str = "",
        optional: bool = False,
    ) -> None:
        self._cache = cache
        self.resource = resource
        self.store = store
        self._path = path
        selectors = {"fieldSelector": f"metadata.name={only}" if only else "", "labelSelector": labels}
        self._params = {key: selector for key, selector in selectors.items() if selector}
        self._optional = optional
        # Of such a part another reflector follows some object, and reports what is wrong with the collection.
        self._quiet = bool(labels)
        #: Where the watch continues; None: a list is needed. So it is with ``_relist``, which keeps the version to
        #: compare with: whether the server has older data than before.
        self.version: str | None = None
        self._relist = False
        self.verb = "list"
        #: Since when changes may be missed (trio's clock); None while the server serves it, as far as it does for us.
        self.down_since: float | None = trio.current_time()
        #: When the server last confirmed the content (Unix seconds), 0 for never.
        self.confirmed_at = 0.0
        #: Why the server does not serve it, since when (Unix seconds), until a watch is open again.
        self.failure: WatchFailure | None = None
        self.failed_at = 0.0
        #: Since when the failure is that it fails (trio's clock), and whether nothing was known by then.
        self._failing_since = 0.0
        self._unlisted = False
        self._logged: WatchFailure | None = None
        self._failures = 0
        self._last_error: type[ApiError] | None = None
        self._watch_scope: trio.CancelScope | None = None

    @property
    def needs_list(self) -> bool:
        """Whether a watch from the last version would not give the whole content."""
        return self.version is None or self._relist or self.store.stale

    @property
    def synced(self) -> bool:
        """Whether the whole content is known, by the node's present labels."""
        return self.store.known and not self.store.stale

    @property
    def blocked(self) -> bool:
        """Whether no news is expected soon: no right, no such kind, or objects that the server cannot read."""
        return self._fails_for(FAILING_SECONDS) if self.failure is WatchFailure.FAILING else self.failure is not None

    @property
    def excluded(self) -> bool:
        """Whether the server failed to list it for so long that the rest continues without it, until a watch opens."""
        return self._unlisted and self._fails_for(EXCLUDED_SECONDS)

    def _fails_for(self, seconds: float) -> bool:
        return self.failure is WatchFailure.FAILING and trio.current_time() >= self._failing_since + seconds

    def list_again(self) -> None:
        """Read the list again, and end the watch that is open, if any."""
        self._relist = True
        self.interrupt()

    def interrupt(self) -> None:
        """End the watch that is open, if any, as if it had ended by itself."""
        if self._watch_scope is not None:
            self._watch_scope.cancel()

    def listed(self, version: str) -> None:
        """Continue from a list's version."""
        self.version, self._relist = version, False

    async def run(self, server: Availability) -> None:
        """List and watch until cancelled. Raises only what is a bug."""
        self._failures, self._last_error = 0, None
        try:
            while True:
                await server.wait()
                if self is not self._cache.node:
                    await self._cache.labels_known.wait()
                try:
                    await self._list_and_watch(server)
                except ApiError as error:
                    await self._recover(error, server)
        finally:
            self._down()

    def _window(self) -> float:
        """Return over how many seconds the nodes' lists of one kind are spread."""
        return self._cache.cluster_size.window(RELIST_SECONDS)

    async def _list_and_watch(self, server: Availability) -> None:
        if self.needs_list:
            if self._failures == 0 and self._all_nodes_list():
                # With one jitter for all kinds of a node their changes are published together.
                await self._wait_for_slot(self._cache.cluster_size.jitter * self._window())
            await self._list(server.client)
        if not self.needs_list:
            await self._watch(server.client)

    def _all_nodes_list(self) -> bool:
        """Whether all nodes may want this list at the moment: a label for all of them, or a server with other data."""
        return self is not self._cache.node and self.store.known and (self.store.stale or self.version is None)

    async def _wait_for_slot(self, seconds: float) -> None:
        """Wait for this node's slot; that it is not up to date until then is no loss of the server."""
        now = trio.current_time()
        if self.down_since is not None and now - self.down_since < GRACE_SECONDS:
            self.down_since = now + seconds
        self._cache.wake()
        await trio.sleep(seconds)

    async def _list(self, client: KubeClient) -> None:
        self.verb, version = "list", ""
        fresh = self.store.fresh()
        async with aclosing(client.pages(self._path, self._params, limit=PAGE_SIZE)) as pages:
            async for page in pages:
                version = version or version_of(page)
                for raw in items(page):
                    fresh.put(raw)
        self.store.replace(fresh)
        self.confirmed_at = time.time()
        self._cache.listed(self, version)
        self._log_recovery()

    async def _watch(self, client: KubeClient) -> None:
        self.verb = "watch"
        # The client chooses how long a watch lasts, which distinguishes a quiet watch from a dead one.
        params = {**self._params, "resourceVersion": str(self.version), "allowWatchBookmarks": "true"}
        opened_at, version = trio.current_time(), self.version
        try:
            with trio.CancelScope() as self._watch_scope:
                async with client.watch(self._path, params) as events:
                    self._opened()
                    async for event in events:
                        self._handle(event)
        finally:
            self._watch_scope = None
            self._down()
            worked = self.version != version or trio.current_time() - opened_at >= LIVELY_SECONDS
            self._failures = 0 if worked else self._failures
        if not worked and not self.needs_list:
            raise UnreachableError(f"{self._path}: the watch ended as soon as it had begun")

    def _opened(self) -> None:
        """Note that changes arrive again; those that were missed come first."""
        self._up()
        self.failure = None
        self.confirmed_at = time.time()
        self._log_recovery()
        self._cache.wake()

    def _handle(self, event: Json) -> None:
        if (error := error_in(event)) is not None:
            raise error
        what, raw = event.get("type"), event.get("object")
        version = version_of(raw)
        if is_behind(version, self.version):
            raise GoneError(f"{self._path}: the watch went back from {self.version} to {version}")
        changed = self._apply(str(what), raw)
        self.version = version
        self.confirmed_at = time.time()
        if what != "BOOKMARK":
            self._cache.last_event = self.confirmed_at
        if changed:
            self._cache.changed(self)

    def _apply(self, what: str, raw: Any) -> bool:
        match what:
            case "ADDED" | "MODIFIED":
                return self.store.put(raw)
            case "DELETED":
                return self.store.remove(raw)
            case "BOOKMARK":
                return False
        raise UnreachableError(f"{self._path}: the server sends events of type {what[:40]!r}")

    async def _recover(self, error: ApiError, server: Availability) -> None:
        """Record what is wrong, and wait as long as the error asks for."""
        if isinstance(error, NotFoundError) and not self._optional:
            error = UnreachableError(f"the server has no {self.resource}: not an API server")
        # Each kind of error has its own backoff: a server that was unreachable has often forgotten its history too.
        self._failures = self._failures + 1 if type(error) is self._last_error else 1
        self._last_error = type(error)
        WATCH_RESTARTS.count(error.category)
        retry = retry_after(error, self._failures, server.chance())
        self._log_failure(retry, error)
        self._relist = self._relist or retry.relist
        self._fail(retry.failure)
        if retry.failure in (WatchFailure.MISSING, WatchFailure.REFUSED):
            # An error is still an answer: one failing kind does not mean that the server is lost.
            self._up()
            if self is self._cache.node:
                self._cache.select_without_node()
        else:
            self._down()
        self._cache.wake()
        if retry.lost:
            server.lost()
        if isinstance(error, GoneError) and self is not self._cache.node:
            # All nodes get it within a moment.
            await self._wait_for_slot(max(retry.seconds, server.chance() * self._window()))
        else:
            await trio.sleep(retry.seconds)

    def _fail(self, failure: WatchFailure | None) -> None:
        if failure is None:
            return
        if self.failure is None:
            self.failed_at = time.time()
        if failure is WatchFailure.FAILING and self.failure is not failure:
            self._failing_since, self._unlisted = trio.current_time(), not self.store.known
        self.failure = failure

    def _up(self) -> None:
        """Note that the server serves it, or says that it will not; where it was down that is worth a snapshot."""
        if self.down_since is not None:
            self._cache.edits += 1
        self.down_since = None

    def _down(self) -> None:
        """Note that changes may be missed from now on."""
        if self.down_since is None:
            self.down_since = trio.current_time()
        self._cache.wake()

    def _log_failure(self, retry: RetryDecision, error: ApiError) -> None:
        failure, text = retry.failure, summarize(error)
        if failure is None or failure is self._logged or self._quiet or isinstance(error, ThrottledError):
            log.debug("retrying a watch", resource=self.resource, failure=failure, error=text)
            return
        self._logged = failure
        fields = {"message_id": _MESSAGE_IDS[failure], "resource": self.resource, "verb": self.verb, "error": text}
        if failure is not WatchFailure.MISSING:
            in_force = "their last known state" if self.store.known else "their saved state"
            log.warning(f"the API server's objects cannot be read: {failure}", **fields, in_force=in_force)
        elif self.store.items:
            log.warning("a kind is no longer installed; its last known objects stay in force", **fields)
        else:
            log.info("a kind is not installed on the API server", **fields)

    def _log_recovery(self) -> None:
        """Log that a failure is over: with the list that of a missing kind, with the watch any other."""
        was = self._logged
        if was is WatchFailure.MISSING or (was is not None and self.verb == "watch"):
            log.info(
                "the API server's objects can be read again",
                message_id=message_ids.API_OBJECTS_READABLE,
                resource=self.resource,
                was=was,
            )
            self._logged = None
