"""Verdicts on real samples: what counts as verified, what is blamed, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.health.assess import HealthInputs
from actors.health.frr_json import Observation, Vni
from config.desired import DesiredState, ResourceFailure
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, VniHealth
from config.problems import Reason, ResourceId
from tests.actors.health.examples import BLUE_L2, RED, RED_L2, UNDERLAY, applied, assessed, desired, observed


def verdict(report: HealthReport, resource: ResourceId) -> VniHealth:
    return next(vni for vni in report.vnis if vni.resource == resource)


@pytest.mark.parametrize("sample", ["up", "just_configured", "dynamic_peer"])
def test_a_router_as_configured_is_verified_whether_or_not_its_sessions_are_up(sample: str) -> None:
    report = assessed(applied(desired(7, reload_id=3)), observed(sample))
    assert (report.verified, report.generation, report.reload_id) == (True, 7, 3)
    assert (report.failures, report.problems) == ((), ())


def test_the_summary_counts_sessions_and_vnis() -> None:
    assert assessed(applied(desired(7)), observed("up")).summary == "generation 7 verified: 1 of 4 sessions up, 3 VNIs"


def test_every_configured_session_is_reported_with_its_role_and_bfd() -> None:
    sessions = {(s.vrf, s.peer): s for s in assessed(applied(desired()), observed("up")).sessions}
    assert sessions["default", "192.168.11.2"].bfd == "up"
    assert sessions["default", "192.168.11.77"].state == "Active"
    assert sessions["default", "toswitch1"].state == "Idle"
    assert sessions["default", "172.31.0.0/24"].state == "Listening"
    assert sessions["red", "172.27.10.2"].role == "host"
    assert len(sessions) == 5


def test_a_dynamic_peer_is_reported_besides_the_configured_ones() -> None:
    sessions = {s.peer: s for s in assessed(applied(desired()), observed("dynamic_peer")).sessions}
    assert sessions["172.31.0.9"].state == "Established"


def test_vnis_carry_provenance_and_what_they_reach() -> None:
    report = assessed(applied(desired()), observed("up"))
    red_l2 = verdict(report, RED_L2)
    assert (red_l2.ok, red_l2.remote_vteps, str(red_l2.origin)) == (True, 1, "vnis.yaml:9")
    assert verdict(report, RED).type == "L3"


@pytest.mark.parametrize(
    ("sample", "resource", "detail"),
    [
        ("links_down", RED, "down: vni100 is down"),
        ("vrf_gone", RED, "VRF red is not in the kernel"),
        ("vrf_gone", RED_L2, "VNI 110 is missing in zebra"),
        ("no_vrf_instance", RED, "zebra has VNI 100 as L2, not as L3"),
        ("no_bgp", BLUE_L2, "VNI 111 is missing in zebra"),
        ("empty", RED, "VNI 100 is missing in zebra"),
    ],
)
def test_a_vni_that_does_not_work_is_a_failure_with_its_cause(sample: str, resource: ResourceId, detail: str) -> None:
    report = assessed(applied(desired()), observed(sample))
    assert verdict(report, resource).detail == detail
    failure = next(failure for failure in report.failures if failure.resource == resource)
    assert (failure.message, failure.reason) == (detail, Reason.OVERLAY_ATTACHMENT_FAILED)


def test_a_vni_that_zebra_calls_up_but_bgpd_has_lost_does_not_work() -> None:
    seen = replace(observed("up"), l3vnis={"default": 0, "red": 0})
    report = assessed(applied(desired()), seen)
    assert "bgpd has not attached it to VRF red" in verdict(report, RED).detail
    assert [failure.resource for failure in report.failures] == [RED]


@pytest.mark.parametrize(
    ("vni", "detail"),
    [
        (Vni("L2", "red"), "zebra has VNI 100 as L2, not as L3"),
        (Vni("L3", "blue", up=True), "zebra has it in VRF blue"),
        (Vni("L3", "red", "vni100", "br-pe-100", up=False), "down in zebra"),
        (Vni("L3", "red", "gone", "br-pe-100", up=False), "down: gone is missing"),
        (Vni("L3", "red", "vni100", "", up=False), "down: a device is missing"),
    ],
)
def test_what_is_wrong_with_an_l3vni_is_in_the_detail(vni: Vni, detail: str) -> None:
    report = assessed(applied(desired()), replace(observed("up"), vnis={**observed("up").vnis, 100: vni}))
    assert verdict(report, RED).detail == detail


@pytest.mark.parametrize(
    ("vni", "detail"),
    [
        (Vni("L3", "red", up=True), "zebra has VNI 110 as L3, not as L2"),
        (Vni("L2", "default"), "zebra has it in VRF default, not in red"),
    ],
)
def test_what_is_wrong_with_an_l2vni_is_in_the_detail(vni: Vni, detail: str) -> None:
    report = assessed(applied(desired()), replace(observed("up"), vnis={**observed("up").vnis, 110: vni}))
    assert verdict(report, RED_L2).detail == detail


def test_a_session_missing_in_bgpd_is_a_failure_of_its_resource() -> None:
    report = assessed(applied(desired()), observed("no_vrf_instance"))
    messages = {failure.message for failure in report.failures if failure.resource == RED}
    assert "host session 172.27.10.2 in VRF red is not configured in bgpd" in messages


def test_a_listen_range_that_bgpd_does_not_serve_is_a_failure_of_the_underlay() -> None:
    report = assessed(applied(desired()), replace(observed("up"), listen_ranges=frozenset()))
    assert [failure.resource for failure in report.failures] == [UNDERLAY]


def test_an_interface_that_is_down_degrades_but_does_not_unverify() -> None:
    seen = replace(observed("up"), interfaces={**observed("up").interfaces, "toswitch1": False})
    report = assessed(applied(desired()), seen)
    assert report.verified
    assert [(f.resource, f.message) for f in report.failures] == [(UNDERLAY, "interface toswitch1 is down")]


def test_an_interface_that_has_left_the_namespace_is_reported_absent() -> None:
    [interface] = assessed(applied(desired()), observed("nic_gone")).interfaces
    assert (interface.present, interface.detail) == (False, "is not in the router's namespace")


def test_an_absent_interface_that_the_kernels_part_has_reported_is_not_reported_twice() -> None:
    state = desired()
    refused = (ResourceFailure(UNDERLAY, Reason.UNDERLAY_FAILED, "interface toswitch1 is neither here nor there"),)
    inputs = replace(applied(state), kernel=KernelOutcome(state, applied=True, failures=refused))
    absent = {name: up for name, up in observed("up").interfaces.items() if name != "toswitch1"}
    report = assessed(inputs, replace(observed("up"), interfaces=absent))
    assert (report.verified, report.failures) == (True, ())
    assert [interface.present for interface in report.interfaces] == [False]
    down = assessed(inputs, replace(observed("up"), interfaces={**absent, "toswitch1": False}))
    assert [failure.message for failure in down.failures] == ["interface toswitch1 is down"]


def test_an_interface_that_is_there_has_the_underlays_mtu() -> None:
    [interface] = assessed(applied(desired()), observed("up")).interfaces
    assert (interface.up, interface.mtu) == (True, 9000)


@pytest.mark.parametrize(("sample", "daemon"), [("bgpd_gone", "bgpd"), ("bfdd_gone", "bfdd")])
def test_a_daemon_that_is_needed_and_gone_is_a_problem(sample: str, daemon: str) -> None:
    report = assessed(applied(desired()), observed(sample))
    assert not report.verified
    assert report.daemons[daemon] is False
    assert f"{daemon} is not running" in report.problems


@pytest.mark.parametrize("daemon", ["bgpd", "zebra"])
def test_the_state_in_an_absent_daemon_is_unknown_and_no_resources_failure(daemon: str) -> None:
    seen = replace(observed("up"), daemons=observed("up").daemons - {daemon})
    if daemon == "bgpd":
        seen = replace(seen, peers={}, listen_ranges=frozenset(), l3vnis={})
    else:
        seen = replace(seen, vnis={}, interfaces={})
    report = assessed(applied(desired()), seen)
    assert (report.verified, report.failures) == (False, ())
    assert {vni.detail for vni in report.vnis} == {f"unknown: {daemon} is not running"}
    if daemon == "bgpd":
        assert {session.state for session in report.sessions} == {"Unknown"}
    else:
        assert [interface.detail for interface in report.interfaces] == ["unknown: zebra is not running"]


def test_bfdd_is_not_required_where_no_neighbor_uses_bfd() -> None:
    state = DesiredState(1, "n1", 0)
    report = assessed(applied(state), observed("bfdd_gone"))
    assert report.verified
    assert "bfdd" not in report.daemons


def test_a_node_without_configuration_is_verified_when_frr_runs() -> None:
    assert assessed(applied(DesiredState(1, "n1", 0)), observed("empty")).verified


def test_a_vni_that_still_fails_after_settling_does_not_delay_verification() -> None:
    seen = replace(observed("up"), l3vnis={"default": 0, "red": 0})
    early, late = assessed(applied(desired(4, reload_id=2), settling=True), seen), assessed(applied(desired(4)), seen)
    assert (early.verified, early.failures) == (False, ())
    assert (late.verified, late.summary) == (True, "generation 4 verified: 1 of 4 sessions up, 2 of 3 VNIs")
    assert [failure.resource for failure in late.failures] == [RED]


def test_a_session_still_missing_after_settling_does_not_delay_verification() -> None:
    seen = replace(observed("up"), listen_ranges=frozenset())
    early, late = assessed(applied(desired(), settling=True), seen), assessed(applied(desired()), seen)
    assert (early.verified, early.failures) == (False, ())
    assert (late.verified, [failure.resource for failure in late.failures]) == (True, [UNDERLAY])


def test_while_it_settles_nothing_has_failed_and_nothing_is_verified() -> None:
    report = assessed(applied(desired(), settling=True), observed("empty"))
    assert (report.verified, report.failures) == (False, ())
    assert report.summary.startswith("verifying generation 1: L3VNI red: VNI 100 is missing in zebra")


def test_what_an_earlier_stage_refused_is_neither_reported_again_nor_waited_for() -> None:
    state = desired()
    refused = (ResourceFailure(RED, Reason.OVERLAY_ATTACHMENT_FAILED, "no"),)
    inputs = replace(applied(state), kernel=KernelOutcome(state, applied=True, failures=refused))
    seen = observed("up")
    vnis = {number: vni for number, vni in seen.vnis.items() if number != 100}
    peers = {key: peer for key, peer in seen.peers.items() if key[0] != "red"}
    report = assessed(inputs, replace(seen, vnis=vnis, peers=peers))
    assert report.verified
    assert RED not in {vni.resource for vni in report.vnis}


def outcomes(
    generation_frr: int, generation_kernel: int | None, *, frr: bool = True, kernel: bool = True
) -> HealthInputs:
    newest = None
    if generation_kernel is not None:
        newest = KernelOutcome(desired(generation_kernel), applied=kernel, error="" if kernel else "NIC is missing")
    return HealthInputs(desired(2), FrrOutcome(desired(generation_frr), frr, error="" if frr else "refused"), newest)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (outcomes(2, None), "kernel has not yet applied generation 2"),
        (outcomes(2, 1), "kernel has not yet applied generation 2"),
        (outcomes(2, 2, kernel=False), "kernel: NIC is missing"),
        (outcomes(2, 2, frr=False), "FRR: refused"),
        (HealthInputs(desired(2)), "FRR has not yet applied generation 2"),
    ],
)
def test_nothing_is_verified_from_an_old_or_failed_outcome_however_well_frr_looks(
    inputs: HealthInputs, reason: str
) -> None:
    report = assessed(inputs, observed("up"))
    assert (report.verified, report.generation, report.failures) == (False, 2, ())
    assert reason in report.summary


def test_the_generation_in_force_stays_verified_while_the_next_is_being_prepared() -> None:
    inputs = replace(applied(desired(1)), desired=desired(2))
    report = assessed(inputs, observed("up"))
    assert (report.verified, report.generation) == (True, 1)


def test_of_daemons_that_run_only_the_one_that_hangs_is_reported_as_down() -> None:
    running = frozenset({"zebra", "mgmtd", "bgpd", "watchfrr"})
    report = assessed(applied(desired()), Observation(daemons=running, silent="bgpd", error="bgpd is late"))
    down = {name for name, runs in report.daemons.items() if not runs}
    assert down - {"bfdd"} == {"bgpd"}
    assert report.unanswered


def test_with_an_unresponsive_frr_everything_is_unknown_and_no_resource_has_failed() -> None:
    report = assessed(applied(desired()), Observation(error="it hangs"))
    assert (report.verified, report.failures) == (False, ())
    assert report.problems == ("waiting for FRR: it hangs",)
    assert {vni.detail for vni in report.vnis} == {"unknown: FRR does not answer"}
    assert len(report.vnis) == 3
    assert report.daemons == {"bfdd": False, "bgpd": False, "mgmtd": False, "zebra": False}


def test_before_any_configuration_the_report_is_waiting_for_one() -> None:
    report = assessed(HealthInputs(), observed("empty"))
    assert (report.generation, report.verified, report.summary) == (0, False, "waiting for a configuration")
