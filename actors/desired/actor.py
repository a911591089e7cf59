"""Publish one resolved state for each meaningful change of what users wrote, in files or in the API.

    StaticSnapshot, ApiSnapshot -> decide (``reconcile``) -> DesiredState; accepted snapshot -> disk

This actor keeps what was accepted last, in the channel and on disk. The files never wait for the API, and a node that
starts while the API is unreachable still has the networks of its objects. With an underlay that cannot be resolved the
state in force is published again with the new problems: a reload completes and status is right, while nothing on the
node changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import trio

from config.api import NODE_STATUS_PLURAL, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import StaticSnapshot
from config.problems import Problem
from config.settings import Settings
from config.store.api_snapshot_file import SavedSnapshot, essence
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader, wait_any

from .reconcile import Known, decide, with_kept
from .snapshot_store import REFRESH_SECONDS, SnapshotStore

log = get_logger("desired")

#: Deadline of reading or writing some hundred kilobytes.
DISK_SECONDS = 30.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    snapshots: LatestReader[StaticSnapshot],
    api: LatestReader[ApiSnapshot],
    out: Latest[DesiredState],
    clock: Callable[[], float] = time.time,
) -> None:
    """Resolve each change; ``out`` keeps the state in force across restarts of this actor.

    Nothing is published before the files were read once; the first API snapshot is not awaited. ``clock`` gives Unix
    seconds. Raises :class:`~supervisor.runtime.faults.ConfigFault` when nothing is in force and the files have no
    usable underlay.
    """
    ctx.started()
    with ctx.idle():
        static = await snapshots.receive()
    keeper = SnapshotStore(settings.state_dir)
    with ctx.working("reading the saved API snapshot", DISK_SECONDS):
        memory = await trio.to_thread.run_sync(keeper.load, static.node.name)
    known = Known(static, newest(api, memory.snapshot), memory.snapshot, memory.standing)
    if known.api is None and memory.snapshot is not None:
        log.info("starting from the saved API snapshot", objects=len(memory.snapshot.objects))
    while True:
        decision = decide(known, out.peek(), settings.namespace)
        if decision.state is not None:
            report(decision.state, out.peek())
            out.set(decision.state)
        known = replace(known, accepted=decision.accepted, standing=decision.standing)
        note(ctx, known, out.peek())
        await keep(ctx, keeper, known, clock)
        with ctx.idle(), trio.move_on_after(REFRESH_SECONDS if is_followed(known) else math.inf):
            await wait_any(snapshots, api)
        static = snapshots.take() or known.static
        known = replace(known, static=static, api=newest(api, known.accepted) or known.api)


def newest(api: LatestReader[ApiSnapshot], accepted: ApiSnapshot | None) -> ApiSnapshot | None:
    """Return the API's newest snapshot, None when there is no newer one."""
    snapshot = api.take()
    return with_kept(snapshot, accepted) if snapshot is not None else None


def is_followed(known: Known) -> bool:
    """Whether what was accepted last is all of what the server has at this moment."""
    if known.api is None or not known.api.live or known.accepted is not known.api:
        return False
    return all(one.resource == NODE_STATUS_PLURAL for one in known.api.doubts)


async def keep(ctx: ActorContext, keeper: SnapshotStore, known: Known, clock: Callable[[], float]) -> None:
    """Save what was accepted, if it has changed."""
    snapshot = essence(known.accepted) if known.accepted else None
    if snapshot is not None and is_followed(known):
        snapshot = replace(snapshot, synced_at=clock())
    memory = SavedSnapshot(known.static.node.name, snapshot, known.standing)
    if keeper.is_due(memory, live=is_followed(known)):
        with ctx.working("saving the API snapshot", DISK_SECONDS):
            await trio.to_thread.run_sync(keeper.write, memory)


def note(ctx: ActorContext, known: Known, state: DesiredState | None) -> None:
    """Show in the status what the state is based on."""
    ctx.note(
        generation=state.generation if state else 0,
        api_objects=len(known.accepted.objects) if known.accepted else None,
        api_from_memory=True if known.api is None and known.accepted else None,
    )


def report(state: DesiredState, before: DesiredState | None) -> None:
    """Log each problem once, when it appears, and one line for a changed router."""
    known: set[Problem] = set(before.problems) if before else set()
    for problem in state.problems:
        if problem not in known:
            log.warning(
                str(problem),
                message_id=message_ids.PROBLEM,
                kind=problem.kind,
                name=problem.name,
                reason=problem.reason,
            )
    for problem in known.difference(state.problems):
        log.info("problem resolved", origin=problem.origin, field=problem.field, kind=problem.kind, name=problem.name)
    if before is None or state.content() != before.content():
        log.info(
            "new desired state",
            message_id=message_ids.NEW_STATE,
            generation=state.generation,
            underlay=state.underlay.resource.display_name if state.underlay else "none",
            l3vnis=len(state.l3vnis),
            l2vnis=len(state.l2vnis),
            passthrough=state.passthrough is not None,
        )
