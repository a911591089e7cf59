"""The actor retries indefinitely, notices restarts and edits, publishes changes only, and otherwise logs nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock as Clock

from actors.frr import apply
from actors.frr.abilities import has_ipv6_tunnels
from actors.frr.actor import LONGEST_RETRY, SOCKET_POLL
from actors.frr.refusals import FIRST_PAUSE
from actors.frr.render.render import Renderer
from actors.lib.frr.reloader_client import ReloaderClient
from actors.lib.metrics import counters as metrics
from config.desired import DesiredState
from config.outcomes import Bounce, HealthReport, KernelOutcome
from tests.actors.netlink.builders import l2vni, l3vni

from .actor_bench import BASIC, MOVED, Bench, in_force, until
from .cases import CASES

pytestmark = pytest.mark.usefixtures("no_threads")


async def test_it_reports_its_start_and_waits_for_a_state_indefinitely(bench: Bench, autojump_clock: Clock) -> None:
    assert bench.context.has_started
    await trio.sleep(10_000)
    assert bench.context.mode == "idle"
    assert bench.frr.calls == []


async def test_a_state_is_applied_and_its_outcome_published(bench: Bench, autojump_clock: Clock) -> None:
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1)
    assert bench.outcome().applied
    assert bench.outcome().desired is BASIC
    assert bench.context.facts["applied"] is True


async def test_networks_that_frr_is_too_old_for_are_left_out_and_the_rest_is_applied(
    bench: Bench, autojump_clock: Clock
) -> None:
    over_ipv6, over_ipv4 = l3vni("six", 600, vtep="2001:db8::1"), l3vni("four", 400)
    bench.desired.set(replace(BASIC, l3vnis=(over_ipv6, over_ipv4), l2vnis=(l2vni("flat", 500, vtep="2001:db8::1"),)))
    await until(lambda: bench.out.version == 1)
    outcome = bench.outcome()
    assert (outcome.applied, outcome.desired.l3vnis, outcome.desired.l2vnis) == (True, (over_ipv4,), ())
    assert [failure.resource.label for failure in outcome.failures] == ["six", "flat"]
    assert outcome.failures[0].message.startswith("FRR 10.3 cannot use the IPv6 tunnel endpoint 2001:db8::1: install")
    assert "vni 400" in bench.frr.text
    assert "600" not in bench.frr.text
    bench.frr.release = "10.6.0"
    await until(lambda: bench.out.version == 2)
    assert (bench.outcome().failures, len(bench.outcome().desired.l3vnis)) == ((), 2)


@pytest.mark.parametrize(("release", "able"), [("10.3", False), ("10.5.3", False), ("10.6", True), ("11.0-dev", True)])
def test_ipv6_tunnels_need_frr_10_6(release: str, able: bool) -> None:
    assert has_ipv6_tunnels(release) is able


async def test_an_unchanged_frr_costs_readings_and_neither_log_lines_nor_outcomes(
    bench: Bench, autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openperouter")
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1)
    caplog.clear()
    bench.frr.calls.clear()
    await trio.sleep(60 * 10 + 5)
    assert bench.frr.calls == ["wait_ready", "running"] * 10
    assert bench.out.version == 1
    assert caplog.records == []


async def test_what_is_audited_is_rendered_and_compared_once(
    bench: Bench, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[str] = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            worked.append(function.__name__)
            return function(*arguments, **keywords)

        return call

    for module, name in ((Renderer, "render"), (apply, "intended"), (apply, "difference")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1)
    worked.clear()
    await trio.sleep(60 * 10 + 5)
    assert worked == []
    bench.frr.text = bench.frr.text.replace(f" vni {BASIC.l3vnis[0].vni}\n", "")
    await until(lambda: bench.out.version == 2)
    assert bench.outcome().applied
    assert bench.outcome().changed
    assert set(worked) == {"difference"}
    bench.desired.set(replace(BASIC, generation=2, l3vnis=BASIC.l3vnis[1:]))
    await until(lambda: bench.out.version == 3)
    assert set(worked) == {"render", "intended", "difference"}


async def test_a_new_generation_of_the_same_content_is_published_without_touching_frr(
    bench: Bench, autojump_clock: Clock
) -> None:
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1)
    writes = bench.frr.writes
    bench.desired.set(replace(BASIC, generation=2))
    await until(lambda: bench.out.version == 2)
    assert bench.outcome().desired.generation == 2
    assert bench.frr.writes == writes


async def test_an_absent_frr_is_logged_once_and_retried_indefinitely(
    bench: Bench, autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openperouter")
    bench.frr.unreachable = "FRR does not answer"
    bench.desired.set(BASIC)
    await trio.sleep(3600)
    assert len(caplog.records) == 1
    assert bench.out.version == 1
    assert bench.context.facts["waiting_for"] == "FRR does not answer"
    attempts = bench.frr.calls.count("wait_ready")
    assert 3600 / LONGEST_RETRY <= attempts < 3600 / LONGEST_RETRY + 10
    bench.frr.unreachable = ""
    await until(lambda: bench.outcome().applied, LONGEST_RETRY * 1.5)
    assert "waiting_for" not in bench.context.facts


async def test_a_hanging_frr_becomes_an_outcome_at_the_deadline(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.hangs = True
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1, 700)
    assert not bench.outcome().applied
    assert "longer than" in bench.outcome().error


async def test_a_new_state_does_not_wait_for_the_retry_of_the_old_one(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.unreachable = "unreachable"
    bench.desired.set(BASIC)
    await trio.sleep(300)
    bench.frr.unreachable = ""
    bench.desired.set(CASES["dual_stack"])
    await until(lambda: bench.outcome().applied, 1)
    assert bench.outcome().desired is CASES["dual_stack"]


async def test_a_manual_edit_is_undone_at_the_audit_and_logged_without_secrets(
    bench: Bench, autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openperouter")
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1)
    caplog.clear()
    bench.frr.edit("router bgp 64514\n neighbor 192.168.11.2 password topsecret\nexit\n")
    await until(lambda: bench.out.version == 2, 90)
    assert bench.outcome().changed
    assert "topsecret" not in bench.frr.text
    texts = [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
    assert any("password ********" in text for text in texts)
    assert not any("topsecret" in text for text in texts)


async def test_a_restarted_daemon_is_configured_without_waiting_for_the_audit(
    bench: Bench, autojump_clock: Clock
) -> None:
    (bench.sockets / "bgpd.vty").touch()
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1)
    bench.frr.text = "hostname fresh\n"
    (bench.sockets / "bgpd.vty").unlink()
    (bench.sockets / "bgpd.vty").touch()
    await until(lambda: bench.out.version == 2, SOCKET_POLL * 2)
    assert bench.outcome().changed


async def test_a_new_container_in_podman_is_configured_without_waiting_for_the_audit(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    bench = Bench(tmp_path)
    bench.settings = bench.settings.model_copy(update={"runtime": "podman", "pod_run_dir": tmp_path})
    # podman writes another file for each container; the daemons' sockets may appear later.
    (tmp_path / "frr.pid").write_text("5000\n")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.serve)
        bench.desired.set(BASIC)
        await until(lambda: bench.out.version == 1)
        bench.frr.text = "hostname fresh\n"
        (tmp_path / "new").write_text("5000\n")
        (tmp_path / "new").rename(tmp_path / "frr.pid")
        await until(lambda: bench.out.version == 2, SOCKET_POLL * 2)
        assert bench.outcome().changed
        nursery.cancel_scope.cancel()


async def test_a_reloader_that_does_not_run_is_the_reason_until_it_does(
    tmp_path: Path, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    client = ReloaderClient(tmp_path / "reloader.sock")
    send, serving = bench.frr.send, False

    async def through_the_reloader(commands: str) -> str:
        if not serving:
            await client.vtysh(("-c", "show version"), seconds=60, lock="exclusive")
        return await send(commands)

    monkeypatch.setattr(bench.frr, "send", through_the_reloader)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.serve)
        bench.desired.set(BASIC)
        await until(lambda: bench.out.version == 1)
        assert not bench.outcome().applied
        assert bench.outcome().error.startswith(f"FRR's reloader does not run: {tmp_path / 'reloader.sock'}: No such")
        assert "reloader" in str(bench.context.facts["waiting_for"])
        serving = True
        # The pauses grow to half a minute.
        await until(lambda: bench.outcome().applied, LONGEST_RETRY * 2)
        nursery.cancel_scope.cancel()


async def test_a_state_that_cannot_be_rendered_is_an_outcome(bench: Bench, autojump_clock: Clock) -> None:
    bench.desired.set(replace(BASIC, log_level="two words"))
    await until(lambda: bench.out.version == 1)
    assert "cannot render" in bench.outcome().error
    assert bench.frr.calls == []


async def test_a_newer_state_does_not_wait_for_an_older_one_that_does_not_succeed(
    bench: Bench, autojump_clock: Clock
) -> None:
    bench.frr.refuses = {"vni 100"}
    bench.desired.set(BASIC)
    await until(lambda: bench.frr.writes == 1)
    reverted = replace(CASES["no_vnis"], generation=2)
    bench.desired.set(reverted)
    await until(lambda: bench.out.version == 1, 1)
    assert bench.outcome().desired is reverted
    assert bench.outcome().applied
    assert bench.frr.most_writers == 1


async def test_a_refused_line_is_tried_again_before_the_audit(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.refuses = {"vni 100"}
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1)
    assert bench.outcome().applied
    assert bench.outcome().failures
    bench.frr.refuses = set()
    await until(lambda: not bench.outcome().failures, FIRST_PAUSE + 1)


async def test_a_restarted_frr_gets_every_refused_line_again(bench: Bench, autojump_clock: Clock) -> None:
    (bench.sockets / "bgpd.vty").touch()
    bench.frr.refuses = {"vni 100"}
    bench.desired.set(BASIC)
    await trio.sleep(3600)
    assert bench.outcome().failures
    bench.frr.refuses = set()
    (bench.sockets / "bgpd.vty").unlink()
    (bench.sockets / "bgpd.vty").touch()
    await until(lambda: not bench.outcome().failures, SOCKET_POLL + 1)


async def test_a_reload_gives_every_refused_line_a_new_attempt(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.refuses = {"vni 100"}
    bench.desired.set(BASIC)
    await trio.sleep(3600)
    bench.frr.refuses = set()
    assert bench.outcome().failures
    bench.desired.set(replace(BASIC, generation=2, reload_id=1))
    await until(lambda: not bench.outcome().failures, 1)
    assert bench.outcome().desired.generation == 2


async def test_a_reload_counts_while_the_actor_waits_for_its_turn(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.refuses = {"vni 100"}
    bench.desired.set(BASIC)
    await trio.sleep(3600)
    bench.frr.refuses = set()
    async with bench.changing:
        bench.desired.set(replace(BASIC, generation=2))
        await trio.testing.wait_all_tasks_blocked()
        bench.desired.set(replace(BASIC, generation=3, reload_id=1))
        await trio.testing.wait_all_tasks_blocked()
        assert bench.outcome().failures
    await until(lambda: not bench.outcome().failures, 1)
    assert bench.outcome().desired.generation == 3


async def test_what_frr_does_not_take_costs_little_and_is_not_logged_at_every_audit(
    bench: Bench, autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openperouter")
    bench.frr.refuses = {"router bgp 64514"}
    bench.desired.set(BASIC)
    await trio.sleep(3600)
    assert not bench.outcome().applied
    assert bench.frr.calls.count("refusal") < 20
    assert len(caplog.records) < 60


def booting(bench: Bench) -> str:
    return (bench.settings.frr_etc_dir / "p" / "frr.conf").read_text()


async def test_a_vni_that_moves_is_withdrawn_until_the_kernel_has_moved_its_devices(
    bench: Bench, autojump_clock: Clock
) -> None:
    await in_force(bench)
    before = booting(bench)
    bench.desired.set(MOVED)
    await until(lambda: bench.out.version == 2)
    assert bench.outcome().applied
    assert bench.outcome().withdrawn == {100}
    assert "vni 100" not in bench.frr.text
    assert "router bgp 64514 vrf crimson" in bench.frr.text
    assert booting(bench) == before
    await trio.sleep(1000)
    assert "vni 100" not in bench.frr.text
    bench.kernel.set(KernelOutcome(MOVED, applied=True))
    await until(lambda: bench.out.version == 3, 5)
    assert bench.outcome().withdrawn == frozenset()
    assert " vni 100" in bench.frr.text
    assert "vrf crimson\n vni 100\n" in booting(bench)


@pytest.mark.parametrize("refused", ["", "vni 100"])
async def test_while_a_vni_is_withdrawn_no_dry_run_delays_its_return(
    refused: str, bench: Bench, autojump_clock: Clock
) -> None:
    """After an operator's reload nothing counts as checked any more."""
    await in_force(bench)
    bench.frr.checked.clear()
    bench.frr.dry_refusals = {refused} if refused else set()
    bench.desired.set(replace(MOVED, reload_id=BASIC.reload_id + 1))
    await until(lambda: bench.out.version == 2)
    assert any("vrf crimson\n vni 100\n" in text for text in bench.frr.checked)
    bench.frr.checked.clear()
    state = bench.outcome().desired
    bench.kernel.set(KernelOutcome(state, applied=True))
    await until(lambda: bench.out.version == 3, 5)
    assert (bench.frr.checked == []) == (refused == "")
    assert (" vni 100" in bench.frr.text) == (refused == "")
    assert [str(failure.resource) for failure in bench.outcome().failures] == (["L3VNI red"] if refused else [])


