"""The health actor's log: one line per change of state, and otherwise none."""

from __future__ import annotations

from dataclasses import replace

from actors.health.assess import assess
from actors.health.changes import changes
from actors.health.frr_json import Observation
from config.outcomes import HealthReport
from tests.actors.health.examples import applied, desired, observed


def report(sample: str, generation: int = 1, *, settling: bool = False) -> HealthReport:
    return assess(applied(desired(generation), settling=settling), observed(sample))


def lines(old: HealthReport | None, new: HealthReport, *, answered: bool = True) -> list[tuple[str, str]]:
    return [(change.level, change.message) for change in changes(old, new, answered=answered)]


def test_an_unchanged_router_logs_nothing() -> None:
    assert lines(report("up"), report("up")) == []


def test_uptimes_and_prefix_counts_are_not_logged() -> None:
    old = report("up")
    older = tuple(replace(s, uptime_seconds=s.uptime_seconds + 15, prefixes_received={}) for s in old.sessions)
    assert lines(old, replace(old, sessions=older)) == []


def test_a_start_is_one_line_however_many_sessions_and_vnis_there_are() -> None:
    assert lines(None, report("up")) == [("info", "generation 1 verified: 1 of 4 sessions up, 3 VNIs")]


def test_a_new_generation_that_is_verified_is_one_line() -> None:
    assert lines(report("up", 1), report("up", 2)) == [("info", "generation 2 verified: 1 of 4 sessions up, 3 VNIs")]


def test_a_session_up_is_one_line_with_its_fields() -> None:
    [change] = changes(report("just_configured"), report("up"), answered=True)
    assert (change.level, change.message) == ("info", "BGP session up")
    assert change.fields == {"peer": "192.168.11.2", "vrf": "default", "state": "Established", "remote_as": 64512}


def test_a_session_down_is_a_warning() -> None:
    found = lines(report("up"), report("links_down"))
    assert ("warning", "BGP session down") in found


def test_a_vni_that_stops_working_is_named_once_with_its_cause() -> None:
    found = lines(report("up"), report("links_down"))
    assert [message for _, message in found if "vni100" in message] == ["VNI does not work: down: vni100 is down"]
    assert lines(report("links_down"), report("links_down")) == []


def test_a_vni_that_works_again_is_logged() -> None:
    assert ("info", "VNI works") in lines(report("links_down"), report("up"))


def test_lost_verification_is_logged_once() -> None:
    lost = [message for _, message in lines(report("up"), report("bfdd_gone")) if "no longer" in message]
    assert lost == ["no longer as configured: verifying generation 1: bfdd is not running"]
    assert lines(report("bfdd_gone"), report("bfdd_gone")) == []


def test_a_daemons_end_and_its_return_are_both_logged() -> None:
    assert ("warning", "bgpd is not running") in lines(report("bfdd_gone"), report("bgpd_gone"))
    assert ("info", "bgpd is running") in lines(report("bgpd_gone"), report("bfdd_gone"))


def test_changes_that_come_with_a_daemons_restart_are_not_logged_one_by_one() -> None:
    gone = replace(observed("up"), daemons=observed("up").daemons - {"bgpd"}, peers={}, vnis={}, l3vnis={})
    without = assess(applied(desired()), gone)
    assert [message for _, message in lines(report("up"), without)] == [
        "no longer as configured: verifying generation 1: bgpd is not running",
        "bgpd is not running",
    ]
    assert [message for _, message in lines(without, report("up"))] == [
        "generation 1 verified: 1 of 4 sessions up, 3 VNIs",
        "bgpd is running",
    ]


def test_a_failure_that_appears_after_settling_is_logged() -> None:
    found = lines(report("empty", settling=True), report("empty"))
    assert ("warning", "not working: VNI 100 is missing in zebra") in found


def test_an_unresponsive_frr_is_one_line_and_not_one_for_every_session_and_vni() -> None:
    unresponsive = assess(applied(desired()), Observation(error="it hangs"))
    assert lines(report("up"), unresponsive, answered=False) == [
        ("warning", "no longer as configured: waiting for FRR: it hangs")
    ]
    assert lines(unresponsive, unresponsive, answered=False) == []


def test_a_start_without_frr_logs_what_it_waits_for() -> None:
    unresponsive = assess(applied(desired()), Observation(error="it hangs"))
    assert lines(None, unresponsive, answered=False) == [("warning", "waiting for FRR: it hangs")]
