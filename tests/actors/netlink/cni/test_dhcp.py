"""The DHCP daemon as a child: started on demand, again when it ends or hangs, and ended. A script stands in for it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from actors.netlink.cni import dhcp
from actors.netlink.cni.dhcp import DhcpDaemon
from supervisor.runtime.faults import DependencyFault
from supervisor.runtime.restart_policy import Backoff

#: Answers as net/rpc does; ``say`` beside it is a line that it prints once asked again, ``end`` makes it end.
PROGRAM = f"""#!{sys.executable} -SE
import os, socket, sys, time
from pathlib import Path
here = Path(sys.argv[0]).parent
with (here / "runs").open("a") as runs:
    runs.write("%s %s %s\\n" % (os.getpid(), sys.argv[1], os.environ["PATH"]))
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[sys.argv.index("-socketpath") + 1])
server.listen()
while True:
    stream, _ = server.accept()
    if (here / "hang").exists():
        (here / "hang").unlink()
        time.sleep(1000)
    stream.recv(100)
    stream.sendall(b"HTTP/1.0 200 Connected to Go RPC\\n\\n")
    stream.close()
    for word in ("say", "end"):
        if (here / word).exists():
            text = (here / word).read_text()
            (here / word).unlink()
            sys.stderr.write(text + "\\n")
            sys.stderr.flush()
            if word == "end":
                sys.exit(3)
"""


class Daemon:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "dhcp").write_text(PROGRAM)
        (directory / "dhcp").chmod(0o755)
        self.daemon = DhcpDaemon(directory / "dhcp", directory / "run/dhcp/daemon.sock")
        self.changes = 0

    def runs(self) -> list[int]:
        path = self.directory / "runs"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

    def write(self, word: str, text: str = "") -> None:
        (self.directory / "new").write_text(text)
        (self.directory / "new").rename(self.directory / word)

    def changed(self) -> None:
        self.changes += 1

    async def another(self, number: int) -> int:
        """Wait for a later run."""
        with trio.fail_after(60):
            while (found := await self.daemon.ready()) <= number:  # noqa: ASYNC110 - a test polls
                await trio.sleep(0.01)
        return found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dhcp, "_BACKOFF", Backoff(first=0.01, longest=0.01))
    monkeypatch.setattr(dhcp, "ALIVE_SECONDS", 0.01)


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Daemon]:
    found = Daemon(directory)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.daemon.run, found.changed)
        yield found
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - there is no event for another process's deeds
            await trio.sleep(0.01)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_it_runs_from_the_first_need_until_it_is_released(tmp_path: Path, quick: None) -> None:
    async with running(tmp_path) as found:
        await trio.testing.wait_all_tasks_blocked()
        assert found.runs() == []
        assert [await found.daemon.ready(), await found.daemon.ready()] == [1, 1]
        [pid] = found.runs()
        assert (tmp_path / "run/dhcp").stat().st_mode & 0o777 == 0o700
        found.daemon.release()
        await until(lambda: not alive(pid))
        found.daemon.release()
        assert await found.daemon.ready() == 2
        assert found.changes == 2
        last = found.runs()[-1]
    assert not alive(last)
    assert not found.daemon.socket.exists()


@pytest.mark.parametrize("word", ["say", "end"])
async def test_one_that_ends_or_has_bound_another_lease_is_started_again(
    tmp_path: Path, quick: None, word: str
) -> None:
    async with running(tmp_path) as found:
        first = await found.daemon.ready()
        found.write(word, "2026/11/23 01:35:03 perouter-underlay-node/fabric/net1: lease rebound, expiration is soon")
        assert await found.another(first) == 2
        assert len(set(found.runs())) == 2
        assert found.changes == 2


async def test_one_that_hangs_is_killed_and_started_again(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as found:
        first = await found.daemon.ready()
        monkeypatch.setattr(dhcp, "ANSWER_SECONDS", 0.2)
        found.write("hang")
        await until(lambda: not (tmp_path / "hang").exists())
        # It is patient with the next one, which may start on a busy machine.
        monkeypatch.setattr(dhcp, "ANSWER_SECONDS", 30)
        assert await found.another(first) > first
        assert not alive(found.runs()[0])


async def test_a_program_that_is_missing_is_an_error_that_names_it_until_it_is_there(
    tmp_path: Path, quick: None
) -> None:
    async with running(tmp_path) as found:
        (tmp_path / "dhcp").rename(tmp_path / "elsewhere")
        with pytest.raises(
            DependencyFault, match=r"^the DHCP daemon does not start: cannot start .*/dhcp: No such file"
        ):
            await found.daemon.ready()
        (tmp_path / "elsewhere").rename(tmp_path / "dhcp")
        await until(lambda: found.changes > 0)
        assert await found.daemon.ready() == 1


async def test_one_that_never_answers_is_an_error_with_its_last_line(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as found:
        (tmp_path / "dhcp").write_text("#!/bin/sh\necho Error getting listener >&2\nexit 1\n")
        with pytest.raises(
            DependencyFault, match="ended with exit status 1: Error getting listener; it is started again"
        ):
            await found.daemon.ready()
