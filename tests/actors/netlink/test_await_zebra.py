"""How long new VRFs wait for zebra: until it knows them, not at all without zebra, and never indefinitely."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock as Clock

from actors.lib.frr.daemon_socket import DaemonSockets
from actors.lib.frr.vtysh import FrrUnavailable, VtyshRefused
from actors.netlink.actor import ZEBRA_SECONDS, await_zebra

#: As zebra 10.3 prints it: a configured VRF without a device, one with another device of the same name, another VRF.
OLD = "vrf blue inactive (configured)\nvrf green id 7 table 10000101\nvrf red id 4 table 10000100\n"
NEW = "vrf blue id 8 table 10000102 (configured)\nvrf green id 7 table 10000101\nvrf red id 9 table 10000100\n"


class Zebra(DaemonSockets):
    """Gives one answer after the other, the last one for good; an exception is raised."""

    def __init__(self, *answers: str | Exception) -> None:
        super().__init__(Path("/nonexistent"))
        self.asked = 0
        self._answers: Iterator[str | Exception] = chain(answers, repeat(answers[-1]))

    async def text(self, command: str, *, daemon: str) -> str:
        assert (command, daemon) == ("show vrf", "zebra")
        self.asked += 1
        await trio.lowlevel.checkpoint()
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_it_waits_until_zebra_has_these_very_devices(autojump_clock: Clock) -> None:
    zebra = Zebra(OLD, VtyshRefused("busy"), OLD, NEW)
    await await_zebra(zebra, {"red": 9, "blue": 8})
    assert zebra.asked == 4


async def test_a_zebra_that_does_not_run_is_not_waited_for(autojump_clock: Clock) -> None:
    zebra = Zebra(FrrUnavailable("no zebra"))
    await await_zebra(zebra, {"red": 9})
    assert zebra.asked == 1


@pytest.mark.parametrize(
    ("answer", "reason"), [(lambda: OLD, "does not know blue, red"), (lambda: VtyshRefused("x"), "x")]
)
async def test_after_a_while_the_kernel_is_configured_without_it_with_a_warning(
    answer: Callable[[], str | Exception], reason: str, autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "openperouter")
    start = trio.current_time()
    await await_zebra(Zebra(answer()), {"red": 9, "blue": 8})
    assert trio.current_time() - start == pytest.approx(ZEBRA_SECONDS)
    [record] = caplog.records
    assert reason in str(record.__dict__)
