"""Follow the API server, and publish what it has for this node.

    credentials, node name ──> WatchTarget ──> Cache of Reflectors ──> Publisher (debounced) ──> ApiSnapshot
                                                   └── Availability: one probe per connection

The actor chooses what to follow: which server with which credentials, as which node. With other credentials for the
same server the reflectors continue where they were; another server, name or index gets a new cache, and what was
published stays until that is complete. Per connection it runs an :class:`.Availability`, which holds the reflectors
back while the server cannot be used, and one :class:`.Reflector` per collection. See
:mod:`actors.lib.kube.reflector` for what can go wrong with each, :mod:`.cache` for what is complete, :mod:`.debounce`
for when it is published.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

import trio

from actors.lib.kube.availability import Availability
from actors.lib.kube.client import KubeClient
from actors.lib.kube.mirror_signature import mirror_key
from actors.lib.kube.reflector import Reflector
from config.api import ApiAccess, ApiCredentials, ApiSnapshot
from config.outcomes import StaticSnapshot
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader, wait_any
from supervisor.runtime.faults import DependencyFault

from .cache import Cache
from .debounce import Publisher
from .saved_labels import SavedLabels

Connect = Callable[[ApiCredentials], KubeClient]


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """What to follow, as far as it is known."""

    credentials: ApiCredentials | None = None
    name: str = ""
    index: int = 0

    @property
    def missing(self) -> str:
        """Return what is missing to follow it, "" for nothing."""
        if self.credentials is None:
            return "credentials"
        return "" if self.name else "the node's name"


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    access: LatestReader[ApiAccess],
    snapshots: LatestReader[StaticSnapshot],
    out: Latest[ApiSnapshot],
    connect: Connect = KubeClient,
) -> None:
    """Follow indefinitely. Raises :class:`DependencyFault` where the mirror key is unavailable."""
    try:
        key = mirror_key(settings.state_dir)
    except OSError as error:
        raise DependencyFault(f"the key that signs this node's objects is unavailable: {error}") from error
    changes: Latest[None] = Latest("crd_watch.changes")
    publisher = Publisher(ctx, out, changes)
    cache: Cache | None = None
    target = _next_target(WatchTarget(), access, snapshots)
    ctx.started()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publisher.run)
        while True:
            cache = _cache_for(target, cache, settings, key, changes)
            publisher.follow(cache, target.missing)
            async with trio.open_nursery() as following:
                if cache is not None:
                    following.start_soon(cache.saved_labels.write_changes, ctx)
                if cache is not None and target.credentials is not None and target.name:
                    secrets = partial(_follow_secrets, cache, changes)
                    following.start_soon(cache.follow, target.credentials, connect, _poll_size(cache), secrets)
                target = await _other_target(target, access, snapshots)
                following.cancel_scope.cancel()


def _cache_for(
    target: WatchTarget, before: Cache | None, settings: Settings, key: bytes, changes: Latest[None]
) -> Cache | None:
    """Return the cache to fill: the one before, also while credentials are missing, unless the target is another."""
    if target.credentials is None or not target.name:
        return before
    wanted = (target.credentials.server, target.name, target.index)
    if before is not None and (before.server, before.name, before.index) == wanted:
        return before
    return Cache(
        target.credentials.server,
        target.name,
        settings.namespace,
        index=target.index,
        key=key,
        changes=changes,
        saved_labels=SavedLabels(settings.state_dir, target.name),
    )


async def _other_target(
    target: WatchTarget, access: LatestReader[ApiAccess], snapshots: LatestReader[StaticSnapshot]
) -> WatchTarget:
    """Wait until something else is to be followed."""
    while (new := _next_target(target, access, snapshots)) == target:
        await wait_any(access, snapshots)
    return new


def _next_target(
    target: WatchTarget, access: LatestReader[ApiAccess], snapshots: LatestReader[StaticSnapshot]
) -> WatchTarget:
    """Return the target with what has become known since."""
    new, static = access.take(), snapshots.take()
    if new is not None:
        # When they expire does not matter to a user of them.
        target = replace(target, credentials=new.credentials and replace(new.credentials, expires_at=None))
    return replace(target, name=static.node.name, index=static.node.index) if static is not None else target


def _poll_size(cache: Cache) -> Callable[[Availability], Awaitable[None]]:
    return lambda server: cache.cluster_size.keep_polling(server.client, cache.namespace, server.wait)


async def _follow_secrets(cache: Cache, changes: Latest[None], server: Availability) -> None:
    """Keep a reflector running for each Secret that is referred to at the moment."""
    reader = changes.reader()
    running: dict[Reflector, trio.CancelScope] = {}
    async with trio.open_nursery() as nursery:
        while True:
            wanted = set(cache.secrets.values())
            for reflector in running.keys() - wanted:
                running.pop(reflector).cancel()
            for reflector in wanted - running.keys():
                running[reflector] = trio.CancelScope()
                nursery.start_soon(_run_in, running[reflector], reflector, server)
            await reader.receive()


async def _run_in(scope: trio.CancelScope, reflector: Reflector, server: Availability) -> None:
    with scope:
        await reflector.run(server)
