"""Noticing changed files, whatever happened to their directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.static_config.actor import (
    LOOKS_UNTIL_SETTLED,
    MAX_SETTLE_INTERVALS,
    QUIET_PART,
    Fingerprint,
    fingerprint,
    wait_changed,
)
from supervisor.process.change_events import PathEvents

SETTLE = 0.5


def edit(directory: Path) -> None:
    edit_to(directory, "changed and longer\n")


def edit_to(directory: Path, text: str) -> None:
    (directory / "openpe_a.yaml").write_text(text)


def remove_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def replace_directory(directory: Path) -> None:
    fresh = directory.with_name("fresh")
    fresh.mkdir()
    (fresh / "openpe_a.yaml").write_text("a: 1\n")
    shutil.rmtree(directory)
    fresh.rename(directory)


def add_file(directory: Path) -> None:
    (directory / "openpe_b.yaml").write_text("b: 1\n")


def replace_file_by_rename(directory: Path) -> None:
    fresh = directory / "tmp"
    fresh.write_text("a: 2\n")
    fresh.rename(directory / "openpe_a.yaml")


def change_mode(directory: Path) -> None:
    (directory / "openpe_a.yaml").chmod(0o600)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "configs"
    made.mkdir()
    (made / "openpe_a.yaml").write_text("a: 1\n")
    return made


@pytest.mark.parametrize(
    "change", [edit, remove_directory, replace_directory, add_file, replace_file_by_rename, change_mode]
)
def test_every_kind_of_change_alters_the_fingerprint(directory: Path, change: Callable[[Path], None]) -> None:
    before = fingerprint([str(directory)])
    change(directory)
    assert fingerprint([str(directory)]) != before


def test_an_untouched_directory_keeps_its_fingerprint(directory: Path) -> None:
    assert fingerprint([str(directory)]) == fingerprint([str(directory)])


def test_a_directory_that_appears_alters_the_fingerprint(tmp_path: Path) -> None:
    missing = tmp_path / "later"
    before = fingerprint([str(missing)])
    missing.mkdir()
    assert fingerprint([str(missing)]) != before


def test_a_swapped_symbolic_link_alters_the_fingerprint(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "openpe_a.yaml").write_text("a: 1\n")
    link = tmp_path / "configs"
    link.symlink_to("one")
    before = fingerprint([str(link)])
    (tmp_path / "swap").symlink_to("two")
    (tmp_path / "swap").rename(link)
    assert fingerprint([str(link)]) != before


class Scripted:
    """Gives one fingerprint after another, then repeats the last; counts the looks."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.looks = 0

    def __call__(self) -> Fingerprint:
        self.looks += 1
        name = self.names.pop(0) if len(self.names) > 1 else self.names[0]
        return ((name, None),)


async def test_a_burst_of_writes_is_one_change(autojump_clock: MockClock) -> None:
    step = SETTLE / LOOKS_UNTIL_SETTLED
    begin = trio.current_time()
    await wait_changed(Scripted("old", "b1", "b2", "b2"), PathEvents(tuple), (("old", None),), SETTLE)
    assert trio.current_time() - begin == pytest.approx(SETTLE + step + SETTLE)


async def test_files_are_read_one_settle_interval_after_the_last_write(
    directory: Path, autojump_clock: MockClock
) -> None:
    fresh, file = directory / "openpe_a.yaml.new", directory / "openpe_a.yaml"
    take = partial(fingerprint, [str(directory)])
    begin = trio.current_time()

    async def write() -> None:
        fresh.write_text("a: 2\n")
        await trio.sleep(SETTLE / 5)
        fresh.rename(file)

    with PathEvents(lambda: dict(take())) as events:
        seen = take()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await wait_changed(take, events, seen, SETTLE)
    late = trio.current_time() - begin - SETTLE / 5 - SETTLE
    assert 0 <= late <= SETTLE / LOOKS_UNTIL_SETTLED


async def test_a_directory_written_without_end_is_read_after_a_bounded_wait(autojump_clock: MockClock) -> None:
    endless = Scripted(*(f"write {number}" for number in range(1000)))
    begin = trio.current_time()
    await wait_changed(endless, PathEvents(tuple), (("old", None),), SETTLE)
    assert trio.current_time() - begin == pytest.approx(MAX_SETTLE_INTERVALS * SETTLE)


async def test_without_a_change_it_waits_indefinitely(autojump_clock: MockClock) -> None:
    with trio.move_on_after(3600) as scope:
        await wait_changed(Scripted("old"), PathEvents(tuple), (("old", None),), SETTLE)
    assert scope.cancelled_caught


async def test_files_are_parsed_ahead_once_they_are_quiet(directory: Path, autojump_clock: MockClock) -> None:
    take = partial(fingerprint, [str(directory)])
    moments: list[float] = []
    begin = trio.current_time()

    async def parse() -> None:
        moments.append(trio.current_time() - begin)
        await trio.sleep(SETTLE / 5)

    async def write() -> None:
        for seconds, text in ((0.0, "a: 22\n"), (SETTLE / 5, "a: 333\n"), (SETTLE / 2, "a: 4444\n")):
            await trio.sleep(seconds)
            edit_to(directory, text)

    with PathEvents(lambda: dict(take())) as events:
        seen = take()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await wait_changed(take, events, seen, SETTLE, parse)
    # After the second write and after the third; the first is followed too soon.
    second, third = SETTLE / 5, SETTLE / 5 + SETTLE / 2
    late = SETTLE / LOOKS_UNTIL_SETTLED
    assert moments == pytest.approx([one + QUIET_PART * SETTLE for one in (second, third)], abs=late)
    assert trio.current_time() - begin == pytest.approx(third + SETTLE, abs=late)


async def test_what_is_written_while_files_are_parsed_ahead_is_another_change(
    directory: Path, autojump_clock: MockClock
) -> None:
    take = partial(fingerprint, [str(directory)])
    calls: list[float] = []

    async def parse() -> None:
        calls.append(trio.current_time())
        if len(calls) == 1:
            edit_to(directory, "a: 55555\n")

    with PathEvents(lambda: dict(take())) as events:
        seen = take()
        edit_to(directory, "a: 22\n")
        await wait_changed(take, events, seen, SETTLE, parse)
    assert len(calls) == 2
    assert trio.current_time() - calls[0] >= SETTLE
