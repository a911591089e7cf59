"""Sessions with FRR's daemons that last from one poll to the next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.health.frr_json import INTERFACES, VNIS
from actors.health.query import PolledFrr
from actors.lib.frr.daemon_socket import DaemonTooSlow
from actors.lib.frr.vtysh import FrrUnavailable, VtyshRefused
from tests.actors.lib.frr.daemon import DIES, HANGS, daemon

UP = ('{"eth1":{}}', 0)
ZEBRA = "zebra"


@pytest.fixture
def frr(tmp_path: Path) -> PolledFrr:
    return PolledFrr(tmp_path, seconds=10)


async def test_a_poll_uses_the_session_of_the_last_one(tmp_path: Path, frr: PolledFrr) -> None:
    async with daemon(tmp_path / "zebra.vty", {INTERFACES: UP, VNIS: ("[]", 0)}) as asked:
        assert await frr.json(INTERFACES, daemon=ZEBRA) == [{"eth1": {}}]
        session = frr._sessions[ZEBRA]
        assert await frr.json(VNIS, INTERFACES, daemon=ZEBRA) == [[], {"eth1": {}}]
        assert frr._sessions == {ZEBRA: session}
        assert asked == [INTERFACES, VNIS, INTERFACES]


async def test_a_daemon_that_was_restarted_is_asked_in_a_new_session(tmp_path: Path, frr: PolledFrr) -> None:
    for text in ('{"eth1":{}}', '{"eth2":{}}'):
        async with daemon(tmp_path / "zebra.vty", {INTERFACES: (text, 0)}):
            assert await frr.texts(INTERFACES, daemon=ZEBRA) == [text]
        (tmp_path / "zebra.vty").unlink()
    with pytest.raises(FrrUnavailable, match="zebra is not running"):
        await frr.texts(INTERFACES, daemon=ZEBRA)
    assert not frr._sessions


@pytest.mark.parametrize(
    ("answer", "fault"), [(HANGS, DaemonTooSlow), (DIES, FrrUnavailable), (("no", 2), VtyshRefused)]
)
async def test_a_session_without_its_answers_is_not_used_again(
    tmp_path: Path, frr: PolledFrr, autojump_clock: MockClock, answer: tuple[str, int], fault: type[Exception]
) -> None:
    answers = {INTERFACES: UP, VNIS: answer}
    async with daemon(tmp_path / "zebra.vty", answers):
        await frr.json(INTERFACES, daemon=ZEBRA)
        with pytest.raises(fault):
            await frr.json(VNIS, INTERFACES, daemon=ZEBRA)
        assert not frr._sessions
        answers[VNIS] = "[]", 0
        assert await frr.json(VNIS, INTERFACES, daemon=ZEBRA) == [[], {"eth1": {}}]


async def test_commands_are_sent_to_all_daemons_before_the_first_answers(tmp_path: Path, frr: PolledFrr) -> None:
    asked = {ZEBRA: (INTERFACES, VNIS), "bgpd": (VNIS,)}
    async with (
        daemon(tmp_path / "zebra.vty", {INTERFACES: UP, VNIS: ("[]", 0)}) as by_zebra,
        daemon(tmp_path / "bgpd.vty", {VNIS: UP}) as by_bgpd,
    ):
        await frr.send(asked)
        assert (by_zebra, by_bgpd) == ([], [])
        await poll(frr, asked)
        for queries in (by_zebra, by_bgpd):
            queries.clear()
        await frr.send(asked)
        with trio.fail_after(10):
            while not by_bgpd:
                await wait_all_tasks_blocked()
        assert await poll(frr, asked) == [[{"eth1": {}}, []], [{"eth1": {}}]]
        assert (by_zebra, by_bgpd) == ([INTERFACES, VNIS], [VNIS])


async def test_answers_that_nothing_has_read_are_not_taken_for_others(tmp_path: Path, frr: PolledFrr) -> None:
    async with daemon(tmp_path / "zebra.vty", {INTERFACES: UP, VNIS: ("[]", 0)}):
        await frr.json(INTERFACES, daemon=ZEBRA)
        await frr.send({ZEBRA: (INTERFACES,)})
        assert await frr.json(VNIS, daemon=ZEBRA) == [[]]
        await frr.send({ZEBRA: (INTERFACES,)})
        await frr.send({ZEBRA: (VNIS,)})
        assert await frr.json(VNIS, daemon=ZEBRA) == [[]]
        assert await frr.json(INTERFACES, daemon=ZEBRA) == [{"eth1": {}}]


async def test_a_daemon_that_was_restarted_after_it_was_sent_commands_is_asked_again(
    tmp_path: Path, frr: PolledFrr
) -> None:
    for text in ('{"eth1":{}}', '{"eth2":{}}'):
        async with daemon(tmp_path / "zebra.vty", {INTERFACES: (text, 0)}):
            assert await frr.texts(INTERFACES, daemon=ZEBRA) == [text]
            await frr.send({ZEBRA: (INTERFACES,)})
        (tmp_path / "zebra.vty").unlink()
    # One that is gone by then has no session, and is not an error yet.
    await frr.send({ZEBRA: (INTERFACES,)})
    with pytest.raises(FrrUnavailable, match="zebra is not running"):
        await frr.texts(INTERFACES, daemon=ZEBRA)


async def poll(frr: PolledFrr, asked: Mapping[str, tuple[str, ...]]) -> list[list[object]]:
    return [await frr.json(*commands, daemon=name) for name, commands in asked.items()]


async def test_all_sessions_end_with_their_reader(tmp_path: Path, frr: PolledFrr) -> None:
    async with daemon(tmp_path / "zebra.vty", {INTERFACES: UP}), daemon(tmp_path / "bgpd.vty", {VNIS: ("[]", 0)}):
        await frr.json(INTERFACES, daemon=ZEBRA)
        await frr.json(VNIS, daemon="bgpd")
        streams = [session._stream for session in frr._sessions.values()]
        frr.close()
    assert [stream.socket.fileno() for stream in streams] == [-1, -1]
