"""Asking FRR: only what can be answered, and silence is an observation."""

from __future__ import annotations

import pytest

from actors.health.observation import BFD_PEERS, INTERFACES, SUMMARY, VNIS
from actors.health.observing import observe, questions
from supervisor.faults import DependencyFault
from tests.actors.health.examples import SampledFrr, observed


class Recording(SampledFrr):
    def __init__(self, situation: str) -> None:
        super().__init__(situation)
        self.asked: list[str] = []

    async def json(self, *commands: str) -> list[object]:
        self.asked += commands
        return await super().json(*commands)


async def test_a_look_gives_what_was_answered() -> None:
    assert await observe(SampledFrr("up")) == observed("up")


@pytest.mark.parametrize(
    ("situation", "asked", "spared"),
    [("up", {SUMMARY, VNIS, BFD_PEERS}, set()), ("bgpd_gone", {VNIS, INTERFACES}, {SUMMARY, BFD_PEERS})],
)
async def test_no_daemon_that_is_absent_is_asked(situation: str, asked: set[str], spared: set[str]) -> None:
    frr = Recording(situation)
    await observe(frr)
    assert asked <= set(frr.asked)
    assert not spared & set(frr.asked)


def test_nothing_is_asked_when_no_daemon_is_there_to_answer() -> None:
    assert questions(frozenset({"watchfrr"})) == ()


async def test_a_silent_frr_is_an_observation_and_not_a_crash() -> None:
    seen = await observe(SampledFrr("silent"))
    assert seen.error == "FRR does not answer: failed to connect to any daemons"


async def test_a_daemon_that_dies_between_two_questions_is_an_observation_too() -> None:
    class Dying(SampledFrr):
        async def json(self, *commands: str) -> list[object]:
            raise DependencyFault("vtysh: error reading from bgpd")

    assert "bgpd" in (await observe(Dying("up"))).error
