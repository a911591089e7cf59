"""Thousands of episodes hold the invariants; an episode can be repeated; a fault in the program makes some fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from actors.netlink import converge
from actors.netlink.planning.observed import Namespace
from actors.netlink.planning.plan import plan
from actors.netlink.planning.steps import ChangeLink, CreateLink, DeleteLinks, Plan
from actors.netlink.state_files import StateFiles
from config.desired import DesiredState
from config.outcomes import FrrOutcome
from supervisor import wiring
from supervisor.runtime.channel import Latest

from . import simulation
from .episode import FAMILY, draw
from .invariants import BYSTANDER
from .simulation import Result, run, run_many
from .world import new_kernel

#: The same seeds on each run: a failure is about the change. ``make soak`` looks for new ones.
EPISODES = int(os.environ.get("SIMULATION_EPISODES", "2000"))
BLOCK = 5 * FAMILY
#: A busy machine may take long; no single episode hangs, since its clock is virtual.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a program with a planted fault and the right one apart."""
    monkeypatch.setattr(simulation, "_known", {})


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


def failing(seeds: Iterable[int]) -> list[Result]:
    """Return the first few episodes that fail."""
    found = []
    for result in run_many(seeds):
        found += [result] * bool(result.violations)
        if len(found) == 2:
            break
    return found


def violations(results: Iterable[Result]) -> str:
    return "\n".join(line for result in results for line in result.violations)


def test_a_planner_that_forgets_deletions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(*arguments: Any) -> Plan:
        found = plan(*arguments)
        return replace(found, steps=tuple(step for step in found.steps if not isinstance(step, DeleteLinks)))

    monkeypatch.setattr(converge, "plan", forgetful)
    assert "2: kernel: " in violations(failing(range(60)))


def test_a_planner_that_makes_everything_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(*arguments: Any) -> Plan:
        found = plan(*arguments)
        created = {(step.wanted.namespace, step.wanted.name) for step in found.steps if isinstance(step, CreateLink)}
        again, exists = DeleteLinks(Namespace.ROUTER, ("vni100",)), "vni100" in arguments[1].router.links
        return replace(found, steps=(again, *found.steps)) if exists and created - BYSTANDER else found

    monkeypatch.setattr(converge, "plan", eager)
    assert "1, 4: the untouched tenant's" in violations(failing(range(60)))


def test_a_planner_that_leaves_a_bridge_without_its_vrf_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(*arguments: Any) -> Plan:
        found = plan(*arguments)
        kept = (step for step in found.steps if not (isinstance(step, ChangeLink) and step.name == "br-pe-100"))
        return replace(found, steps=tuple(kept))

    monkeypatch.setattr(converge, "plan", careless)
    assert "the untouched tenant's L3VNI red does not work" in violations(failing(range(60)))


def test_a_kernel_that_does_not_wait_for_frr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(Latest[DesiredState]):
        frr: Latest[FrrOutcome]

        def set(self, value: DesiredState) -> None:
            super().set(value)
            self.frr.set(FrrOutcome(value, applied=True))

    class Open:
        """A lock that does not lock."""

        async def acquire(self) -> None:
            await trio.lowlevel.checkpoint()

        def release(self) -> None:
            return

        def statistics(self) -> Any:
            return SimpleNamespace(tasks_waiting=0)

    original = wiring.Channels

    def channels() -> wiring.Channels:
        hasty, made = Hasty("desired"), original()
        hasty.frr = made.frr
        return replace(made, desired=hasty)

    monkeypatch.setattr(wiring, "Channels", channels)
    monkeypatch.setattr(wiring, "trio", SimpleNamespace(Lock=Open))
    assert "before FRR" in violations(failing(range(60)))


def test_a_journal_that_is_not_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateFiles, "save_nic", lambda self, record: None)
    assert "the journal on disk does not have its addresses" in violations(failing(range(20)))


def test_the_episodes_contain_what_the_daemon_must_survive() -> None:
    drawn = [event.what for seed in range(400) for event in draw(seed).history]
    assert {what.name for what in drawn} == {what.name for what in type(drawn[0])}


def test_a_new_world_has_nothing_of_the_bystander() -> None:
    assert not BYSTANDER & new_kernel().links.keys()
