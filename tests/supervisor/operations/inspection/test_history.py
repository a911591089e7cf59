"""Which of the daemon's events are about one session or VNI, and how many of them are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from config.desired import ResourceFailure
from config.problems import Reason
from config.status import Status
from supervisor.cli.terminal import Painter
from supervisor.cli.verbs.node.details_page import session_page
from supervisor.events import changes
from supervisor.operations.inspection.details import sessions_named, vnis_named
from supervisor.operations.inspection.history import MOST_CHANGES, PastEvent, session_history, vni_history

from .example_node import DESIRED, STATUS

GREEN = vnis_named(STATUS, DESIRED, "green")[0].resource


def past(*statuses: Status) -> list[PastEvent]:
    """Return the events of statuses that follow one another, as the control socket has them."""
    found = [event for before, after in pairwise(statuses) for event in changes(before, after)]
    return [PastEvent.of(event.to_data(number)) for number, event in enumerate(found, start=1)]


def texts(events: Sequence[PastEvent]) -> list[str]:
    return [event.text for event in events]


def with_session(peer: str, state: str) -> Status:
    sessions = (replace(one, state=state) if one.peer == peer else one for one in STATUS.sessions)
    return replace(STATUS, sessions=tuple(sessions))


def with_vni(number: int, **members: object) -> Status:
    vnis = (replace(one, **members) if one.vni == number else one for one in STATUS.vnis)  # type: ignore[arg-type]
    return replace(STATUS, vnis=tuple(vnis))


def test_a_session_has_its_own_changes() -> None:
    (details,) = sessions_named(STATUS, DESIRED, "eth1")
    events = past(STATUS, with_session("eth1", "Idle"), with_session("172.27.10.2", "Established"))
    history = session_history(details, events)
    assert texts(history.changes) == ["eth1: down", "eth1: Established"]
    assert history.last_error is not None
    assert history.last_error.message == "down"


def test_a_vni_has_its_changes_by_any_number_and_those_of_its_host_sessions() -> None:
    (details,) = vnis_named(STATUS, DESIRED, "100")
    broken = with_vni(100, vni=99, ok=False, detail="vni99 is down")
    events = past(STATUS, broken, with_session("2001:db9:1::2", "Idle"), with_vni(110, ok=False, detail="x"))
    assert texts(vni_history(details, events).changes) == [
        "L3VNI red, VNI 99: does not work: vni99 is down",
        "2001:db9:1::2 in VRF red: down",
        "L3VNI red, VNI 100: works",
        "2001:db9:1::2 in VRF red: Established",
    ]


def test_what_is_not_in_force_has_its_problems_and_failures() -> None:
    (details,) = vnis_named(STATUS, DESIRED, "green")
    failure = ResourceFailure(GREEN, Reason.OVERLAY_ATTACHMENT_FAILED, "no netns")
    history = vni_history(details, past(replace(STATUS, problems=()), STATUS, replace(STATUS, failures=(failure,))))
    assert [event.topic for event in history.changes] == ["problem", "failure"]


def test_the_newest_changes_are_shown_and_the_others_counted() -> None:
    (details,) = sessions_named(STATUS, DESIRED, "eth1")
    down = with_session("eth1", "Idle")
    history = session_history(details, past(*[STATUS, down] * (MOST_CHANGES + 1)))
    assert len(history.changes) == MOST_CHANGES
    assert history.older == MOST_CHANGES + 1
    page = session_page(details, Painter(colour=False), history)
    assert f"  history        {history.older} older changes (openperouter events)\n" in page


def test_a_fault_before_the_changes_that_are_shown_is_still_the_last_error() -> None:
    (details,) = sessions_named(STATUS, DESIRED, "eth1")
    fault, good = past(STATUS, with_session("eth1", "Idle"), STATUS)
    history = session_history(details, [fault, *[good] * MOST_CHANGES])
    assert fault not in history.changes
    assert history.last_error == fault


def test_without_changes_nothing_is_said_of_them() -> None:
    (details,) = sessions_named(STATUS, DESIRED, "eth1")
    history = session_history(details, [])
    assert history.to_data() == {"last_error": None, "history": [], "older_changes": 0}
    assert session_page(details, Painter(colour=False), history) == session_page(details, Painter(colour=False))
