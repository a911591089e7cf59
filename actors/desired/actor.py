"""Publish one resolved state for each meaningful change of what users wrote, in files or in the API.

    StaticSnapshot, ApiSnapshot -> decide (``reconcile``) -> DesiredState; accepted snapshot -> disk

This actor keeps what was accepted last, in the channel and on disk. The files never wait for the API, and a node that
starts while the API is unreachable still has the networks of its objects. With an underlay that cannot be resolved the
state in force is published again with the new problems: a reload completes and status is right, while nothing on the
node changes.

A start that finds no usable saved snapshot does not know what the API added to the files. If the files alone would take
devices from a router that works, nothing is published: the router stays as FRR and the kernel have it until the API has
answered, or an operator lets the files decide (``openperouter reload --forget-api``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import trio

from config.api import NODE_STATUS_PLURAL, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import StaticSnapshot
from config.resolve.grants import Grants
from config.resolve.host_networks import HostNetwork
from config.settings import Settings
from config.store.api_snapshot_file import SavedSnapshot, essence
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader, wait_any

from .reconcile import Known, decide, vtep_pools, with_kept
from .snapshot_store import REFRESH_SECONDS, SnapshotStore

log = get_logger("desired")

#: Why nothing is published; the command is :mod:`supervisor.cli.verbs.node.reload`'s.
HOLDING: Final = (
    "without a usable saved API snapshot the files alone would remove networks that are in force: nothing is changed "
    "until the API answers, or until 'openperouter reload --forget-api'"
)
#: Deadline of reading the kernel's devices.
KERNEL_SECONDS: Final = 60.0
#: Deadline of reading or writing some hundred kilobytes.
DISK_SECONDS = 30.0


async def run(
    ctx: ActorContext,
    *,
    settings: Settings,
    snapshots: LatestReader[StaticSnapshot],
    api: LatestReader[ApiSnapshot],
    forget_api: LatestReader[int],
    out: Latest[DesiredState],
    removes: Callable[[DesiredState], Awaitable[bool]],
    networks: Callable[[], tuple[HostNetwork, ...]] = tuple,
    clock: Callable[[], float] = time.time,
) -> None:
    """Resolve each change; ``out`` keeps the state in force across restarts of this actor.

    Nothing is published before the files were read once; the first API snapshot is not awaited. ``forget_api`` is the
    newest reload request that forgets what the API does not say now; ``removes`` returns whether a state would
    take devices from the running router; ``networks`` reads what the machine uses, in a thread, when a range of tunnel
    endpoints is new and at each reload; ``clock`` gives Unix seconds. Raises
    :class:`~supervisor.runtime.faults.ConfigFault` when nothing is in force and the files have no usable underlay.
    """
    ctx.started()
    with ctx.idle():
        static = await snapshots.receive()
    keeper = SnapshotStore(settings.state_dir, settings.run_dir)
    with ctx.working("reading the saved API snapshot", DISK_SECONDS):
        saved = await trio.to_thread.run_sync(keeper.load, static.node.name)
    memory = saved or SavedSnapshot(static.node.name)
    known = Known(static, newest(api, memory.snapshot), memory.snapshot, memory.standing)
    if known.api is None and memory.snapshot is not None:
        log.info("starting from the saved API snapshot", objects=len(memory.snapshot.objects))
    grants = Grants.of(settings)
    while True:
        forgets = is_asked_to_forget(forget_api.peek(), known, out.peek())
        if forgets:
            known = forget(known)
        in_force = out.peek()
        # A start and a reload are compared with the host's networks in any case: they are read before the decision,
        # which then need not be made twice.
        pools = () if in_force is None else vtep_pools(in_force)
        compared = in_force is None or known.static.reload_id != in_force.reload_id
        if compared:
            known = await with_networks(ctx, known, networks)
        decision = decide(known, in_force, grants)
        if not compared and decision.state is not None and vtep_pools(decision.state) != pools:
            known = await with_networks(ctx, known, networks)
            decision = decide(known, in_force, grants)
        settled = is_complete(known.api) and (decision.state is None or decision.state.awaited is None)
        blind = out.peek() is None and saved is None and not forgets and not settled
        if not (blind and decision.state is not None and await is_held(ctx, removes, decision.state)):
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


async def with_networks(ctx: ActorContext, known: Known, networks: Callable[[], tuple[HostNetwork, ...]]) -> Known:
    """Return what is known with the networks that the machine uses now."""
    with ctx.working("reading the host's networks", KERNEL_SECONDS):
        return replace(known, networks=await trio.to_thread.run_sync(networks))


def newest(api: LatestReader[ApiSnapshot], accepted: ApiSnapshot | None) -> ApiSnapshot | None:
    """Return the API's newest snapshot, None when there is no newer one."""
    snapshot = api.take()
    return with_kept(snapshot, accepted) if snapshot is not None else None


def is_complete(api: ApiSnapshot | None) -> bool:
    """Whether a snapshot has all kinds."""
    return api is not None and not api.unlisted


def is_asked_to_forget(request: int | None, known: Known, in_force: DesiredState | None) -> bool:
    """Whether the reload that the files were read for is to forget what the API does not say now.

    What is in force has answered the requests up to its own, so a restarted actor repeats none.
    """
    return request is not None and known.static.reload_id >= request > (in_force.reload_id if in_force else 0)


def forget(known: Known) -> Known:
    """Return what is known without the objects of an API that does not answer, or of kinds that it does not list."""
    if known.api is None or not known.api.live:
        return replace(known, api=None, accepted=None)
    if is_complete(known.api):
        return known
    listed = tuple(one for one in known.api.objects if one.kind not in known.api.unlisted)
    return replace(known, api=replace(known.api, objects=listed), accepted=None)


async def is_held(ctx: ActorContext, removes: Callable[[DesiredState], Awaitable[bool]], state: DesiredState) -> bool:
    """Whether a state must not be published because it would take devices from the router; note and log it."""
    with ctx.working("comparing with the kernel", KERNEL_SECONDS):
        held = await removes(state)
    if held and "waiting_for" not in ctx.facts:
        log.warning(HOLDING, message_id=message_ids.ROUTER_KEPT)
    ctx.note(waiting_for=HOLDING if held else None)
    return held


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
        waiting_for=None,
        generation=state.generation if state else 0,
        api_objects=len(known.accepted.objects) if known.accepted else None,
        api_from_memory=True if known.api is None and known.accepted else None,
    )


def report(state: DesiredState, before: DesiredState | None) -> None:
    """Log each problem once, when it appears, and one line for a changed router."""
    known, found = dict.fromkeys(before.problems if before else ()), dict.fromkeys(state.problems)
    for problem in found:
        if problem not in known:
            log.warning(
                str(problem),
                message_id=message_ids.PROBLEM,
                kind=problem.kind,
                name=problem.name,
                reason=problem.reason,
            )
    for problem in known:
        if problem in found:
            continue
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
