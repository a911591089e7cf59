"""With ``autoApply: false``: changes of files wait for a reload, over restarts, and trials do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from actors.static_config.trial import Journal, Trial, now
from actors.static_config.waiting import held_back
from config.desired import Secret
from config.outcomes import StaticSnapshot
from supervisor.runtime.channel import LatestReader
from tests.actors.static_config.test_static_config_actor import GOOD, RED, Node

BLUE = "l3vnis: [{name: blue, vrf: blue, vni: 200}]\n"
HINT = "; openperouter plan shows them, openperouter reload applies them"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    one = Node(tmp_path)
    one.settings = one.settings.model_copy(update={"auto_apply": False})
    one.set(settleSeconds=0.05, autoApply="false")
    one.write("underlay", GOOD)
    return one


def names(snapshot: StaticSnapshot) -> list[str]:
    return sorted(resource.label for resource in snapshot.resources if resource.kind != "Underlay")


def messages(snapshot: StaticSnapshot) -> list[str]:
    return [problem.message for problem in snapshot.problems]


def waits_for(*files: str) -> list[str]:
    return [f"changes wait for a reload (autoApply is false): {', '.join(files)}{HINT}"]


async def first(snapshots: LatestReader[StaticSnapshot]) -> StaticSnapshot:
    snapshot = await snapshots.receive()
    assert messages(snapshot) == []
    return snapshot


async def test_the_first_configuration_is_in_force_at_once(node: Node) -> None:
    node.write("red", RED)
    async with node.alive() as snapshots:
        assert names(await first(snapshots)) == ["red"]


async def test_new_edited_and_removed_files_wait_and_a_reload_takes_them_in(node: Node) -> None:
    red = node.write("red", RED)
    async with node.alive() as snapshots:
        await first(snapshots)
        node.write("blue", BLUE)
        held = await snapshots.receive()
        assert (names(held), messages(held)) == (["red"], waits_for("openpe_blue.yaml"))
        assert [held_back(held.problems)] == waits_for("openpe_blue.yaml")
        red.unlink()
        held = await snapshots.receive()
        assert (names(held), messages(held)) == (["red"], waits_for("openpe_blue.yaml", "openpe_red.yaml"))
        node.reload.set(1)
        taken = await snapshots.receive()
        assert (names(taken), messages(taken), taken.reload_id) == (["blue"], [], 1)
        assert not held_back(taken.problems)
        node.write("red", RED)
        assert messages(await snapshots.receive()) == waits_for("openpe_red.yaml")


async def test_a_change_that_is_taken_back_leaves_no_warning(node: Node) -> None:
    async with node.alive() as snapshots:
        await first(snapshots)
        red = node.write("red", RED)
        assert messages(await snapshots.receive()) == waits_for("openpe_red.yaml")
        red.unlink()
        assert messages(await snapshots.receive()) == []


async def test_the_node_configuration_waits_too(node: Node) -> None:
    async with node.alive() as snapshots:
        await first(snapshots)
        node.identify("nodeIndex: {index: 4}\nnodeName: node-a\n")
        held = await snapshots.receive()
        assert (held.node.index, messages(held)) == (3, waits_for("node-config.yaml"))
        node.reload.set(1)
        assert (await snapshots.receive()).node.index == 4


def with_password(node: Node) -> Path:
    """Give the neighbour a password in a file; return that file."""
    node.write("underlay", GOOD.replace("address: 192.0.2.1", "address: 192.0.2.1, passwordSecret: fabric"))
    secret = node.settings.configs_dir / "secrets" / "fabric"
    secret.parent.mkdir()
    secret.write_text("s3cret")
    secret.chmod(0o600)
    return secret


def passwords(snapshot: StaticSnapshot) -> list[Secret]:
    underlays = [resource for resource in snapshot.resources if resource.kind == "Underlay"]
    return [neighbor.password for underlay in underlays for neighbor in underlay.spec.neighbors]


async def test_a_password_file_waits_too(node: Node) -> None:
    secret = with_password(node)
    async with node.alive() as snapshots:
        assert passwords(await first(snapshots)) == [Secret("s3cret")]
        secret.write_text("another")
        held = await snapshots.receive()
        assert (passwords(held), messages(held)) == ([Secret("s3cret")], waits_for("fabric"))
        node.reload.set(1)
        taken = await snapshots.receive()
        assert (passwords(taken), messages(taken)) == ([Secret("another")], [])


async def test_a_restart_reads_the_node_configuration_and_password_files(node: Node) -> None:
    secret = with_password(node)
    async with node.alive() as snapshots:
        await first(snapshots)
    node.identify("nodeIndex: {index: 4}\nnodeName: node-a\n")
    secret.write_text("another")
    async with node.alive() as snapshots:
        read = await first(snapshots)
        assert (read.node.index, passwords(read)) == (4, [Secret("another")])


@pytest.mark.parametrize("keep_channels", [True, False])
async def test_a_restart_applies_no_change(node: Node, *, keep_channels: bool) -> None:
    node.write("red", RED)
    async with node.alive() as snapshots:
        await first(snapshots)
    node.write("red", RED.replace("100", "101"))
    async with node.alive(keep_channels=keep_channels) as snapshots:
        held = await snapshots.receive()
        if not messages(held):
            held = await snapshots.receive()
        assert messages(held) == waits_for("openpe_red.yaml")
        assert [resource.spec.vni for resource in held.resources if resource.kind == "L3VNI"] == [100]


async def test_a_broken_edit_waits_as_any_other_and_is_reported_by_the_reload(node: Node) -> None:
    async with node.alive() as snapshots:
        await first(snapshots)
        node.write("red", "l3vnis: [")
        assert messages(await snapshots.receive()) == waits_for("openpe_red.yaml")
        node.reload.set(1)
        [error] = (await snapshots.receive()).problems
        assert (Path(error.origin.path).name, error.severity) == ("openpe_red.yaml", "error")


async def test_a_node_that_had_nothing_waits_for_its_first_files(node: Node) -> None:
    (node.settings.configs_dir / "openpe_underlay.yaml").unlink()
    async with node.alive() as snapshots:
        await first(snapshots)
        node.write("underlay", GOOD)
        held = await snapshots.receive()
        assert (held.resources, messages(held)) == ((), waits_for("openpe_underlay.yaml"))
    async with node.alive() as snapshots:
        held = await snapshots.receive()
        assert (held.resources, messages(held)) == ((), waits_for("openpe_underlay.yaml"))


def trial_of(node: Node, text: str) -> Trial:
    moment = now()
    texts = {str(node.settings.configs_dir / "openpe_underlay.yaml"): GOOD}
    texts[str(node.settings.configs_dir / "openpe_red.yaml")] = text
    return Trial(texts, ("openpe_red.yaml",), (), {"openpe_red.yaml": 0o600}, moment.boot_id, moment.seconds + 60, 0.0)


async def test_a_trial_is_in_force_at_once_and_its_end_restores_what_was(node: Node) -> None:
    journal = Journal(node.settings.state_dir)
    async with node.alive() as snapshots:
        await first(snapshots)
        node.write("blue", BLUE)
        assert messages(await snapshots.receive()) == waits_for("openpe_blue.yaml")
        trial = trial_of(node, RED)
        journal.start(trial)
        assert names(await snapshots.receive()) == ["red"]
        journal.revert(trial, "enough")
        held = await snapshots.receive()
        assert (names(held), messages(held)) == ([], waits_for("openpe_blue.yaml"))
        assert not held.on_trial


@pytest.mark.parametrize("restart", [True, False])
async def test_a_confirmed_trial_is_in_force_without_a_reload(node: Node, *, restart: bool) -> None:
    journal = Journal(node.settings.state_dir)
    async with node.alive() as snapshots:
        await first(snapshots)
        journal.start(trial_of(node, RED))
        assert names(await snapshots.receive()) == ["red"]
        if not restart:
            journal.complete(journal.accept(trial_of_current(journal)))
            kept = await snapshots.receive()
            while kept.on_trial:
                kept = await snapshots.receive()
            assert (names(kept), messages(kept)) == (["red"], [])
            return
    journal.complete(journal.accept(trial_of_current(journal)))
    async with node.alive() as snapshots:
        assert names(await first(snapshots)) == ["red"]


async def test_a_confirmation_that_dies_between_its_last_two_steps_leaves_the_trial_in_force(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(node.settings.state_dir)
    async with node.alive() as snapshots:
        await first(snapshots)
    journal.start(trial_of(node, RED))
    accepted = journal.accept(trial_of_current(journal))
    done: list[Path] = []

    def die_second(path: Path, change: Callable[..., object], *arguments: Any, **options: Any) -> object:
        last = {path, *arguments} & {journal.accepted_file, journal.ended_file}
        if last and done:
            raise KeyboardInterrupt
        done.extend(last)
        return change(path, *arguments, **options)

    with monkeypatch.context() as patched:
        for name in ("replace", "unlink"):
            patched.setattr(Path, name, partialmethod(die_second, getattr(Path, name)))
        with pytest.raises(KeyboardInterrupt):
            journal.complete(accepted)
    async with node.alive() as snapshots:
        assert names(await snapshots.receive()) == ["red"]
        journal.complete(journal.accept(trial_of_current(journal)))
        kept = await snapshots.receive()
        assert (names(kept), messages(kept), kept.on_trial) == (["red"], [], False)


def trial_of_current(journal: Journal) -> Trial:
    trial = journal.load()
    assert trial is not None
    return trial
