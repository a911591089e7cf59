"""What the status says of the API: where the way to it ends, and what the router has from it.

Being without the API is a state, not an error: the router works, and nothing that it does needs the API. Only when a
server that once answered stays away for long is there a remark, since edits in the API then reach this node no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from config.api import ApiAccess, ApiReach, ApiSnapshot
from config.desired import DesiredState
from config.status import ApiStatus

#: A server that restarts, or moves to another machine, is back within minutes.
LONG_SECONDS: Final = 300.0


def api_status(
    access: ApiAccess | None, api: ApiSnapshot | None, desired: DesiredState | None, now: float
) -> ApiStatus:
    """Return what is known at ``now`` in Unix seconds; ``desired`` tells what came from memory."""
    way = ApiStatus()
    if access is not None:
        server = access.credentials.server if access.credentials else ""
        way = ApiStatus(access.reach.value, server, access.detail, access.since)
    remembered = desired.remembered if desired else None
    if api is not None:
        return replace(
            way,
            source="server",
            live=api.live,
            objects=len(api.objects),
            mirrored=len(api.mirrored),
            not_followed=tuple(f"{one.resource} ({one.why} since {_moment(one.since)})" for one in api.doubts),
            snapshot_age_seconds=0.0 if api.live else _age(api.synced_at, now),
        )
    if remembered is not None:
        age = _age(remembered.synced_at, now)
        return replace(way, source="memory", objects=remembered.objects, snapshot_age_seconds=age)
    return way


def _age(moment: float, now: float) -> float:
    return max(0.0, round(now - moment, 1))


def api_remarks(status: ApiStatus, now: float) -> Iterator[str]:
    """Yield what somebody should know of a server that is away for long, or that does not say everything.

    The text stays the same while it is so.
    """
    for what in status.not_followed if status.live else ():
        yield f"of the API's {what} nothing new is heard: what is known of them stays in force"
    away = status.reach not in {"", ApiReach.REACHABLE}
    if status.live or now - status.since < LONG_SECONDS or not (status.server or status.source != "none"):
        return
    if away:
        why = f" ({status.detail})" if status.detail else ""
        yield f"the API server is away since {_moment(status.since)}{why}: changes there do not reach this node"
    elif status.reach:
        yield (
            f"the API server answers since {_moment(status.since)}, but its objects cannot be followed: "
            "see the actor crd_watch"
        )


def _moment(seconds: float) -> str:
    """Return a moment for people (ISO 8601, UTC)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