async def test_the_kernel_s_request_is_answered_and_ends_with_it(bench: Bench, autojump_clock: Clock) -> None:
    await in_force(bench)
    bench.kernel.set(KernelOutcome(BASIC, applied=False, withdraw=frozenset({100, 7})))
    await until(lambda: bench.out.version == 2, 5)
    assert bench.outcome().withdrawn == {100}
    assert "vni 100" not in bench.frr.text
    bench.kernel.set(KernelOutcome(BASIC, applied=True))
    await until(lambda: bench.out.version == 3, 5)
    assert "vni 100" in bench.frr.text


async def test_a_newer_state_does_not_bring_back_what_the_kernel_still_moves(
    bench: Bench, autojump_clock: Clock
) -> None:
    await in_force(bench)
    bench.desired.set(MOVED)
    await until(lambda: bench.out.version == 2)
    bench.desired.set(replace(MOVED, generation=3, log_level="debug"))
    await until(lambda: bench.out.version == 3)
    assert bench.outcome().withdrawn == {100}
    assert "vni 100" not in bench.frr.text


async def test_a_restarted_actor_keeps_what_is_withdrawn(bench: Bench, autojump_clock: Clock) -> None:
    await in_force(bench)
    bench.desired.set(MOVED)
    await until(lambda: bench.out.version == 2)
    with trio.move_on_after(100):
        await bench.serve()
    assert "vni 100" not in bench.frr.text


