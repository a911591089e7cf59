"""Thousands of episodes hold the invariants, and an episode can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .episode import FAMILY, draw
from .invariants import BYSTANDER
from .simulation import run, run_many
from .world import new_kernel

#: The same seeds on each run: a failure is about the change. ``make soak`` looks for new ones.
EPISODES = int(os.environ.get("SIMULATION_EPISODES", "2000"))
BLOCK = 5 * FAMILY
#: A busy machine may take long; no single episode hangs, since its clock is virtual.
pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("first", range(0, EPISODES, BLOCK))
def test_episodes(first: int) -> None:
    failed = [result for result in run_many(range(first, first + BLOCK)) if result.violations]
    repeat = "".join(f"\nmake simulate SEED={result.episode.seed}" for result in failed)
    assert not failed, "\n".join(map(str, failed)) + repeat


@pytest.mark.parametrize("seed", [1, 10, 33, 77])
def test_the_same_seed_is_the_same_episode(seed: int) -> None:
    first, again = run(draw(seed)), run(draw(seed))
    assert first.trace == again.trace
    assert first.digest == again.digest


DIGESTS = """
import sys
from tests.simulation.episode import draw
from tests.simulation.simulation import run
print(*(run(draw(int(seed))).digest for seed in sys.argv[1:]))
"""


def test_the_same_seed_is_the_same_episode_in_each_process() -> None:
    """Whatever the hashes of strings, addresses of objects, directories and the time of day are there."""
    command = [sys.executable, "-c", DIGESTS, "24", "40", "42", "43", "44", "45", "46", "47"]
    digests = [
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True
        ).stdout.split()
        for hashes in ("0", "1")
    ]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == len(command) - 3


def test_the_episodes_contain_what_the_daemon_must_survive() -> None:
    drawn = [event.what for seed in range(400) for event in draw(seed).history]
    assert {what.name for what in drawn} == {what.name for what in type(drawn[0])}


def test_a_new_world_has_nothing_of_the_bystander() -> None:
    assert not BYSTANDER & new_kernel().links.keys()
