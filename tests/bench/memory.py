"""Memory after a thousand changes, of the daemon and FRR on a booted node.

    make bench-memory [ARGS="--networks 100 --changes 1000"]

Runs in the machine of :mod:`.guest`. Each change replaces one L3VNI by another with a name, a VNI and addresses of its
own, and is verified in FRR and the kernel before the next one. One program in the machine makes them, and files are
read at once, which takes less than a shell for each. After 300 changes most of what is bounded is full, such as the
list of events; the limit is what the daemon has more from then on. No daemon of FRR may have been restarted.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from itertools import pairwise
from pathlib import Path

from demo import topology
from guestvm.image import ensure_image
from guestvm.machine import Machine
from supervisor.logs import message_ids
from tests.guest.commands import write

from .files import l3vnis
from .guest import FILE, NAMESPACE, Node
from .stopwatch import compare

SETTINGS = Path("/etc/openperouter/conf.d/bench.yaml")
SETTLED = 301
LIMIT = 1.05
#: The daemons of FRR that know every network.
LARGE = ("zebra", "bgpd")


#: Replaces the file by each of some texts, a JSON list in another file, and waits until that is verified.
_CHANGES = f"""\
import json, os, re, subprocess, time
command = ["journalctl", "-q", "-f", "-nall", "-ocat", f"--since=@{{time.time():.6f}}"]
journal = subprocess.Popen([*command, "MESSAGE_ID={message_ids.KERNEL_CONFIGURED}"], stdout=subprocess.PIPE, text=True)
generation = 0
for text in json.load(open("/run/changes")):
    with open("{FILE}.new", "w") as file:
        file.write(text)
    os.rename("{FILE}.new", "{FILE}")
    before = generation
    while generation <= before:
        generation = int(re.search(r"generation=(\\d+)", journal.stdout.readline())[1])
journal.kill()
"""


def change(node: Node, count: int, numbers: range) -> None:
    """Make changes, each with a number of its own, one after the other."""
    write(node.machine, "/run/changes", json.dumps([l3vnis(count, number) for number in numbers]))
    node.run("python3 -", stdin=_CHANGES)


def daemons(node: Node) -> dict[str, str]:
    """Return the process ID of each daemon of FRR."""
    found = node.run(f"cd /run/frr/{NAMESPACE} && grep -H . *.pid")
    return dict(re.findall(r"^(\w+)\.pid:(\d+)$", found, re.MULTILINE))


def resident(node: Node, pid: str) -> float:
    """Return a process's resident memory, in MB."""
    [found] = re.findall(r"^VmRSS:\s+(\d+)", node.run(f"cat /proc/{pid}/status"), re.MULTILINE)
    return int(found) / 1024


def run(node: Node, count: int, changes: int) -> bool:
    """Change that often; return whether the limit was kept."""
    node.configure(l3vnis(count))
    node.until_in_force(count)
    before = daemons(node)
    seen: dict[int, float] = {}
    stops = sorted({1, SETTLED, *range(100, changes, 100), changes})
    for done, stop in pairwise((0, *stops)):
        change(node, count, range(done + 1, stop + 1))
        seen[stop] = node.memory()["VmRSS"]
        frr = ", ".join(f"{name} {resident(node, before[name]):.1f}" for name in LARGE)
        print(f"{f'after {stop} changes':<40} {seen[stop]:.1f} MB; {frr}", flush=True)
    node.until_in_force(count)
    if daemons(node) != before:
        raise AssertionError(f"FRR's daemons were {before} and are {daemons(node)}")
    return compare("after the last change, to the 301st", seen[changes] / seen[SETTLED], limit=LIMIT)


def main() -> int:
    """Boot, start the router, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--changes", type=int, default=1000)
    options = parser.parse_args()
    if options.changes <= SETTLED:
        parser.error(f"--changes: more than {SETTLED}")
    with Machine.boot(ensure_image(), memory="3G") as machine:
        topology.install(machine)
        machine.remote.run(f"mkdir -p {SETTINGS.parent}")
        write(machine, str(SETTINGS), "settleSeconds: 0\n")
        topology.start(machine)
        return 0 if run(Node(machine), options.networks, options.changes) else 1


if __name__ == "__main__":
    sys.exit(main())
