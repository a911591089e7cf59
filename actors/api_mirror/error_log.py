"""What the log says of mirroring: what was written, what cannot be, and what only looks like a mirror.

A refusal that concerns many objects alike (403, no such kind) is told once, and again at growing distance while it
lasts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from actors.lib.kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError
from config.api import ApiObject
from config.problems import ResourceId
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter

from .planning import Change
from .writer import NameTakenError

log = get_logger("mirror")

#: Passes after which a conflict is no longer the ordinary one of a snapshot that is a moment behind.
PATIENCE_WITH_CONFLICTS: Final = 4
#: A server that has just started refuses what it allows a second later, once it has read its roles.
PATIENCE_WITH_REFUSALS: Final = 2
_NAMES: Final = 5
_SERVER: Final = "server"
_DONE: Final = {"create": "created", "patch": "updated", "delete": "deleted"}


@dataclass(slots=True)
class Telling:
    """Remembers what was said."""

    repeats: RepeatLimiter = field(default_factory=lambda: RepeatLimiter(log))
    #: In how many passes each subject has failed in a row.
    passes: Counter[str] = field(default_factory=Counter)
    strangers: set[tuple[ResourceId, str]] = field(default_factory=set)
    fought_over: set[ResourceId] = field(default_factory=set)
    #: Mirrors that were seen with somebody else's proof.
    rivals: set[ResourceId] = field(default_factory=set)

    def written(self, changes: Sequence[Change]) -> None:
        """Say in one line what a pass wrote."""
        counts = {word: sum(change.verb == verb for change in changes) for verb, word in _DONE.items()}
        shown = {word: count for word, count in counts.items() if count}
        if shown:
            log.info("updated the files' resources in the API", **shown, objects=_names(changes))

    def server_failed(self, error: ApiError) -> None:
        """Say that the server takes nothing at all."""
        message = f"the files' resources cannot be mirrored now: {error}"
        self.repeats.failing(_SERVER, message, message_id=message_ids.MIRROR_FAILS)

    def server_answered(self) -> None:
        """Say that it does again."""
        message = "the API server takes mirrored resources again"
        self.repeats.recovered(_SERVER, message, message_id=message_ids.MIRROR_WORKS)

    def failed(self, failures: Iterable[tuple[Change, ApiError]]) -> None:
        """Say which changes failed in a pass, and why."""
        groups: dict[str, list[tuple[Change, ApiError]]] = {}
        for change, error in failures:
            groups.setdefault(_subject(change, error), []).append((change, error))
        for subject, group in groups.items():
            self.passes[subject] += 1
            error = group[0][1]
            if self.passes[subject] >= _patience(error):
                names = _names([change for change, _ in group])
                self.repeats.failing(subject, f"not mirrored: {error}", message_id=_event(error), objects=names)

    def recovered(self, still_failing: Iterable[tuple[Change, ApiError]]) -> None:
        """Say which failures are over, given those that are not."""
        left = {_subject(change, error) for change, error in still_failing}
        for subject in sorted(self.passes.keys() - left):
            self.repeats.recovered(subject, f"mirrored again: {subject}", message_id=message_ids.MIRROR_WORKS)
            del self.passes[subject]

    def gave_way(self, change: Change, error: NameTakenError) -> None:
        """Say that a mirror gets another name."""
        log.warning(
            f"not mirrored under its own name, but with a digest in it: {error}",
            message_id=message_ids.MIRROR_NAME_TAKEN,
            kind=change.id.kind,
            namespace=change.id.namespace,
            name=change.id.name,
        )

    def see_fights(self, undone: Collection[ResourceId], rivals: Collection[ResourceId] = ()) -> None:
        """Say once of each mirror that somebody keeps undoing what is written, and when that is over."""
        self.rivals.update(rivals)
        for one in sorted(set(undone) - self.fought_over, key=str):
            who = "another machine that has this node's name" if one in self.rivals else "somebody"
            log.warning(
                f"{who} keeps changing the mirror; it is put back ever more slowly",
                message_id=message_ids.MIRROR_FIGHT,
                kind=one.kind,
                namespace=one.namespace,
                name=one.name,
            )
        for one in sorted(self.fought_over - set(undone), key=str):
            log.info(f"nobody changes the mirror {one} any more", message_id=message_ids.MIRROR_WORKS)
        self.fought_over = set(undone)
        self.rivals &= self.fought_over | set(rivals)

    def see_strangers(self, strangers: Iterable[ApiObject]) -> None:
        """Say once of each object that its label claims what is not so."""
        found = {(stranger.id, stranger.uid): stranger for stranger in strangers}
        for key in found.keys() - self.strangers:
            log.warning(
                "labelled as a mirror of this node's files, but this node did not write it: it counts as any other "
                "object and is never deleted from here; remove the label, or the object if it is a leftover",
                message_id=message_ids.MIRROR_STRANGER,
                kind=key[0].kind,
                namespace=key[0].namespace,
                name=key[0].name,
            )
        self.strangers = set(found)


def _subject(change: Change, error: ApiError) -> str:
    """Return what is failing: an object by itself, or all of a kind for one reason."""
    if isinstance(error, InvalidError | ConflictError):
        return str(change.id)
    return f"{change.verb} {change.id.kind}: {type(error).__name__}"


def _event(error: ApiError) -> str:
    return message_ids.API_FORBIDDEN if isinstance(error, ForbiddenError) else message_ids.MIRROR_FAILS


def _patience(error: ApiError) -> int:
    """Return in how many passes in a row something must fail to be worth a word."""
    if isinstance(error, ConflictError):
        return PATIENCE_WITH_CONFLICTS
    return PATIENCE_WITH_REFUSALS if isinstance(error, ForbiddenError) else 1


def _names(changes: Sequence[Change]) -> str:
    names = [str(change.id) for change in changes]
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")
