"""Programs get their input, are bounded in time and output, and are killed with their children. Uses real processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trio

from supervisor.process import subprocesses
from supervisor.process.subprocesses import (
    CommandMissing,
    CommandTimeout,
    CommandTooTalkative,
    Completed,
    run_command,
    run_query,
)
from supervisor.runtime.faults import DependencyFault

#: Prints its own and its grandchild's process id, then both hang; the grandchild keeps the output open.
FAMILY = "sleep 1000 & echo $$ $!; wait"


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until_dead(pid: int) -> None:
    """Wait for a killed process to go; the test's own timeout bounds it."""
    with trio.fail_after(60):
        while alive(pid):  # noqa: ASYNC110 - the kernel gives no event for another process's child
            await trio.sleep(0.01)


async def timed_out(script: str) -> CommandTimeout:
    """Run a script past its deadline; on a busy machine it needs longer to print its line."""
    for seconds in (0.5, 5.0, 50.0):
        with pytest.raises(CommandTimeout, match=f"within {seconds:g} s") as caught:
            await run_command(["sh", "-c", script], seconds=seconds)
        if caught.value.stdout.endswith("\n"):
            return caught.value
    raise AssertionError(f"no output within {seconds:g} s")


async def test_output_and_exit_code_are_returned() -> None:
    result = await run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], seconds=10)
    assert result == Completed(("sh", "-c", "echo out; echo err >&2; exit 3"), 3, "out\n", "err\n")


async def test_standard_input_is_fed_and_closed() -> None:
    text = "grün\n" * 100_000
    assert (await run_command(["cat"], seconds=30, stdin=text)).stdout == text


async def test_without_input_the_program_reads_nothing() -> None:
    assert (await run_command(["cat"], seconds=10)).stdout == ""


async def test_a_program_may_ignore_its_input() -> None:
    result = await run_command(["sh", "-c", "exec <&-; exit 4"], seconds=10, stdin="x" * 10_000_000)
    assert result.returncode == 4


async def test_the_environment_is_replaced() -> None:
    assert (await run_command(["/usr/bin/env"], seconds=10, env={"A": "1"})).stdout == "A=1\n"


async def test_undecodable_output_is_replaced() -> None:
    assert (await run_command(["printf", "\\377x"], seconds=10)).stdout == "\ufffdx"


@pytest.mark.parametrize("program", ["/nonexistent/vtysh", "/etc/passwd"])
async def test_a_program_that_cannot_be_started_is_a_dependency_fault(program: str) -> None:
    with pytest.raises(CommandMissing, match=program) as caught:
        await run_command([program], seconds=10)
    assert isinstance(caught.value, DependencyFault)


async def test_the_deadline_kills_the_grandchild_too_and_keeps_the_output() -> None:
    child, grandchild = (int(word) for word in (await timed_out(FAMILY)).stdout.split())
    await until_dead(child)
    await until_dead(grandchild)


async def test_the_deadline_kills_a_grandchild_that_outlives_its_parent() -> None:
    await until_dead(int((await timed_out("sleep 1000 & echo $!")).stdout))


async def test_a_program_that_ignores_polite_signals_is_killed_as_well() -> None:
    stubborn = "trap '' TERM INT HUP; echo $$; while :; do sleep 1; done"
    await until_dead(int((await timed_out(stubborn)).stdout))


async def test_cancelling_the_caller_kills_the_family(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await run_command(
                ["sh", "-c", f"(sleep 1000 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait)"], seconds=60
            )

        nursery.start_soon(run)
        with trio.fail_after(60):
            while not pids.exists():  # noqa: ASYNC110 - waits for a real process
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    shell, child = (int(pid) for pid in pids.read_text().split())
    await until_dead(shell)
    await until_dead(child)
    assert not alive(shell)


@pytest.mark.parametrize("ends", ["deadline", "cancelled"])
async def test_a_query_is_left_to_end_by_itself(ends: str, tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    os.mkfifo(go)
    # More output than a pipe holds comes when nothing waits any more.
    script = f"echo begun; read word < {go}; yes | head -c 1000000; echo $word > {done}.new; mv {done}.new {done}"
    if ends == "deadline":
        # A busy machine may need a good part of it to start the shell.
        with pytest.raises(CommandTimeout, match=r"within 5 s$") as caught:
            await run_query(["sh", "-c", script], seconds=5)
        assert caught.value.stdout == "begun\n"
    else:
        with trio.move_on_after(0.5) as cancelled:
            await run_query(["sh", "-c", script], seconds=60)
        assert cancelled.cancelled_caught
    go.write_text("word\n")
    with trio.fail_after(60):
        while not done.exists():  # noqa: ASYNC110 - waits for a real process
            await trio.sleep(0.01)
    assert done.read_text() == "word\n"


async def test_a_query_that_ends_in_time_is_a_completed_program(monkeypatch: pytest.MonkeyPatch) -> None:
    result = await run_query(["sh", "-c", "echo out; echo err >&2; exit 3"], seconds=10)
    assert (result.returncode, result.stdout, result.stderr) == (3, "out\n", "err\n")
    with pytest.raises(CommandMissing, match="/nonexistent/vtysh"):
        await run_query(["/nonexistent/vtysh"], seconds=10)
    monkeypatch.setattr(subprocesses, "MAX_OUTPUT", 1000)
    with pytest.raises(CommandTooTalkative):
        await run_query(["sh", "-c", "yes | head -c 1001"], seconds=10)


async def test_the_program_has_its_own_session() -> None:
    script = "import os; print(os.getsid(0) == os.getpid())"
    assert (await run_command([sys.executable, "-c", script], seconds=30)).stdout == "True\n"


async def test_endless_output_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocesses, "MAX_OUTPUT", 100_000)
    with pytest.raises(CommandTooTalkative, match="100000 bytes"):
        await run_command(["yes"], seconds=30)


async def test_a_process_that_does_not_die_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocesses, "REAP_SECONDS", 0.1)
    monkeypatch.setattr(os, "killpg", lambda *_arguments: None)
    with pytest.raises(CommandTimeout):
        await run_command(["sleep", "2"], seconds=0.1)