async def test_a_bounce_removes_and_adds_one_vni_once(bench: Bench, autojump_clock: Clock) -> None:
    await in_force(bench)
    bench.frr.calls.clear()
    wish = HealthReport(1, 0, verified=True, summary="", bounce=frozenset({Bounce(100, 1)}))
    bench.health.set(wish)
    await until(lambda: bench.out.version == 2, 5)
    assert bench.outcome().bounced == {Bounce(100, 1)}
    assert bench.outcome().withdrawn == frozenset()
    assert "vni 100" in bench.frr.text
    assert len([call for call in bench.frr.calls if call == "send"]) == 2
    bench.frr.calls.clear()
    bench.health.set(replace(wish, summary="again"))
    await trio.sleep(30)
    assert bench.frr.calls == []
    bench.health.set(replace(wish, bounce=frozenset({Bounce(100, 2)})))
    await until(lambda: bench.out.version == 3, 5)
    assert bench.outcome().bounced == {Bounce(100, 2)}


async def test_a_request_about_another_generation_does_not_count(bench: Bench, autojump_clock: Clock) -> None:
    await in_force(bench)
    bench.health.set(HealthReport(7, 0, verified=True, summary="", bounce=frozenset({Bounce(100, 1)})))
    await trio.sleep(30)
    assert bench.out.version == 1


