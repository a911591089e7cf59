"""What the log and the facts say of telling the cluster: what cannot be said, once, and when it can again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from actors.lib.kube.errors import ApiError, ForbiddenError
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.logs.throttle import RepeatLimiter

log = get_logger("announce")
#: Most characters of the fact, which is one line among others.
_LENGTH = 200


@dataclass(slots=True)
class Telling:
    """Remembers what was said; a subject is one thing that may fail by itself."""

    repeats: RepeatLimiter = field(default_factory=lambda: RepeatLimiter(log))
    errors: dict[str, str] = field(default_factory=dict)

    def failing(self, subject: str, error: ApiError) -> None:
        """Say that something cannot be said."""
        # The server's one word is enough for a fact; the log has the sentence.
        self.errors[subject] = error.reason or str(error)
        self.repeats.failing(subject, f"cannot tell the cluster: {subject}: {error}", message_id=_event(error))

    def gave_up(self, what: str, error: ApiError) -> None:
        """Say that one thing is not told, though others are."""
        log.warning(f"the cluster is not told: {what}: {error}", message_id=_event(error))

    def working(self, subject: str) -> None:
        """Say that it can be said again."""
        if self.errors.pop(subject, None) is not None:
            message = f"the cluster can be told again: {subject}"
            self.repeats.recovered(subject, message, message_id=message_ids.CLUSTER_TOLD)

    def forget(self, prefix: str, present: Collection[str]) -> None:
        """Drop the subjects that begin so and are not there any more."""
        self.errors = {key: text for key, text in self.errors.items() if key in present or not key.startswith(prefix)}

    def fact(self) -> str | None:
        """Return what fails now in one line, None when nothing does."""
        if not self.errors:
            return None
        first, *more = (f"{subject}: {error}" for subject, error in self.errors.items())
        return first[:_LENGTH] + (f" (and {len(more)} more)" if more else "")


def _event(error: ApiError) -> str:
    return message_ids.API_FORBIDDEN if isinstance(error, ForbiddenError) else message_ids.CLUSTER_NOT_TOLD
