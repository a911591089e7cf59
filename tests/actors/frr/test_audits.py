"""An audit of FRR takes its turn with the kernel only if there is something to do."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock as Clock

from actors.frr.actor import LONGEST_RETRY, UNREADABLE_SECONDS
from tests.fakes.frr import HEADER

from .actor_bench import BASIC, MOVED, Bench, in_force, until

pytestmark = pytest.mark.usefixtures("no_threads")


async def test_an_audit_that_finds_nothing_does_not_interrupt_work_on_the_kernel(
    bench: Bench, autojump_clock: Clock
) -> None:
    await in_force(bench)
    bench.frr.calls.clear()
    async with bench.changing:
        await trio.sleep(65)
        assert bench.frr.calls == ["wait_ready", "running"]
        assert bench.changing.statistics().tasks_waiting == 0
        bench.frr.text = ""
        await trio.sleep(60)
        assert bench.changing.statistics().tasks_waiting == 1
        assert bench.frr.text == HEADER + "end\n"
    await until(lambda: bench.out.version == 2, 5)
    assert (bench.outcome().applied, bench.outcome().changed) == (True, True)


async def test_nor_does_one_while_the_kernel_moves_what_frr_is_without(bench: Bench, autojump_clock: Clock) -> None:
    await in_force(bench)
    bench.desired.set(MOVED)
    await until(lambda: bench.outcome().withdrawn != frozenset())
    bench.frr.calls.clear()
    async with bench.changing:
        await trio.sleep(65)
        assert bench.frr.calls == ["wait_ready", "running"]
        assert bench.changing.statistics().tasks_waiting == 0


@pytest.mark.parametrize("what", ["file", "residue"])
async def test_an_audit_repairs_what_is_not_in_the_running_configuration(
    what: str, bench: Bench, autojump_clock: Clock
) -> None:
    bench.frr.vrf_devices = {"gone"}
    bench.frr.text = "vrf gone\nexit-vrf\n"
    await in_force(bench)
    assert "vrf gone" in bench.frr.text
    boot = bench.settings.frr_etc_dir / "p" / "frr.conf"
    verified = boot.read_text()
    if what == "file":
        boot.write_text("other\n")
        await trio.sleep(65)
        assert boot.read_text() == verified
    else:
        bench.frr.vrf_devices = set()
        await trio.sleep(65)
        assert "vrf gone" not in bench.frr.text


async def test_what_was_verified_counts_for_a_while_when_an_audit_cannot_read_frr(
    bench: Bench, autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openperouter")
    await in_force(bench)
    caplog.clear()
    bench.frr.silent = True
    async with bench.changing:
        await trio.sleep(65 + UNREADABLE_SECONDS - 15)
        assert bench.changing.statistics().tasks_waiting == 0
        assert (bench.out.version, bench.outcome().applied) == (1, True)
        assert [record.message for record in caplog.records] == ["an audit could not read FRR's configuration"]
        assert bench.context.facts["unread"] == "zebra did not answer within 20 s"
        bench.frr.silent = False
        await trio.sleep(LONGEST_RETRY * 2)
        assert "unread" not in bench.context.facts
        bench.frr.silent = True
        await trio.sleep(65)
        assert bench.changing.statistics().tasks_waiting == 0
        await trio.sleep(UNREADABLE_SECONDS + LONGEST_RETRY)
        assert bench.changing.statistics().tasks_waiting == 1
    await until(lambda: bench.out.version == 2, 5)
    assert (bench.outcome().applied, bench.outcome().error) == (False, "zebra did not answer within 20 s")
    bench.frr.silent = False
    await until(lambda: bench.outcome().applied, LONGEST_RETRY * 2)


async def test_a_new_state_does_not_wait_for_a_frr_that_an_audit_cannot_read(
    bench: Bench, autojump_clock: Clock
) -> None:
    await in_force(bench)
    bench.frr.silent = True
    await trio.sleep(65)
    bench.frr.silent = False
    bench.desired.set(replace(BASIC, generation=2))
    await until(lambda: bench.out.version == 2, 1)
    assert bench.outcome().applied
