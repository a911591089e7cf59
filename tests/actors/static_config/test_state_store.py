"""The state store on a disk that refuses: values in memory stay, and are written as soon as possible."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from actors.static_config.state_store import StateStore
from config.outcomes import NodeIdentity
from config.store.last_good import LastGood
from supervisor.process.atomic_file import write_atomic
from tests.actors.static_config.test_static_config_actor import DEADLINE, GOOD, RED, Node

TEXTS = LastGood({"/configs/openpe_a.yaml": GOOD})
MORE = LastGood({"/configs/openpe_a.yaml": GOOD + RED})
NODE = NodeIdentity("node-a", 3, router_id_scheme="v2")


class Disk:
    """A state directory on a disk whose writes can fail, by file name."""

    def __init__(self) -> None:
        self.refuses: Callable[[str], bool] = lambda name: False
        self.writes: list[str] = []
        self._written: set[str] = set()
        #: Set once each of the three files was written.
        self.holds_all = threading.Event()

    def write(self, path: Path, data: str) -> None:
        self.writes.append(path.name)
        if self.refuses(path.name):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_atomic(path, data)
        self._written.add(path.name)
        if len(self._written) == 3:
            self.holds_all.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr("actors.static_config.state_store.write_atomic", disk.write)
    return disk


def loaded(directory: Path) -> StateStore:
    memory = StateStore(directory)
    memory.load()
    return memory


def store(memory: StateStore, last_good: LastGood, in_force: LastGood, node: NodeIdentity | None) -> None:
    memory.keep(last_good, in_force, node)
    memory.save()


def known(memory: StateStore) -> tuple[LastGood, LastGood, NodeIdentity | None]:
    return memory.last_good, memory.in_force, memory.node


def test_what_is_stored_is_found_after_a_restart_and_not_written_twice(tmp_path: Path, disk: Disk) -> None:
    memory = loaded(tmp_path)
    store(memory, MORE, TEXTS, NODE)
    store(memory, MORE, TEXTS, NODE)
    after = loaded(tmp_path)
    store(after, MORE, TEXTS, None)
    assert known(after) == (MORE, TEXTS, NODE)
    assert disk.writes == ["last-good.json", "in-force.json", "node.json"]


def test_what_a_full_disk_refused_stays_in_memory_and_is_written_once_there_is_room(tmp_path: Path, disk: Disk) -> None:
    memory = loaded(tmp_path)
    disk.refuses = lambda name: True
    store(memory, TEXTS, TEXTS, NODE)
    assert known(memory) == (TEXTS, TEXTS, NODE)
    assert memory.is_behind
    disk.refuses = lambda name: False
    store(memory, TEXTS, TEXTS, NODE)
    assert known(loaded(tmp_path)) == (TEXTS, TEXTS, NODE)
    assert not memory.is_behind


def test_one_file_that_cannot_be_written_costs_the_others_nothing(tmp_path: Path, disk: Disk) -> None:
    disk.refuses = lambda name: name == "last-good.json"
    store(loaded(tmp_path), MORE, TEXTS, NODE)
    assert known(loaded(tmp_path)) == (LastGood(), TEXTS, NODE)


def test_a_failing_disk_is_logged_once_and_once_when_it_is_back(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="openperouter")
    memory = loaded(tmp_path)
    for refuses in (True, True, False, False):
        disk.refuses = lambda name, refuses=refuses: refuses  # type: ignore[misc]
        store(memory, TEXTS, TEXTS, NODE)
    logged = [record.getMessage().split(" directory=")[0] for record in caplog.records]
    assert logged == [
        "cannot save the last good configuration",
        "the last good configuration is saved again",
    ]


def test_a_damaged_file_is_replaced_although_there_is_nothing_new(tmp_path: Path) -> None:
    store(loaded(tmp_path), TEXTS, TEXTS, NODE)
    (tmp_path / "last-good.json").write_bytes(b"\xff")
    memory = loaded(tmp_path)
    store(memory, LastGood(), TEXTS, NODE)
    assert loaded(tmp_path).last_good == LastGood()
    assert (tmp_path / "last-good.json").read_bytes() != b"\xff"


async def test_a_refused_write_is_repeated_although_no_file_changes(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.static_config.actor.DISK_RETRY_SECONDS", 0.05)
    node = Node(tmp_path)
    path = node.write("a", GOOD)
    disk.refuses = lambda name: len(disk.writes) <= 3
    async with node.alive() as snapshots:
        await snapshots.receive()
        assert await trio.to_thread.run_sync(disk.holds_all.wait, DEADLINE, abandon_on_cancel=True)
    assert known(loaded(node.settings.state_dir)) == (LastGood({str(path): GOOD}), LastGood({str(path): GOOD}), NODE)
