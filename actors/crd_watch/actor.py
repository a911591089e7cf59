"""Follow the API server, and publish what it says about this node.

The actor itself only chooses whom to follow: which server with which credentials, as which node. Other credentials for
the same server take up the streams where the old ones left them; another server or another name is another world, and
what was published stays until the new one is complete. See :mod:`.session` for how a server is followed,
:mod:`.streams` for what can go wrong, :mod:`.world` for what is known and when it is complete, :mod:`.settling` for
when it is told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.mirror_signature import mirror_key
from config.api import ApiAccess, ApiCredentials, ApiSnapshot
from config.outcomes import StaticSnapshot
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader, wait_any
from supervisor.runtime.faults import DependencyFault

from .cache import World
from .last_labels import remembered_labels
from .publishing import Publisher
from .session import Connect, follow_server


@dataclass(frozen=True, slots=True)
class Aim:
    """Whom to follow, as far as it is known."""

    credentials: ApiCredentials | None = None
    name: str = ""

    @property
    def lacking(self) -> str:
        """Return what it takes to follow anybody, "" when nothing does."""
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
    """Follow indefinitely. Raises :class:`DependencyFault` where the key to this node's own objects cannot be had."""
    key = _key(settings)
    changes: Latest[None] = Latest("crd_watch.changes")
    publisher = Publisher(ctx, out, changes)
    world: World | None = None
    aim = _next_aim(Aim(), access, snapshots)
    ctx.started()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publisher.run)
        while True:
            world = _world_for(aim, world, settings, key, changes)
            publisher.follow(world, aim.lacking)
            async with trio.open_nursery() as following:
                if world is not None and aim.credentials is not None and aim.name:
                    following.start_soon(follow_server, world, aim.credentials, connect, changes)
                aim = await _other_aim(aim, access, snapshots)
                following.cancel_scope.cancel()


def _key(settings: Settings) -> bytes:
    try:
        return mirror_key(settings.state_dir)
    except OSError as error:
        raise DependencyFault(f"the key to this node's own objects cannot be had: {error}") from error


def _world_for(aim: Aim, before: World | None, settings: Settings, key: bytes, changes: Latest[None]) -> World | None:
    """Return the world to fill: the one before, also while credentials are lacking, unless the aim is another."""
    if aim.credentials is None or not aim.name:
        return before
    if before is not None and (before.server, before.name) == (aim.credentials.server, aim.name):
        return before
    remembered = partial(remembered_labels, settings.state_dir, aim.name)
    return World(aim.credentials.server, aim.name, settings.namespace, key, changes, remembered=remembered)


async def _other_aim(aim: Aim, access: LatestReader[ApiAccess], snapshots: LatestReader[StaticSnapshot]) -> Aim:
    """Wait until somebody else is to be followed."""
    while (new := _next_aim(aim, access, snapshots)) == aim:
        await wait_any(access, snapshots)
    return new


def _next_aim(aim: Aim, access: LatestReader[ApiAccess], snapshots: LatestReader[StaticSnapshot]) -> Aim:
    """Return the aim with what has become known since."""
    way, static = access.take(), snapshots.take()
    if way is not None:
        # When they end does not matter to who uses them now.
        aim = replace(aim, credentials=way.credentials and replace(way.credentials, expires_at=None))
    return replace(aim, name=static.node.name) if static is not None else aim
