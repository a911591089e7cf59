"""Writes the conditions of the users' objects, only where they differ from what the object has.

Every node's watch receives each write, so writes must be few. While thousands of nodes process one change, the count on
the object changes all the time: it is written after a second without change, or 5 s after the first one, at growing
intervals; "all nodes are ready" is written after a second. A rate limit covers all objects together (:mod:`.writer`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import InvalidError, NotFoundError
from config.api import API_VERSION, PLURALS
from config.crd.conditions import Condition
from config.problems import Kind
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger

from .aggregation import Aggregation, Verdict
from .cluster_state import ClusterObject, ObjectKey, conditions_of

log = get_logger("conditions")

#: The field manager of everything that the controller writes.
MANAGER: Final = "openperouter-controller"
QUIET_SECONDS: Final = 1.0
CEILING_SECONDS: Final = 5.0
#: The minimum interval between the first two writes, and how often it doubles.
GAP_SECONDS: Final = 1.0
MOST_ROUNDS: Final = 5
#: After this time without a write the interval is the first one again.
FORGET_SECONDS: Final = 120.0
#: Objects that are aggregated between two checkpoints: with 5 000 nodes one object takes a millisecond.
BATCH: Final = 20


@dataclass(slots=True)
class Pace:
    """When to write one object. Times in seconds of one clock."""

    first: float = math.inf
    last: float = -math.inf
    final: bool = False
    rounds: int = 0
    written_at: float = -math.inf

    def differs(self, now: float, *, final: bool) -> None:
        """Record that the conditions to write have changed; ``final``: no further change is expected."""
        self.first, self.last, self.final = min(self.first, now), now, final
        if now - self.written_at >= FORGET_SECONDS:
            self.rounds = 0

    def agrees(self) -> None:
        """Record that there is nothing to write."""
        self.first = math.inf

    def due(self) -> float:
        """Return when to write."""
        earliest = -math.inf if self.final else self.written_at + GAP_SECONDS * 2.0**self.rounds
        return max(earliest, min(self.last + QUIET_SECONDS, self.first + CEILING_SECONDS))

    def written(self, now: float) -> None:
        """Record a write."""
        self.rounds = min(self.rounds + 1, MOST_ROUNDS)
        self.first, self.written_at = math.inf, now


@dataclass(frozen=True, slots=True)
class _Answer:
    """The server's answer to a write; ``before`` is the object as it was known then."""

    before: ClusterObject
    verdict: Verdict
    shown: tuple[Condition, ...]


class ConditionWriter:
    """``wall`` is the clock in Unix seconds. Times are seconds of trio's clock."""

    def __init__(self, aggregation: Aggregation, wall: Callable[[], float]) -> None:
        self._aggregation, self._wall = aggregation, wall
        self._stale: set[ObjectKey] = set()
        self._wanted: dict[ObjectKey, Verdict] = {}
        self._paces: dict[ObjectKey, Pace] = {}
        self._answers: dict[ObjectKey, _Answer] = {}

    def changed(self, keys: Iterable[ObjectKey]) -> None:
        """Mark objects that have to be compared again."""
        self._stale.update(keys)
        objects = self._aggregation.state.objects
        for key in [key for key in self._paces if key not in objects]:
            del self._paces[key]
            self._wanted.pop(key, None)
            self._answers.pop(key, None)

    async def compare(self) -> None:
        """Compare them, in batches."""
        while self._stale:
            now = trio.current_time()
            for _ in range(min(BATCH, len(self._stale))):
                self._compare(self._stale.pop(), now)
            await trio.lowlevel.checkpoint()

    def due(self) -> float:
        """Return when to write the next one."""
        return min((self._paces[key].due() for key in self._wanted), default=math.inf)

    async def write(self, client: KubeClient, now: float) -> None:
        """Write the conditions of the object that is due first. Raises the errors of the client."""
        key = min(self._wanted, key=lambda key: self._paces[key].due())
        verdict, one = self._wanted.pop(key), self._aggregation.state.objects[key]
        self._paces[key].written(now)
        shown = replace(one, conditions=self._shown(one))
        conditions = [each.model_dump(mode="json", by_alias=True) for each in verdict.conditions(shown, self._wall())]
        body = {
            "apiVersion": API_VERSION,
            "kind": key.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": one.uid},
            "status": {"conditions": conditions},
        }
        # Compared again: a write that did not reach the server is repeated.
        self._stale.add(key)
        try:
            answer = conditions_of(await client.apply(f"{path_of(key)}/status", body, manager=MANAGER))
        except NotFoundError:
            log.debug("an object was deleted before its conditions were written", object=str(key))
            answer = shown.conditions
        except InvalidError as error:
            log.warning(f"the conditions of {key} are refused: {error}", message_id=message_ids.CONTROLLER_FAILS)
            answer = shown.conditions
        self._answers[key] = _Answer(one, verdict, answer)

    def _compare(self, key: ObjectKey, now: float) -> None:
        one = self._aggregation.state.objects.get(key)
        if one is None:
            return
        verdict = self._aggregation.verdict(key)
        if self._is_shown(one, verdict):
            self._wanted.pop(key, None)
            self._paces.setdefault(key, Pace()).agrees()
        elif self._wanted.get(key) != verdict:
            self._wanted[key] = verdict
            self._paces.setdefault(key, Pace()).differs(now, final=verdict.ready is True)

    def _is_shown(self, one: ClusterObject, verdict: Verdict) -> bool:
        shown, answer = self._shown(one), self._answers.get(one.key)
        if verdict.is_shown(replace(one, conditions=shown)):
            return True
        # The server has answered exactly this write: a definition without conditions drops them every time.
        same = answer is not None and answer.before.generation == one.generation and answer.verdict == verdict
        return same and answer is not None and answer.shown == shown

    def _shown(self, one: ClusterObject) -> tuple[Condition, ...]:
        """Return the object's conditions: those of the last answer until the watch delivers a newer object."""
        answer = self._answers.get(one.key)
        return answer.shown if answer is not None and answer.before is one else one.conditions


def path_of(key: ObjectKey) -> str:
    """Return the path of an object."""
    return f"/apis/{API_VERSION}/namespaces/{key.namespace}/{PLURALS[Kind(key.kind)]}/{key.name}"