async def test_frr_is_not_changed_while_the_kernel_is(bench: Bench, autojump_clock: Clock) -> None:
    await in_force(bench)
    bench.frr.calls.clear()
    async with bench.changing:
        bench.desired.set(replace(MOVED, generation=3))
        await trio.sleep(100)
        assert bench.frr.calls == []
        assert bench.context.mode == "idle"
    await until(lambda: bench.out.version == 2, 5)


async def test_what_is_measured(bench: Bench, autojump_clock: Clock) -> None:
    def counted(measured: metrics.Counter) -> dict[tuple[str, ...], float]:
        return dict(measured.values())

    def passes(measured: metrics.Histogram, label: str) -> int:
        found = measured.values().get((label,))
        return sum(found.counts) if found else 0

    drift, repairs = counted(metrics.DRIFT_DETECTED), counted(metrics.DRIFT_REPAIRS)
    failures, applied = counted(metrics.FRR_RELOAD_FAILURES), passes(metrics.FRR_RELOAD_SECONDS, "applied")
    bench.desired.set(BASIC)
    await until(lambda: bench.out.version == 1)
    assert bench.context.facts["frr_version"] == "10.3"
    assert passes(metrics.FRR_RELOAD_SECONDS, "applied") == applied + 1
    everything = passes(metrics.RECONCILE_SECONDS, "frr")
    # An audit that finds nothing is a pass and neither a reload nor drift.
    await trio.sleep(65)
    assert passes(metrics.RECONCILE_SECONDS, "frr") == everything + 1
    assert passes(metrics.FRR_RELOAD_SECONDS, "applied") == applied + 1
    assert counted(metrics.DRIFT_DETECTED) == drift
    bench.frr.text = ""
    await until(lambda: bench.out.version == 2)
    assert counted(metrics.DRIFT_DETECTED)["frr",] == drift.get(("frr",), 0) + 1
    assert counted(metrics.DRIFT_REPAIRS)["frr",] == repairs.get(("frr",), 0) + 1
    assert counted(metrics.FRR_RELOAD_FAILURES) == failures
    bench.frr.unreachable = "FRR does not answer"
    await until(lambda: bench.out.version == 3)
    assert counted(metrics.FRR_RELOAD_FAILURES)[()] > failures[()]


