"""vtysh's output decides, not its exit code; every way of not answering is a typed fault."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.frr.preview import Preview, preview, rendered_redacted, running_redacted
from actors.frr.render.render import render
from actors.lib.frr.frr_lock import session_lock
from actors.lib.frr.vtysh import FrrUnavailable, Vtysh, VtyshRefused, lock_file
from config.settings import Settings
from supervisor.cli.verbs.router.vtysh import answer_of
from supervisor.process.subprocesses import CommandMissing, CommandTimeout
from supervisor.runtime.faults import DependencyFault
from tests.actors.frr.cases import CASES, HOSTNAME


def program(directory: Path, body: str) -> Path:
    path = directory / "vtysh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def vtysh(directory: Path, body: str, seconds: float = 20.0) -> Vtysh:
    return Vtysh(vtysh=str(program(directory, body)), pathspace="p", seconds=seconds)


async def test_text_is_what_the_commands_print_in_one_process(tmp_path: Path) -> None:
    assert await vtysh(tmp_path, 'echo "$@"').text("show a", "show b") == "-N p -c show a -c show b\n"


async def test_each_command_gets_its_own_document(tmp_path: Path) -> None:
    body = """printf 'h# show a json\\n{"x":1}\\nh# show b json\\nh# show c json\\n[]\\n'"""
    answers = await vtysh(tmp_path, body).json("show a json", "show b json", "show c json")
    assert answers == [{"x": 1}, None, []]


@pytest.mark.parametrize("body", ["echo 'h# show a json'; echo oops", "echo nothing", "printf 'h# show a json\\n{'"])
async def test_an_answer_that_is_not_json_is_refused(tmp_path: Path, body: str) -> None:
    with pytest.raises(VtyshRefused):
        await vtysh(tmp_path, body).json("show a json")


async def test_the_daemons_are_those_that_answer(tmp_path: Path) -> None:
    assert await vtysh(tmp_path, "echo ' mgmtd zebra'").daemons() == {"mgmtd", "zebra"}


async def test_no_daemon_at_all_is_an_unavailable_frr(tmp_path: Path) -> None:
    with pytest.raises(FrrUnavailable):
        await vtysh(tmp_path, "echo 'Exiting: failed to connect to any daemons.' >&2; exit 1").text("show a")


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize("message", ["bgpd is not running", "vtysh: error reading from bgpd: Connection reset (104)"])
async def test_an_absent_daemon_is_an_unavailable_frr_on_either_stream(
    message: str, stream: int, tmp_path: Path
) -> None:
    with pytest.raises(FrrUnavailable, match=f"FRR does not answer: {message[:20]}"):
        await vtysh(tmp_path, f"echo hostname x; echo '{message}' >&{stream}").text("show a")


async def test_a_daemon_that_ends_in_the_middle_of_a_line_is_an_unavailable_frr(tmp_path: Path) -> None:
    with pytest.raises(FrrUnavailable, match="error reading from bgpd"):
        await vtysh(tmp_path, "printf 'half vtysh: error reading from bgpd: Success (0)' >&2").text("show a")


@pytest.mark.parametrize(
    "line",
    [
        " neighbor 10.0.0.1 description uplink B is not running",
        " description is not running",
        "interface eth0\n description vtysh: error reading from bgpd",
        "! ' failed to connect to any daemons",
    ],
)
async def test_text_of_users_that_sounds_like_it_is_no_absence(line: str, tmp_path: Path) -> None:
    (tmp_path / "running").write_text(f"{line}\n")
    assert await vtysh(tmp_path, f"cat {tmp_path / 'running'}").text("show running-config") == f"{line}\n"


async def test_a_complaint_counts_even_with_exit_code_zero(tmp_path: Path) -> None:
    with pytest.raises(VtyshRefused, match="Unknown command"):
        await vtysh(tmp_path, "echo '% Unknown command: show a'").text("show a")


async def test_a_missing_program_and_a_hanging_one_are_different_faults(tmp_path: Path) -> None:
    with pytest.raises(CommandMissing):
        await Vtysh(vtysh=str(tmp_path / "none"), pathspace="p").text("show a")
    with pytest.raises(CommandTimeout):
        await vtysh(tmp_path, "exec sleep 2", seconds=0.2).text("show a")


async def test_a_preview_shows_what_would_change_and_no_secret(tmp_path: Path) -> None:
    desired = CASES["timers_port_password"]
    (tmp_path / "running").write_text(render(desired, hostname=HOSTNAME).text)
    settings = Settings(vtysh=program(tmp_path, f"cat {tmp_path / 'running'}"))
    assert await preview(desired, settings) == Preview()
    seen = await preview(CASES["no_vnis"], settings)
    changes = "\n".join(seen.lines)
    [interrupted] = seen.interrupted
    assert str(interrupted) == "session 192.168.11.2 in VRF default: is reset (other address families, password, port)"
    assert "- router bgp 64514 / neighbor 192.168.11.2 password ********" in changes
    shown = await running_redacted(settings) + rendered_redacted(desired, settings)
    assert "router bgp 64514" in shown
    assert "s3cret" not in shown + changes


async def test_a_query_that_is_given_up_keeps_its_lock_until_it_ends(tmp_path: Path) -> None:
    go, lock = tmp_path / "go", tmp_path / "frr.lock"
    os.mkfifo(go)
    slow = Vtysh(vtysh=str(program(tmp_path, f"read word < {go}")), pathspace="p", seconds=0.5, lock=lock)
    with pytest.raises(CommandTimeout):
        await slow.text("show running-config")
    with trio.move_on_after(0.5) as patience:
        async with session_lock(lock, exclusive=True):
            pass
    assert patience.cancelled_caught
    go.write_text("word\n")
    with trio.fail_after(60):
        async with session_lock(lock, exclusive=True):
            pass


@pytest.mark.parametrize(
    "ask",
    [running_redacted, partial(preview, CASES["basic"]), partial(answer_of, "show version", daemon="")],
    ids=["show frr", "plan", "vtysh"],
)
async def test_a_query_of_the_command_line_that_is_broken_off_keeps_its_lock_until_it_ends(
    ask: Callable[[Settings], Awaitable[object]], tmp_path: Path
) -> None:
    go, started = tmp_path / "go", tmp_path / "started"
    os.mkfifo(go)
    os.mkfifo(started)
    settings = Settings(vtysh=program(tmp_path, f"echo > {started}; read word < {go}"), run_dir=tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, settings)
        await trio.Path(started).read_text()
        nursery.cancel_scope.cancel()
    with trio.move_on_after(0.5) as patience:
        async with session_lock(lock_file(settings), exclusive=True):
            pass
    go.write_text("word\n")
    assert patience.cancelled_caught


async def test_a_preview_does_not_wait_for_a_long_change_of_frr(tmp_path: Path, autojump_clock: MockClock) -> None:
    desired = CASES["timers_port_password"]
    settings = Settings(vtysh=program(tmp_path, "exit 1"), run_dir=tmp_path, frr_etc_dir=tmp_path)
    (tmp_path / settings.frr_pathspace).mkdir()
    boot = tmp_path / settings.frr_pathspace / "frr.conf"
    async with session_lock(lock_file(settings), exclusive=True):
        began = trio.current_time()
        with pytest.raises(DependencyFault, match="is being changed"):
            await preview(desired, settings)
        boot.write_text(render(desired, hostname=HOSTNAME).text)
        seen = await preview(CASES["no_vnis"], settings)
        assert trio.current_time() - began < 10
    assert "is being changed at this moment" in seen.note
    assert "- router bgp 64514 / neighbor 192.168.11.2 password ********" in seen.lines


async def test_the_running_configuration_is_not_waited_for_indefinitely(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    settings = Settings(vtysh=program(tmp_path, "echo asked; exit 1"), run_dir=tmp_path)
    async with session_lock(lock_file(settings), exclusive=True):
        began = trio.current_time()
        with pytest.raises(DependencyFault) as fault:
            await running_redacted(settings)
        assert trio.current_time() - began < 6
    assert re.search(rf"process {os.getpid()} \(.+\) has held {tmp_path / 'frr.lock'} for 5 s", str(fault.value))
    assert "show frr --intended" in str(fault.value)


@pytest.mark.parametrize("end", ["kill -KILL $$", "exit 1"])
async def test_the_last_line_of_a_vtysh_that_is_killed_or_fails_is_quoted_without_its_secret(
    end: str, tmp_path: Path
) -> None:
    body = f"printf 'router bgp 1\\n neighbor 10.0.0.1 password hush{'h' * 500}'; {end}"
    with pytest.raises(VtyshRefused) as refused:
        await vtysh(tmp_path, body).text("show running-config")
    assert "neighbor 10.0.0.1 password ********" in str(refused.value)
    assert "hush" not in str(refused.value)


async def test_a_complaint_is_quoted_without_its_secret(tmp_path: Path) -> None:
    with pytest.raises(VtyshRefused, match=r"\*\*\*") as refused:
        await vtysh(tmp_path, "echo '% Unknown command: neighbor 10.0.0.1 password hush'").text("show a")
    assert "hush" not in str(refused.value)


@pytest.fixture
def left_behind(tmp_path: Path) -> Iterator[Settings]:
    """A lock whose process has ended, and not what it started."""
    settings = Settings(vtysh=tmp_path / "vtysh", run_dir=tmp_path)
    script = "exec 9>>$0; flock 9; sleep 600 >/dev/null & echo $!"
    left = subprocess.check_output(("sh", "-c", script, str(lock_file(settings))))
    yield settings
    os.kill(int(left), signal.SIGKILL)


async def test_a_lock_that_outlives_its_process_is_explained(left_behind: Settings, autojump_clock: MockClock) -> None:
    with pytest.raises(DependencyFault, match=r"a vtysh that process \d+ left behind has held .* for 5 s"):
        await running_redacted(left_behind)
