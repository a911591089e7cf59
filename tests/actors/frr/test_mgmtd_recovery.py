"""A management daemon that locked itself up is ended; one that is not to blame, or not what it seems, is left alone."""

from __future__ import annotations

import shutil
import socket
import subprocess
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
    LOOK_AGAIN_SECONDS,
    LOOKS,
    PAUSE_SECONDS,
    PROBE_SECONDS,
    SILENCE_SECONDS,
    Unwedger,
)
from actors.lib.frr.vtysh import Vtysh
from supervisor.process.subprocesses import CommandMissing, CommandTimeout, Completed

#: Between two configurations that do not end in time: the configuration itself, and the pause after it.
ROUND = 90.0


def answer(refusal: str = "", *, owner: int = 0, transaction: int = 0) -> str:
    """What FRR 10.3 prints: the sessions, of which the last is who asks, the transactions, and how locking went."""
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
    Session-Id: \t\t{owner}
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
#: Nobody holds the lock, and nothing is under way that would give it back.
LOST = answer(REFUSAL)
HELD = answer(REFUSAL, owner=25)
SILENCE = None


@dataclass
class ScriptedVtysh(Vtysh):
    """Gives one answer after the other, the last one indefinitely, on the virtual clock."""

    answers: list[str | Callable[[], str] | None]
    looks: int = field(default=0, init=False)

    async def run(self, *arguments: str, seconds: float | None = None, writes: bool = False) -> Completed:
        assert not writes
        assert arguments[:2] == ("-d", "mgmtd")
        said = self.answers[min(self.looks, len(self.answers) - 1)]
        self.looks += 1
        if callable(said):
            said = said()
        if said is None:
            await trio.sleep(seconds or 0.0)
            raise CommandTimeout(arguments, seconds or 0.0, "", "")
        return Completed(arguments, 1 if said.endswith(REFUSAL) else 0, said, "")


@dataclass
class Case:
    """An unwedger between a scripted mgmtd and a real process of that name."""

    directory: Path
    process: subprocess.Popen[bytes]
    unwedger: Unwedger = field(init=False)
    vtysh: ScriptedVtysh = field(init=False)

    def scripted(self, *answers: str | Callable[[], str] | None) -> Case:
        self.vtysh = ScriptedVtysh(list(answers))
        self.unwedger = Unwedger(self.vtysh, self.directory)
        return self

    async def rounds(self, seconds: float) -> None:
        """Let configurations fail for a time."""
        end = trio.current_time() + seconds
        while trio.current_time() <= end:
            await self.unwedger.after_timeout()
            await trio.sleep(ROUND)

    @property
    def ended(self) -> bool:
        try:
            return self.process.wait(0.2) == -9
        except subprocess.TimeoutExpired:
            return False


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with started(tmp_path, "mgmtd") as process:
        yield Case(tmp_path, process)


