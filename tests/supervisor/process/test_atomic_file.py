"""A reader finds the old or the new file, whole, whatever happens in between."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.process.atomic_file import remove_stale, write_atomic

CHECKOUT = Path(__file__).resolve().parents[3]


class Crash(BaseException):
    """The process is gone: nothing after this line runs."""


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    old = os.umask(0o077)
    yield
    os.umask(old)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that other users can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        path.chmod(0o711)
        yield path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_text_and_bytes_replace_the_content(tmp_path: Path) -> None:
    target = tmp_path / "frr.conf"
    write_atomic(target, "grün\n")
    assert target.read_bytes() == "grün\n".encode()
    write_atomic(target, b"\x00\x01")
    assert target.read_bytes() == b"\x00\x01"
    assert [entry.name for entry in tmp_path.iterdir()] == ["frr.conf"]


def test_the_default_mode_is_private(tmp_path: Path) -> None:
    write_atomic(tmp_path / "secret", "x")
    assert mode_of(tmp_path / "secret") == 0o600


def test_the_mode_is_exact_under_a_narrow_umask(tmp_path: Path, narrow_umask: None) -> None:
    write_atomic(tmp_path / "public", "x", mode=0o644)
    assert mode_of(tmp_path / "public") == 0o644


def test_mode_and_owner_are_final_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, int]] = []
    really_write = os.write

    def spy(descriptor: int, data: bytes) -> int:
        status = os.fstat(descriptor)
        seen.append((stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid))
        return really_write(descriptor, data)

    monkeypatch.setattr(os, "write", spy)
    owner = (os.getuid(), os.getgid())
    write_atomic(tmp_path / "frr.conf", "x", mode=0o640, owner=owner)
    assert seen == [(0o640, *owner)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_the_file_can_belong_to_another_user(tmp_path: Path) -> None:
    write_atomic(tmp_path / "frr.conf", "x", mode=0o640, owner=(65534, 65534))
    status = (tmp_path / "frr.conf").stat()
    assert (status.st_uid, status.st_gid) == (65534, 65534)


def test_the_file_is_never_wider_than_private_before_its_owner_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []

    def spy(descriptor: int, *_owner: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))

    monkeypatch.setattr(os, "fchown", spy)
    write_atomic(tmp_path / "frr.conf", "x", mode=0o644, owner=(1, 1))
    assert modes == [0o600]


@pytest.mark.skipif(os.getuid() != 0, reason="only root has a file of another group to compare with")
def test_a_group_may_read_the_file_of_a_process_that_may_not_give_files_away(reachable: Path) -> None:
    """As in the daemon's sandbox: root without CAP_CHOWN; directories without and with the set-group-ID bit."""
    plain, inherits = reachable / "plain", reachable / "inherits"
    for directory, mode in ((plain, 0o755), (inherits, 0o2755)):
        directory.mkdir()
        os.chown(directory, 0, 12345)
        directory.chmod(mode)
    write = "import sys; from pathlib import Path; from supervisor.process.atomic_file import write_atomic; "
    write += "[write_atomic(Path(name), 'x', mode=0o640, reader=12345) for name in sys.argv[1:]]"
    names = [str(directory / "frr.conf") for directory in (plain, inherits)]
    bounded = ["setpriv", "--bounding-set=-chown", "--"]
    subprocess.run([*bounded, sys.executable, "-c", write, *names], check=True, cwd=CHECKOUT)
    for name in names:
        for group, readable in ((12345, True), (54321, False)):
            user = ["setpriv", "--reuid=65534", f"--regid={group}", "--clear-groups", "--"]
            done = subprocess.run([*user, "cat", name], capture_output=True, text=True, check=False)
            assert (done.returncode == 0) is readable, (name, group, done.stderr)
    assert Path(names[1]).stat().st_gid == 12345
    assert [mode_of(Path(name)) for name in names] == [0o640, 0o640]


@pytest.mark.parametrize("step", ["fchmod", "write", "fsync", "replace"])
def test_a_failure_at_any_step_before_the_end_leaves_the_old_content_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    target = tmp_path / "state"
    write_atomic(target, "old")

    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path if step == "replace" else os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomic(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("step", "content"), [("fchmod", "old"), ("write", "old"), ("fsync", "old"), ("directory", "new")]
)
def test_a_crash_between_steps_leaves_old_or_new_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, content: str
) -> None:
    target = tmp_path / "state"
    write_atomic(target, "old")

    def crash(*_arguments: object) -> None:
        raise Crash

    monkeypatch.setattr(Path, "unlink", lambda *_a, **_k: None)
    monkeypatch.setattr(
        *(("supervisor.process.atomic_file.sync_directory", crash) if step == "directory" else (f"os.{step}", crash))
    )
    with pytest.raises(Crash):
        write_atomic(target, "new")
    monkeypatch.undo()
    assert target.read_text() == content
    remove_stale(target)
    assert list(tmp_path.iterdir()) == [target]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: really_write(descriptor, data[:3]))
    write_atomic(tmp_path / "f", "0123456789")
    assert (tmp_path / "f").read_text() == "0123456789"


def test_the_data_reaches_the_disk_before_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    really_sync, really_replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        really_sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return really_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomic(tmp_path / "f", "x")
    assert steps == ["file", "rename", "directory"]


def test_cleaning_up_touches_only_this_file_s_temporaries(tmp_path: Path) -> None:
    keep = ["frr.conf", ".frr.conf.swp", ".frr.conf.notatoken.tmp", ".other.0123abcd.tmp", "frr.conf.0123abcd.tmp"]
    for name in [*keep, ".frr.conf.0123abcd.tmp"]:
        (tmp_path / name).touch()
    remove_stale(tmp_path / "frr.conf")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(keep)


def test_cleaning_up_without_the_directory_does_nothing(tmp_path: Path) -> None:
    remove_stale(tmp_path / "absent" / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_the_cleaning_up_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".file.0123abcd.tmp").touch()

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    remove_stale(tmp_path / "file")
    assert ["cannot remove" in record.getMessage() for record in caplog.records] == [True]
