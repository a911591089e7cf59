"""What has changed of one session or VNI lately: those of the daemon's events that are about it.

    control socket -> past events -> history of a session, or of a VNI and its sessions -> text or JSON

The daemon keeps the newest events since its start (``supervisor.events``), and this is a selection of them: it needs a
daemon that runs. The journal has the same for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from config.outcomes import SessionHealth

from ..control_client import NoAnswerError, ask
from ..paths import CONTROL_SOCKET
from .details import SessionDetails, VniDetails

#: Changes of one session or VNI that are shown, the newest.
MOST_CHANGES: Final = 10


@dataclass(frozen=True, slots=True)
class PastEvent:
    """A change, as the daemon's control socket has it (``supervisor.events``); ``at`` in Unix seconds."""

    number: int
    at: float
    topic: str
    subject: str
    message: str
    is_warning: bool

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> PastEvent:
        """Read an answer; raise ``KeyError``, ``TypeError`` or ``ValueError`` for an unknown one."""
        topic, subject, message = (str(answer[name]) for name in ("topic", "subject", "message"))
        return cls(int(answer["number"]), float(answer["at"]), topic, subject, message, answer["level"] == "warning")

    @property
    def text(self) -> str:
        """The message, with its subject unless it names that itself."""
        return self.message if self.subject in self.message else f"{self.subject}: {self.message}"


@dataclass(frozen=True, slots=True)
class History:
    """The newest changes, oldest first; ``older`` counts those before them, ``last_error`` is the newest of all faults.

    A fault may be over: what is wrong now is in the details.
    """

    changes: tuple[PastEvent, ...] = ()
    older: int = 0
    last_error: PastEvent | None = None

    def to_data(self) -> dict[str, object]:
        """Return it for JSON."""
        error = asdict(self.last_error) if self.last_error else None
        return {"last_error": error, "history": [asdict(one) for one in self.changes], "older_changes": self.older}


def past_events(directory: Path) -> list[PastEvent]:
    """Return the daemon's events, oldest first; ``directory`` is its runtime directory.

    Raises the errors of :func:`ask`, and :class:`NoAnswerError` for a malformed answer.
    """
    found = []
    for answer in ask(directory / CONTROL_SOCKET, {"verb": "events"}):
        if isinstance(answer, dict) and "events" in answer:
            continue
        try:
            found.append(PastEvent.of(answer))
        except (KeyError, TypeError, ValueError):
            raise NoAnswerError(f"the daemon's answer is not an event: {answer}") from None
    return found


def session_history(details: SessionDetails, events: Iterable[PastEvent]) -> History:
    """Return a session's history."""
    return _selected(events, _is_of(details.session))


def vni_history(details: VniDetails, events: Iterable[PastEvent]) -> History:
    """Return a VNI's history: its states by whatever number it had, its problems, and its sessions with the host."""
    name = str(details.resource)
    sessions = [_is_of(one.session) for one in details.sessions]

    def is_of_it(event: PastEvent) -> bool:
        own = event.topic == "VNI" and event.subject.startswith(f"{name}, VNI ")
        wrong = event.topic in ("problem", "failure") and event.subject == name
        return own or wrong or any(matches(event) for matches in sessions)

    return _selected(events, is_of_it)


def _is_of(session: SessionHealth) -> Callable[[PastEvent], bool]:
    name = session.display_name
    return lambda event: event.topic == "session" and event.subject == name


def _selected(events: Iterable[PastEvent], matches: Callable[[PastEvent], bool]) -> History:
    found = [event for event in events if matches(event)]
    shown = tuple(found[-MOST_CHANGES:])
    error = next((event for event in reversed(found) if event.is_warning), None)
    return History(shown, len(found) - len(shown), error)
