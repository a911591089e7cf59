"""What the driver leaves behind, whatever becomes of the programs that it starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from actors.frr import driver
from actors.frr.driver import ReloadDriver
from config.settings import Settings
from supervisor.subprocesses import CommandMissing, CommandTimeout

SECRET = "router bgp 64514\n neighbor 10.0.0.1 password hush\n"

CALLS: dict[str, Callable[[ReloadDriver], Awaitable[str]]] = {
    "refusal": lambda one: one.refusal(SECRET),
    "send": lambda one: one.send(SECRET),
    "reload": lambda one: one.reload(SECRET),
}


def settings(directory: Path, body: str) -> Settings:
    """Return settings in which vtysh and the reload program are one script. It sees the files by their last name."""
    program = directory / "program"
    program.write_text(f'#!/bin/sh\nfor last; do :; done\ngrep -q hush "$last" && touch {directory}/started\n{body}\n')
    program.chmod(0o755)
    return Settings(
        vtysh=program, frr_reload=program, run_dir=directory / "run", frr_run_dir=directory / "frr", frr_pathspace="p"
    )


def left_behind(directory: Path) -> list[str]:
    """Return the working files that hold the secret."""
    files = [path for path in (directory / "run").rglob("*") if path.is_file()]
    return [path.name for path in files if "hush" in path.read_text()]


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_ends_leaves_no_secret(name: str, tmp_path: Path) -> None:
    await CALLS[name](ReloadDriver(settings(tmp_path, "exit 0")))
    assert (tmp_path / "started").exists()
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_exceeds_its_deadline_leaves_no_secret(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for deadline in ("CHECK_SECONDS", "LOAD_SECONDS", "RELOAD_SECONDS"):
        monkeypatch.setattr(driver, deadline, 1.0)
    body = f"""case "$*" in *transaction*) exit 0;; esac
        echo 'password hush' >{tmp_path}/run/frr/reload-X1.txt
        exec sleep 60"""
    with pytest.raises(CommandTimeout):
        await CALLS[name](ReloadDriver(settings(tmp_path, body)))
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_is_cancelled_leaves_no_secret(name: str, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(CALLS[name], ReloadDriver(settings(tmp_path, "exec sleep 60")))
        while not (tmp_path / "started").exists():  # noqa: ASYNC110 - another process makes it
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("name", CALLS)
async def test_a_program_that_is_not_there_leaves_no_secret(name: str, tmp_path: Path) -> None:
    nowhere = settings(tmp_path, "").model_copy(update={"vtysh": tmp_path / "no", "frr_reload": tmp_path / "no"})
    with pytest.raises(CommandMissing):
        await CALLS[name](ReloadDriver(nowhere))
    assert left_behind(tmp_path) == []


async def test_what_a_killed_process_left_behind_goes_with_the_next_call(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "frr"
    directory.mkdir(parents=True)
    for name in ("frr.conf", "reload-X1.txt", ".commands.conf.0123456789abcdef.tmp"):
        (directory / name).write_text(SECRET)
    await ReloadDriver(settings(tmp_path, "exit 0")).refusal("hostname x\n")
    assert left_behind(tmp_path) == []
    assert directory.stat().st_mode & 0o777 == 0o700
