"""Pings through several tenants at once, twenty a second each, and what happened when one of them was lost.

Each flow is one ``ping -D`` on the guest, so every answer has the guest's time. What the test does meanwhile is noted
with the same clock (:meth:`Traffic.note`), and a lost sequence number is reported with the notes around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from guestvm.machine import Machine
from guestvm.progress import say

from .commands import PING

#: Notes this long before a loss are named with it.
_BEFORE_SECONDS = 10.0
_ANSWER = re.compile(r"^\[(\d+\.\d+)\] \d+ bytes from .* icmp_seq=(\d+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Loss:
    """Consecutive sequence numbers of a flow without an answer, between the times of the answers before and after."""

    flow: str
    first: int
    last: int
    since: float
    until: float


@dataclass
class Traffic:
    """Flows on a node by name, each a command prefix (a namespace, or nothing) and a target; and what happened."""

    node: Machine
    flows: Mapping[str, tuple[str, str]]
    notes: list[tuple[float, str]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)

    def note(self, when: float, what: str) -> None:
        """Remember what happened at a time of the guest's clock."""
        self.notes.append((when, what))

    def begin(self) -> None:
        """Start all flows."""
        for name, (where, target) in self.flows.items():
            log = f"/run/pings-{name}"
            self.node.remote.run(f"{where} {PING} -D {target} </dev/null >{log} 2>&1 & echo $! >{log}.pid")

    def end(self) -> list[Loss]:
        """Stop all flows and return what was lost of each."""
        losses: list[Loss] = []
        for name in self.flows:
            log = f"/run/pings-{name}"
            self.node.remote.run(
                f"read pid <{log}.pid; kill -INT $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done"
            )
            losses += self._lost(name, self.node.remote.run(f"cat {log}; rm {log} {log}.pid").stdout)
        return losses

    def _lost(self, name: str, said: str) -> Iterator[Loss]:
        counts = re.search(r"(\d+) packets transmitted", said)
        assert counts is not None, said[-500:]
        self.sent[name] = sent = int(counts[1])
        answers = {int(number): float(when) for when, number in _ANSWER.findall(said)}
        assert answers, said[-500:]
        # The last one may still have been on its way.
        known = {0: min(answers.values()), **answers, sent + 1: max(answers.values())}
        for before, after in pairwise(sorted(known)):
            if after - before > 1 and before + 1 < sent:
                yield Loss(name, before + 1, after - 1, known[before], known[after])

    def describe(self, loss: Loss) -> str:
        """Return a loss with its time and what was happening then."""
        around = [
            f"    {when:.2f} ({when - loss.since:+.2f} s) {what}"
            for when, what in self.notes
            if loss.since - _BEFORE_SECONDS <= when <= loss.until
        ]
        numbers = f"{loss.first}" if loss.first == loss.last else f"{loss.first} to {loss.last}"
        title = f"{loss.flow}: ping {numbers} lost between {loss.since:.2f} and {loss.until:.2f}, while:"
        return "\n".join([title, *(around or ["    nothing happened"])])


@contextmanager
def nothing_lost(node: Machine, flows: Mapping[str, tuple[str, str]]) -> Iterator[Traffic]:
    """Keep all flows running; fail with the time and the circumstances of each ping that was not answered."""
    traffic = Traffic(node, flows)
    traffic.begin()
    try:
        yield traffic
    finally:
        losses = traffic.end()
        lost = "\n".join(traffic.describe(loss) for loss in losses)
        say(f"pings sent: {traffic.sent}; lost: {lost or 'none'}")
    assert all(sent > 100 for sent in traffic.sent.values()), traffic.sent
    assert not losses, lost
