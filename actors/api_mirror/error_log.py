"""Logs the mirrors' writes and failures, and objects that only look like mirrors.

A refusal that concerns many objects alike (403, no such kind) is one line, and repeated with increasing back-off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from actors.lib.kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError
from config.api import ApiObject
from config.problems import ResourceId
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter

from .planning import Change
from .writer import NameTakenError

log = get_logger("api_mirror")

#: Passes after which a conflict is no longer the ordinary one of a snapshot that is a moment behind.
PATIENCE_WITH_CONFLICTS: Final = 4
#: A server that has just started refuses what it allows a second later, once it has read its roles.
PATIENCE_WITH_REFUSALS: Final = 2
_NAMES: Final = 5
_SERVER: Final = "server"
_DONE: Final = {"create": "created", "patch": "updated", "delete": "deleted"}


@dataclass(slots=True)
class MirrorLog:
    """Remembers what was logged, so that each episode is logged once."""

    _repeats: RepeatLimiter = field(default_factory=lambda: RepeatLimiter(log, clock=trio.current_time))
    #: In how many passes each subject has failed in a row.
    _passes: Counter[str] = field(default_factory=Counter)
    _mislabelled: set[tuple[ResourceId, str]] = field(default_factory=set)
    _fights: set[ResourceId] = field(default_factory=set)
    #: Mirrors that carried another node's proof.
    _foreign: set[ResourceId] = field(default_factory=set)

    def written(self, changes: Sequence[Change]) -> None:
        """Log a pass's writes in one line."""
        counts = {done: sum(change.verb == verb for change in changes) for verb, done in _DONE.items()}
        if changes:
            shown = {done: count for done, count in counts.items() if count}
            log.info("updated the files' resources in the API", **shown, objects=_names(changes))

    def server_failed(self, error: ApiError) -> None:
        """Log that the server accepts no requests."""
        message = f"the files' resources cannot be mirrored now: {error}"
        self._repeats.failing(_SERVER, message, message_id=message_ids.MIRROR_FAILS)

    def server_answered(self) -> None:
        """Log that the server accepts requests again."""
        message = "the API server accepts mirrored resources again"
        self._repeats.recovered(_SERVER, message, message_id=message_ids.MIRROR_WORKS)

    def failed(self, failures: Iterable[tuple[Change, ApiError]]) -> None:
        """Log which changes failed in a pass, and why."""
        groups: dict[str, list[tuple[Change, ApiError]]] = {}
        for change, error in failures:
            groups.setdefault(_subject(change, error), []).append((change, error))
        for subject, group in groups.items():
            self._passes[subject] += 1
            error = group[0][1]
            if self._passes[subject] >= _patience(error):
                forbidden = isinstance(error, ForbiddenError)
                message_id = message_ids.API_FORBIDDEN if forbidden else message_ids.MIRROR_FAILS
                names = _names([change for change, _ in group])
                self._repeats.failing(subject, f"not mirrored: {error}", message_id=message_id, objects=names)

    def recovered(self, still_failing: Iterable[tuple[Change, ApiError]]) -> None:
        """Log which failures are over, given those that are not."""
        left = {_subject(change, error) for change, error in still_failing}
        for subject in sorted(self._passes.keys() - left):
            self._repeats.recovered(subject, f"mirrored again: {subject}", message_id=message_ids.MIRROR_WORKS)
            del self._passes[subject]

    def renamed(self, change: Change, error: NameTakenError) -> None:
        """Log that a mirror gets another name."""
        message = f"mirrored under a name with a digest, since its own name is taken: {error}"
        log.warning(message, message_id=message_ids.MIRROR_NAME_TAKEN, **_fields(change.id))

    def fights(self, undone: Collection[ResourceId], foreign: Collection[ResourceId] = ()) -> None:
        """Log once of each mirror that another client keeps changing it, and once when that is over."""
        self._foreign.update(foreign)
        for one in sorted(set(undone) - self._fights, key=str):
            who = "another machine that has this node's name" if one in self._foreign else "another client"
            message = f"{who} keeps changing the mirror; it is restored with increasing back-off"
            log.warning(message, message_id=message_ids.MIRROR_FIGHT, **_fields(one))
        for one in sorted(self._fights - set(undone), key=str):
            log.info(f"other clients no longer change the mirror {one}", message_id=message_ids.MIRROR_WORKS)
        self._fights = set(undone)
        self._foreign &= self._fights | set(foreign)

    def mislabelled(self, objects: Iterable[ApiObject]) -> None:
        """Log once of each object that it is labelled as a mirror but is none."""
        found = {(one.id, one.uid) for one in objects}
        for resource, _ in sorted(found - self._mislabelled, key=str):
            log.warning(
                "labelled as a mirror of this node's files, but this node did not write it: it is treated like any "
                "other object and never deleted from here; remove the label, or the object if it is a leftover",
                message_id=message_ids.MIRROR_UNSIGNED,
                **_fields(resource),
            )
        self._mislabelled = found


def _subject(change: Change, error: ApiError) -> str:
    """Return what fails: an object by itself, or all of a kind for one reason."""
    if isinstance(error, InvalidError | ConflictError):
        return str(change.id)
    return f"{change.verb} {change.id.kind}: {type(error).__name__}"


def _patience(error: ApiError) -> int:
    """Return after how many consecutive failures something is logged."""
    if isinstance(error, ConflictError):
        return PATIENCE_WITH_CONFLICTS
    return PATIENCE_WITH_REFUSALS if isinstance(error, ForbiddenError) else 1


def _fields(resource: ResourceId) -> dict[str, str]:
    return {"kind": resource.kind, "namespace": resource.namespace, "name": resource.name}


def _names(changes: Sequence[Change]) -> str:
    names = [str(change.id) for change in changes]
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")
