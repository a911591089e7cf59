"""Only one instance runs; the second names the first. Uses a second real process."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.process.instance_lock import single_instance
from supervisor.runtime.faults import AlreadyRunningFault, DependencyFault

HOLD = """
import pathlib, sys
from supervisor.process.instance_lock import single_instance
with single_instance(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    root = Path(__file__).parents[3]
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_lock_file_names_its_holder(tmp_path: Path) -> None:
    with single_instance(tmp_path / "run") as path:
        assert path == tmp_path / "run" / "lock"
        assert path.read_text() == f"{os.getpid()}\n"


def test_no_other_user_can_open_the_lock_or_its_directory(tmp_path: Path) -> None:
    """flock works on a descriptor that may only read: a user who can open it can keep the daemon from starting."""
    before = os.umask(0)
    try:
        with single_instance(tmp_path / "run") as path:
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o750
    finally:
        os.umask(before)


def test_a_second_instance_is_refused_and_names_the_first(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(AlreadyRunningFault) as caught, single_instance(tmp_path):
        pass
    assert f"pid {holder.pid} (" in str(caught.value)
    assert "single_instance" in str(caught.value)
    assert caught.value.exit_code == 75


def test_a_refused_instance_leaves_the_first_one_s_lock_alone(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    for _ in range(2):
        with pytest.raises(AlreadyRunningFault), single_instance(tmp_path):
            pass
    assert (tmp_path / "lock").read_text() == f"{holder.pid}\n"


def test_a_killed_holder_s_file_is_no_obstacle(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "lock").exists()
    with single_instance(tmp_path) as path:
        assert path.read_text() == f"{os.getpid()}\n"


def test_the_lock_can_be_taken_again_after_it_was_given_back(tmp_path: Path) -> None:
    for _ in range(2):
        with single_instance(tmp_path) as path:
            assert path.exists()


def test_a_removed_file_does_not_let_a_second_instance_slip_through_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open, opened = os.open, []

    def open_then_lose(*arguments: object) -> int:
        descriptor: int = really_open(*arguments)  # type: ignore[arg-type]  # passed through
        opened.append(descriptor)
        if len(opened) == 1:
            (tmp_path / "lock").unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_then_lose)
    with single_instance(tmp_path) as path:
        assert path.read_text() == f"{os.getpid()}\n"
        assert len(opened) == 2


def test_children_do_not_inherit_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as warm_up:
        warm_up.wait()
    with single_instance(tmp_path):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with single_instance(tmp_path) as path:
            assert path.exists()
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("content", ["", "rubbish\n", "999999999\n"])
def test_a_holder_that_cannot_be_named_is_still_respected(
    tmp_path: Path, holder: subprocess.Popen[str], content: str
) -> None:
    (tmp_path / "lock").write_text(content)
    with pytest.raises(AlreadyRunningFault, match="already running"), single_instance(tmp_path):
        pass


def test_a_directory_that_cannot_be_made_is_a_dependency_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DependencyFault, match="cannot lock"), single_instance(tmp_path / "file" / "run"):
        pass


def test_a_full_disk_does_not_keep_the_lock_from_being_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with single_instance(tmp_path) as path:
        assert path.read_text() == ""
