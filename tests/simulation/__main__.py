"""Runs episodes from the command line: ``python3 -m tests.simulation [--seed N] [--soak] [--first N] [--processes N]``.

One seed prints the episode, its trace and the judgement. A soak runs new seeds until it is stopped, and prints each
episode that fails. The exit code is 1 when something failed.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import signal
import sys
import time

from .episode import draw
from .simulation import failures, run

#: Seeds that one process takes at a time; a multiple of the size of a family.
BLOCK = 40


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this episode and print everything that happens")
    parser.add_argument("--first", type=int, help="the first seed of a soak (default: from the clock)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        return one(options.seed)
    # A shell starts what it runs in the background with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    first = options.first if options.first is not None else int(time.time()) * BLOCK
    try:
        return soak(first, options.processes)
    except KeyboardInterrupt:
        return 0


def one(seed: int) -> int:
    """Run one episode and print its trace."""
    result = run(draw(seed))
    print("\n".join(result.trace))
    print(f"{result}\ndigest {result.digest}: {'failed' if result.violations else 'passed'}")
    return 1 if result.violations else 0


def soak(first: int, processes: int) -> int:
    """Run episodes until interrupted; print those that fail, and how many there were."""
    begun, done, failed = time.monotonic(), 0, 0
    print(f"seeds from {first} on, {processes} processes; Ctrl-C ends it", flush=True)
    blocks = (range(seed, seed + BLOCK) for seed in itertools.count(first, BLOCK))
    # A spawned process cannot import from this module.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for results in pool.imap_unordered(failures, blocks):
            done += BLOCK
            failed += len(results)
            for result in results:
                print(f"{result}\n  make simulate SEED={result.episode.seed}", flush=True)
            rate = done / (time.monotonic() - begun)
            print(f"{done} episodes, {failed} failed, {rate:.1f} a second", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