GONE = replace(BASIC, generation=3, l3vnis=())


@pytest.mark.parametrize("between", [(GONE,), (MOVED, GONE)], ids=["removed", "moved and removed"])
@pytest.mark.parametrize("reported", [False, True])
async def test_a_vni_that_returns_elsewhere_is_withdrawn_unless_the_kernel_was_in_force_without_it(
    between: tuple[DesiredState, ...], reported: bool, bench: Bench, autojump_clock: Clock
) -> None:
    await in_force(bench)
    for state in between:
        bench.desired.set(state)
        await until(lambda: bench.outcome().desired is state)  # noqa: B023
        if reported:
            bench.kernel.set(KernelOutcome(state, applied=False))
            await trio.sleep(1)
    returned = replace(MOVED, generation=4)
    bench.desired.set(returned)
    await until(lambda: bench.outcome().desired is returned)
    assert bench.outcome().withdrawn == {100}
    assert "vni 100" not in bench.frr.text
    bench.kernel.set(KernelOutcome(returned, applied=True))
    await until(lambda: bench.outcome().withdrawn == frozenset(), 5)
    gone, back = replace(GONE, generation=5), replace(BASIC, generation=6)
    bench.desired.set(gone)
    await until(lambda: bench.outcome().desired is gone)
    bench.kernel.set(KernelOutcome(gone, applied=True))
    bench.desired.set(back)
    await until(lambda: bench.outcome().desired is back)
    assert bench.outcome().withdrawn == frozenset()
    assert "vni 100" in bench.frr.text


