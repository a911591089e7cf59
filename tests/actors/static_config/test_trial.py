"""Configurations on trial: on disk, against the clock, and in the actor over its deaths."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.static_config.trial import (
    NOT_CONFIRMED,
    RESTARTED,
    Journal,
    Moment,
    Trial,
    TrialDamagedError,
    TrialError,
    current_trial,
    now,
    to_json,
)
from config.outcomes import StaticSnapshot
from config.problems import Kind, Severity, errors
from supervisor.process.atomic_file import write_atomic
from tests.actors.message_catalog import explained
from tests.actors.static_config.test_static_config_actor import GOOD, RED, Node, kinds

SECONDS = 60.0
NEVER_YET = 0.3
BOTH = [Kind.UNDERLAY, Kind.L3VNI]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.moment = Moment("boot-a", 1000.0)

    def __call__(self) -> Moment:
        return self.moment

    def advance(self, seconds: float) -> None:
        self.moment = replace(self.moment, seconds=self.moment.seconds + seconds)

    def reboot(self) -> None:
        self.moment = Moment("boot-b", 5.0)


def trial_at(moment: Moment, texts: dict[str, str], seconds: float = SECONDS) -> Trial:
    names = tuple(Path(path).name for path in texts)
    return Trial(texts, names, (), {}, moment.boot_id, moment.seconds + seconds, time.time() + seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Journal:
    return Journal(tmp_path, clock)


@pytest.fixture
def trial(clock: Clock, tmp_path: Path) -> Trial:
    return trial_at(clock.moment, {str(tmp_path / "configs" / "openpe_a.yaml"): GOOD})


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_trial_is_loaded_as_it_was_started(journal: Journal, trial: Trial) -> None:
    journal.start(trial)
    assert journal.load() == trial


def test_a_trial_on_disk_is_for_root_alone_and_leaves_no_texts_behind(
    journal: Journal, trial: Trial, tmp_path: Path
) -> None:
    journal.start(trial)
    assert journal.open_file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["trial.json"]
    assert journal.revert(trial, "enough")
    assert [path.name for path in tmp_path.iterdir()] == ["trial-ended.json"]
    assert "underlays" not in journal.ended_file.read_text()


def test_there_is_one_trial_at_a_time(journal: Journal, trial: Trial) -> None:
    journal.start(trial)
    with pytest.raises(TrialError, match="in force already"):
        journal.start(replace(trial, id="other"))
    accepted = journal.accept(trial)
    with pytest.raises(TrialError, match="not completed"):
        journal.start(replace(trial, id="other"))
    journal.complete(accepted)
    journal.start(replace(trial, id="other"))


def test_a_trial_is_in_force_until_its_deadline_and_not_longer(journal: Journal, trial: Trial, clock: Clock) -> None:
    journal.start(trial)
    clock.advance(SECONDS - 0.1)
    assert current_trial(journal) == trial
    clock.advance(0.1)
    assert current_trial(journal) is None
    assert not journal.open_file.exists()
    assert NOT_CONFIRMED in journal.how_ended(trial.id)


def test_a_trial_does_not_outlive_its_boot(journal: Journal, trial: Trial, clock: Clock) -> None:
    journal.start(trial)
    clock.reboot()
    assert current_trial(journal) is None
    assert RESTARTED in journal.how_ended(trial.id)


def test_a_confirmed_trial_has_no_deadline_and_outlives_the_boot(journal: Journal, trial: Trial, clock: Clock) -> None:
    journal.start(trial)
    journal.accept(trial)
    clock.reboot()
    clock.advance(SECONDS * 2)
    current = current_trial(journal)
    assert current is not None
    assert current.accepted


def test_a_trial_that_the_deadline_has_ended_cannot_be_confirmed(journal: Journal, trial: Trial, clock: Clock) -> None:
    journal.start(trial)
    clock.advance(SECONDS)
    with pytest.raises(TrialError, match="too late"):
        journal.accept(trial)
    assert current_trial(journal) is None
    with pytest.raises(TrialError, match=NOT_CONFIRMED):
        journal.accept(trial)


def test_the_deadline_does_not_end_what_was_confirmed_meanwhile(journal: Journal, trial: Trial) -> None:
    journal.start(trial)
    journal.accept(trial)
    assert not journal.revert(trial, NOT_CONFIRMED)
    assert current_trial(journal) is not None


def test_another_trial_is_neither_confirmed_nor_ended_by_mistake(journal: Journal, trial: Trial) -> None:
    journal.start(trial)
    other = replace(trial, id="other")
    assert not journal.revert(other, "not mine")
    with pytest.raises(TrialError, match="over"):
        journal.accept(other)
    assert journal.load() == trial


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        '{"version": 2}',
        '{"version": 1, "texts": 3}',
        to_json(trial_at(Moment("b", 1.0), {"/c/x": ""})).replace('"x"', '"../x"'),
        to_json(replace(trial_at(Moment("b", 1.0), {"/c/x": ""}), id="../x")),
        to_json(trial_at(Moment("b", 1.0), {"/c/x": "half"})).replace("half", "\\ud800"),
        to_json(trial_at(Moment("b", 1.0), {})),
    ],
    # Not their texts: a trial's id is random, and parallel test runners compare names.
    ids=["half", "list", "newer", "untyped", "escaping", "escaping id", "half a character", "without files"],
)
def test_a_damaged_trial_is_discarded(journal: Journal, trial: Trial, damage: str) -> None:
    journal.open_file.write_text(damage)
    with pytest.raises(TrialDamagedError):
        journal.load()
    assert current_trial(journal) is None
    journal.start(trial)


def test_a_disk_that_refuses_removal_cannot_prolong_a_trial(
    journal: Journal, trial: Trial, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.start(trial)
    clock.advance(SECONDS)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert current_trial(journal) is None


class Crash(BaseException):
    """Stands for SIGKILL: only what is on disk survives."""


def crash_before(step: int, patched: pytest.MonkeyPatch) -> None:
    """Let the process die before its ``step``-th change of the disk."""
    steps = itertools.count()
    for target in ("os.link", *(f"pathlib.Path.{name}" for name in ("mkdir", "rename", "replace", "unlink"))):
        module, _, name = target.rpartition(".")
        change = getattr(os if module == "os" else Path, name)

        def counted(*args: Any, change: Callable[..., Any] = change, **kwargs: Any) -> Any:
            if next(steps) == step:
                raise Crash
            return change(*args, **kwargs)

        patched.setattr(target, counted)


OLD = {"openpe_a.yaml": "old", "openpe_gone.yaml": "gone"}
NEW = {"openpe_a.yaml": "new", "openpe_b.yaml": "added"}


def files(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("then", ["confirm", "revert"])
def test_a_crash_at_any_write_leaves_the_old_or_the_new_in_force(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    unfinished = 0
    for step in itertools.count():
        state, configs = tmp_path / f"state{step}", tmp_path / f"configs{step}"
        state.mkdir()
        configs.mkdir()
        for name, text in OLD.items():
            (configs / name).write_text(text)
        journal = Journal(state, clock)
        trial = trial_at(clock.moment, {str(configs / name): text for name, text in NEW.items()})
        trial = replace(trial, removed=("openpe_gone.yaml",))
        with monkeypatch.context() as patched:
            crash_before(step, patched)
            try:
                journal.start(trial)
                journal.complete(journal.accept(trial))
                break
            except Crash:
                unfinished += 1
        found = current_trial(journal)
        in_force = {Path(path).name: text for path, text in found.texts.items()} if found else files(configs)
        assert in_force in (OLD, NEW), step
        if found is None:
            continue
        if then == "confirm":
            journal.complete(journal.accept(found))
        else:
            assert journal.revert(found, "enough")
        assert files(configs) == (NEW if then == "confirm" else OLD), step
        assert current_trial(journal) is None
    assert unfinished > 12


@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_how_a_confirmed_trial_ends_is_on_disk_before_the_trial_is_gone(
    journal: Journal, trial: Trial, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Otherwise changes that wait for a reload (autoApply: false) would hold the confirmed files back, or pass."""

    def finish() -> None:
        if end == "confirm":
            journal.complete(journal.accept(trial))
        else:
            journal.revert(replace(trial, accepted=True), "enough")

    trial.directory.mkdir()
    for step in itertools.count():
        journal.start(trial)
        journal.accept(trial)
        crashed = True
        with monkeypatch.context() as patched, suppress(Crash):
            crash_before(step, patched)
            finish()
            crashed = False
        if journal.load() is not None:
            finish()
        ending = journal.last()
        assert ending is not None, step
        assert (ending.id, ending.confirmed) == (trial.id, end == "confirm"), step
        if not crashed:
            break
        trial = replace(trial, id=f"{step}")


