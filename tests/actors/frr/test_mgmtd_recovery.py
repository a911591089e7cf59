"""A mgmtd that is locked without a live session, or silent, is ended; a slow one, sessions and other processes not."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.frr.mgmtd_recovery import (
    COMMIT_SECONDS,
    PAUSE_SECONDS,
    POLL_SECONDS,
    PROBE_SECONDS,
    RECONNECT_PROBES,
    STEADY_SECONDS,
    MgmtdRecovery,
)
from actors.lib.frr import processes
from actors.lib.frr.processes import NativeProcesses, abandoned
from actors.lib.frr.vtysh import Vtysh
from supervisor.process.subprocesses import CommandMissing, CommandTimeout, Completed
from supervisor.runtime.faults import DependencyFault

#: Between two configurations that exceed their deadline: the configuration itself, and the pause after it.
ROUND = 90.0
#: Long enough for any patience to end.
LONG = 10 * COMMIT_SECONDS


def answer(refusal: str = "", *, owner: int = 0, transaction: int = 0, committer: int | None = None) -> str:
    """What FRR 10.3 prints: the sessions, of which the last is our own, the transactions, and how locking went.

    The transaction is the owner's, unless ``committer`` is another session.
    """
    locks = "          running\n          candidate\n"
    sessions = f"""
      Session: \t\t\t\t0x563e3c970f50
        Client-Id: \t\t\t{owner}
        Session-Id: \t\t\t{owner}
        DS-Locks:
{locks}"""
    pending = f"""
  Txn: \t\t\t0x0x563e3c691df0
    Txn-Id: \t\t\t{transaction}
    Session-Id: \t\t{owner if committer is None else committer}
    Type: \t\t\tCONFIG
    Ref-Count: \t\t\t4"""
    return f"""MGMTD Frontend Adpaters
  Client: \t\t\t\tvty-mgmtd-33
    Conn-FD: \t\t\t\t11
    Sessions{sessions if owner else ""}
      Session: \t\t\t\t0x563e3c94df60
        Client-Id: \t\t\t26
        Session-Id: \t\t\t26
        DS-Locks:
{"" if owner else "          None"}
    Total-Sessions: \t\t\t2
  Total: 1

MGMTD Transactions{pending if transaction else ""}
  Total: {1 if transaction else 0}

{refusal}"""


REFUSAL = "% Can't enter config; candidate datastore locked by another session\n"
FREE = answer()
#: No session holds the lock, and no transaction is under way that would release it.
LOST = answer(REFUSAL)
HELD = answer(REFUSAL, owner=25)
SILENCE = None


@dataclass
class ScriptedVtysh(Vtysh):
    """Gives one answer after the other, the last one indefinitely, on the virtual clock."""

    answers: list[str | Callable[[], str] | None]
    probes: int = field(default=0, init=False)

    async def run(
        self, *arguments: str, seconds: float | None = None, writes: bool = False, query: bool = False
    ) -> Completed:
        assert not writes
        assert arguments[:2] == ("-d", "mgmtd")
        text = self.answers[min(self.probes, len(self.answers) - 1)]
        self.probes += 1
        if callable(text):
            text = text()
        if text is None:
            await trio.sleep(seconds or 0.0)
            raise CommandTimeout(arguments, seconds or 0.0, "", "")
        return Completed(arguments, 1 if text.endswith(REFUSAL) else 0, text, "")


@dataclass
class Case:
    """A recovery between a scripted mgmtd and a real process of that name."""

    directory: Path
    process: subprocess.Popen[bytes]
    recovery: MgmtdRecovery = field(init=False)
    vtysh: ScriptedVtysh = field(init=False)

    def scripted(self, *answers: str | Callable[[], str] | None) -> Case:
        self.vtysh = ScriptedVtysh(list(answers))
        self.recovery = MgmtdRecovery(self.vtysh, NativeProcesses(self.directory, "p"))
        return self

    async def rounds(self, seconds: float) -> None:
        """Let configurations fail for a time."""
        end = trio.current_time() + seconds
        while trio.current_time() <= end:
            await self.recovery.recover(broken=False)
            await trio.sleep(ROUND)

    @property
    def ended(self) -> bool:
        """Whether the process was killed; waits for a kernel that is slow to carry it out."""
        return self.process.wait(30) == -9

    @property
    def alive(self) -> bool:
        """Whether the process runs on; a signal sent before takes effect within the wait."""
        try:
            self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            return True
        return False


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with started(tmp_path, "mgmtd") as process:
        yield Case(tmp_path, process)


@contextmanager
def started(directory: Path, name: str, user: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a given name, which the PID file names, of a user that the file belongs to."""
    program = directory / "programs" / name
    program.parent.mkdir(exist_ok=True)
    sleep = shutil.which("sleep")
    assert sleep is not None
    # The one before may still run.
    program.unlink(missing_ok=True)
    shutil.copy(sleep, program)
    # From its own directory: others may not enter those above it.
    with subprocess.Popen([f"./{name}", "600"], user=user, cwd=program.parent) as process:
        # The kernel resumes the parent a moment before it gives the child its new name.
        deadline = time.monotonic() + 30
        while Path(f"/proc/{process.pid}/comm").read_text().strip() != name:
            assert time.monotonic() < deadline
        (directory / "mgmtd.pid").write_text(f"{process.pid}\n")
        if user is not None:
            os.chown(directory / "mgmtd.pid", user, user)
        yield process
        process.kill()


