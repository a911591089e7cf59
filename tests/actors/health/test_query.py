"""Polling FRR: only the daemons that run, never mgmtd; that there is no answer is an observation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from actors.health.frr_json import BFD_PEERS, EVPN, INTERFACES, SUMMARY, TYPE_3, TYPE_5, VNIS
from actors.health.query import SESSIONS, PolledFrr, observe, too_many
from actors.lib.frr.vtysh import FrrUnavailable
from config.settings import Settings
from supervisor.runtime.faults import DependencyFault
from tests.actors.health.examples import SampledFrr, observed
from tests.actors.lib.frr.daemon import daemon


class Recording(SampledFrr):
    def __init__(self, situation: str) -> None:
        super().__init__(situation)
        self.commands: list[str] = []
        self.daemons_asked: list[str] = []

    async def json(self, *commands: str, daemon: str) -> list[object]:
        self.commands += commands
        self.daemons_asked.append(daemon)
        return await super().json(*commands, daemon=daemon)


async def test_a_poll_returns_what_was_answered() -> None:
    assert await observe(SampledFrr("up")) == observed("up")


async def test_the_routes_are_read_with_two_more_sessions_however_many_vnis_there_are() -> None:
    frr = Recording("fabric_up")
    assert await observe(frr) == observed("fabric_up")
    assert frr.daemons_asked == ["zebra", "bgpd", "bfdd", "bgpd", "zebra"]
    assert len(frr.daemons_asked) == SESSIONS


async def test_the_routes_of_a_large_fabric_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.health.query.MOST_ROUTES", 12)
    frr = Recording("fabric_up")
    assert (await observe(frr)).evpn is None
    assert TYPE_5 not in frr.commands


async def test_the_routes_are_not_read_if_a_neighbour_has_sent_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    received = max(peer.prefixes.get(EVPN, 0) for peer in observed("fabric_up").peers.values())
    assert received > 0
    monkeypatch.setattr("actors.health.query.MOST_RECEIVED", received - 1)
    frr = Recording("fabric_up")
    seen = await observe(frr)
    assert seen.evpn is None
    assert "from one neighbour" in too_many(seen)
    assert TYPE_5 not in frr.commands


class Summarised(Recording):
    """An FRR whose summary shows another number of EVPN routes, or none where it has no EVPN neighbour."""

    def __init__(self, situation: str, families: dict[str, object]) -> None:
        super().__init__(situation)
        self.summary = {"default": families}

    async def json(self, *commands: str, daemon: str) -> list[object]:
        answers = await super().json(*commands, daemon=daemon)
        return [
            self.summary if command == SUMMARY else answer for command, answer in zip(commands, answers, strict=True)
        ]


async def test_an_empty_evpn_table_is_not_asked_for_because_frr_prints_no_json_then() -> None:
    frr = Summarised("fabric_up", {"l2VpnEvpn": {"ribCount": 0, "peers": {}}})
    seen = await observe(frr)
    assert TYPE_3 not in frr.commands
    assert seen.evpn is not None
    assert (seen.evpn.type3, seen.evpn.type5) == ((), ())
    assert seen.evpn.zebra["red"]


async def test_without_an_evpn_neighbour_the_number_of_routes_is_unknown_and_none_is_read() -> None:
    frr = Summarised("fabric_up", {})
    assert (await observe(frr)).evpn is None
    assert TYPE_3 not in frr.commands


@pytest.mark.parametrize(
    ("situation", "sent", "not_sent"),
    [("up", {SUMMARY, VNIS, BFD_PEERS}, set()), ("bgpd_gone", {VNIS, INTERFACES}, {SUMMARY, BFD_PEERS})],
)
async def test_an_absent_daemon_is_not_polled(situation: str, sent: set[str], not_sent: set[str]) -> None:
    frr = Recording(situation)
    await observe(frr)
    assert sent <= set(frr.commands)
    assert not not_sent & set(frr.commands)


async def test_nothing_is_polled_without_a_daemon_that_answers() -> None:
    class OnlyWatched(Recording):
        async def daemons(self) -> frozenset[str]:
            return frozenset({"watchfrr"})

    frr = OnlyWatched("up")
    await observe(frr)
    assert frr.commands == []


async def test_mgmtd_is_never_polled(tmp_path: Path) -> None:
    """A session with it while a configuration is written would break the commit."""
    run_dir = tmp_path / "frr" / "perouter"
    run_dir.mkdir(parents=True)
    frr = PolledFrr.of(Settings(frr_run_dir=tmp_path / "frr", run_dir=tmp_path), seconds=10)
    with pytest.raises(FrrUnavailable, match="FRR is not running"):
        await frr.daemons()
    own = await trio.Path("/proc/self/comm").read_text()
    own = own.strip()
    (run_dir / f"{own}.pid").write_text(f"{os.getpid()}\n")
    (run_dir / "mgmtd.pid").write_text(f"{os.getpid()}\n")
    async with daemon(run_dir / "bfdd.vty", {BFD_PEERS: ("", 0)}), daemon(run_dir / "mgmtd.vty", {}) as asked:
        assert await frr.daemons() == {own}
        assert await frr.json(BFD_PEERS, daemon="bfdd") == [None]
        await observe(frr)
    assert asked == []


async def test_an_unresponsive_frr_is_an_observation_and_not_a_crash() -> None:
    seen = await observe(SampledFrr("unresponsive"))
    assert seen.error == "FRR does not answer: failed to connect to any daemons"


async def test_one_daemon_that_hangs_leaves_it_known_which_run() -> None:
    frr = SampledFrr("up")
    frr.silent = "bgpd"
    seen = await observe(frr)
    assert (seen.daemons, seen.silent) == (observed("up").daemons, "bgpd")
    assert seen.error == "bgpd did not answer within 20 s"


async def test_a_daemon_that_dies_between_two_questions_is_an_observation_too() -> None:
    class Dying(SampledFrr):
        async def json(self, *commands: str, daemon: str) -> list[object]:
            raise DependencyFault("vtysh: error reading from bgpd")

    assert "bgpd" in (await observe(Dying("up"))).error
