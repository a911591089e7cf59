"""What ``openperouter status`` shows of the watching: short facts, never anything of a Secret's content."""

from __future__ import annotations

from datetime import UTC, datetime

from supervisor.runtime.actor import Fact

from .backoff import Condition
from .cache import World


def facts(world: World | None, waiting_for: str) -> dict[str, Fact]:
    """Return the facts; those that do not apply are None."""
    if world is None:
        return {"state": f"waiting for {waiting_for}"}
    objects, mirrored = world.counts()
    return {
        "state": _state(world, waiting_for),
        "objects": objects,
        "mirrored": mirrored,
        "secrets": len(world.secrets) or None,
        "not_installed": _resources(world, Condition.MISSING),
        "refused": _resources(world, Condition.REFUSED),
        "failing": _resources(world, Condition.FAILING),
        "ignored_secrets": world.ignored_secrets or None,
        "trouble": world.trouble or None,
        "last_event": None if world.last_event is None else _time(world.last_event),
    }


def _state(world: World, waiting_for: str) -> str:
    if waiting_for:
        return f"waiting for {waiting_for}"
    if not world.complete:
        return "waiting for the server" if world.trouble else "listing"
    return "reconnecting" if world.down_times else "watching"


def _resources(world: World, condition: Condition) -> str | None:
    """Return what is in a condition, with the verb that a role would have to allow; None when nothing is."""
    found = {
        track.resource if condition is Condition.MISSING else f"{track.verb} {track.resource}"
        for track in world.all_tracks()
        if track.condition is condition
    }
    return ", ".join(sorted(found)) or None


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
