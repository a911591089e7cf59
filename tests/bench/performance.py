"""What this program costs by itself, in one table: its CPU on this machine, and the kernel's part in User-Mode Linux.

    make bench [NETWORKS=500]

Parts, each a process of its own, so that none inherits another's caches:

``files``   CPU of each stage of a start with that many L3VNIs in one file, none of which touches kernel or FRR
``links``   CPU of an observation of that many networks' devices, in network namespaces of this machine; and how long
            trio's loop stands still while 1,000 links are dumped, created and deleted in a thread
``life``    CPU of a restart and of a minute at rest, and memory after 1,000 changes, of the whole daemon on fakes
``kernel``  seconds from 0 to 100 L3VNIs with host sessions, one more, half of them less, in User-Mode Linux; the
            baseline is ``ip -batch`` with the same devices, addresses and routes in the same machine

A figure that has a limit says so. Absolute times depend on the machine and on what else it does; ratios do not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Namespaces and /run/netns of the process alone: what is made there disappears with it.
_PRIVATE = ("unshare", "--net", "--mount", "sh", "-c")
_PREPARE = "mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip link set lo up && exec"


def parts(networks: int) -> dict[str, list[str]]:
    """Return the command of each part by its name."""
    here, size = f"{sys.executable} -m", f"--networks {networks}"
    uml = f"{sys.executable} tests/harness/uml/run.py --timeout 900 --tree"
    return {
        "files": ["sh", "-c", f"{here} tests.bench.files {size}"],
        "links": [*_PRIVATE, f"{_PREPARE} {here} tests.bench.links {size}"],
        "life": ["sh", "-c", f"{here} tests.bench.life"],
        "kernel": ["sh", "-c", f'exec {uml} "$({here} guestvm tree)" -- python3 -m tests.bench.kernel'],
    }


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=500)
    parser.add_argument("parts", nargs="*", help="of files, links, life, kernel; all without any")
    options = parser.parse_args()
    commands, status = parts(options.networks), 0
    for name in options.parts or commands:
        print(f"== {name}", flush=True)
        done = subprocess.run(commands[name], check=False, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"})
        status = status or done.returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
