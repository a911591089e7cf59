"""Emptying a real FRR: what it runs, and what it starts with the next time."""

from __future__ import annotations

import stat

import trio

from config.settings import Settings
from supervisor.operations.teardown import clear_frr
from tests.actors.frr.cases import CASES

from .harness import FrrInstance
from .test_apply import Bench


async def test_sessions_vrfs_and_raw_snippets_are_removed_and_the_next_start_is_empty(
    frr: FrrInstance, settings: Settings
) -> None:
    bench = Bench(frr, settings)
    for case in ("two_l3vnis", "raw"):
        await bench.applied(CASES[case])
        output: list[str] = []
        assert await clear_frr(settings, output.append) == ""
        assert "FRR: sessions and VRFs removed" in output
        # FRR's daemons forget a VRF one after the other: an empty stanza of it may need another look.
        with trio.fail_after(60):
            while "\nvrf " in (running := frr.vtysh("show running-config")):
                assert await clear_frr(settings, output.append) == ""
        for word in ("router bgp", "vrf ", "neighbor"):
            assert word not in running, running
            assert word not in frr.conf.read_text()
    output = []
    assert await clear_frr(settings, output.append) == ""
    assert output == ["FRR: no configuration of the router"]


async def test_an_frr_that_does_not_run_starts_empty(frr: FrrInstance, settings: Settings) -> None:
    await Bench(frr, settings).applied(CASES["basic"])
    before = frr.conf.stat()
    for daemon in ("bgpd", "bfdd", "staticd", "mgmtd", "zebra"):
        frr.kill(daemon)
    output: list[str] = []
    assert await clear_frr(settings, output.append) == ""
    assert output == ["FRR: not running", f"FRR: {frr.conf} cleared"]
    assert "router bgp" not in frr.conf.read_text()
    after = frr.conf.stat()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (before.st_uid, before.st_gid, 0o640)


async def test_an_frr_without_bgpd_is_reported_and_bgpd_will_start_empty(frr: FrrInstance, settings: Settings) -> None:
    await Bench(frr, settings).applied(CASES["basic"])
    frr.kill("bgpd")
    why = await clear_frr(settings, lambda _line: None)
    assert "bgpd" in why
    assert "router bgp" not in frr.conf.read_text()
