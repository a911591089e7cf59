"""What changed on the node, as a bounded list of events: for ``openperouter events`` over the control socket.

    status -> changes(status before, status) -> events in a ring, numbered -> control socket

The journal has the same and more, for as long as it keeps it; this list is for an operator during a change. Events are
differences of two statuses, so no actor has to report them; what appears and disappears between two of them is in none.
The daemon keeps the newest :data:`MOST_EVENTS` since its start, each of a bounded length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

import trio

from config.outcomes import NOT_CHECKED, SessionHealth
from config.problems import Severity
from config.status import Status

#: Adding five hundred networks makes a thousand.
MOST_EVENTS: Final = 2000
#: Longest text of an event, in characters; a problem may quote a file.
LONGEST: Final = 400

Level = Literal["info", "warning"]


@dataclass(frozen=True, slots=True)
class Event:
    """One change, at a time in Unix seconds: the topic, its subject, and the new state. No member has a secret."""

    at: float
    topic: str
    subject: str
    message: str
    level: Level = "info"

    def to_data(self, number: int) -> dict[str, object]:
        """Return it for JSON, with its number."""
        return {
            "number": number,
            "at": self.at,
            "topic": self.topic,
            "subject": self.subject,
            "message": self.message,
            "level": self.level,
        }


class EventLog:
    """The newest events. It outlives the actor that fills it, and keeps the last status that it compared."""

    def __init__(self, most: int = MOST_EVENTS) -> None:
        self._events: deque[Event] = deque(maxlen=most)
        self._status: Status | None = None
        self._added = trio.Event()
        #: Number of the newest event; the first is 1.
        self.last = 0

    @property
    def first(self) -> int:
        """Number of the oldest event that is kept."""
        return self.last - len(self._events) + 1

    @property
    def instance(self) -> str:
        """The daemon's run to which the numbers belong; empty before the first status."""
        return f"{self._status.boot_id}/{self._status.pid}" if self._status else ""

    def observe(self, status: Status) -> None:
        """Add the changes of a status, and wake waiting readers."""
        found = list(changes(self._status, status))
        self._status = status
        self._events.extend(found)
        self.last += len(found)
        if found:
            added, self._added = self._added, trio.Event()
            added.set()

    def after(self, number: int) -> list[tuple[int, Event]]:
        """Return the kept events after a number, with their numbers."""
        start = min(max(number + 1, self.first), self.last + 1)
        return list(enumerate(islice(self._events, start - self.first, None), start))

    async def wait(self, number: int) -> None:
        """Wait until there is an event after a number."""
        while self.last <= number:
            await self._added.wait()


def changes(before: Status | None, after: Status) -> Iterator[Event]:
    """Yield what differs between two statuses, in causal order: configuration, router, failures."""
    if before is None:
        before = Status(version=after.version)
        yield Event(after.updated_at, "daemon", "openperouter", f"version {after.version} runs with pid {after.pid}")
    for topic, subject, message, level in _differences(before, after):
        text = message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"
        yield Event(after.updated_at, topic, subject, text, level)


_Difference = tuple[str, str, str, Level]


def _differences(before: Status, after: Status) -> Iterator[_Difference]:
    yield from _reloads(before, after)
    yield from _compared("problem", _problems(before), _problems(after))
    yield from _generations(before, after)
    yield from _compared("interface", _interfaces(before), _interfaces(after))
    yield from _compared("FRR", _daemons(before), _daemons(after))
    yield from _compared("session", _sessions(before), _sessions(after))
    yield from _compared("VNI", _vnis(before), _vnis(after))
    yield from _compared("failure", _failures(before), _failures(after))
    yield from _compared("note", dict.fromkeys(before.notes, _NOTE), dict.fromkeys(after.notes, _NOTE))
    yield from _actors(before, after)
    if before.api.reach != after.api.reach and after.api.reach:
        detail = f": {after.api.detail}" if after.api.detail else ""
        yield (
            "api",
            after.api.server or "API server",
            f"{after.api.reach}{detail}",
            _level(after.api.reach != "refused"),
        )
    if (before.phase, before.ready) != (after.phase, after.ready):
        yield "router", after.node or "this node", after.summary or after.phase, _level(after.phase != "degraded")


