"""What counts as a change of a kubeconfig and its files, and what a look costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.api_wait import credential_files
from actors.api_wait.credential_files import MAX_SETTLE_POLLS, PATIENCE_SECONDS, POLL_SECONDS, CredentialFiles, Wake
from actors.lib.kube.credentials import digest
from tests.actors.api_wait.fakes import EPOCH, wall


def replace_by_rename(path: Path) -> None:
    fresh = path.with_name("fresh")
    fresh.write_text("new")
    fresh.rename(path)


def rewrite_in_place(path: Path, text: str = "new") -> None:
    path.write_text(text)


def remove(path: Path) -> None:
    path.unlink()


def touch(path: Path) -> None:
    path.touch()


def rewrite_the_same(path: Path) -> None:
    path.write_text(path.read_text())


def open_to_others(path: Path) -> None:
    path.chmod(0o644)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o600)
    return path


@pytest.fixture
def files(tmp_path: Path, token: Path) -> CredentialFiles:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("names token\n")
    files = CredentialFiles(kubeconfig, wall)
    files.remember({path: digest(path) for path in (kubeconfig, token, tmp_path / "ca.crt")})
    return files


@pytest.mark.parametrize("change", [replace_by_rename, rewrite_in_place, remove])
def test_another_content_of_a_named_file_is_a_change(
    files: CredentialFiles, token: Path, change: Callable[[Path], None]
) -> None:
    assert not files.changed()
    change(token)
    assert files.changed()


@pytest.mark.parametrize("change", [touch, rewrite_the_same, open_to_others])
def test_the_same_content_is_no_change(files: CredentialFiles, token: Path, change: Callable[[Path], None]) -> None:
    assert not files.changed()
    change(token)
    assert not files.changed()


def test_a_named_file_that_was_missing_and_appears_is_a_change(files: CredentialFiles, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("PEM")
    assert files.changed()


def test_what_was_written_while_it_was_read_is_a_change(tmp_path: Path, token: Path) -> None:
    files = CredentialFiles(tmp_path / "kubeconfig")
    read = {token: digest(token)}
    token.write_text("newer")
    files.remember(read)
    assert files.changed()


def test_contents_are_read_only_after_a_file_was_touched(
    files: CredentialFiles, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def counting(path: Path) -> str:
        read.append(path)
        return digest(path)

    monkeypatch.setattr(credential_files, "digest", counting)
    for _ in range(3):
        assert not files.changed()
    once = len(read)
    assert once == 3
    token.touch()
    files.changed()
    assert len(read) == 2 * once


async def test_nothing_changed_waits_until_time_is_up(autojump_clock: MockClock, files: CredentialFiles) -> None:
    begin = trio.current_time()
    assert await files.wait(2.5) is Wake.TIMER
    assert trio.current_time() - begin == pytest.approx(2.5)


async def test_a_change_is_known_within_two_looks(
    autojump_clock: MockClock, files: CredentialFiles, token: Path
) -> None:
    async with trio.open_nursery() as nursery:

        async def change() -> None:
            await trio.sleep(100)
            rewrite_in_place(token)

        nursery.start_soon(change)
        assert await files.wait(1000) is Wake.CHANGED
        assert trio.current_time() - 100 <= 2 * POLL_SECONDS


async def test_a_file_that_the_kubeconfig_names_has_events(autojump_clock: MockClock, tmp_path: Path) -> None:
    """It is known from the first reading on, which is after the first watch."""
    kubeconfig, token = tmp_path / "kubernetes/kubeconfig", tmp_path / "kubelet/token"
    for path in (kubeconfig, token):
        path.parent.mkdir()
        path.write_text("old")
    files = CredentialFiles(kubeconfig, wall)
    with files.events:
        files.remember({path: digest(path) for path in (kubeconfig, token)})
        assert await files.wait(100) is Wake.TIMER
        async with trio.open_nursery() as nursery:

            async def change() -> None:
                await trio.sleep(10)
                rewrite_in_place(token)

            begin = trio.current_time()
            nursery.start_soon(change)
            assert await files.wait(1000) is Wake.CHANGED
            assert trio.current_time() - begin - 10 <= 2 * POLL_SECONDS


async def test_files_written_without_end_are_read_after_a_bounded_wait(
    autojump_clock: MockClock, files: CredentialFiles, token: Path
) -> None:
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            for number in range(1000):
                rewrite_in_place(token, str(number))
                await trio.sleep(POLL_SECONDS / 2)

        nursery.start_soon(write)
        assert await files.wait(1000) is Wake.CHANGED
        assert trio.current_time() <= (MAX_SETTLE_POLLS + 1) * POLL_SECONDS
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("jump", [0, 50])
async def test_the_wall_clock_decides_when_credentials_end(
    autojump_clock: MockClock, files: CredentialFiles, tmp_path: Path, jump: float
) -> None:
    """A clock that is set forward meanwhile is noticed by the next look."""
    files = CredentialFiles(tmp_path / "none", lambda: wall() + (jump if trio.current_time() > 10 else 0))
    assert await files.wait(1000, EPOCH + 100) is Wake.EXPIRED
    assert trio.current_time() == pytest.approx(100 - jump, abs=POLL_SECONDS)


async def sleep() -> str:
    await trio.sleep(3600)
    return "done"


async def test_work_on_files_that_change_again_is_given_up_but_not_at_once(
    autojump_clock: MockClock, files: CredentialFiles, token: Path
) -> None:
    rewrite_in_place(token)
    assert await files.unless_changed(sleep) is None
    assert PATIENCE_SECONDS <= trio.current_time() <= PATIENCE_SECONDS + 2 * POLL_SECONDS


async def test_work_on_files_that_hold_still_ends_when_it_ends(
    autojump_clock: MockClock, files: CredentialFiles
) -> None:
    async def work() -> str:
        await trio.sleep(60)
        return "done"

    assert await files.unless_changed(work) == "done"
    assert trio.current_time() == pytest.approx(60)
