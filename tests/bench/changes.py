"""Pings that a change costs: this program, and the procedure that upstream documents for its own (a baseline).

    make bench-changes

Runs in the machine of ``tests/harness/uml/run.py``: a whole node with FRR, a leaf with FRR in the fabric, bird as the
host's speaker, and twenty pings a second through each of three tenants. Each change goes there and back, by
:mod:`.documented_procedure` and then by this program, each on a fresh node with the same fabric and the same host.
These two begin to follow the change when it begins, so that it does not matter when a router reports that it is done.

Lost are the packets of the tenants that the change concerns, until all of them forward again, and those of the others.
The limit: the others lose nothing with this program, and the concerned ones less than with the baseline in sum, and
with no change more.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.router.node import Network, Node, pings, running_node
from tests.router.test_histories import BASE, CHANGES

from .documented_procedure import DocumentedProcedure, NotAppliedError

#: A field that upstream does not have.
OURS_ALONE = frozenset({"host's VRF"})
Apply = Callable[[Network], None]


@dataclass
class Cost:
    """Packets that a change cost, there and back; ``trouble`` is why there is no figure.

    ``longest`` is a concerned tenant's longest time between two replies, in seconds.
    """

    concerned: int = 0
    others: int = 0
    longest: float = 0.0
    trouble: str = ""

    def __str__(self) -> str:
        return self.trouble or f"{self.concerned} / {self.others} ({self.longest:.1f} s)"


@dataclass
class Way:
    """One way of applying changes, and what each has cost."""

    name: str
    costs: dict[str, Cost] = field(default_factory=dict)


@contextmanager
def ours(directory: Path) -> Iterator[tuple[Node, Apply]]:
    """A node with this program."""
    with running_node(directory) as node:
        node.write(BASE)
        node.start()
        node.apply(BASE)
        yield node, node.signal_reload


@contextmanager
def documented(directory: Path) -> Iterator[tuple[Node, Apply]]:
    """A node to which the documented procedure is applied."""
    with running_node(directory) as node:
        procedure = DocumentedProcedure(node)

        def apply(network: Network) -> None:
            node.expect(network)
            procedure.apply(network)

        apply(BASE)
        node.follow(BASE)
        node.forwards()
        yield node, apply


def measure(node: Node, apply: Apply, network: Network, concerned: set[int], cost: Cost) -> None:
    """Apply a network under traffic and add what it cost."""
    daemons, before = node.pids(), node.network
    with ExitStack() as stack:
        running = {tenant: stack.enter_context(pings(tenant)) for tenant in before.tenants}
        with ThreadPoolExecutor() as aside:
            following = aside.submit(node.follow, network)
            apply(network)
            following.result()
        node.forwards()
    for tenant, result in running.items():
        # A tenant that is removed has nothing to lose.
        if tenant.number not in {other.number for other in network.tenants}:
            continue
        if tenant.number in concerned:
            cost.concerned += result.lost
            cost.longest = max([cost.longest, *(after - before for before, after, _ in result.gaps)])
        else:
            cost.others += result.lost
    if node.pids() != daemons:
        raise NotAppliedError("a daemon of FRR died")


def run(way: Way, begin: Callable[[Path], AbstractContextManager[tuple[Node, Apply]]], name: str) -> None:
    """Measure a change in one way, on a fresh node."""
    try:
        with tempfile.TemporaryDirectory() as directory, begin(Path(directory)) as (node, apply):
            measured(way, node, apply, name)
    except AssertionError as error:
        # A daemon of FRR that died is found at the node's end as well.
        if name not in way.costs:
            raise
        print(f"{way.name}: {error}", flush=True)


def measured(way: Way, node: Node, apply: Apply, name: str) -> None:
    """Measure one change there and back."""
    change, concerned = CHANGES[name]
    cost = way.costs[name] = Cost()
    try:
        measure(node, apply, change(BASE), concerned, cost)
        measure(node, apply, BASE, concerned, cost)
    except (NotAppliedError, AssertionError) as error:
        cost.trouble = "did not forward again"
        print(f"{way.name}, {name}: {error}"[:1500], flush=True)
    print(f"{way.name:<12} {name:<20} {cost}", flush=True)


def table(here: Way, there: Way) -> bool:
    """Print both ways side by side; return whether the limits are kept."""
    print(f"\n{'lost: concerned / others (longest)':<36} {here.name:>24} {there.name:>24}   concerned, ratio")
    for name, cost in here.costs.items():
        other = there.costs[name]
        ratio = f"{cost.concerned / other.concerned:.2f}" if other.concerned and not other.trouble else "-"
        print(f"{name:<36} {cost!s:>24} {other!s:>24}   {ratio}")
    comparable = [name for name, cost in there.costs.items() if not cost.trouble]
    sums = [sum(way.costs[name].concerned for name in comparable) for way in (here, there)]
    others = [sum(cost.others for cost in way.costs.values()) for way in (here, there)]
    print(f"{'all that both can do':<36} {sums[0]:>24} {sums[1]:>24}   {sums[0] / max(1, sums[1]):.2f}")
    print(f"{'lost by tenants not concerned':<36} {others[0]:>24} {others[1]:>24}")
    worse = [name for name in comparable if here.costs[name].concerned > there.costs[name].concerned]
    if worse:
        print(f"more than the documented procedure: {', '.join(worse)}")
    fewer = sums[0] < sums[1] or not any(sums)
    return not any(cost.trouble for cost in here.costs.values()) and others[0] == 0 and not worse and fewer


def main() -> int:
    """Measure both ways; arguments select changes by parts of their names."""
    wanted = sys.argv[1:] or [""]
    names = [name for name in CHANGES if name not in OURS_ALONE and any(part in name for part in wanted)]
    here, there = Way("openperouter"), Way("documented")
    # One after the other, since the machine's load changes.
    for name in names:
        run(there, documented, name)
        run(here, ours, name)
    return 0 if table(here, there) else 1


if __name__ == "__main__":
    sys.exit(main())