class Trying:
    """Trials of a node's files, with the real clock."""

    def __init__(self, node: Node) -> None:
        self.journal = Journal(node.settings.state_dir)
        self.path = node.settings.configs_dir / "openpe_a.yaml"

    def begin(self, text: str, seconds: float = SECONDS, boot_id: str = "") -> Trial:
        moment = now()
        trial = trial_at(replace(moment, boot_id=boot_id or moment.boot_id), {str(self.path): text}, seconds)
        self.journal.start(trial)
        return trial

    def shorten(self, trial: Trial, seconds: float) -> None:
        """Let a trial end this many seconds from now; what is said of it to people stays as it was."""
        write_atomic(self.journal.open_file, to_json(replace(trial, deadline=now().seconds + seconds)), mode=0o600)


@pytest.fixture
def trying(node: Node) -> Trying:
    node.write("a", GOOD)
    return Trying(node)


def warnings(snapshot: StaticSnapshot) -> list[str]:
    return [problem.message for problem in snapshot.problems if problem.severity is Severity.WARNING]


async def test_a_trial_is_in_force_instead_of_the_files_and_says_so(node: Node, trying: Trying) -> None:
    async with node.alive() as snapshots:
        await snapshots.receive()
        trial = trying.begin(GOOD + RED)
        tried = await snapshots.receive()
        assert kinds(tried) == BOTH
        assert str(tried.resources[1].origin).startswith(f"{trying.path}:")
        assert any(str(trial) in message and "--confirm" in message for message in warnings(tried))
        assert not errors(tried.problems)
        trying.journal.revert(trial, "enough")
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY]


