"""Who says what of an object that thousands of nodes know: most of them nothing, because it has been said.

Every node watches the objects that select it, so it sees what the conditions on them claim. It wants to speak only when
the claim is not what it would say itself:

    nothing claimed, or "good"    a node where the object fails wants to say so, after a wait
    nothing claimed               a node where it is in force waits for those that may have bad news, then says "good"
    "failing", by this node       when it is in force now, it takes that back after a while
    "failing", by another node    a node where it is in force leaves that alone, and after a long time looks whether
                                  that other node still says so in its own status; a claim that nobody stands for is
                                  replaced, one that is still true is confirmed, which spares the others the looking

The waits are drawn so that few are short (:mod:`.waiting`), and a node that hears the others is silent. A claim that
changes again and again is changed ever more slowly, by everybody, since everybody sees it change. Of the mirrors of its
own files no other node says anything, but all have such: those wait for their turn
(:mod:`actors.lib.kube.cluster_size`).

Pure: it is given the time and chance, and sends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from actors.lib.kube.cluster_size import Crowd
from config.api import ApiObject
from config.problems import ResourceId

from .condition_codec import Claim, claim_of, failing
from .object_status import Verdict
from .timers import Window, window_for

#: How long something is in force again before the node takes its own claim back, seconds.
CLEAR_SECONDS: Final = 10.0
#: How long another text for the same failure waits, seconds: the gist is there.
REPHRASE_SECONDS: Final = 60.0
#: After how long another node's claim is checked, seconds, and the longest that doubling leads to.
CHECK_SECONDS: Final = 600.0
LONGEST_CHECK_SECONDS: Final = 3600.0
#: Changes of a claim on one generation that are nothing unusual; each further one doubles the waits, up to the factor.
USUAL_CHANGES: Final = 3
LONGEST_FACTOR: Final = 64.0
#: After so many quiet seconds an object's restless past is forgotten.
FORGET_SECONDS: Final = 7200.0
#: Spread of waits that only one node has.
_JITTER: Final = 0.2


class Intent(Enum):
    """What a node wants to do about a claim."""

    NOTHING = auto()
    SAY_FAILING = auto()
    SAY_GOOD = auto()
    CLEAR = auto()
    REPHRASE = auto()
    CHECK = auto()


@dataclass(frozen=True, slots=True)
class Subject:
    """An object as it is on the server and this node's verdict on it. ``own``: no other node has to do with it."""

    object: ApiObject
    verdict: Verdict
    own: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What is due now. ``claim`` is what to write, for a check: the claim to look into."""

    subject: Subject
    intent: Intent
    claim: Claim


@dataclass(slots=True)
class _Topic:
    """One generation of one object. ``basis`` is what the wait was drawn for."""

    heard: Claim | None = None
    changes: int = 0
    changed_at: float = -math.inf
    confirmations: int = 0
    basis: tuple[object, ...] = ()
    due: float = math.inf
    written: tuple[str, Claim] | None = None
    task: Task | None = None
    read: tuple[str, Claim | None] = ("", None)

    def claim(self, one: ApiObject) -> Claim | None:
        """Return what is claimed of the object, which is read once for each of its versions."""
        if self.written is not None and self.written[0] == one.resource_version:
            return self.written[1]
        if not one.resource_version or self.read[0] != one.resource_version:
            self.read = (one.resource_version, claim_of(one))
        return self.read[1]


_Key = tuple[ResourceId, str, int]


def intent(verdict: Verdict, generation: int, heard: Claim | None, node: str) -> Intent:
    """Return what a node wants to do, given its verdict on the object's present generation and what is claimed."""
    if verdict.good is None or verdict.generation != generation:
        return Intent.NOTHING
    if verdict.good:
        if heard is None:
            return Intent.SAY_GOOD
        if not heard.failing:
            return Intent.NOTHING
        return Intent.CLEAR if heard.node == node else Intent.CHECK
    if heard is None or not heard.failing:
        return Intent.SAY_FAILING
    changed = heard.node == node and not heard.same(failing(node, verdict.reason, verdict.message))
    return Intent.REPHRASE if changed else Intent.NOTHING


