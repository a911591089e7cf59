"""Everything that goes on over one set of credentials: a client, its gate, and a stream for each track."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import UnreachableError
from config.api import ApiCredentials
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.channel import Latest
from supervisor.runtime.faults import summarize

from .availability import Gate
from .cache import World
from .reflector import Stream
from .watch_state import Track

log = get_logger("crd_watch")

Connect = Callable[[ApiCredentials], KubeClient]


async def follow_server(
    world: World,
    credentials: ApiCredentials,
    connect: Connect,
    changes: Latest[None],
    chance: Callable[[], float] = random.random,
) -> None:
    """Fill the world until cancelled. ``changes`` is set whenever the world has changed."""
    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(connect(credentials))
        except UnreachableError as error:
            # Only other credentials can help, and they come by cancelling this.
            stack.callback(_tell, world, "")
            _tell(world, summarize(error))
            log.warning(
                "the API server's credentials are not usable",
                message_id=message_ids.API_CREDENTIALS_UNUSABLE,
                error=summarize(error),
            )
            await trio.sleep_forever()
            return
        gate = Gate(
            client, tell=partial(_tell, world), lost=partial(_cut, world), returned=world.node.doubt, chance=chance
        )
        stack.callback(_tell, world, "")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gate.keep)
            nursery.start_soon(world.cluster_size.keep_polling, client, world.namespace, gate.passage)
            for track in world.tracks:
                nursery.start_soon(Stream(track, world, client, gate, chance).run)
            await _follow_secrets(world, changes, lambda track: Stream(track, world, client, gate, chance))


async def _follow_secrets(world: World, changes: Latest[None], stream: Callable[[Track], Stream]) -> None:
    """Keep a stream running for each Secret that is referred to at the moment."""
    reader = changes.reader()
    running: dict[Track, trio.CancelScope] = {}
    async with trio.open_nursery() as nursery:
        while True:
            wanted = set(world.secrets.values())
            for track in running.keys() - wanted:
                running.pop(track).cancel()
            for track in wanted - running.keys():
                running[track] = trio.CancelScope()
                nursery.start_soon(_run_in, running[track], stream(track))
            await reader.receive()


async def _run_in(scope: trio.CancelScope, stream: Stream) -> None:
    with scope:
        await stream.run()


def _tell(world: World, trouble: str) -> None:
    world.trouble = trouble
    world.stir()


def _cut(world: World) -> None:
    """End the watches that have not noticed that the server is away.

    One over a connection that died without a word would notice it minutes later, and would go on looking well.
    """
    for track in world.all_tracks():
        track.interrupt()
