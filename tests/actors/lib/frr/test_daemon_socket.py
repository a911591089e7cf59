"""A daemon's answer is what it sent before the end mark, however it was cut; every way of not answering is a fault."""

from __future__ import annotations

import errno
import socket
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.lib.frr import daemon_socket
from actors.lib.frr.daemon_socket import PARTING_SECONDS, DaemonSockets, DaemonTooSlow
from actors.lib.frr.vtysh import FrrUnavailable, VtyshRefused
from supervisor.runtime.faults import PermissionFault

from .daemon import ANSWERED, DIES, HANGS, SLOW, SLOW_SECONDS, daemon


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 5, 1000])
async def test_each_command_of_a_session_has_its_own_answer_in_however_many_pieces(piece: int, tmp_path: Path) -> None:
    answers = {"show a json": ('{"x": "\u00e9"}\n', 0), "show b json": ("", 0), "show c json": ("[]", 1)}
    async with daemon(tmp_path / "zebra.vty", answers, piece) as asked:
        found = await DaemonSockets(tmp_path).json(*answers, daemon="zebra")
    assert found == [{"x": "\u00e9"}, None, []]
    assert asked == list(answers)


async def test_text_is_what_the_daemon_prints(tmp_path: Path) -> None:
    async with daemon(tmp_path / "zebra.vty", {"show vrf": ("vrf red id 4\n", 0)}):
        assert await DaemonSockets(tmp_path).text("show vrf", daemon="zebra") == "vrf red id 4\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (("% Unknown command: show a\n", 2), "status 2: % Unknown command"),
        (("", 14), "status 14: no output"),
        (("x\n% BGP instance not found\n", 0), "status 0: % BGP instance not found"),
    ],
)
async def test_a_refused_command_is_refused_in_the_daemons_words(
    answer: tuple[str, int], reason: str, tmp_path: Path
) -> None:
    async with daemon(tmp_path / "bgpd.vty", {"show a": answer}):
        with pytest.raises(VtyshRefused, match=f"bgpd refuses 'show a' with {reason}"):
            await DaemonSockets(tmp_path).text("show a", daemon="bgpd")


async def test_an_answer_that_is_not_json_is_refused(tmp_path: Path) -> None:
    async with daemon(tmp_path / "bgpd.vty", {"show a": ("{", 0)}):
        with pytest.raises(VtyshRefused, match="not JSON"):
            await DaemonSockets(tmp_path).json("show a", daemon="bgpd")


async def test_an_answer_without_an_end_is_refused_at_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_socket, "MAX_ANSWER", 100)
    async with daemon(tmp_path / "bgpd.vty", {"show a": ("x" * 200, 0)}):
        with pytest.raises(VtyshRefused, match="longer than 100 bytes"):
            await DaemonSockets(tmp_path).text("show a", daemon="bgpd")


async def test_a_daemon_without_a_socket_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(FrrUnavailable, match=r"zebra is not running .No such file"):
        await DaemonSockets(tmp_path).text("show a", daemon="zebra")


async def test_the_socket_of_a_dead_daemon_is_unavailable(tmp_path: Path) -> None:
    async with daemon(tmp_path / "zebra.vty", {}):
        pass
    with pytest.raises(FrrUnavailable, match=r"zebra is not running .*refused"):
        await DaemonSockets(tmp_path).text("show a", daemon="zebra")


async def test_a_socket_that_a_user_may_not_use_is_named_and_not_called_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def denied(_self: DaemonSockets, _daemon: str) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(DaemonSockets, "_connect", denied)
    with pytest.raises(PermissionFault, match=f"permission denied: {tmp_path}/zebra.vty; only root and FRR's group"):
        await DaemonSockets(tmp_path).text("show a", daemon="zebra")


async def test_a_daemon_that_ends_within_its_answer_is_unavailable(tmp_path: Path) -> None:
    async with daemon(tmp_path / "zebra.vty", {"show a": DIES}):
        with pytest.raises(FrrUnavailable, match="zebra ended the session"):
            await DaemonSockets(tmp_path).text("show a", daemon="zebra")


async def test_a_daemon_that_hangs_is_given_up(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with daemon(tmp_path / "zebra.vty", {"show a": HANGS}):
        with pytest.raises(DaemonTooSlow, match="zebra did not answer within 3 s"):
            await DaemonSockets(tmp_path, seconds=3).text("show a", daemon="zebra")


async def test_a_session_that_is_given_up_stays_open_until_the_daemon_has_answered(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with daemon(tmp_path / "zebra.vty", {"show a": SLOW}) as asked:
        with pytest.raises(DaemonTooSlow):
            await DaemonSockets(tmp_path, seconds=3).text("show a", daemon="zebra")
        await trio.sleep(SLOW_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        assert asked == ["show a", ANSWERED]


@pytest.mark.parametrize(("asked", "ends"), [("mgmtd", True), ("zebra", False)])
async def test_only_a_session_with_mgmtd_that_is_given_up_ends_at_once(
    asked: str, ends: bool, tmp_path: Path, autojump_clock: MockClock
) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / f"{asked}.vty"))
        silent.listen()
        with pytest.raises(DaemonTooSlow):
            await DaemonSockets(tmp_path, seconds=3).text("show a", daemon=asked)
        with silent.accept()[0] as session:
            assert session.recv(100) == b"enable\0"
            await trio.testing.wait_all_tasks_blocked()
            # Both shut down their side, and only what still listens takes what is sent.
            assert session.recv(100) == b""
            with pytest.raises(BrokenPipeError) if ends else nullcontext():
                session.sendall(b"answer")


async def test_a_session_that_configures_ends_at_once_so_that_nothing_of_it_is_carried_out_later(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "bgpd.vty"))
        silent.listen()
        with pytest.raises(DaemonTooSlow):
            async with DaemonSockets(tmp_path, seconds=3).session("bgpd", writes=True):
                raise AssertionError("bgpd has not answered")
        with silent.accept()[0] as session:
            assert session.recv(100) == b"enable\0"
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(BrokenPipeError):
                session.sendall(b"answer")


async def test_a_daemon_that_takes_no_more_sessions_for_now_is_slow_rather_than_absent(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = str(tmp_path / "zebra.vty")
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as other:
        busy.bind(path)
        busy.listen(0)
        other.connect(path)
        started = trio.current_time()
        with pytest.raises(DaemonTooSlow, match="zebra did not answer within 3 s"):
            await DaemonSockets(tmp_path, seconds=3).text("show a", daemon="zebra")
        assert trio.current_time() - started == pytest.approx(3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(DaemonSockets(tmp_path, seconds=3).text, "show a", daemon="zebra"))
            await trio.sleep(1)
            busy.accept()[0].close()
            await trio.sleep(1)
            with busy.accept()[0] as session:
                assert session.recv(100) == b"enable\0"
            nursery.cancel_scope.cancel()


def test_the_end_of_the_process_waits_for_such_a_session_no_longer_than_a_moment(tmp_path: Path) -> None:
    clock = MockClock(autojump_threshold=0)

    async def ask() -> float:
        with pytest.raises(DaemonTooSlow):
            await DaemonSockets(tmp_path, seconds=3).text("show a", daemon="zebra")
        return trio.current_time()

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "zebra.vty"))
        silent.listen()
        asked = trio.run(ask, clock=clock)
    assert clock.current_time() - asked == pytest.approx(PARTING_SECONDS)
