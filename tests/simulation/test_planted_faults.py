"""Each fault that is planted into the program is found within a few episodes, by the invariant that is about it.

A simulation that finds nothing may be blind: a fault that an operator met and no episode showed gets a line here, and
then the history, the fake or the invariant that was missing.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from actors.frr import actor as frr_actor
from actors.frr import apply
from actors.netlink import actor as netlink_actor
from actors.netlink import converge
from actors.netlink.planning.observed import Namespace
from actors.netlink.planning.plan import plan
from actors.netlink.planning.steps import (
    AddAddress,
    ChangeLink,
    CreateLink,
    DeleteLinks,
    MoveLink,
    Plan,
    RemoveAddress,
    Step,
)
from actors.netlink.state_files import StateFiles
from config.desired import DesiredState
from config.outcomes import FrrOutcome
from config.sources import static_files
from config.sources.router_file import FileContent
from supervisor import wiring
from supervisor.process import atomic_file
from supervisor.runtime.channel import Latest
from supervisor.runtime.restart_policy import Backoff
from tests.fakes.kernel import FakeKernel

from . import simulation
from .invariants import BYSTANDER
from .simulation import run_many

#: So many episodes from the first one on have to be enough.
EPISODES = 8
pytestmark = pytest.mark.timeout(600)

Plant = Callable[[pytest.MonkeyPatch], None]


def planner(change: Callable[[Plan, Any], Iterable[Step]]) -> Plant:
    """Return a fault: the steps of each plan are changed; ``change`` gets the plan and what was observed."""

    def planted(*arguments: Any) -> Plan:
        found = plan(*arguments)
        return replace(found, steps=tuple(change(found, arguments[1])))

    return lambda patch: patch.setattr(converge, "plan", planted)


def without(*kinds: type[Step]) -> Plant:
    """Return a planner that forgets steps of some kinds."""
    return planner(lambda found, _: (step for step in found.steps if not isinstance(step, kinds)))


def remakes_the_bystander(found: Plan, observed: Any) -> Iterable[Step]:
    created = {(step.wanted.namespace, step.wanted.name) for step in found.steps if isinstance(step, CreateLink)}
    again, exists = DeleteLinks(Namespace.ROUTER, ("vni100",)), "vni100" in observed.router.links
    return (again, *found.steps) if exists and created - BYSTANDER else found.steps


def leaves_a_bridge_without_its_vrf(found: Plan, _: Any) -> Iterable[Step]:
    return (step for step in found.steps if not (isinstance(step, ChangeLink) and step.name == "br-pe-100"))


def deletes_nics(found: Plan, _: Any) -> Iterable[Step]:
    """Delete a NIC that should go back: a virtual one goes."""
    for step in found.steps:
        goes_back = isinstance(step, MoveLink) and step.target is Namespace.HOST
        yield DeleteLinks(Namespace.ROUTER, (step.name,)) if goes_back and isinstance(step, MoveLink) else step


def leaves_addresses_of_returned_nics(found: Plan, _: Any) -> Iterable[Step]:
    return (step for step in found.steps if not (isinstance(step, AddAddress) and step.link.startswith("nic")))


def copies_nics(patch: pytest.MonkeyPatch) -> None:
    original = FakeKernel._move

    def move(self: FakeKernel, step: MoveLink) -> None:
        link = self.links[step.source, step.name]
        original(self, step)
        self.links[step.source, step.name] = link

    patch.setattr(FakeKernel, "_move", move)


def writes_in_place(patch: pytest.MonkeyPatch) -> None:
    original = atomic_file.write_atomic

    disk: Any = vars(atomic_file)

    def in_place(path: Path, data: bytes | str, *, mode: int = 0o600, **_: Any) -> None:
        descriptor = disk["os"].open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        disk["os"].write(descriptor, data.encode() if isinstance(data, str) else data)
        disk["os"].close(descriptor)

    for module in list(sys.modules.values()):
        if getattr(module, "write_atomic", None) is original:
            patch.setattr(module, "write_atomic", in_place)


def never_audits(patch: pytest.MonkeyPatch) -> None:
    def schedule(self: Any, *, clean: bool) -> None:
        self.due = math.inf if clean else trio.current_time() + 1

    patch.setattr(netlink_actor._ControlLoop, "_schedule", schedule)


def never_audits_frr(patch: pytest.MonkeyPatch) -> None:
    original = frr_actor.FrrActor._pause
    patch.setattr(
        frr_actor.FrrActor, "_pause", lambda self, outcome: 1e6 if outcome.applied else original(self, outcome)
    )


def drops_broken_files(patch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, path: Path, problems: Any) -> FileContent:
        return FileContent(path, problems=tuple(problems))

    patch.setattr(static_files._Reader, "_broken", broken)


def keeps_last_good_once(patch: pytest.MonkeyPatch) -> None:
    original = static_files._Reader.kept
    patch.setattr(static_files._Reader, "kept", lambda self, path: replace(original(self, path), text=None))


def retries_without_backoff(module: Any, *names: str, seconds: float = 0.05) -> Plant:
    def planted(patch: pytest.MonkeyPatch) -> None:
        for name in names:
            patch.setattr(module, name, seconds)

    return planted


def asks_the_server_without_backoff(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backoff, "delay", lambda self, failures, chance: 0.02)


def saves_no_journal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StateFiles, "save_nic", lambda self, record: None)


def does_not_wait_for_frr(patch: pytest.MonkeyPatch) -> None:
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

    patch.setattr(wiring, "Channels", channels)
    patch.setattr(wiring, "trio", SimpleNamespace(Lock=Open))


def takes_all_copies_for_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply, "lacking", lambda _: frozenset())


#: A fault, what is said about it, and the seed from which it is looked for: where draws change, others may be needed.
PLANTED: tuple[tuple[str, Plant, str, int], ...] = (
    ("forgets deletions", without(DeleteLinks), "2: kernel: ", 24),
    ("leaves addresses", without(RemoveAddress), " addresses is ", 56),
    ("remakes the bystander", planner(remakes_the_bystander), "1, 4: the untouched tenant's", 40),
    ("a bridge without its VRF", planner(leaves_a_bridge_without_its_vrf), "L3VNI red does not work", 0),
    ("deletes NICs", planner(deletes_nics), "is in no namespace", 8),
    ("copies NICs", copies_nics, "is in host and router", 0),
    ("returns NICs bare", planner(leaves_addresses_of_returned_nics), "2: kernel: host nic", 8),
    ("does not wait for FRR", does_not_wait_for_frr, "before FRR", 0),
    ("saves no journal", saves_no_journal, "the journal on disk does not have its addresses", 0),
    ("writes in place", writes_in_place, "is torn", 39),
    ("never audits the kernel", never_audits, "2: kernel: ", 266),
    ("never audits FRR", never_audits_frr, "2: FRR ", 127),
    ("takes mgmtd's policies for bgpd's", takes_all_copies_for_the_same, "2: FRR lacks 'route-map", 200),
    ("drops broken files", drops_broken_files, "1, 4: the untouched tenant", 163),
    ("keeps last good once", keeps_last_good_once, "1, 4: the untouched tenant", 244),
    ("retries steps at once", retries_without_backoff(netlink_actor, "FIRST_RETRY_SECONDS", "LAST_RETRY_SECONDS"),
     "6: tried more than", 16),
    ("retries steps in no time", retries_without_backoff(netlink_actor, "FIRST_RETRY_SECONDS", seconds=0),
     "without an end", 16),
    ("asks FRR at once", retries_without_backoff(frr_actor, "FIRST_RETRY", "LONGEST_RETRY"), "6: tried more than", 5),
    ("asks the server at once", asks_the_server_without_backoff, "API requests in", 64),
)  # fmt: skip


@pytest.mark.parametrize(("plant", "said", "first"), [one[1:] for one in PLANTED], ids=[one[0] for one in PLANTED])
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant, said: str, first: int) -> None:
    # A router of the right program is not what this one has to equal.
    monkeypatch.setattr(simulation, "_known", {})
    plant(monkeypatch)
    results = run_many(range(first, first + EPISODES))
    assert any(said in line for result in results for line in result.violations)
    monkeypatch.undo()