async def test_a_trial_ends_by_itself(node: Node, trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "openperouter")
    async with node.alive() as snapshots:
        before = await snapshots.receive()
        trial = trying.begin(GOOD + RED)
        assert kinds(await snapshots.receive()) == BOTH
        # On a busy machine a trial of a second may be over before it is seen. So may be that it is shorter now.
        trying.shorten(trial, 1.0)
        assert await snapshots.receive() == before
    assert NOT_CONFIRMED in str(trying.journal.last())
    assert list(dict.fromkeys(explained(caplog.records))) == ["TRIAL_IN_FORCE", "TRIAL_REVERTED", "TRIAL_OVER"]


async def test_a_reload_keeps_the_trial(node: Node, trying: Trying) -> None:
    async with node.alive() as snapshots:
        await snapshots.receive()
        trying.begin(GOOD + RED)
        await snapshots.receive()
        node.reload.set(1)
        reloaded = await snapshots.receive()
    assert (kinds(reloaded), reloaded.reload_id) == (BOTH, 1)


async def test_a_trial_that_was_started_before_a_reload_is_in_that_reload(node: Node, trying: Trying) -> None:
    async with node.alive() as snapshots:
        await snapshots.receive()
        trying.begin(GOOD + RED)
        node.reload.set(1)
        while (snapshot := await snapshots.receive()).reload_id < 1:
            pass
    assert kinds(snapshot) == BOTH


async def test_a_reload_during_a_trial_does_not_confirm_that_the_directory_is_gone(node: Node, trying: Trying) -> None:
    """``openperouter try`` reloads by itself: the directory may be one that is not mounted."""
    configs = node.settings.configs_dir
    async with node.alive() as snapshots:
        await snapshots.receive()
        configs.rename(configs.with_name("elsewhere"))
        await snapshots.receive()
        trial = trying.begin(GOOD + RED)
        node.reload.set(1)
        while (snapshot := await snapshots.receive()).reload_id < 1:
            pass
        assert kinds(snapshot) == BOTH
        trying.journal.revert(trial, "enough")
        kept = await snapshots.receive()
    assert kinds(kept) == [Kind.UNDERLAY]
    assert [problem.origin.path for problem in errors(kept.problems)] == [str(configs)]


