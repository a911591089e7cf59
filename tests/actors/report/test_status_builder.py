"""The status: what makes it ready, degraded, reloading, and what it never shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.desired.actor import HOLDING
from actors.report.status_builder import StatusInputs, build_status
from config.desired import DesiredState, ResourceFailure
from config.outcomes import PROBE_DOWN, FrrOutcome, KernelOutcome, NodeIdentity, ProbeHealth, StaticSnapshot
from config.problems import Origin, Problem, Reason
from config.status import ActorStatus, ReloadStatus, Status
from tests.actors.report.examples import ERROR, FAILURE, PASSWORD, PROCESS, RED, WARNING, desired, health, inputs


def of(given_inputs: StatusInputs) -> Status:
    return build_status(given_inputs, 2000.0)


def test_a_converged_router_is_running_and_ready() -> None:
    status = of(inputs())
    assert (status.phase, status.ready) == ("running", True)
    assert status.summary == "ready: 1 session up (1 down), 2 VNIs, generation 4"


def test_the_status_identifies_node_and_process() -> None:
    status = of(inputs())
    assert (status.pid, status.version, status.node, status.node_index) == (42, "0.1.0", "n1", 0)
    assert (status.started_at, status.updated_at, status.boot_id) == (1000.0, 2000.0, "boot")


def test_generations_follow_the_stages() -> None:
    state = desired(5)
    status = of(replace(inputs(4), desired=state, frr=FrrOutcome(state, applied=True)))
    reached = status.generations
    assert (reached.desired, reached.frr, reached.kernel, reached.verified) == (5, 5, 4, 4)


def test_a_verification_of_an_older_generation_makes_nothing_ready() -> None:
    status = of(replace(inputs(4), desired=desired(5)))
    assert not status.ready
    assert "applying generation 5 to FRR" in status.summary


def test_the_underlay_is_shown_as_configured_with_its_interfaces_as_they_are() -> None:
    underlay = of(inputs()).underlay
    assert underlay is not None
    assert (underlay.asn, underlay.router_id, underlay.vteps) == (64514, "10.0.0.1", ("100.65.0.1/32",))
    assert [(one.name, one.up, one.mtu) for one in underlay.interfaces] == [("toswitch1", True, 9000)]
    assert underlay.origin == "openpe_underlay.yaml:2"


def test_an_interface_that_was_not_checked_is_not_present() -> None:
    underlay = of(replace(inputs(), health=None)).underlay
    assert underlay is not None
    assert [(one.present, one.detail) for one in underlay.interfaces] == [(False, "not checked yet")]


def test_vnis_have_state_and_provenance() -> None:
    red, blue = of(inputs()).vnis
    assert (red.resource, red.type, red.ok, str(red.origin), red.routes) == (RED, "L3", True, "openpe_vnis.yaml:2", 7)
    assert (blue.type, blue.remote_vteps) == ("L2", 2)


def test_a_vnis_numbers_reach_the_status_wherever_it_is_and_if_it_has_failed() -> None:
    numbers: dict[str, Any] = {
        "remote_vteps": 2,
        "routes": 3,
        "evpn_received": {"2": 14},
        "evpn_advertised": {"2": 4, "3": 1},
    }
    report = health()
    report = replace(report, vnis=tuple(replace(vni, **numbers) for vni in report.vnis))
    red = desired().l3vnis[0]
    moved = replace(desired(), l3vnis=(replace(red, origin=Origin("openpe_other.yaml", 1)),))
    failed = KernelOutcome(desired(), applied=True, failures=(FAILURE,))
    working = replace(inputs(), health=report)
    for case, ok in (
        (working, True),
        (replace(working, desired=moved), True),
        (replace(working, kernel=failed), False),
    ):
        state = case.desired
        assert state is not None
        first, second = of(case).vnis
        assert [{name: getattr(vni, name) for name in numbers} for vni in (first, second)] == [numbers, numbers]
        assert (first.origin, second.origin) == (state.l3vnis[0].origin, state.l2vnis[0].origin)
        assert (first.ok, second.ok) == (ok, True)


def test_the_health_of_an_old_number_does_not_count_for_a_changed_vni() -> None:
    state = desired(5)
    changed = replace(state, l3vnis=(replace(state.l3vnis[0], vni=101),))
    red = of(replace(inputs(4), desired=changed)).vnis[0]
    assert (red.vni, red.ok, red.detail, red.routes) == (101, False, "not checked yet", 0)


def test_a_vni_that_a_stage_refused_is_listed_with_the_reason() -> None:
    state = desired()
    refused = KernelOutcome(state, applied=True, failures=(FAILURE,))
    report = replace(health(), vnis=())
    red, blue = of(replace(inputs(), kernel=refused, health=report)).vnis
    assert (red.ok, red.detail) == (False, "bridge br-ext is missing")
    assert (blue.ok, blue.detail) == (False, "not checked yet")


def test_a_vni_works_whose_host_answers_no_ping_but_the_node_is_degraded() -> None:
    silent = ResourceFailure(
        RED, Reason.PROBE_FAILED, "probe: target 10.0.0.1 in VRF red: no answer to 3 pings in a row"
    )
    down = ProbeHealth(RED, "red", "10.0.0.1", "target", PROBE_DOWN)
    status = of(replace(inputs(), health=replace(health(), failures=(silent,), probes=(down,))))
    assert next(vni for vni in status.vnis if vni.resource == RED).ok
    assert (status.ready, status.phase, status.probes) == (True, "degraded", (down,))
    assert "L3VNI red: probe: target 10.0.0.1" in status.summary


@pytest.mark.parametrize(
    ("broken", "first"),
    [
        (inputs(problems=(ERROR,)), "L3VNI green: vni 100 is taken"),
        (replace(inputs(), kernel=KernelOutcome(desired(), True, failures=(FAILURE,))), "L3VNI red: bridge br-ext"),
        (replace(inputs(), health=replace(health(), failures=(FAILURE,))), "L3VNI red: bridge br-ext"),
        (replace(inputs(), frr=FrrOutcome(desired(), False, error="refused line 3")), "FRR: refused line 3"),
        (replace(inputs(), kernel=KernelOutcome(desired(), False, error="no NIC")), "kernel: no NIC"),
        (replace(inputs(), health=replace(health(), problems=("bgpd is not running",))), "bgpd is not running"),
        (replace(inputs(), children=(ActorStatus("frr", "backoff", 3, "boom"),)), "actor frr is in backoff: boom"),
    ],
)
def test_any_fault_degrades_and_leads_the_summary(broken: StatusInputs, first: str) -> None:
    status = of(broken)
    assert status.phase == "degraded"
    assert status.summary.startswith(f"degraded: {first}")


def test_the_summary_of_a_degraded_router_also_says_what_works() -> None:
    status = of(inputs(problems=(ERROR,)))
    assert status.summary.endswith("everything else in force: 1 session up (1 down), 2 VNIs, generation 4")


def test_a_start_that_waits_for_the_interface_of_the_index_names_it() -> None:
    waiting = ActorStatus("static_config", "running", facts={"waiting_for": "eth9"})
    status = of(StatusInputs(PROCESS, children=(waiting,)))
    assert status.phase == "starting"
    assert status.summary.startswith("starting: waiting: interface eth9, from which the node's index is derived")


def test_a_start_that_leaves_the_router_as_it_is_says_why_and_what_to_do() -> None:
    waiting = ActorStatus("desired", "running", facts={"waiting_for": HOLDING})
    status = of(StatusInputs(PROCESS, snapshot=inputs().snapshot, children=(waiting,)))
    assert status.phase == "starting"
    assert status.summary == f"starting: waiting: {HOLDING}"
    assert not of(replace(inputs(), children=(waiting,))).notes


def test_a_warning_is_shown_and_does_not_degrade() -> None:
    status = of(inputs(problems=(WARNING,)))
    assert status.phase == "running"
    assert [problem.severity for problem in status.problems] == ["warning"]


def test_a_failure_found_by_two_stages_is_listed_once() -> None:
    broken = replace(
        inputs(),
        kernel=KernelOutcome(desired(), True, failures=(FAILURE,)),
        health=replace(health(), failures=(FAILURE,)),
    )
    assert len(of(broken).failures) == 1


def test_a_start_that_waits_for_frr_is_starting_and_not_degraded() -> None:
    state = desired(1)
    waiting = StatusInputs(PROCESS, desired=state, frr=FrrOutcome(state, False, error="FRR does not answer"))
    status = of(waiting)
    assert (status.phase, status.ready) == ("starting", False)
    assert status.summary == "starting: waiting: FRR does not answer"


def test_one_cause_is_one_note_however_many_stages_it_stops() -> None:
    state = desired(1)
    silence = "waiting for FRR: silence"
    daemons = {"bgpd": False, "zebra": True}
    silent = replace(health(1, verified=False), daemons=daemons, summary=silence, problems=(silence,))
    status = of(
        StatusInputs(
            PROCESS,
            desired=state,
            frr=FrrOutcome(state, False, error="FRR does not answer"),
            kernel=KernelOutcome(state, False, error="not begun: FRR has not applied generation 1"),
            health=silent,
        )
    )
    assert status.notes == ("FRR does not answer",)


def test_a_daemon_that_is_down_is_noted_besides_a_stage_that_fails() -> None:
    failing = replace(
        inputs(),
        frr=FrrOutcome(desired(), False, error="refused"),
        health=replace(health(), daemons={"bgpd": False, "zebra": True}, problems=("bgpd is not running",)),
    )
    assert of(failing).notes == ("FRR: refused", "bgpd is not running")


@pytest.mark.parametrize(
    ("early", "summary"),
    [
        (StatusInputs(PROCESS), "starting: reading the configuration"),
        (
            StatusInputs(PROCESS, snapshot=StaticSnapshot(NodeIdentity("n1", 0), ())),
            "starting: resolving the configuration",
        ),
        (StatusInputs(PROCESS, desired=desired(1)), "starting: applying generation 1 to FRR"),
        (
            StatusInputs(PROCESS, desired=desired(1), frr=FrrOutcome(desired(1), True)),
            "starting: applying generation 1 to the kernel",
        ),
    ],
)
def test_a_start_shows_its_progress(early: StatusInputs, summary: str) -> None:
    assert of(early).summary == summary


def test_an_empty_configuration_is_idle_and_names_the_directory() -> None:
    state = DesiredState(1, "n1", 0)
    report = replace(health(1), sessions=(), vnis=(), interfaces=())
    frr, kernel = FrrOutcome(state, True), KernelOutcome(state, True)
    idle = StatusInputs(PROCESS, desired=state, frr=frr, kernel=kernel, health=report)
    assert of(idle).summary == "no configuration in /etc/openperouter/configs: idle"
    assert of(idle).ready


def test_a_reload_shows_as_reloading_until_that_very_request_is_verified() -> None:
    asked = replace(inputs(4), snapshot=StaticSnapshot(NodeIdentity("n1", 0), (), reload_id=2))
    assert of(asked).phase == "reloading"
    assert of(asked).reload == ReloadStatus(requested=2)
    assert of(inputs(5, reload_id=2)).phase == "running"
    assert of(inputs(5, reload_id=2)).reload == ReloadStatus(2, 2, 2)


def test_a_reload_that_a_stage_refuses_has_failed_with_the_reason() -> None:
    state = desired(5, reload_id=2)
    refused = replace(inputs(4), desired=state, frr=FrrOutcome(state, False, error="line 3"))
    assert of(refused).reload == ReloadStatus(2, 2, 0, 2, "FRR: line 3")


def test_an_unverified_report_verifies_no_reload() -> None:
    late = replace(inputs(5, reload_id=2), health=health(5, verified=False, reload_id=2))
    assert of(late).reload.verified == 0


def test_stopping_takes_precedence_over_any_fault() -> None:
    status = of(replace(inputs(problems=(ERROR,)), stopping=True))
    assert (status.phase, status.summary) == ("stopping", "stopping; forwarding continues")


def test_a_very_long_first_reason_is_cut_and_stays_on_one_line() -> None:
    problem = replace(ERROR, message="x\ny " * 500)
    summary = of(inputs(problems=(problem,))).summary
    assert len(summary) <= 240
    assert "\n" not in summary


def test_a_file_name_that_is_not_utf_8_costs_neither_summary_nor_json() -> None:
    problem = Problem("not YAML", Origin("/configs/openpe_\udcff.yaml", 1))
    status = of(inputs(problems=(problem,)))
    assert status.summary.startswith("degraded: /configs/openpe_?.yaml:1: not YAML")
    assert b"/configs/openpe_?.yaml:1" in status.to_json().encode()


def test_no_secret_reaches_the_status() -> None:
    assert PASSWORD not in of(inputs()).to_json()


def test_the_status_survives_its_json_form() -> None:
    status = of(replace(inputs(problems=(ERROR, WARNING)), kernel=KernelOutcome(desired(), True, failures=(FAILURE,))))
    assert Status.from_json(status.to_json()).to_json() == status.to_json()


@given(
    problems=st.lists(st.sampled_from([ERROR, WARNING]), max_size=3).map(tuple),
    refused=st.booleans(),
    applied=st.booleans(),
    daemon_gone=st.booleans(),
    was_ready=st.booleans(),
    verified=st.booleans(),
    reload_id=st.integers(0, 2),
)
def test_degraded_exactly_when_there_is_a_reason(  # noqa: PLR0917
    problems: tuple[Problem, ...],
    refused: bool,
    applied: bool,
    daemon_gone: bool,
    was_ready: bool,
    verified: bool,
    reload_id: int,
) -> None:
    state = desired(problems=problems)
    kernel = KernelOutcome(state, applied, failures=(FAILURE,) if refused else ())
    report = replace(health(verified=verified), problems=("bgpd is not running",) if daemon_gone else ())
    status = of(
        replace(
            inputs(problems=problems, reload_id=reload_id),
            kernel=kernel,
            health=report,
            was_ready=was_ready,
            children=(ActorStatus("frr", "running"),),
        )
    )
    blamed = ERROR in problems or refused
    disturbed = was_ready and (not applied or daemon_gone)
    assert (status.phase == "degraded") == (blamed or disturbed)
    assert status.summary.startswith("degraded: ") == (status.phase == "degraded")
    assert status.ready == verified
    assert (RED.name in {failure.resource.name for failure in status.failures}) == refused