class Suppressor:
    """One node's side of it. ``chance`` returns a random number in [0, 1); times are seconds of one clock."""

    def __init__(self, node: str, crowd: Crowd, chance: Callable[[], float]) -> None:
        self.node = node
        self._crowd = crowd
        self._chance = chance
        self._topics: dict[_Key, _Topic] = {}
        self._own = 0

    def look(self, subjects: Iterable[Subject], now: float) -> None:
        """Take in everything as it is now."""
        before, self._topics = self._topics, {}
        subjects = tuple(subjects)
        self._own = sum(subject.own for subject in subjects)
        for subject in subjects:
            one = subject.object
            key = (one.id, one.uid, one.generation)
            topic = before.get(key) or _Topic()
            self._topics[key] = topic
            self._hear(topic, subject, now)

    def due(self) -> float:
        """Return when something is to be done; infinity: not unless something changes."""
        return min((topic.due for topic in self._topics.values()), default=math.inf)

    def next(self, now: float) -> Task | None:
        """Return what has been due for longest. It stays due until one of the following methods is called with it."""
        topic = min(self._topics.values(), key=lambda topic: topic.due, default=None)
        return topic.task if topic is not None and topic.due <= now else None

    def done(self, task: Task, claim: Claim, now: float) -> None:
        """Note that the server took a claim; until it shows, this is what is claimed."""
        topic = self._topic(task)
        if topic is not None:
            topic.written = (task.subject.object.resource_version, claim)
            self._hear(topic, task.subject, now)

    def again(self, task: Task, now: float, seconds: float | None = None) -> None:
        """Put a task off: it came to nothing, because others write at the same time, or for so many seconds."""
        topic = self._topic(task)
        if topic is not None:
            wait = self._wait(topic, task.subject, task.intent) if seconds is None else seconds
            topic.due = now + max(1.0, wait)

    def _topic(self, task: Task) -> _Topic | None:
        one = task.subject.object
        return self._topics.get((one.id, one.uid, one.generation))

    def _hear(self, topic: _Topic, subject: Subject, now: float) -> None:
        one = subject.object
        claim = topic.claim(one)
        self._remember(topic, claim, now)
        wanted = intent(subject.verdict, one.generation, claim, self.node)
        # A wait that has begun goes on, unless there is something else to wait for, or the cluster is of another size.
        basis = (wanted, claim if wanted is Intent.CHECK else None, self._crowd.nodes)
        if basis != topic.basis:
            topic.basis = basis
            topic.due = now + self._wait(topic, subject, wanted)
        topic.task = _task(subject, wanted, claim, self.node)

    def _remember(self, topic: _Topic, claim: Claim | None, now: float) -> None:
        """Count how often what is claimed has changed."""
        if now - topic.changed_at > FORGET_SECONDS:
            topic.changes = topic.confirmations = 0
        if claim == topic.heard or claim is None:
            return
        if topic.heard is not None and claim.same(topic.heard):
            topic.confirmations += 1
        else:
            topic.changes += 1
            topic.confirmations = 0
        topic.heard, topic.changed_at = claim, now

    def _wait(self, topic: _Topic, subject: Subject, wanted: Intent) -> float:
        """Return how long this intent waits, in seconds: of an own object until it is this node's turn as well."""
        turn = self._crowd.spread_watched(self._chance(), self._own) if subject.own else 0.0
        return turn + self._wait_for_others(topic, subject, wanted)

    def _wait_for_others(self, topic: _Topic, subject: Subject, wanted: Intent) -> float:
        factor = min(LONGEST_FACTOR, 2.0 ** max(0, topic.changes - USUAL_CHANGES))
        window = window_for(1 if subject.own else self._crowd.nodes).stretched(factor)
        if wanted is Intent.SAY_FAILING:
            return window.draw(self._chance())
        if wanted is Intent.SAY_GOOD:
            return window.seconds + window.draw(self._chance())
        if wanted is Intent.CHECK:
            return self._check_wait(topic, window)
        alone = {Intent.CLEAR: CLEAR_SECONDS, Intent.REPHRASE: REPHRASE_SECONDS}.get(wanted, math.inf)
        return alone * factor * (1.0 + _JITTER * self._chance())

    def _check_wait(self, topic: _Topic, window: Window) -> float:
        first = min(LONGEST_CHECK_SECONDS, CHECK_SECONDS * 2.0 ** min(topic.confirmations, 10))
        return first + Window(first, window.steepness).draw(self._chance())


def _task(subject: Subject, wanted: Intent, heard: Claim | None, node: str) -> Task | None:
    if wanted is Intent.NOTHING:
        return None
    if wanted in (Intent.SAY_GOOD, Intent.CLEAR):
        return Task(subject, wanted, Claim(failing=False, node=node))
    if wanted is Intent.CHECK:
        return Task(subject, wanted, heard) if heard else None
    return Task(subject, wanted, failing(node, subject.verdict.reason, subject.verdict.message))