async def test_a_state_that_frr_did_not_take_hides_no_move(bench: Bench, autojump_clock: Clock) -> None:
    await in_force(bench)
    bench.frr.refuses = {"no router bgp 64514 vrf red"}
    bench.desired.set(GONE)
    await until(lambda: bench.outcome().desired is GONE)
    assert not bench.outcome().applied
    bench.kernel.set(KernelOutcome(GONE, applied=False, error="not started"))
    bench.frr.refuses = set()
    returned = replace(MOVED, generation=4)
    bench.desired.set(returned)
    await until(lambda: bench.outcome().desired is returned)
    assert bench.outcome().withdrawn == {100}


async def test_a_restarted_actor_knows_what_moves(tmp_path: Path, autojump_clock: Clock) -> None:
    bench = Bench(tmp_path)
    returned = replace(MOVED, generation=4)
    for state in (BASIC, GONE, returned):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.serve)
            bench.desired.set(state)
            await until(lambda: bench.out.peek() is not None and bench.outcome().desired is state)  # noqa: B023
            nursery.cancel_scope.cancel()
        if state is BASIC:
            bench.kernel.set(KernelOutcome(state, applied=True))
    assert bench.outcome().withdrawn == {100}


async def test_a_bounce_that_frr_refuses_is_not_carried_out_and_tried_again_after_pauses(
    bench: Bench, autojump_clock: Clock
) -> None:
    await in_force(bench)
    bench.frr.calls.clear()
    bench.frr.locked = True
    bench.health.set(HealthReport(1, 0, verified=True, summary="", bounce=frozenset({Bounce(100, 1)})))
    await trio.sleep(600)
    assert bench.outcome().applied
    assert bench.outcome().bounced == frozenset()
    assert "vni 100" in bench.frr.text
    # Each attempt begins with two passes.
    assert 600 / LONGEST_RETRY <= bench.frr.calls.count("wait_ready") <= 2 * (600 / LONGEST_RETRY + 6)
    bench.frr.locked = False
    await until(lambda: bench.outcome().bounced == {Bounce(100, 1)}, LONGEST_RETRY * 1.5)
    bench.frr.calls.clear()
    await trio.sleep(120)
    assert bench.frr.calls == ["wait_ready", "running"] * 2
    assert "vni 100" in bench.frr.text


async def test_a_bounce_is_carried_out_once_although_frr_keeps_something_else(
    bench: Bench, autojump_clock: Clock
) -> None:
    bench.desired.set(CASES["two_l3vnis"])
    await until(lambda: bench.out.version == 1)
    bench.frr.refuses = {"no router bgp 64520 vrf blue"}
    bench.desired.set(replace(BASIC, generation=2))
    await until(lambda: bench.out.version == 2)
    assert not bench.outcome().applied
    bench.frr.sent.clear()
    bench.health.set(HealthReport(2, 0, verified=True, summary="", bounce=frozenset({Bounce(100, 1)})))
    await until(lambda: bench.outcome().bounced == {Bounce(100, 1)})
    await trio.sleep(600)
    assert "".join(bench.frr.sent).count("no vni 100") == 1
    assert "vni 100" in bench.frr.text
