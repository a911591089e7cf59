"""The health actor's log: one line per change of state, and otherwise none."""

from __future__ import annotations

from dataclasses import replace

from actors.health.changes import changes
from actors.health.frr_json import Observation
from actors.health.repair import GIVEN_UP
from config.outcomes import Bounce, HealthReport
from supervisor.logs import message_ids
from tests.actors.health.examples import applied, assessed, desired, fabric, observed

UNANSWERED = message_ids.BFD_UNANSWERED


def report(sample: str, generation: int = 1, *, settling: bool = False) -> HealthReport:
    return assessed(applied(desired(generation), settling=settling), observed(sample))


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
    without = assessed(applied(desired()), gone)
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
    unresponsive = assessed(applied(desired()), Observation(error="it hangs"))
    assert lines(report("up"), unresponsive, answered=False) == [
        ("warning", "no longer as configured: waiting for FRR: it hangs")
    ]
    assert lines(unresponsive, unresponsive, answered=False) == []


def test_when_a_daemon_that_hung_answers_again_only_that_is_logged() -> None:
    hung = replace(observed("up"), silent="bfdd", error="bfdd did not answer")
    unanswered = assessed(applied(desired()), hung)
    assert [message for _, message in lines(unanswered, report("up"))] == [
        "generation 1 verified: 1 of 4 sessions up, 3 VNIs",
        "bfdd is running",
    ]


def test_a_start_without_frr_logs_what_it_waits_for() -> None:
    unresponsive = assessed(applied(desired()), Observation(error="it hangs"))
    assert lines(None, unresponsive, answered=False) == [("warning", "waiting for FRR: it hangs")]


def test_a_bounce_is_logged_once_with_its_reason() -> None:
    broken = assessed(applied(fabric()), observed("fabric_stale_bridge"))
    asked = replace(broken, bounce=frozenset({Bounce(100, 1)}))
    [change] = changes(broken, asked, answered=True)
    assert (change.level, change.event) == ("warning", message_ids.VNI_BOUNCED)
    assert change.message == (
        "FRR removes this VNI and adds it again, because it does not work: "
        "the route to 10.50.0.0/24 is not in the kernel, although zebra shows it as installed"
    )
    assert lines(asked, asked) == []
    assert lines(asked, broken) == []


def test_that_nothing_more_is_tried_is_logged_once() -> None:
    broken = assessed(applied(fabric()), observed("fabric_stale_bridge"))
    vnis = tuple(replace(vni, detail=vni.detail + GIVEN_UP) if vni.detail else vni for vni in broken.vnis)
    [change] = changes(broken, replace(broken, vnis=vnis), answered=True)
    assert (change.level, change.event) == ("warning", message_ids.VNI_GIVEN_UP)
    assert lines(replace(broken, vnis=vnis), replace(broken, vnis=vnis)) == []


def test_a_peer_without_bfd_is_named_once_with_what_to_do() -> None:
    working, silent = (assessed(applied(fabric()), observed(name)) for name in ("fabric_up", "fabric_one_sided_bfd"))
    [change] = [change for change in changes(working, silent, answered=True) if change.event == UNANSWERED]
    assert (
        change.message == "the peer sends no BFD packets: configure BFD on the peer, or remove bfd from this neighbour"
    )
    assert change.fields["peer"] == "192.168.11.2"
    assert not [change for change in changes(silent, silent, answered=True) if change.event == UNANSWERED]
