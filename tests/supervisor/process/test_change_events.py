"""Waiting for a reason to look again."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from supervisor.process import change_events
from supervisor.process.change_events import LONGEST_SECONDS, PathEvents, on_the_way

SHORTEST = 0.5


def edit(directory: Path) -> None:
    (directory / "a.yaml").write_text("changed\n")


def change_mode(directory: Path) -> None:
    (directory / "a.yaml").chmod(0o600)


def add_file(directory: Path) -> None:
    (directory / "b.yaml").write_text("b\n")


def replace_file(directory: Path) -> None:
    (directory / "fresh").write_text("a: 2\n")
    (directory / "fresh").rename(directory / "a.yaml")


def remove_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def replace_directory(directory: Path) -> None:
    directory.rename(directory.with_name("old"))
    directory.mkdir()
    (directory / "a.yaml").write_text("a: 2\n")


def edit_what_is_linked_to(directory: Path) -> None:
    (directory.parent / "elsewhere" / "file").write_text("changed\n")


CHANGES = (edit, change_mode, add_file, replace_file, remove_directory, replace_directory, edit_what_is_linked_to)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch no directory that other processes use."""

    def own(path: str) -> list[str]:
        return [one for one in on_the_way(path) if one.startswith(str(tmp_path))]

    monkeypatch.setattr(change_events, "on_the_way", own)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a file, and with a link to one in a directory beside it."""
    made, elsewhere = tmp_path / "configs", tmp_path / "elsewhere"
    made.mkdir()
    elsewhere.mkdir()
    (made / "a.yaml").write_text("a\n")
    (elsewhere / "file").write_text("a\n")
    (made / "link.yaml").symlink_to("../elsewhere/file")
    return made


def watching(directory: Path) -> PathEvents:
    """Return events at a directory and at all in it."""

    def paths() -> Iterator[Path]:
        yield directory
        if directory.is_dir():
            yield from directory.iterdir()

    return PathEvents(paths)


async def seconds_of_wait(events: PathEvents, longest: float = LONGEST_SECONDS) -> float:
    """Return how long a wait lasts."""
    began = trio.current_time()
    await events.wait(SHORTEST, longest)
    return trio.current_time() - began


async def quiet(events: PathEvents) -> None:
    """Return once no more event is waiting."""
    while await seconds_of_wait(events, LONGEST_SECONDS) < LONGEST_SECONDS and events.complete:
        continue


@pytest.mark.parametrize("change", CHANGES)
async def test_each_change_ends_a_wait(
    autojump_clock: MockClock, directory: Path, change: Callable[[Path], None]
) -> None:
    with watching(directory) as events:
        await quiet(events)
        change(directory)
        assert await seconds_of_wait(events) == SHORTEST


async def test_a_change_during_the_wait_ends_it(autojump_clock: MockClock, directory: Path) -> None:
    async def change() -> None:
        await trio.sleep(3)
        edit(directory)

    with watching(directory) as events:
        await quiet(events)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            assert await seconds_of_wait(events) == pytest.approx(3)


@pytest.mark.parametrize("change", [edit, add_file, replace_file])
async def test_what_has_replaced_a_directory_is_watched(
    autojump_clock: MockClock, directory: Path, change: Callable[[Path], None]
) -> None:
    with watching(directory) as events:
        replace_directory(directory)
        await quiet(events)
        change(directory)
        assert await seconds_of_wait(events) == SHORTEST


async def test_what_was_replaced_is_not_watched_any_more(autojump_clock: MockClock, directory: Path) -> None:
    with watching(directory) as events:
        replace_directory(directory)
        await quiet(events)
        edit(directory.with_name("old"))
        assert await seconds_of_wait(events) == LONGEST_SECONDS


async def test_a_swapped_link_and_what_it_leads_to_have_events(autojump_clock: MockClock, directory: Path) -> None:
    link, other = directory.with_name("current"), directory.with_name("other")
    shutil.copytree(directory, other)
    link.symlink_to(directory)
    with watching(link) as events:
        await quiet(events)
        directory.with_name("next").symlink_to(other)
        directory.with_name("next").rename(link)
        assert await seconds_of_wait(events) == SHORTEST
        await quiet(events)
        edit(other)
        assert await seconds_of_wait(events) == SHORTEST


async def test_a_path_that_does_not_exist_yet_is_followed_step_by_step(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    with watching(tmp_path / "one/two") as events:
        await quiet(events)
        for step in ("one", "one/two", "one/two/three"):
            (tmp_path / step).mkdir()
            assert await seconds_of_wait(events) <= SHORTEST


async def test_what_came_into_a_new_directory_before_its_watch_is_watched(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive may be unpacked while its paths are followed."""
    path = tmp_path / "one/two/three"
    watched = change_events.on_the_way

    def beside_a_writer(looked_at: str) -> Iterator[str]:
        yield from watched(looked_at)
        path.mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(change_events, "on_the_way", beside_a_writer)
    with watching(path) as events:
        await quiet(events)
        add_file(path)
        assert await seconds_of_wait(events) == SHORTEST