async def test_a_lock_that_no_session_holds_is_probed_several_times_before_mgmtd_is_ended(
    case: Case, autojump_clock: MockClock
) -> None:
    await case.scripted(LOST).recovery.recover(broken=False)
    assert case.ended
    assert case.vtysh.probes >= 3
    assert STEADY_SECONDS <= trio.current_time() <= STEADY_SECONDS + POLL_SECONDS


async def test_what_is_left_of_a_broken_commit_gets_no_extra_time(case: Case, autojump_clock: MockClock) -> None:
    # The daemon that broke it reconnects a moment later, and mgmtd waits for it indefinitely.
    stuck = answer(REFUSAL, transaction=27)
    await case.scripted(FREE, stuck).recovery.recover(broken=True)
    assert case.ended
    assert trio.current_time() <= RECONNECT_PROBES * POLL_SECONDS + STEADY_SECONDS
    probes = case.vtysh.probes
    await case.recovery.recover(broken=True)
    assert case.vtysh.probes == probes, "the new one needs time"


@pytest.mark.parametrize(
    "answers",
    [(FREE,), (HELD,), (answer(REFUSAL, transaction=27), answer(REFUSAL, transaction=28), FREE)],
    ids=["it is over", "an operator's lock", "it continues"],
)
async def test_a_broken_commit_alone_is_no_reason_to_end_mgmtd(
    case: Case, autojump_clock: MockClock, answers: tuple[str | None, ...]
) -> None:
    with connection(case.directory):
        await case.scripted(*answers).recovery.recover(broken=True)
    assert case.alive


@pytest.mark.parametrize("later", [FREE, HELD, SILENCE], ids=["free", "held", "silent"])
async def test_a_lock_that_was_only_passed_on_is_no_proof(
    case: Case, autojump_clock: MockClock, later: str | None
) -> None:
    with connection(case.directory):
        await case.scripted(LOST, LOST, later).recovery.recover(broken=False)
    assert case.alive


async def test_an_mgmtd_that_lets_others_configure_is_not_ended(case: Case, autojump_clock: MockClock) -> None:
    await case.scripted(FREE).rounds(LONG)
    assert case.alive


@pytest.mark.parametrize("broken", [True, False])
async def test_an_mgmtd_that_does_not_answer_gets_the_time_of_a_commit(
    case: Case, autojump_clock: MockClock, broken: bool
) -> None:
    case.scripted(SILENCE)
    with trio.move_on_after(COMMIT_SECONDS):
        await case.recovery.recover(broken=broken)
    assert case.alive
    await case.recovery.recover(broken=broken)
    assert case.ended


