"""Memory after a thousand changes, of the daemon with a real FRR and kernel.

    make bench-memory [ARGS="--networks 20 --changes 1000"]

Runs in the machine of ``tests/harness/uml/run.py``. Each change replaces one network by another with a name, a VNI and
addresses of its own, and is verified before the next one. After 300 changes all that is bounded is full, such as the
list of events; the limit is what is more from then on. No daemon of FRR may have died.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from tests.router.node import Network, Node, Tenant, running_node

from .stopwatch import compare

SETTLED = 301
LIMIT = 1.05
#: Addresses of tenants have one byte for their numbers.
NUMBERS = 250


def network(change: int, count: int) -> Network:
    """Return the networks after a number of changes: the first ones are gone, and as many are new."""
    numbers = range(change, change + count)
    return Network(tuple(Tenant(number % NUMBERS + 1, f"c{number}", 1000 + number) for number in numbers))


def resident(node: Node) -> float:
    """Return the daemon's resident memory, in MB."""
    [found] = re.findall(r"^VmRSS:\s+(\d+)", Path(f"/proc/{node.pid}/status").read_text(), re.MULTILINE)
    return int(found) / 1024


def run(node: Node, count: int, changes: int) -> bool:
    """Change that often; return whether the limit was kept."""
    node.write(network(0, count))
    node.start()
    node.signal_reload(network(0, count))
    daemons = node.pids()
    seen: dict[int, float] = {}
    for change in range(1, changes + 1):
        node.signal_reload(network(change, count))
        if change in (1, SETTLED, changes) or change % 100 == 0:
            seen[change] = resident(node)
            print(f"{f'after {change} changes':<40} {seen[change]:.1f} MB", flush=True)
    if node.pids() != daemons:
        raise AssertionError("a daemon of FRR died")
    return compare("after the last change, to the 301st", seen[changes] / seen[SETTLED], limit=LIMIT)


def main() -> int:
    """Measure on a node of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--changes", type=int, default=1000)
    options = parser.parse_args()
    if options.changes <= SETTLED:
        parser.error(f"--changes: more than {SETTLED}")
    with tempfile.TemporaryDirectory() as directory, running_node(Path(directory)) as node:
        return 0 if run(node, options.networks, options.changes) else 1


if __name__ == "__main__":
    sys.exit(main())
