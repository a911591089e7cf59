"""Thousands of nodes that talk about one object, in simulated time.

The server is the object: its claim, its version, and the rule that a write is refused when it was made for an older
version. What is written reaches each node after a delay of its own.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from actors.lib.kube.cluster_size import Crowd
from actors.status_writer.condition_codec import Claim, conditions, confirmed
from actors.status_writer.feedback_suppression import Intent, Subject, Suppressor, Task
from actors.status_writer.object_status import Verdict
from config.api import ApiObject

from .examples import cr

GOOD = Verdict(1, good=True)
BAD = Verdict(1, False, "ValidationFailed", "vni 100 is taken")
WALL = 1_800_000_000.0


@dataclass
class Node:
    """One node: what it thinks, what it sees of the server, and how late."""

    name: str
    delay: float
    suppressor: Suppressor
    verdict: Verdict | None = None
    sees: ApiObject = field(default_factory=cr)
    alive: bool = True


@dataclass
class Cluster:
    """``writes`` are the claims that the server took, ``refused`` counts the others, ``looks`` the checks."""

    size: int
    seed: int = 1
    delays: tuple[float, float] = (0.2, 1.0)
    known_size: int | None = None
    now: float = 0.0
    stored: ApiObject = field(default_factory=cr)
    writes: list[tuple[float, Claim]] = field(default_factory=list)
    refused: int = 0
    looks: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - simulated
        self.nodes = {f"node-{i}": self._node(f"node-{i}") for i in range(self.size)}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def _node(self, name: str) -> Node:
        suppressor = Suppressor(name, Crowd(self.known_size or self.size), self.random.random)
        return Node(name, self.random.uniform(*self.delays), suppressor)

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """Plan something."""
        heapq.heappush(self._events, (moment, next(self._order), act))

    def thinks(self, name: str, verdict: Verdict, moment: float) -> None:
        """Let a node come to a verdict."""

        def think() -> None:
            self.nodes[name].verdict = verdict
            self._look(self.nodes[name])

        self.at(moment, think)

    def leaves(self, name: str, moment: float) -> None:
        """Let a node disappear."""
        self.at(moment, lambda: setattr(self.nodes[name], "alive", False))

    def new_generation(self, moment: float) -> None:
        """Let a user change the object; no node has an opinion on that yet."""

        def change() -> None:
            self._store(replace(self.stored, generation=self.stored.generation + 1))

        self.at(moment, change)

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()
        self.now = until

    def _look(self, node: Node) -> None:
        if node.verdict is None or not node.alive:
            return
        node.suppressor.look([Subject(node.sees, node.verdict)], self.now)
        due = node.suppressor.due()
        if due < float("inf"):
            self.at(due, lambda: self._act(node))

    def _act(self, node: Node) -> None:
        task = node.suppressor.next(self.now) if node.alive else None
        if task is None:
            return
        claim = self._checked(task) if task.intent is Intent.CHECK else task.claim
        if node.sees.resource_version != self.stored.resource_version:
            self.refused += 1
            node.suppressor.again(task, self.now)
        else:
            self.writes.append((self.now, claim))
            made = conditions(claim, self.stored.generation, WALL + self.now, self.stored.conditions)
            data = tuple(one.model_dump(by_alias=True) for one in made)
            self._store(replace(self.stored, conditions=data))
            node.suppressor.done(task, claim, self.now)
        self._look(node)

    def _checked(self, task: Task) -> Claim:
        self.looks += 1
        reporter = self.nodes[task.claim.node]
        still = reporter.alive and reporter.verdict is not None and not reporter.verdict.good
        return confirmed(task.claim, WALL + self.now) if still else Claim(failing=False, node="whoever")

    def _store(self, stored: ApiObject) -> None:
        self.stored = replace(stored, resource_version=str(int(stored.resource_version) + 1))
        for node in self.nodes.values():
            self.at(self.now + node.delay, lambda node=node, stored=self.stored: self._show(node, stored))  # type: ignore[misc]

    def _show(self, node: Node, stored: ApiObject) -> None:
        node.sees = stored
        self._look(node)
