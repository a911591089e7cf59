"""Polls that are answered what the last one was: nothing is decoded or judged again, and what differs is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from actors.health import vnis
from actors.health.frr_json import BGP_IPV4, INTERFACES, SUMMARY, VNIS, Decoder, parse
from actors.health.query import PolledFrr, observe
from actors.health.vnis import VniCheck, faults_of
from tests.actors.health.examples import fabric, observed, sample
from tests.actors.lib.frr.daemon import daemon

ROUTES = '{"red":{"10.0.0.0/24":[{"protocol":"bgp","uptime":"%s","nexthops":[]}]}}'


async def test_an_answer_with_the_text_of_the_last_one_is_its_document(tmp_path: Path) -> None:
    frr = PolledFrr(tmp_path, seconds=10)
    answers = {INTERFACES: ('{"eth1":{"status":"up"}}', 0)}
    async with daemon(tmp_path / "zebra.vty", answers):
        first, second = [await frr.json(INTERFACES, daemon="zebra") for _ in range(2)]
        assert second[0] is first[0]
        answers[INTERFACES] = '{"eth1":{"status":"down"}}', 0
        assert await frr.json(INTERFACES, daemon="zebra") == [{"eth1": {"status": "down"}}]


async def test_the_age_of_a_route_is_no_difference_and_its_next_hops_are(tmp_path: Path) -> None:
    frr, found = PolledFrr(tmp_path, seconds=10), list[object]()
    answers: dict[str, tuple[str, int]] = {}
    async with daemon(tmp_path / "zebra.vty", answers):
        for text in (ROUTES % "00:00:01", ROUTES % "1d02h03m", ROUTES.replace("[]", '[{"fib":true}]') % "1d02h04m"):
            answers[BGP_IPV4] = text, 0
            found += await frr.json(BGP_IPV4, daemon="zebra")
    assert found[1] is found[0]
    assert found[2] == json.loads(ROUTES.replace("[]", '[{"fib":true}]') % "1d02h04m")


async def test_neither_long_answers_nor_those_with_counters_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.health.query.LONGEST_KEPT", 25)
    frr = PolledFrr(tmp_path, seconds=10)
    answers = {INTERFACES: ('{"eth1":{"status":"up"}}', 0), VNIS: ('[{"vni":100,"type":"L2"}]', 0), SUMMARY: ("{}", 0)}
    async with daemon(tmp_path / "zebra.vty", answers):
        first, second = [await frr.json(*answers, daemon="zebra") for _ in range(2)]
        assert [old is new for old, new in zip(first, second, strict=True)] == [True, True, False]
        answers[INTERFACES] = '{"eth1":{"status":"down"}}', 0
        third, fourth = [await frr.json(*answers, daemon="zebra") for _ in range(2)]
    assert third == fourth != second
    assert [old is new for old, new in zip(third, fourth, strict=True)] == [False, True, False]


async def test_nothing_is_kept_of_many_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    daemons, answers = sample("fabric_up")

    class Same:
        async def daemons(self) -> frozenset[str]:
            return daemons

        async def send(self, asked: Mapping[str, tuple[str, ...]]) -> None:
            assert set(asked) <= daemons

        async def json(self, *commands: str, daemon: str) -> list[object]:
            return [answers.get(command) for command in commands]

    decoder, check, state = Decoder(), VniCheck(), fabric()
    first, second = [await observe(Same(), decoder) for _ in range(2)]
    assert second.evpn is first.evpn is not None
    assert check.faults_of(state, frozenset(), first) is check.faults_of(state, frozenset(), second)
    for module in ("query", "vnis"):
        monkeypatch.setattr(f"actors.health.{module}.KEPT_ROUTES", first.table_size - 1)
    first, second = [await observe(Same(), decoder) for _ in range(2)]
    assert second.evpn == first.evpn
    assert second.evpn is not first.evpn
    assert check.faults_of(state, frozenset(), first) is not check.faults_of(state, frozenset(), second)


async def test_commands_and_daemons_with_the_same_text_are_not_confused(tmp_path: Path) -> None:
    frr = PolledFrr(tmp_path, seconds=10)
    answers = {INTERFACES: ('{"eth1":{"status":"up"}}', 0), VNIS: ("", 0)}
    async with daemon(tmp_path / "zebra.vty", answers), daemon(tmp_path / "bgpd.vty", {INTERFACES: ("{}", 0)}):
        assert await frr.json(INTERFACES, VNIS, daemon="zebra") == [{"eth1": {"status": "up"}}, None]
        assert await frr.json(INTERFACES, daemon="bgpd") == [{}]
        assert await frr.json(VNIS, INTERFACES, daemon="zebra") == [None, {"eth1": {"status": "up"}}]


SITUATIONS = ("up", "links_down", "bgpd_gone", "fabric_up", "fabric_leak", "empty", "fabric_no_peer", "up")


def test_a_decoder_gives_what_decoding_everything_gives() -> None:
    """Each situation twice, so that the second time everything is known."""
    decoder = Decoder()
    for situation in SITUATIONS:
        daemons, answers = sample(situation)
        for _ in range(2):
            assert parse(daemons, answers, decoder) == parse(daemons, answers)


def test_only_new_answers_are_decoded() -> None:
    daemons, answers = sample("up")
    decoder = Decoder()
    first = parse(daemons, answers, decoder)
    second = parse(daemons, {**answers, INTERFACES: dict(answers[INTERFACES])}, decoder)  # type: ignore[call-overload]
    assert second == first
    assert second.vnis is first.vnis
    assert second.interfaces is not first.interfaces


def test_vnis_are_judged_again_if_anything_but_sessions_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []

    def counted(*arguments: object) -> object:
        judged.append("")
        return faults_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(vnis, "faults_of", counted)
    check, state, seen = VniCheck(), fabric(), observed("fabric_up")
    omitted = frozenset({state.l3vnis[0].resource})
    for inputs, judgements in (
        ((state, frozenset(), seen), 1),
        ((state, frozenset(), replace(seen, peers={}, bfd={}, routes={})), 1),
        ((state, omitted, seen), 2),
        ((state, omitted, replace(seen, interfaces={**seen.interfaces, "toswitch1": False})), 3),
        ((replace(state), omitted, seen), 4),
        ((state, frozenset(), observed("fabric_leak")), 5),
        ((state, frozenset(), observed("fabric_leak")), 5),
    ):
        assert check.faults_of(*inputs) == faults_of(*inputs)
        assert len(judged) == judgements