async def test_events_without_end_lead_to_a_look_now_and_then(autojump_clock: MockClock, directory: Path) -> None:
    with watching(directory) as events:
        began = trio.current_time()
        for _ in range(10):
            edit(directory)
            await events.wait(SHORTEST)
        assert trio.current_time() - began == pytest.approx(9 * SHORTEST)


async def test_without_an_event_a_wait_ends_all_the_same(autojump_clock: MockClock, directory: Path) -> None:
    with watching(directory) as events:
        await quiet(events)
        assert await seconds_of_wait(events, 3) == 3


def no_instance(_: PathEvents, opened: ExitStack) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def test_without_events_each_wait_is_short(
    autojump_clock: MockClock, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PathEvents, "_open", no_instance)
    with watching(directory) as events:
        assert not events.complete
        assert [await seconds_of_wait(events) for _ in range(3)] == [SHORTEST] * 3


@pytest.mark.parametrize(("number", "complete"), [(errno.EACCES, False), (errno.ENOSPC, False), (errno.ENOENT, True)])
async def test_a_path_that_cannot_be_watched_is_looked_at_often(
    autojump_clock: MockClock, directory: Path, number: int, complete: bool
) -> None:
    def refuse(*_: object) -> int:
        ctypes.set_errno(number)
        return -1

    with watching(directory) as events:
        events._libc = SimpleNamespace(inotify_add_watch=refuse, inotify_rm_watch=lambda *_: 0)  # type: ignore[assignment]
        edit(directory)
        await quiet(events)
        assert events.complete is complete
        assert await seconds_of_wait(events) == (LONGEST_SECONDS if complete else SHORTEST)


async def test_outside_of_the_context_each_wait_is_short(autojump_clock: MockClock, directory: Path) -> None:
    events = watching(directory)
    with events:
        assert events.complete
    assert await seconds_of_wait(events) == SHORTEST


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("../elsewhere/file", ["", "/configs", "/elsewhere", "/elsewhere/file"]),
        ("./missing/file", ["", "/configs"]),
        ("link", ["", "/configs"]),
    ],
)
def test_links_are_followed_as_the_kernel_does(tmp_path: Path, target: str, expected: list[str]) -> None:
    for name in ("configs", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere/file").touch()
    (tmp_path / "configs/link").symlink_to(target)
    resolved = str(tmp_path.resolve())
    found = list(dict.fromkeys(on_the_way(f"{resolved}/configs/../configs//link")))
    assert [path.removeprefix(resolved) for path in found if path.startswith(resolved)] == expected
    assert found[0] == "/"


def test_an_absolute_link_begins_at_the_root(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    assert list(on_the_way(f"{tmp_path}/link"))[-2:] == ["/etc", "/etc/hostname"]


def test_links_to_one_another_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    assert str(tmp_path) in on_the_way(f"{tmp_path}/one")
