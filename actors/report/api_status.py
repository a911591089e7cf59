"""The API's part of the status: the connection, what the router has from it, and the copies of the files there.

Being without the API is a state, not a fault: nothing that the router does needs the API. Only when a server that once
answered stays unreachable does the status remark on it, since changes made there do not reach this node. Objects that
carry this node's labels but that it did not write count like any other object, or a label would be enough to hide one;
whether they are leftovers of an earlier installation only an administrator can decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from config.api import PLURALS, STATIC_NODE_LABEL, ApiAccess, ApiObject, ApiReach, ApiSnapshot
from config.crd.conditions import timestamp
from config.desired import DesiredState
from config.outcomes import StaticSnapshot
from config.sources.mirror_objects import label_value, plain_name
from config.status import ApiStatus

#: A server that restarts, or moves to another machine, is back within minutes.
LONG_SECONDS: Final = 300.0
_NAMES: Final = 3


def api_status(
    access: ApiAccess | None, api: ApiSnapshot | None, desired: DesiredState | None, now: float
) -> ApiStatus:
    """Return what is known at ``now`` in Unix seconds; ``desired`` says what came from the saved snapshot."""
    status = ApiStatus()
    if access is not None:
        server = access.credentials.server if access.credentials else ""
        status = ApiStatus(access.reach.value, server, access.detail, access.since)
        if access.credentials is not None and access.credentials.expires_at is not None:
            status = replace(status, expires_at=access.credentials.expires_at)
    if api is not None:
        return replace(
            status,
            source="server",
            live=api.live,
            objects=len(api.objects),
            mirrored=len(api.mirrored),
            not_followed=tuple(f"{one.resource} ({one.why} since {timestamp(one.since)})" for one in api.doubts),
            snapshot_age_seconds=0.0 if api.live else _age(api.synced_at, now),
        )
    saved = desired.remembered if desired else None
    if saved is not None:
        age = _age(saved.synced_at, now)
        return replace(status, source="memory", objects=saved.objects, snapshot_age_seconds=age)
    return status


def _age(moment: float, now: float) -> float:
    return max(0.0, round(now - moment, 1))


def api_remarks(status: ApiStatus, now: float) -> Iterator[str]:
    """Yield remarks on a server that is unreachable for long, or of which some objects cannot be followed.

    A remark stays the same while its cause does.
    """
    for what in status.not_followed if status.live else ():
        yield f"no updates from the API for {what}: last known objects stay in force"
    if status.live or now - status.since < LONG_SECONDS or not (status.server or status.source != "none"):
        return
    since = timestamp(status.since)
    if status.reach not in {"", ApiReach.REACHABLE}:
        why = f" ({status.detail})" if status.detail else ""
        yield f"the API server has been unreachable since {since}{why}: changes there do not reach this node"
    elif status.reach:
        yield f"the API server has answered since {since}, but its objects cannot be watched: see the actor crd_watch"


def mirror_remarks(api: ApiSnapshot | None, files: StaticSnapshot | None) -> Iterator[str]:
    """Yield remarks on the files' copies that the last snapshot has: not this node's, or under another name."""
    if api is None or files is None:
        return
    label, known = label_value(files.node.name), {resource.id for resource in files.resources}
    foreign = [one for one in api.objects if one.labels.get(STATIC_NODE_LABEL) == label and one.id not in known]
    if foreign:
        yield (
            "labelled as copies of this node's files but not written by this node, so they are treated like any other "
            f"object: {_names(foreign)}. To remove leftovers of an earlier installation: {_command(foreign, label)} "
            "(this node writes its own copies again)"
        )
    for one in api.mirrored:
        plain = plain_name(one.name, files.node.name)
        if plain != one.name:
            yield f"{one.kind} {plain} of this node's files has the name {one.name} in the API: {plain} was taken"


def _command(objects: Sequence[ApiObject], label: str) -> str:
    namespaces = {one.namespace for one in objects}
    where = f"-n {namespaces.pop()}" if len(namespaces) == 1 else "-A"
    return f"kubectl delete {','.join(PLURALS.values())} {where} -l {STATIC_NODE_LABEL}={label}"


def _names(objects: Sequence[ApiObject]) -> str:
    names = sorted(f"{one.kind} {one.namespace}/{one.name}" for one in objects)
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")