@contextmanager
def started(directory: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a given name, which the PID file names."""
    program = directory / "programs" / name
    program.parent.mkdir(exist_ok=True)
    sleep = shutil.which("sleep")
    assert sleep is not None
    # The one before may still run.
    program.unlink(missing_ok=True)
    shutil.copy(sleep, program)
    with subprocess.Popen([str(program), "600"]) as process:
        # The kernel lets the parent go on a moment before it gives the child its new name.
        deadline = time.monotonic() + 10
        while Path(f"/proc/{process.pid}/comm").read_text().strip() != name:
            assert time.monotonic() < deadline
        (directory / "mgmtd.pid").write_text(f"{process.pid}\n")
        yield process
        process.kill()


async def test_a_lock_that_nobody_holds_is_seen_several_times_before_the_daemon_is_ended(
    case: Case, autojump_clock: MockClock
) -> None:
    await case.scripted(LOST).unwedger.after_timeout()
    assert case.ended
    assert case.vtysh.looks == LOOKS
    assert trio.current_time() >= (LOOKS - 1) * LOOK_AGAIN_SECONDS


async def test_what_is_left_of_a_broken_commit_is_not_waited_for(case: Case, autojump_clock: MockClock) -> None:
    # The daemon that broke it is back a moment later, and mgmtd waits for it indefinitely.
    stuck = answer(REFUSAL, transaction=27)
    await case.scripted(FREE, stuck).unwedger.after_broken_commit()
    assert case.ended
    assert trio.current_time() <= LOOKS * (LOOKS - 1) * LOOK_AGAIN_SECONDS
    looks = case.vtysh.looks
    await case.unwedger.after_broken_commit()
    assert case.vtysh.looks == looks, "the new one needs time"


@pytest.mark.parametrize(
    "answers",
    [(FREE,), (HELD,), (SILENCE,), (answer(REFUSAL, transaction=27), answer(REFUSAL, transaction=28), FREE)],
    ids=["it is over", "an operator's lock", "silence", "it goes on"],
)
async def test_a_broken_commit_alone_is_no_reason_to_end_anybody(
    case: Case, autojump_clock: MockClock, answers: tuple[str | None, ...]
) -> None:
    with connection(case.directory):
        await case.scripted(*answers).unwedger.after_broken_commit()
    assert not case.ended


@pytest.mark.parametrize("later", [FREE, HELD, SILENCE], ids=["free", "held", "silent"])
async def test_a_lock_that_was_only_passed_on_is_no_proof(
    case: Case, autojump_clock: MockClock, later: str | None
) -> None:
    await case.scripted(LOST, LOST, later).unwedger.after_timeout()
    assert not case.ended


async def test_a_daemon_that_lets_others_configure_is_not_to_blame(case: Case, autojump_clock: MockClock) -> None:
    await case.scripted(FREE).rounds(2 * SILENCE_SECONDS)
    assert not case.ended


async def test_slow_answers_do_not_count_unless_nothing_else_is_heard_for_long(
    case: Case, autojump_clock: MockClock
) -> None:
    await case.scripted(SILENCE, SILENCE, FREE, SILENCE, SILENCE, SILENCE).rounds(SILENCE_SECONDS)
    assert not case.ended


async def test_lasting_silence_is_the_end(case: Case, autojump_clock: MockClock) -> None:
    await case.scripted(SILENCE).rounds(SILENCE_SECONDS - ROUND)
    assert not case.ended
    await case.rounds(2 * ROUND)
    assert case.ended


async def test_a_success_in_between_ends_the_silence(case: Case, autojump_clock: MockClock) -> None:
    await case.scripted(SILENCE).rounds(SILENCE_SECONDS - ROUND)
    case.unwedger.after_success()
    await case.rounds(2 * ROUND)
    assert not case.ended


async def test_a_session_whose_client_lives_keeps_the_lock_for_as_long_as_it_likes(
    case: Case, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with connection(case.directory):
        await case.scripted(HELD).rounds(10 * SILENCE_SECONDS)
    assert not case.ended
    assert capsys.readouterr().err.count("another session holds FRR's configuration lock") <= 1


async def test_an_operator_who_has_changed_something_and_not_committed_it_keeps_the_lock(
    case: Case, autojump_clock: MockClock
) -> None:
    with connection(case.directory):
        await case.scripted(answer(REFUSAL, owner=25, transaction=4)).rounds(10 * COMMIT_SECONDS)
    assert not case.ended


async def test_a_session_whose_client_is_gone_and_that_commits_nothing_does_not(
    case: Case, autojump_clock: MockClock
) -> None:
    with connection(case.directory) as client:
        client.close()
        await case.scripted(HELD).unwedger.after_timeout()
    assert case.ended


async def test_clients_that_come_and_go_say_nothing_about_who_holds_the_lock(
    case: Case, autojump_clock: MockClock
) -> None:
    with ExitStack() as until_the_next:

        def passing() -> str:
            """A vtysh that has just ended, each time another one, beside the operator's."""
            until_the_next.close()
            until_the_next.enter_context(connection(case.directory)).close()
            return HELD

        passing()
        await case.scripted(passing).rounds(SILENCE_SECONDS)
    assert not case.ended


@pytest.mark.parametrize("owner", [0, 25], ids=["a daemon's first load", "a commit whose client is gone"])
async def test_a_transaction_gets_its_time(case: Case, autojump_clock: MockClock, owner: int) -> None:
    with connection(case.directory) as client:
        client.close()
        await case.scripted(answer(REFUSAL, owner=owner, transaction=4)).rounds(COMMIT_SECONDS - ROUND)
        assert not case.ended
        await case.rounds(2 * ROUND)
    assert case.ended


async def test_transactions_that_end_are_progress(case: Case, autojump_clock: MockClock) -> None:
    answers = [answer(REFUSAL, transaction=number) for number in range(1, 40)]
    await case.scripted(*answers).rounds(10 * COMMIT_SECONDS)
    assert not case.ended


async def test_it_is_ended_once_and_then_given_time(case: Case, autojump_clock: MockClock) -> None:
    await case.scripted(LOST).unwedger.after_timeout()
    assert case.ended
    with started(case.directory, "mgmtd") as second:
        await case.unwedger.after_timeout()
        assert second.poll() is None
        await trio.sleep(PAUSE_SECONDS)
        await case.unwedger.after_timeout()
        assert second.wait(10) == -9


async def test_one_call_is_bounded_and_can_be_cancelled(case: Case, autojump_clock: MockClock) -> None:
    slowest = LOOKS * PROBE_SECONDS + (LOOKS - 1) * LOOK_AGAIN_SECONDS
    for answers in ([SILENCE], [LOST, SILENCE], [LOST, LOST, SILENCE], [HELD]):
        with trio.fail_after(slowest + 0.1):
            await case.scripted(*answers).unwedger.after_timeout()
    with trio.move_on_after(LOOK_AGAIN_SECONDS / 2) as scope:
        await case.scripted(LOST).unwedger.after_timeout()
    assert scope.cancelled_caught
    assert not case.ended


async def test_a_new_daemon_does_not_inherit_the_proof_against_the_old_one(
    case: Case, autojump_clock: MockClock
) -> None:
    await case.scripted(SILENCE).rounds(SILENCE_SECONDS - ROUND)
    with started(case.directory, "mgmtd") as second:
        await case.rounds(2 * ROUND)
        assert second.poll() is None
    assert not case.ended


async def test_a_process_that_only_inherited_the_number_is_left_alone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with started(tmp_path, "stranger") as stranger:
        await Case(tmp_path, stranger).scripted(LOST).unwedger.after_timeout()
        assert stranger.poll() is None


async def test_no_pid_file_is_no_crash(case: Case, autojump_clock: MockClock) -> None:
    (case.directory / "mgmtd.pid").unlink()
    await case.scripted(LOST).unwedger.after_timeout()
    assert not case.ended


async def test_an_frr_that_cannot_be_judged_is_left_alone(case: Case, autojump_clock: MockClock) -> None:
    def missing() -> str:
        raise CommandMissing("cannot start vtysh")

    await case.scripted("% Unknown command: show mgmt frontend-adapter all\n").rounds(SILENCE_SECONDS)
    await case.scripted(missing).rounds(SILENCE_SECONDS)
    assert not case.ended


@contextmanager
def connection(directory: Path) -> Iterator[socket.socket]:
    """A client's end of a connection to mgmtd's socket, where the other end reads nothing."""
    path = directory / "mgmtd.vty"
    path.unlink(missing_ok=True)
    with closing(socket.socket(socket.AF_UNIX)) as server, closing(socket.socket(socket.AF_UNIX)) as client:
        server.bind(str(path))
        server.listen()
        client.connect(str(path))
        accepted, _ = server.accept()
        with closing(accepted):
            yield client