async def test_files_that_change_during_a_trial_count_after_it(node: Node, trying: Trying) -> None:
    async with node.alive() as snapshots:
        await snapshots.receive()
        trial = trying.begin(GOOD)
        await snapshots.receive()
        node.write("red", RED)
        with trio.move_on_after(NEVER_YET):
            pytest.fail(f"the trial is disturbed: {await snapshots.receive()}")
        trying.journal.revert(trial, "enough")
        assert kinds(await snapshots.receive()) == BOTH


async def test_a_trial_is_never_remembered_as_good(node: Node, trying: Trying) -> None:
    async with node.alive() as snapshots:
        await snapshots.receive()
        trial = trying.begin(GOOD + RED)
        await snapshots.receive()
        trying.path.write_text(GOOD.replace("64514", "0"))
        trying.shorten(trial, 1.0)
        kept = await snapshots.receive()
        assert kinds(kept) == [Kind.UNDERLAY]
        assert errors(kept.problems)
    for name in ("last-good.json", "in-force.json"):
        assert "l3vnis" not in (node.settings.state_dir / name).read_text()


async def test_a_trial_without_a_usable_underlay_is_refused(node: Node, trying: Trying) -> None:
    async with node.alive() as snapshots:
        before = await snapshots.receive()
        trying.begin(GOOD.replace("64514", "0"))
        refused = await snapshots.receive()
    assert refused.resources == before.resources
    assert any("no usable underlay" in problem.message for problem in errors(refused.problems))


LIFE = """
import sys
import trio
from actors.static_config.actor import run
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

async def main(settings):
    out, reload = Latest("static"), Latest("reload")
    snapshots = out.reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run(
            ActorContext("static_config"),
            settings=settings,
            settings_file=settings.state_dir / "none",
            reload=reload.reader(),
            out=out,
            addresses=lambda name: (),
        ))
        while True:
            print(len((await snapshots.receive()).resources), flush=True)

trio.run(main, Settings.model_validate_json(sys.argv[1]))
"""


def begin_and_be_killed(node: Node, trying: Trying) -> Trial:
    """Run the actor in a process of its own until the trial is in force there, then kill it."""
    command = [sys.executable, "-c", LIFE, node.settings.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "1\n"
        trial = trying.begin(GOOD + RED)
        assert daemon.stdout.readline() == "2\n"
        daemon.send_signal(signal.SIGKILL)
    return trial


async def test_a_killed_daemon_continues_the_trial_and_reverts_it_on_time(node: Node, trying: Trying) -> None:
    trial = begin_and_be_killed(node, trying)
    async with node.alive() as snapshots:
        assert kinds(await snapshots.receive()) == BOTH
        trying.shorten(trial, 1.0)
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY]
    assert trying.journal.load() is None


async def test_a_trial_that_ran_out_while_the_daemon_was_dead_is_not_continued(node: Node, trying: Trying) -> None:
    trying.begin(GOOD + RED, seconds=-1.0)
    async with node.alive() as snapshots:
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY]
    assert NOT_CONFIRMED in str(trying.journal.last())


async def test_a_trial_from_before_a_restart_of_the_machine_is_not_continued(node: Node, trying: Trying) -> None:
    trying.begin(GOOD + RED, boot_id="an earlier boot")
    async with node.alive() as snapshots:
        assert kinds(await snapshots.receive()) == [Kind.UNDERLAY]
    assert RESTARTED in str(trying.journal.last())


async def test_keeping_a_trial_changes_nothing_but_the_warning(node: Node, trying: Trying) -> None:
    async with node.alive() as snapshots:
        await snapshots.receive()
        trial = trying.begin(GOOD + RED)
        tried = await snapshots.receive()
        trying.shorten(trial, 1.5)
        accepted = trying.journal.accept(trial)
        waiting = await snapshots.receive()
        assert any("not completely written yet" in message for message in warnings(waiting))
        trying.path.write_text(GOOD)
        with trio.move_on_after(2.0):
            pytest.fail(f"half-written files or the old deadline count: {await snapshots.receive()}")
        trying.journal.complete(accepted)
        kept = await snapshots.receive()
    assert tried.resources == waiting.resources == kept.resources
    assert kept.problems == ()