@pytest.mark.parametrize("later", [FREE, HELD, LOST], ids=["free", "held", "locked"])
async def test_an_mgmtd_that_answers_again_is_not_ended_for_its_silence(
    case: Case, autojump_clock: MockClock, later: str
) -> None:
    with connection(case.directory):
        await case.scripted(SILENCE, SILENCE, later).recovery.recover(broken=False)
    assert case.alive
    assert trio.current_time() <= 2 * (PROBE_SECONDS + POLL_SECONDS)


async def test_a_session_whose_client_lives_keeps_the_lock_for_as_long_as_it_likes(
    case: Case, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with connection(case.directory):
        await case.scripted(HELD).rounds(LONG)
    assert case.alive
    assert capsys.readouterr().err.count("another session holds FRR's configuration lock") <= 1


async def test_the_session_that_holds_the_lock_is_logged_once(
    case: Case, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with connection(case.directory):
        await case.scripted(HELD).rounds(LONG)
    [record] = caplog.records
    assert record.getMessage() == "another session holds FRR's configuration lock"
    assert record.__dict__["fields"]["sessions"] == "25"


async def test_an_operator_who_has_changed_something_and_not_committed_it_keeps_the_lock(
    case: Case, autojump_clock: MockClock
) -> None:
    with connection(case.directory):
        await case.scripted(answer(REFUSAL, owner=25, transaction=4)).rounds(LONG)
    assert case.alive


async def test_a_session_whose_client_is_gone_and_that_commits_nothing_does_not(
    case: Case, autojump_clock: MockClock
) -> None:
    with connection(case.directory) as client:
        client.close()
        await case.scripted(HELD).recovery.recover(broken=False)
    assert case.ended


async def test_clients_that_connect_and_end_prove_nothing_about_the_owner_of_the_lock(
    case: Case, autojump_clock: MockClock
) -> None:
    with ExitStack() as until_the_next:

        def passing() -> str:
            """A vtysh that has just ended, each time another one, beside the operator's."""
            until_the_next.close()
            until_the_next.enter_context(connection(case.directory)).close()
            return HELD

        passing()
        await case.scripted(passing).rounds(LONG)
    assert case.alive


@pytest.mark.parametrize("owner", [0, 25], ids=["a daemon's first load", "a commit whose client is gone"])
async def test_a_transaction_gets_its_time(case: Case, autojump_clock: MockClock, owner: int) -> None:
    with connection(case.directory) as client:
        client.close()
        case.scripted(answer(REFUSAL, owner=owner, transaction=4))
        with trio.move_on_after(COMMIT_SECONDS - POLL_SECONDS / 2):
            await case.recovery.recover(broken=False)
        assert case.alive
        await case.recovery.recover(broken=False)
    assert case.ended


async def test_other_sessions_that_try_to_lock_do_not_hide_a_daemons_first_load(
    case: Case, autojump_clock: MockClock
) -> None:
    """Each of them holds the candidate datastore until it is refused the running one."""
    tries = [answer(REFUSAL, owner=owner, transaction=4, committer=0) for owner in range(25, 125)]
    with connection(case.directory):
        case.scripted(*tries)
        with trio.move_on_after(COMMIT_SECONDS - POLL_SECONDS / 2):
            await case.recovery.recover(broken=False)
        assert case.alive
        await case.recovery.recover(broken=False)
    assert case.ended
    assert case.vtysh.probes < len(tries)


async def test_a_transaction_that_ends_is_not_waited_for_any_longer(
    case: Case, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openperouter")
    pending = answer(REFUSAL, transaction=4)
    await case.scripted(pending, pending, FREE).recovery.recover(broken=False)
    assert trio.current_time() == 2 * POLL_SECONDS
    assert case.alive
    assert [record.getMessage() for record in caplog.records] == ["waiting for mgmtd"]


async def test_transactions_that_end_are_progress(case: Case, autojump_clock: MockClock) -> None:
    answers = [answer(REFUSAL, transaction=number) for number in range(1, 60)]
    await case.scripted(*answers).rounds(LONG)
    assert case.alive


async def test_it_is_ended_once_and_then_given_time(case: Case, autojump_clock: MockClock) -> None:
    await case.scripted(LOST).recovery.recover(broken=False)
    assert case.ended
    with started(case.directory, "mgmtd") as second:
        await case.recovery.recover(broken=False)
        assert second.poll() is None
        await trio.sleep(PAUSE_SECONDS)
        await case.recovery.recover(broken=False)
        assert second.wait(30) == -9


async def test_one_call_is_bounded(case: Case, autojump_clock: MockClock) -> None:
    pending = answer(REFUSAL, transaction=4)
    for slowest, answers in (
        (PROBE_SECONDS + COMMIT_SECONDS + PROBE_SECONDS + POLL_SECONDS, [SILENCE]),
        (PROBE_SECONDS + STEADY_SECONDS, [LOST, SILENCE]),
        (PROBE_SECONDS + STEADY_SECONDS, [LOST, LOST, SILENCE]),
        (COMMIT_SECONDS + POLL_SECONDS, [pending]),
    ):
        begin = trio.current_time()
        await case.scripted(*answers).recovery.recover(broken=False)
        assert trio.current_time() - begin <= slowest + 0.1


async def test_a_cancelled_call_ends_nothing(case: Case, autojump_clock: MockClock) -> None:
    with trio.move_on_after(POLL_SECONDS / 2) as scope:
        await case.scripted(LOST).recovery.recover(broken=False)
    assert scope.cancelled_caught
    assert case.alive


async def test_a_new_daemon_does_not_inherit_the_proof_against_the_old_one(
    case: Case, autojump_clock: MockClock
) -> None:
    with ExitStack() as stack:
        successors: list[subprocess.Popen[bytes]] = []

        def restarted() -> str:
            if not successors:
                successors.append(stack.enter_context(started(case.directory, "mgmtd")))
            return LOST

        await case.scripted(LOST, restarted).recovery.recover(broken=False)
        assert [successor.poll() for successor in successors] == [None]
    assert case.alive


async def test_a_process_that_only_inherited_the_number_is_left_alone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with started(tmp_path, "other") as other:
        await Case(tmp_path, other).scripted(LOST).recovery.recover(broken=False)
        assert other.poll() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a PID file to another user")
async def test_who_writes_the_pid_file_cannot_have_processes_of_other_users_ended(
    case: Case, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    os.chown(case.directory / "mgmtd.pid", 65534, 65534)
    await case.scripted(LOST).recovery.recover(broken=False)
    assert case.alive
    assert "its PID file does not name its process" in caplog.text


#: As far as it is needed here: a unit of its own that runs something as the user that is asked for.
SYSTEMD_RUN = """#!/bin/sh
while [ "$1" != -- ]; do case $1 in --uid=*) user=${1#--uid=} ;; esac; shift; done
shift
exec setpriv --reuid="$user" --regid="$user" --clear-groups -- "$@"
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
@pytest.mark.parametrize("reused", [False, True])
async def test_without_the_capability_systemd_ends_it_as_its_own_user(
    reused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number may be another process's by the time that systemd starts something: that one is left alone."""

    def refused(process: int, number: int) -> None:
        assert number == signal.SIGKILL
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", refused)
    (tmp_path / "systemd-run").write_text(SYSTEMD_RUN)
    (tmp_path / "systemd-run").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with started(tmp_path, "other" if reused else "mgmtd", user=65534) as process:
        case = Case(tmp_path, process)
        if reused:
            monkeypatch.setattr(processes, "pid_of", lambda directory, daemon: process.pid)
            with pytest.raises(DependencyFault, match="systemd-run: 1"):
                await processes.end_daemon(tmp_path, "mgmtd", process.pid)
            assert case.alive
        else:
            assert await processes.end_daemon(tmp_path, "mgmtd", process.pid)
            assert case.ended


async def test_no_pid_file_is_no_crash(case: Case, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    (case.directory / "mgmtd.pid").unlink()
    await case.scripted(LOST).recovery.recover(broken=False)
    assert case.alive
    assert "its PID file does not name its process" in caplog.text


async def test_an_frr_that_cannot_be_judged_is_left_alone(case: Case, autojump_clock: MockClock) -> None:
    def missing() -> str:
        raise CommandMissing("cannot start vtysh")

    await case.scripted("% Unknown command: show mgmt frontend-adapter all\n").rounds(LONG)
    await case.scripted(missing).rounds(LONG)
    assert case.alive


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A server's socket, as mgmtd's."""
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))
        server.listen()
        yield server


@contextmanager
def connection(directory: Path) -> Iterator[socket.socket]:
    """A client's end of a connection to mgmtd's socket, where the server reads nothing."""
    path = directory / "mgmtd.vty"
    path.unlink(missing_ok=True)
    with listening(path) as server, closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(path))
        accepted, _ = server.accept()
        with closing(accepted):
            yield client


def test_only_the_connection_without_a_client_is_abandoned(tmp_path: Path) -> None:
    path = tmp_path / "mgmtd.vty"
    with listening(path) as server, socket.socket(socket.AF_UNIX) as living, socket.socket(socket.AF_UNIX) as dying:
        living.connect(str(path))
        dying.connect(str(path))
        with server.accept()[0], server.accept()[0] as left:
            assert abandoned(path) == frozenset()
            dying.close()
            assert abandoned(path) == {os.fstat(left.fileno()).st_ino}
            assert abandoned(tmp_path / "elsewhere" / "mgmtd.vty") == frozenset()


def test_a_connection_is_found_by_another_path_to_the_same_socket(tmp_path: Path) -> None:
    # FRR may use /var/run/frr and we /run/frr.
    (tmp_path / "link").symlink_to(tmp_path)
    with connection(tmp_path) as client:
        client.close()
        assert len(abandoned(tmp_path / "link" / "mgmtd.vty")) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can enter a network namespace")
def test_a_client_in_frrs_network_namespace_is_seen(tmp_path: Path) -> None:
    """As of those that watchfrr and "ip netns exec" start; our own namespace's list is without them."""
    path = tmp_path / "mgmtd.vty"
    client = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()"
    command = ("unshare", "--net", sys.executable, "-c", client, str(path))
    with listening(path) as server, subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        accepted, _ = server.accept()
        # The open file keeps the namespace when its only process has ended.
        with closing(accepted), Path(f"/proc/{process.pid}/ns/net").open() as netns:
            frr = NativeProcesses(tmp_path, "p", Path(f"/proc/self/fd/{netns.fileno()}"))
            assert trio.run(frr.abandoned, "mgmtd") == frozenset()
            process.kill()
            process.wait(30)
            assert trio.run(frr.abandoned, "mgmtd") == {os.fstat(accepted.fileno()).st_ino}
            assert abandoned(path) == frozenset()


async def test_without_frrs_namespace_ours_is_looked_at(case: Case, autojump_clock: MockClock) -> None:
    case.scripted(HELD)
    gone = NativeProcesses(case.directory, "p", case.directory / "gone")
    with connection(case.directory) as client:
        client.close()
        await MgmtdRecovery(case.vtysh, gone).recover(broken=False)
    assert case.ended


def test_connections_beyond_one_netlink_message_are_seen(tmp_path: Path) -> None:
    pairs = [socket.socketpair() for _ in range(400)]
    with connection(tmp_path) as client:
        client.close()
        assert len(abandoned(tmp_path / "mgmtd.vty")) == 1
    for one, other in pairs:
        one.close()
        other.close()


async def test_a_kernel_that_does_not_list_connections_protects_the_owner(
    case: Case, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_path: Path) -> frozenset[int]:
        raise PermissionError("not here")

    monkeypatch.setattr(processes, "abandoned", refused)
    await case.scripted(HELD).rounds(LONG)
    assert case.alive
