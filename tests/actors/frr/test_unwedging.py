"""A management daemon that locked itself up is ended; one that is not to blame, or not what it seems, is left alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.frr.unwedging import Unwedger
from actors.vtysh import Vtysh

#: As FRR's own shell answers; only one who asks for the lock learns that it is taken.
LOCKED = """
case "$*" in
    *file-lock*) echo "% Can't enter config; running datastore locked by another session"; exit 1 ;;
esac
"""
FINE = "exit 0"


def unwedger(directory: Path, answer: str) -> Unwedger:
    vtysh = directory / "vtysh"
    vtysh.write_text(f"#!/bin/sh\n{answer}\n")
    vtysh.chmod(0o755)
    return Unwedger(Vtysh(vtysh=str(vtysh), pathspace="perouter"), directory)


def started(directory: Path, name: str) -> subprocess.Popen[bytes]:
    """Start a process of a given name and let the PID file name it."""
    program = directory / name
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(sleep, program)
    process = subprocess.Popen([str(program), "600"])
    (directory / "mgmtd.pid").write_text(f"{process.pid}\n")
    return process


@pytest.fixture
def mgmtd(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = started(tmp_path, "mgmtd")
    yield process
    process.kill()
    process.wait()


async def test_a_locked_daemon_is_ended(tmp_path: Path, mgmtd: subprocess.Popen[bytes]) -> None:
    await unwedger(tmp_path, LOCKED).after_timeout()
    assert mgmtd.wait(10) == -9


async def test_a_daemon_that_lets_others_configure_is_not_to_blame(
    tmp_path: Path, mgmtd: subprocess.Popen[bytes]
) -> None:
    await unwedger(tmp_path, FINE).after_timeout()
    assert mgmtd.poll() is None


async def test_it_is_ended_once_and_then_given_time(tmp_path: Path, mgmtd: subprocess.Popen[bytes]) -> None:
    helper = unwedger(tmp_path, LOCKED)
    await helper.after_timeout()
    mgmtd.wait(10)
    second = started(_fresh(tmp_path), "mgmtd")
    (tmp_path / "mgmtd.pid").write_text(f"{second.pid}\n")
    await helper.after_timeout()
    assert second.poll() is None
    second.kill()
    second.wait()


def _fresh(directory: Path) -> Path:
    made = directory / "second"
    made.mkdir()
    return made


async def test_a_process_that_only_inherited_the_number_is_left_alone(tmp_path: Path) -> None:
    stranger = started(tmp_path, "stranger")
    await unwedger(tmp_path, LOCKED).after_timeout()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


async def test_no_pid_file_is_no_crash(tmp_path: Path) -> None:
    await unwedger(tmp_path, LOCKED).after_timeout()
