"""What counts as an event between two statuses, and that the list of them has a bound."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from config.desired import ResourceFailure
from config.outcomes import NOT_CHECKED, SessionHealth, VniHealth
from config.problems import Kind, Origin, Problem, Reason, ResourceId, Severity
from config.status import ActorStatus, ApiStatus, Generations, ReloadStatus, Status
from supervisor.events import LONGEST, EventLog, changes
from tests.supervisor.cli.examples import BLUE, DEGRADED, READY, RED, RED_ORIGIN


def lines(before: Status | None, after: Status) -> list[str]:
    """Return the events between two statuses, with a mark on warnings."""
    return [
        f"{'! ' if one.level == 'warning' else ''}{one.topic} {one.subject}: {one.message}"
        for one in changes(before, after)
    ]


def test_the_first_status_is_all_that_there_is() -> None:
    assert lines(None, READY) == [
        "daemon openperouter: version 0.1.0 runs with pid 42",
        "configuration generation 4: new desired state",
        "configuration generation 4: applied to FRR",
        "configuration generation 4: applied to the kernel",
        "configuration generation 4: verified",
        "interface toswitch1: up",
        "FRR bgpd: runs",
        "FRR zebra: runs",
        "session 192.168.11.2: Established",
        "! session 172.27.10.2 in VRF red: down",
        "session 172.31.0.0/24: Listening",
        "VNI L3VNI red, VNI 100: works",
        "VNI L2VNI ns/blue, VNI 110: works",
        "! actor netlink: restarted: netns missing",
        "api https://192.0.2.1:6443: reachable",
        "router n1: ready: 1 session up (1 down), 2 VNIs, generation 4",
    ]


def test_an_unchanged_status_is_no_event() -> None:
    assert lines(READY, replace(READY, updated_at=3000.0)) == []


def test_ages_and_counters_are_no_events() -> None:
    older = replace(READY.sessions[0], uptime_seconds=9999, prefixes_received={"ipv4Unicast": 77})
    assert lines(READY, replace(READY, sessions=(older, *READY.sessions[1:]))) == []


def test_a_degraded_router_says_what_is_wrong() -> None:
    assert lines(READY, DEGRADED) == [
        "! problem L3VNI green: openpe_vnis.yaml:12:9: error: L3VNI green: l3vnis[1].vni: 100 is taken "
        "(it is left out)",
        "problem openpe_vnis.yaml:3:3: openpe_vnis.yaml:3:3: warning: VRF: spelled vrf",
        "configuration generation 5: new desired state",
        "configuration generation 5: applied to FRR",
        "configuration generation 5: applied to the kernel",
        "configuration generation 5: verified",
        "interface toswitch1: removed",
        "! FRR bgpd: does not run",
        "session 192.168.11.2: removed",
        "session 172.27.10.2 in VRF red: removed",
        "session 172.31.0.0/24: removed",
        "! VNI L3VNI red, VNI 100: does not work: down: vni100 is down",
        "VNI L2VNI ns/blue, VNI 110: removed",
        "! note router: bgpd is not running",
        "! actor frr: restarted: boom",
        "api https://192.0.2.1:6443: unreachable: no route to host",
        "! router n1: degraded: L3VNI green: vni 100 is taken (and 2 more)",
    ]


def test_what_is_over_is_said() -> None:
    good = replace(DEGRADED, problems=(), notes=())
    assert lines(DEGRADED, good) == [
        "problem L3VNI green: resolved: openpe_vnis.yaml:12:9: error: L3VNI green: l3vnis[1].vni: 100 is taken "
        "(it is left out)",
        "problem openpe_vnis.yaml:3:3: resolved: openpe_vnis.yaml:3:3: warning: VRF: spelled vrf",
        "note router: resolved: bgpd is not running",
    ]


@pytest.mark.parametrize(
    ("reload", "line"),
    [
        (ReloadStatus(requested=2), "reload request 2: the files are read again"),
        (ReloadStatus(requested=1, verified=1), "reload request 1: in force and verified"),
        (ReloadStatus(requested=1, failed=1, reason="FRR refuses it"), "! reload request 1: failed: FRR refuses it"),
    ],
)
def test_a_reload_has_events_of_its_own(reload: ReloadStatus, line: str) -> None:
    before = replace(READY, reload=ReloadStatus(requested=1))
    assert lines(before, replace(before, reload=reload)) == [line]


def test_a_session_that_tries_again_and_again_is_down_once() -> None:
    session = SessionHealth("192.0.2.1", "default", 64512, "Active")
    before = replace(READY, sessions=(session,))
    assert lines(before, replace(before, sessions=(replace(session, state="Connect"),))) == []
    up = replace(before, sessions=(replace(session, state="Established"),))
    assert lines(before, up) == ["session 192.0.2.1: Established"]
    assert lines(up, before) == ["! session 192.0.2.1: down"]


def test_a_new_vni_is_not_called_broken_before_it_was_looked_at() -> None:
    new = VniHealth(RED, 100, "L3", "red", ok=False, detail=NOT_CHECKED)
    assert lines(replace(READY, vnis=()), replace(READY, vnis=(new,))) == [
        "VNI L3VNI red, VNI 100: added, not checked yet"
    ]


def test_a_failure_of_what_is_no_vni_is_an_event_and_a_vnis_own_is_not_repeated() -> None:
    underlay = ResourceFailure(
        ResourceId(Kind.UNDERLAY, "ns", "u", label="u"),
        Reason.UNDERLAY_FAILED,
        "eth9 is missing",
        Origin("u.yaml", 2, 5),
    )
    vni = ResourceFailure(BLUE, Reason.OVERLAY_ATTACHMENT_FAILED, "no bridge", RED_ORIGIN)
    failing = replace(READY, failures=(underlay, vni))
    assert lines(READY, failing) == ["! failure Underlay u: eth9 is missing"]
    other = replace(READY, failures=(replace(underlay, message="eth9 is down"),))
    assert lines(failing, other) == ["! failure Underlay u: eth9 is down"]


def test_a_refusal_of_the_api_server_is_a_warning() -> None:
    refused = replace(READY, api=ApiStatus("refused", "https://192.0.2.1:6443", "401 Unauthorized"))
    assert lines(READY, refused) == ["! api https://192.0.2.1:6443: refused: 401 Unauthorized"]


def test_an_actor_without_further_restarts_is_no_event() -> None:
    more = replace(READY, actors=(ActorStatus("netlink", "running", 3, "kernel said no"),))
    assert lines(READY, more) == ["! actor netlink: restarted: kernel said no"]
    assert lines(more, replace(more, actors=(ActorStatus("netlink", "backoff", 3, "kernel said no"),))) == []


def test_a_long_text_is_cut() -> None:
    problem = Problem("x" * 5000, Origin("a.yaml"), severity=Severity.WARNING)
    [event] = changes(READY, replace(READY, problems=(problem,)))
    assert len(event.message) == LONGEST


def generation(number: int) -> Status:
    return Status(boot_id="boot", pid=7, generations=Generations(desired=number))


def test_the_log_keeps_the_newest_and_counts_on() -> None:
    log = EventLog(most=3)
    assert (log.first, log.last, log.after(0)) == (1, 0, [])
    for number in range(1, 6):
        log.observe(generation(number))
    # The first status is an event too: the daemon runs.
    assert (log.first, log.last, log.instance) == (4, 6, "boot/7")
    assert [(number, event.subject) for number, event in log.after(0)] == [
        (4, "generation 3"),
        (5, "generation 4"),
        (6, "generation 5"),
    ]
    assert [number for number, _ in log.after(5)] == [6]
    assert log.after(6) == log.after(99) == []


async def test_who_waits_is_woken_by_an_event_and_not_by_a_status_without_one() -> None:
    log = EventLog()
    log.observe(generation(1))
    woken = []

    async def wait() -> None:
        await log.wait(2)
        woken.append(log.last)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        log.observe(generation(1))
        await trio.testing.wait_all_tasks_blocked()
        assert woken == []
        log.observe(generation(2))
        await trio.testing.wait_all_tasks_blocked()
    assert woken == [3]
