"""Carries out one change against the API server.

Objects are created whole and changed by a merge patch of what differs. A replacement (PUT) would remove what a snapshot
does not contain, such as finalizers; server-side apply would leave in the spec what another client added. The patch
names the version that it was computed from, so it never overwrites a change that this node has not seen.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from actors.lib.kube.client import KubeClient
from actors.lib.kube.decoding import api_object
from actors.lib.kube.errors import ConflictError, InvalidError, NotFoundError
from config.api import API_VERSION, PLURALS, ApiObject
from config.sources.mirror_objects import in_other_form, manifest

from .planning import ABSENT, Change, another_nodes, difference, is_proven

#: The field manager of our changes (managedFields).
MANAGER: Final = "openperouter-mirror"
_MANAGED: Final = {"fieldManager": MANAGER}
_UNPROCESSABLE: Final = 422
#: What the server misses in the older form of a session.
_NEWER_FORM: Final = "localCIDRs"


class NameTakenError(ConflictError):
    """The object with the mirror's name must not be changed: it is another node's, or would have to be deleted."""


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """``answer`` is the object as the server stored it, None after a deletion.

    ``stale`` are the resource versions that a lagging watch may still show.
    """

    answer: ApiObject | None
    stale: frozenset[str]


async def carry_out(client: KubeClient, change: Change) -> WriteOutcome:
    """Make the change; what another client did already counts as done. Raises the errors of the client.

    Definitions may have the pools of a session in one of two forms, and only the server knows in which: the newer one
    is tried where the server misses it. :class:`ConflictError` means that the change was computed from an old state;
    :class:`NameTakenError` that the mirror needs another name.
    """
    try:
        return await _carry_out(client, change)
    except InvalidError as error:
        other = in_other_form(change.wanted) if change.wanted is not None else None
        if error.code != _UNPROCESSABLE or other is None or _NEWER_FORM not in str(error):
            raise
        with suppress(InvalidError):
            return await _carry_out(client, replace(change, wanted=other))
        raise


async def _carry_out(client: KubeClient, change: Change) -> WriteOutcome:
    if change.wanted is None:
        return await _delete(client, change)
    if change.observed is None:
        return await _create(client, change.wanted)
    return await _update(client, change.observed, change.wanted)


async def _delete(client: KubeClient, change: Change) -> WriteOutcome:
    if change.observed is not None:
        await _remove(client, change.observed)
    return WriteOutcome(None, frozenset({change.seen}))


async def _remove(client: KubeClient, observed: ApiObject) -> None:
    """Delete exactly this object as it was seen, unless it is gone already."""
    with suppress(NotFoundError):
        await client.delete(_path(observed), uid=observed.uid, resource_version=observed.resource_version)


async def _create(client: KubeClient, wanted: ApiObject) -> WriteOutcome:
    """Create the object, or take over one that the snapshot does not show since it selects other nodes.

    Another node's object is not taken over.
    """
    try:
        answer = await client.create(_collection(wanted), manifest(wanted), _MANAGED)
    except ConflictError:
        there = api_object(wanted.kind, await client.get(_path(wanted)))
        if not difference(there, wanted):
            return WriteOutcome(there, frozenset({ABSENT}))
        outcome = await _update(client, there, wanted)
        return WriteOutcome(outcome.answer, outcome.stale | {ABSENT})
    return WriteOutcome(api_object(wanted.kind, answer), frozenset({ABSENT}))


async def _update(client: KubeClient, observed: ApiObject, wanted: ApiObject) -> WriteOutcome:
    proven = is_proven(observed, wanted)
    if not proven and (other := another_nodes(observed, wanted)):
        raise NameTakenError(f"the object {observed.id} belongs to the node {other}")
    patch = difference(observed, wanted)
    # A version is never reused, not even by another object of that name.
    metadata = {**patch.get("metadata", {}), "resourceVersion": observed.resource_version}
    try:
        answer = await client.merge_patch(_path(wanted), {**patch, "metadata": metadata}, manager=MANAGER)
    except InvalidError as error:
        if error.code != _UNPROCESSABLE or not await _would_be_created(client, wanted):
            raise
        if not proven:
            # It may be a user's, and this node only deletes what it wrote.
            why = f"the object {observed.id}, which this node did not write, cannot be changed into the mirror"
            raise NameTakenError(f"{why}: {error}") from None
        return await _recreate(client, observed, wanted)
    return WriteOutcome(api_object(wanted.kind, answer), frozenset({observed.resource_version}))


async def _would_be_created(client: KubeClient, wanted: ApiObject) -> bool:
    """Whether the server refuses only the step from the old object to this one, not the object itself."""
    try:
        await client.create(_collection(wanted), manifest(wanted), {**_MANAGED, "dryRun": "All"})
    except ConflictError:
        # Valid: only the name is taken, by the object that will be deleted.
        return True
    except InvalidError:
        return False
    return True


async def _recreate(client: KubeClient, observed: ApiObject, wanted: ApiObject) -> WriteOutcome:
    """Delete an object that has immutable fields, and create it again."""
    await _remove(client, observed)
    answer = await client.create(_collection(wanted), manifest(wanted), _MANAGED)
    return WriteOutcome(api_object(wanted.kind, answer), frozenset({observed.resource_version, ABSENT}))


def _collection(one: ApiObject) -> str:
    return f"/apis/{API_VERSION}/namespaces/{one.namespace}/{PLURALS[one.kind]}"


def _path(one: ApiObject) -> str:
    return f"{_collection(one)}/{one.name}"