def _reloads(before: Status, after: Status) -> Iterator[_Difference]:
    old, new = before.reload, after.reload
    if new.requested > old.requested:
        yield "reload", f"request {new.requested}", "the files are read again", "info"
    if new.failed > old.failed:
        yield "reload", f"request {new.failed}", f"failed: {new.reason}", "warning"
    if new.verified > old.verified:
        yield "reload", f"request {new.verified}", "in force and verified", "info"


def _generations(before: Status, after: Status) -> Iterator[_Difference]:
    stages = (
        ("desired", "new desired state"),
        ("frr", "applied to FRR"),
        ("kernel", "applied to the kernel"),
        ("verified", "verified"),
    )
    for stage, text in stages:
        old, new = getattr(before.generations, stage), getattr(after.generations, stage)
        if new > old:
            yield "configuration", f"generation {new}", text, "info"


def _actors(before: Status, after: Status) -> Iterator[_Difference]:
    known = {actor.name: actor.restarts for actor in before.actors}
    for actor in after.actors:
        if actor.restarts > known.get(actor.name, 0):
            yield "actor", actor.name, f"restarted: {actor.last_error or 'no reason known'}", "warning"


#: The name of a thing, what it is now, and whether that is good; without a text its key is the text.
_State = tuple[str, str, Level]
_NOTE: Final[_State] = ("router", "", "warning")


def _compared(topic: str, before: Mapping[Hashable, _State], after: Mapping[Hashable, _State]) -> Iterator[_Difference]:
    for key, state in after.items():
        if before.get(key) != state:
            subject, message, level = state
            yield topic, subject, message or str(key), level
    for key, (subject, message, _) in before.items():
        if key not in after:
            gone = "removed" if topic not in _RESOLVED else f"resolved: {message or key}"
            yield topic, subject, gone, "info"


#: Topics whose things are faults: their end is good news.
_RESOLVED: Final = frozenset({"problem", "failure", "note"})


def _problems(status: Status) -> dict[Hashable, _State]:
    found: dict[Hashable, _State] = {}
    for problem in status.problems:
        subject = str(problem.resource) if problem.resource else str(problem.origin)
        found[str(problem)] = subject, str(problem), _level(problem.severity is not Severity.ERROR)
    return found


def _failures(status: Status) -> dict[Hashable, _State]:
    # What is wrong with a VNI is in its own state.
    vnis = {vni.resource for vni in status.vnis}
    failures = [one for one in status.failures if one.resource not in vnis]
    return {str(one.resource): (str(one.resource), one.message, "warning") for one in failures}


def _interfaces(status: Status) -> dict[Hashable, _State]:
    interfaces = status.underlay.interfaces if status.underlay else ()
    return {one.name: (one.name, "up" if one.up else one.detail or "down", _level(one.up)) for one in interfaces}


def _daemons(status: Status) -> dict[Hashable, _State]:
    return {name: (name, "runs" if up else "does not run", _level(up)) for name, up in status.daemons.items()}


def _sessions(status: Status) -> dict[Hashable, _State]:
    return {(one.vrf, one.peer): (one.display_name, *_session_state(one)) for one in status.sessions}


def _session_state(session: SessionHealth) -> tuple[str, Level]:
    """Return whether a session is up: FRR's other states follow one another while it tries."""
    if session.up or session.is_range:
        return session.state, "info"
    return f"down{f': {session.detail}' if session.detail else ''}", "warning"


def _vnis(status: Status) -> dict[Hashable, _State]:
    found: dict[Hashable, _State] = {}
    for one in status.vnis:
        name = f"{one.resource}, VNI {one.vni}"
        if one.detail == NOT_CHECKED:
            found[str(one.resource)] = name, "added, not checked yet", "info"
        else:
            found[str(one.resource)] = name, "works" if one.ok else f"does not work: {one.detail}", _level(one.ok)
    return found


def _level(good: bool) -> Level:
    return "info" if good else "warning"
