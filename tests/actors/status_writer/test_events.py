"""Events: each thing once, counted when it is repeated, and found again by a restarted daemon."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.lib.kube.client import Json
from actors.lib.kube.cluster_size import ClusterSize
from actors.lib.kube.errors import ApiError, error_for
from actors.status_writer.events import (
    AGAIN_SECONDS,
    BURST,
    MAX_WAITING,
    PERIOD,
    REFRESH_SECONDS,
    STEADY_SECONDS,
    EventWriter,
)
from actors.status_writer.node_events import MAX_NOTE, NodeEvent, lasting_failures
from actors.status_writer.node_state import NodeState
from config.outcomes import FrrOutcome, KernelOutcome
from config.problems import RUNNING_KEPT, Kind, Severity
from tests.actors.message_catalog import explained
from tests.fakes.api_server import FakeApiServer, forbidden, no_trouble

from .examples import NODE, cr, duplicate, file_problem, node_state, refused, run_writer, state, unrelated_underlay

RED = cr("red")


@dataclass
class Bench:
    """A writer, a server that forgets after an hour, and a clock that the test sets."""

    server: FakeApiServer = field(default_factory=FakeApiServer)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.restart()
        self.shows(node_state(RED))

    def restart(self) -> None:
        """Start the daemon again."""
        self.size = ClusterSize(100, lambda: 0.5)
        self.writer = EventWriter(lambda: 1.8e9 + self.now, self.size)

    def shows(self, of: NodeState) -> None:
        self.state = of
        self.writer.update(of, self.now)

    async def passes(self, seconds: float) -> None:
        await run_writer(self, seconds)

    @property
    def events(self) -> list[Json]:
        return self.server.find("/events/")


def failing(error: str = "FRR refuses the configuration: line 3") -> NodeState:
    desired = state(RED)
    return node_state(RED, desired=desired, frr=FrrOutcome(desired, False, error=error))


def event(number: int = 0, note: str = "x") -> NodeEvent:
    return NodeEvent(("ValidationFailed", str(number)), True, "ValidationFailed", note)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_healthy_node_reports_nothing(bench: Bench) -> None:
    await bench.passes(86400)
    assert bench.server.requests == []


async def test_a_failure_that_lasts_is_an_event_of_the_node_where_describe_finds_it(bench: Bench) -> None:
    bench.shows(failing())
    await bench.passes(STEADY_SECONDS / 2)
    assert bench.events == []
    await bench.passes(STEADY_SECONDS)
    [event] = bench.events
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": NODE.uid}
    assert (event["type"], event["reason"]) == ("Warning", "FrrConfigurationFailed")
    assert event["note"] == "the router: FRR refuses the configuration: line 3"
    assert event["eventTime"].endswith("Z")


async def test_thousands_of_nodes_report_one_after_the_other(bench: Bench) -> None:
    bench.size.learn(5000)
    bench.shows(failing())
    await bench.passes(STEADY_SECONDS + 20)
    assert bench.events == []
    await bench.passes(10)
    assert len(bench.events) == 1
    bench.shows(node_state(RED))
    await bench.passes(STEADY_SECONDS + 20)
    assert len(bench.events) == 1
    await bench.passes(10)
    assert len(bench.events) == 2


async def test_a_small_cluster_does_not_wait_once_it_is_counted(bench: Bench) -> None:
    bench.size.learn(5000)
    bench.shows(failing())
    bench.size.learn(3)
    await bench.passes(STEADY_SECONDS + 1)
    assert len(bench.events) == 1


async def test_a_failure_that_passes_quickly_is_not_reported(bench: Bench) -> None:
    for _ in range(20):
        bench.shows(failing())
        await bench.passes(STEADY_SECONDS / 2)
        bench.shows(node_state(RED))
        await bench.passes(STEADY_SECONDS * 2)
    assert bench.events == []


async def test_the_end_of_a_failure_is_reported(bench: Bench) -> None:
    bench.shows(failing())
    await bench.passes(60)
    bench.shows(node_state(RED))
    await bench.passes(60)
    _, event = bench.events
    assert (event["type"], event["reason"]) == ("Normal", "ConfigurationSuccessful")
    assert event["note"] == "the router: in force again"


async def test_a_failure_that_lasts_is_counted_before_the_server_forgets_it(bench: Bench) -> None:
    bench.shows(failing())
    await bench.passes(4 * 3600)
    [event] = bench.events
    assert 6 <= event["series"]["count"] <= 8
    assert len(bench.server.writes()) == event["series"]["count"]


async def test_repetitions_are_counted_at_intervals(bench: Bench) -> None:
    for _ in range(100):
        bench.writer.report(event())
        await bench.passes(AGAIN_SECONDS / 10)
    await bench.passes(AGAIN_SECONDS)
    [counted] = bench.events
    assert counted["series"]["count"] == 100
    assert len(bench.server.writes()) <= 12


async def test_a_restarted_daemon_does_not_repeat_a_fresh_event(bench: Bench) -> None:
    bench.shows(failing())
    await bench.passes(60)
    bench.restart()
    bench.shows(failing())
    await bench.passes(60)
    [event] = bench.events
    assert "series" not in event
    assert [verb for verb, _ in bench.server.requests] == ["create", "create", "get"]


async def test_a_restarted_daemon_counts_an_old_event(bench: Bench) -> None:
    bench.shows(failing())
    await bench.passes(60)
    bench.restart()
    bench.now += REFRESH_SECONDS
    bench.shows(failing())
    await bench.passes(60)
    [event] = bench.events
    assert event["series"]["count"] == 2


async def test_an_event_that_the_server_forgot_begins_again(bench: Bench) -> None:
    bench.shows(failing())
    await bench.passes(60)
    bench.server.objects.clear()
    await bench.passes(1.5 * REFRESH_SECONDS)
    [event] = bench.events
    assert "series" not in event


async def test_another_text_is_another_event(bench: Bench) -> None:
    bench.shows(failing())
    await bench.passes(60)
    bench.shows(failing("FRR refuses the configuration: line 9"))
    await bench.passes(60)
    assert [event["note"][-6:] for event in bench.events] == ["line 3", "line 9"]


async def test_many_events_at_once_are_sent_slowly(bench: Bench) -> None:
    for number in range(80):
        bench.writer.report(event(number))
    await bench.passes(60)
    assert len(bench.events) <= BURST + 60 / PERIOD + 1
    await bench.passes(80 * PERIOD)
    assert len(bench.events) == 80


async def test_more_than_can_wait_is_dropped_and_counted(bench: Bench) -> None:
    for number in range(MAX_WAITING + 7):
        bench.writer.report(event(number))
    assert bench.writer.dropped == 7


async def test_old_events_make_room_for_new_ones(bench: Bench) -> None:
    for number in range(2 * MAX_WAITING):
        bench.writer.report(event(number))
        await bench.passes(PERIOD)
    assert bench.writer.dropped == 0
    assert len(bench.events) == 2 * MAX_WAITING


async def test_an_illegal_event_is_dropped_and_does_not_stop_the_others(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    illegal = error_for(422, "Invalid", "note: can have at most 1024 characters")
    bench.server.trouble = lambda verb, path: illegal if len(bench.server.requests) == 1 else None
    bench.writer.report(event(1))
    bench.writer.report(event(2))
    await bench.passes(86400)
    assert len(bench.events) == 1
    assert len(bench.server.requests) == 2
    assert (bench.writer.dropped, caplog.text.count("dropped the Event node-a.")) == (1, 1)
    assert explained(caplog.records) == ["REPORTING_FAILS"]


@pytest.mark.parametrize("error", [forbidden("create", "events"), error_for(500, "", "unreachable")])
async def test_a_server_that_refuses_for_a_while_loses_nothing(bench: Bench, error: ApiError) -> None:
    bench.server.trouble = lambda verb, path: error
    bench.writer.report(event())
    for _ in range(6):
        with pytest.raises(type(error)):
            await bench.passes(AGAIN_SECONDS)
    bench.server.trouble = no_trouble
    await bench.passes(2 * AGAIN_SECONDS)
    assert (len(bench.events), bench.writer.dropped) == (1, 0)


def notes(of: NodeState) -> dict[str, str]:
    return {one.key: one.begin.note for one in lasting_failures(of)}


def test_the_underlay_and_each_failing_file_has_an_event_and_all_objects_of_the_api_one() -> None:
    problems = (
        file_problem(Kind.UNDERLAY, "static-node-a-underlay-0", "two underlays"),
        file_problem(Kind.L3VNI, "static-node-a-green", "vni is missing"),
        file_problem(None, "", "not YAML", path="/etc/x/openpe_b.yaml"),
        refused(RED),
        refused(RED, "vrf is taken"),
        refused(cr("blue"), "vni 200 is taken"),
    )
    assert notes(node_state(RED, desired=state(problems=problems))) == {
        "UnderlayFailed the underlay": "the underlay: /etc/x/openpe_a.yaml:3: asn: two underlays",
        "ValidationFailed L3VNI static-node-a-green": (
            "L3VNI static-node-a-green: /etc/x/openpe_a.yaml:3: asn: vni is missing"
        ),
        "ValidationFailed /etc/x/openpe_b.yaml": "/etc/x/openpe_b.yaml:3: asn: not YAML",
        "ConfigurationFailed objects of the API": (
            "objects of the API: L3VNI tenants/blue: spec.vni: vni 200 is taken; also not in force: L3VNI tenants/red"
        ),
    }


@pytest.mark.parametrize("severity", list(Severity))
def test_a_duplicate_index_is_one_event_whether_the_router_is_up_or_waits(severity: Severity) -> None:
    assert notes(node_state(desired=state(problems=(duplicate(severity),)))) == {
        "DuplicateIndex the node's index": (
            "the node's index: this node's index 3 is not unique: node b has it (this router stays as it is)"
        )
    }


def test_a_refused_underlay_beside_the_routers_is_an_object_like_any_other() -> None:
    assert list(notes(node_state(RED, desired=state(RED, problems=(unrelated_underlay(),))))) == [
        "ConfigurationFailed objects of the API"
    ]


def test_an_underlay_of_the_api_is_the_underlay() -> None:
    problem = replace(refused(replace(RED, kind=Kind.UNDERLAY, name="fabric"), "no neighbor"), in_force=RUNNING_KEPT)
    assert notes(node_state(desired=state(problems=(problem,)))) == {
        "UnderlayFailed the underlay": f"the underlay: spec.vni: no neighbor ({RUNNING_KEPT})"
    }


def test_a_kernel_that_refuses_is_reported() -> None:
    desired = state(RED)
    of = node_state(RED, desired=desired, kernel=KernelOutcome(desired, False, error="no namespace"))
    assert notes(of) == {"OverlayAttachmentFailed the router": "the router: kernel: no namespace"}


@pytest.mark.parametrize(("from_files", "events"), [(True, 20), (False, 1)])
def test_a_hundred_failures_are_not_a_hundred_events(from_files: bool, events: int) -> None:
    names = [f"n{number}" for number in range(100)]
    files = tuple(file_problem(Kind.L3VNI, name, "bad") for name in names)
    objects = tuple(refused(cr(name)) for name in names)
    assert len(notes(node_state(RED, desired=state(problems=files if from_files else objects)))) == events


def body(event: NodeEvent, name: str = "node-a") -> dict[str, Any]:
    return event.body(replace(NODE, name=name), "2027-01-15T08:00:00.000000Z")


def test_an_event_is_legal_whatever_is_in_it() -> None:
    whole = body(NodeEvent(("x",), True, "!!" + "r" * 300, "\x00 why" + "y" * 5000), "n" * 253)
    assert len(whole["metadata"]["name"]) <= 253
    assert len(whole["note"].encode()) <= MAX_NOTE
    assert len(whole["reason"].encode()) <= 128
    assert len(whole["reportingInstance"].encode()) <= 128


@given(st.text(st.sampled_from("a ü…𝄞\x00\ud800"), min_size=200, max_size=1200))
def test_a_note_is_cut_by_bytes_and_between_characters(why: str) -> None:
    note = body(event(note=f"why: {why}"))["note"]
    assert len(note.encode()) <= MAX_NOTE
    assert note == " ".join(note.split())


@pytest.mark.parametrize("letter", ["x", "ü", "…", "𝄞"])
def test_a_long_note_is_as_long_as_it_may_be(letter: str) -> None:
    note = body(event(note=letter * 3000))["note"]
    assert MAX_NOTE - 4 <= len(note.encode()) <= MAX_NOTE
    assert note == letter * (len(note) - 1) + "…"
