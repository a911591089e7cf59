"""Events: each thing once, counted when it is repeated, told by name so that nobody repeats it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.lib.kube.client import Json
from actors.lib.kube.cluster_size import Crowd
from actors.lib.kube.errors import ApiError, ForbiddenError, error_for
from actors.status_writer.condition_codec import Claim, failing
from actors.status_writer.events import (
    AGAIN_SECONDS,
    BURST,
    MAX_ATTEMPTS,
    MAX_WAITING,
    PERIOD,
    REFRESH_SECONDS,
    STEADY_SECONDS,
    EventsDuty,
)
from actors.status_writer.inputs import Basis
from actors.status_writer.node_events import MAX_NOTE, Occurrence, body, claimed, index_replaced, standing
from actors.status_writer.object_status import Judge
from actors.status_writer.writer import Scene
from config.outcomes import FrrOutcome, KernelOutcome
from config.problems import Kind
from tests.actors.message_catalog import explained

from .examples import CREDENTIALS, NAMESPACE, NODE, basis, cr, file_problem, refused, state
from .server import FakeServer, forbidden

RED = cr("red")


@dataclass
class Bench:
    """A duty, a server that forgets after an hour, and a clock that the test sets."""

    server: FakeServer = field(default_factory=FakeServer)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.restart()
        self.scene = scene(basis(RED))

    def restart(self) -> None:
        """Start the daemon again."""
        self.duty = EventsDuty(lambda: 1.8e9 + self.now, Crowd(100), lambda: 0.5)

    def shows(self, of: Basis) -> None:
        self.scene = scene(of)
        self.duty.see(self.scene, self.now)

    async def goes_on(self, seconds: float) -> None:
        """Let time pass, as the actor would."""
        end = self.now + seconds
        async with self.server.connect(CREDENTIALS) as client:
            for _ in range(1000):
                due = self.duty.due(self.now)
                if due > end:
                    break
                self.now = max(self.now, due)
                self.duty.see(self.scene, self.now)
                if self.duty.due(self.now) <= self.now:
                    await self.duty.act(client, self.now)
            else:
                raise AssertionError("never idle")
        self.now = end

    @property
    def told(self) -> list[Json]:
        return self.server.find("/events/")


def scene(of: Basis) -> Scene:
    return Scene(of, Judge(NAMESPACE).judge(of, 0.0), NAMESPACE)


def troubled(error: str = "FRR refuses the configuration: line 3") -> Basis:
    desired = state(RED)
    return basis(RED, desired=desired, frr=FrrOutcome(desired, False, error=error))


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_healthy_node_has_nothing_to_tell(bench: Bench) -> None:
    bench.shows(basis(RED))
    await bench.goes_on(86400)
    assert bench.server.requests == []


async def test_what_lasts_is_told_of_the_node_where_describe_looks(bench: Bench) -> None:
    bench.shows(troubled())
    await bench.goes_on(STEADY_SECONDS / 2)
    assert bench.told == []
    await bench.goes_on(STEADY_SECONDS)
    [event] = bench.told
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": NODE.uid}
    assert (event["type"], event["reason"]) == ("Warning", "FrrConfigurationFailed")
    assert event["note"] == "the router: FRR refuses the configuration: line 3"
    assert event["eventTime"].endswith("Z")


async def test_what_passes_quickly_is_not_told(bench: Bench) -> None:
    for _ in range(20):
        bench.shows(troubled())
        await bench.goes_on(STEADY_SECONDS / 2)
        bench.shows(basis(RED))
        await bench.goes_on(STEADY_SECONDS * 2)
    assert bench.told == []


async def test_that_it_is_over_is_told(bench: Bench) -> None:
    bench.shows(troubled())
    await bench.goes_on(60)
    bench.shows(basis(RED))
    await bench.goes_on(60)
    _, event = bench.told
    assert (event["type"], event["reason"]) == ("Normal", "ConfigurationSuccessful")
    assert event["note"] == "the router: in force again"


async def test_what_goes_on_is_counted_before_the_server_forgets_it(bench: Bench) -> None:
    bench.shows(troubled())
    await bench.goes_on(4 * 3600)
    [event] = bench.told
    assert 6 <= event["series"]["count"] <= 8
    assert len(bench.server.writes()) == event["series"]["count"]


async def test_what_happens_often_is_counted_at_intervals(bench: Bench) -> None:
    for _ in range(100):
        bench.duty.tell(claimed(RED, failing("node-a", "ValidationFailed", "vni 100 is taken")))
        await bench.goes_on(AGAIN_SECONDS / 10)
    await bench.goes_on(AGAIN_SECONDS)
    [event] = bench.told
    assert event["series"]["count"] == 100
    assert len(bench.server.writes()) <= 12


async def test_a_restarted_daemon_does_not_repeat_what_is_fresh(bench: Bench) -> None:
    bench.shows(troubled())
    await bench.goes_on(60)
    bench.restart()
    bench.shows(troubled())
    await bench.goes_on(60)
    [event] = bench.told
    assert "series" not in event
    assert [verb for verb, _ in bench.server.requests] == ["create", "create", "get"]


async def test_a_restarted_daemon_counts_on_in_what_is_old(bench: Bench) -> None:
    bench.shows(troubled())
    await bench.goes_on(60)
    bench.restart()
    bench.now += REFRESH_SECONDS
    bench.shows(troubled())
    await bench.goes_on(60)
    [event] = bench.told
    assert event["series"]["count"] == 2


async def test_an_event_that_the_server_forgot_begins_anew(bench: Bench) -> None:
    bench.shows(troubled())
    await bench.goes_on(60)
    bench.server.objects.clear()
    await bench.goes_on(1.5 * REFRESH_SECONDS)
    [event] = bench.told
    assert "series" not in event


async def test_another_text_is_another_event(bench: Bench) -> None:
    bench.shows(troubled())
    await bench.goes_on(60)
    bench.shows(troubled("FRR refuses the configuration: line 9"))
    await bench.goes_on(60)
    assert [event["note"][-6:] for event in bench.told] == ["line 3", "line 9"]


async def test_a_storm_is_let_through_slowly(bench: Bench) -> None:
    for number in range(80):
        bench.duty.tell(claimed(cr(f"net-{number}"), failing("node-a", "ValidationFailed", "x")))
    await bench.goes_on(60)
    assert len(bench.told) <= BURST + 60 / PERIOD + 1
    await bench.goes_on(80 * PERIOD)
    assert len(bench.told) == 80


async def test_more_than_can_wait_is_dropped_and_counted(bench: Bench) -> None:
    for number in range(MAX_WAITING + 7):
        bench.duty.tell(claimed(cr(f"net-{number}"), failing("node-a", "ValidationFailed", "x")))
    assert bench.duty.dropped == 7


async def test_old_stories_make_room_for_new_ones(bench: Bench) -> None:
    for number in range(2 * MAX_WAITING):
        bench.duty.tell(claimed(cr(f"net-{number}"), failing("node-a", "ValidationFailed", "x")))
        await bench.goes_on(PERIOD)
    assert bench.duty.dropped == 0
    assert len(bench.told) == 2 * MAX_WAITING


REFUSALS = {
    "its text is not legal": (error_for(422, "Invalid", "note: can have at most 1024 characters"), 1),
    "its namespace is gone": (error_for(404, "NotFound", 'namespaces "ending" not found'), MAX_ATTEMPTS),
    "its namespace is ending": (
        error_for(403, "Forbidden", "unable to create new content in namespace ending because it is being terminated"),
        MAX_ATTEMPTS,
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
async def test_one_that_is_refused_does_not_stop_the_others(
    bench: Bench, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    error, attempts = REFUSALS[why]
    bench.server.trouble = lambda verb, path: error if "/ending/" in path else None
    bench.duty.tell(claimed(replace(RED, namespace="ending"), failing("node-a", "ValidationFailed", "x")))
    bench.duty.tell(claimed(RED, failing("node-a", "ValidationFailed", "x")))
    await bench.goes_on(1)
    assert len(bench.told) == 1
    await bench.goes_on(86400)
    assert sum("/ending/" in path for _, path in bench.server.requests) == attempts
    assert (bench.duty.dropped, caplog.text.count("the cluster is not told: the Event ending/red.")) == (1, 1)
    assert len(explained(caplog.records)) == 1


async def test_what_rbac_forbids_is_the_whole_dutys_trouble(bench: Bench) -> None:
    bench.server.trouble = forbidden
    bench.duty.tell(claimed(RED, failing("node-a", "ValidationFailed", "x")))
    for _ in range(MAX_ATTEMPTS):
        with pytest.raises(ForbiddenError):
            await bench.goes_on(2 * AGAIN_SECONDS)
    await bench.goes_on(86400)
    assert len(bench.server.requests) == MAX_ATTEMPTS


async def test_a_server_that_is_away_loses_nothing(bench: Bench) -> None:
    bench.server.trouble = lambda verb, path: error_for(500, "", "away")
    bench.duty.tell(claimed(RED, failing("node-a", "ValidationFailed", "x")))
    for _ in range(6):
        with pytest.raises(ApiError):
            await bench.goes_on(AGAIN_SECONDS)
    bench.server.trouble = lambda verb, path: None
    await bench.goes_on(2 * AGAIN_SECONDS)
    assert len(bench.told) == 1


def test_two_nodes_tell_the_same_of_an_object() -> None:
    names = {claimed(RED, failing(node, "ValidationFailed", f"why {node}")).name for node in ("node-a", "node-b")}
    assert len(names) == 1
    newer = claimed(replace(RED, generation=2), failing("node-a", "ValidationFailed", "why"))
    back = claimed(RED, Claim(False, "node-a"))
    assert len(names | {newer.name, back.name}) == 3
    assert (back.warning, back.note) == (False, "node node-a: in force again")
    assert back.namespace == "tenants"


def subjects(of: Basis) -> dict[str, str]:
    return {one.key: one.occurrence.note for one in standing(scene(of))}


def test_what_comes_from_files_and_the_underlay_is_the_nodes_affair() -> None:
    problems = (
        file_problem(Kind.UNDERLAY, "static-node-a-underlay-0", "two underlays"),
        file_problem(Kind.L3VNI, "static-node-a-green", "vni is missing"),
        file_problem(None, "", "not YAML", path="/etc/x/openpe_b.yaml"),
        refused(RED),
    )
    assert subjects(basis(RED, desired=state(problems=problems))) == {
        "UnderlayFailed the underlay": "the underlay: /etc/x/openpe_a.yaml:3: asn: two underlays",
        "ValidationFailed L3VNI static-node-a-green": (
            "L3VNI static-node-a-green: /etc/x/openpe_a.yaml:3: asn: vni is missing"
        ),
        "ValidationFailed /etc/x/openpe_b.yaml": "/etc/x/openpe_b.yaml:3: asn: not YAML",
    }


def test_a_kernel_that_refuses_is_told() -> None:
    desired = state(RED)
    of = basis(RED, desired=desired, kernel=KernelOutcome(desired, False, error="no namespace"))
    assert subjects(of) == {"OverlayAttachmentFailed the router": "the router: kernel: no namespace"}


def test_a_hundred_broken_files_are_not_a_hundred_events() -> None:
    problems = tuple(file_problem(Kind.L3VNI, f"n{number}", "bad") for number in range(100))
    assert len(subjects(basis(RED, desired=state(problems=problems)))) == 20


def whole(occurrence: Occurrence) -> dict[str, Any]:
    return body(occurrence, "n" * 253, "2027-01-15T08:00:00.000000Z")


def test_an_event_is_legal_whatever_is_told() -> None:
    long = replace(RED, name="a" * 253)
    event = whole(claimed(long, failing("n" * 253, "!!" + "r" * 300, "\x00 why" + "y" * 5000)))
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["note"].encode()) <= MAX_NOTE
    assert len(event["reason"].encode()) <= 128
    assert len(event["reportingInstance"].encode()) <= 128


@given(st.text(st.sampled_from("a ü…𝄞\x00\ud800"), min_size=200, max_size=1200))
def test_a_note_is_cut_by_bytes_and_between_characters(why: str) -> None:
    note = claimed(RED, Claim(True, "node-a", "ValidationFailed", why)).note
    assert len(note.encode()) <= MAX_NOTE
    assert note == " ".join(note.split())


@pytest.mark.parametrize("letter", ["x", "ü", "…", "𝄞"])
def test_a_long_note_is_as_long_as_it_may_be(letter: str) -> None:
    note = claimed(RED, Claim(True, "node-a", "ValidationFailed", letter * 3000)).note
    assert MAX_NOTE - 4 <= len(note.encode()) <= MAX_NOTE
    assert note == f"node node-a: {letter * (len(note) - 14)}…"


def test_a_replaced_index_says_both() -> None:
    told = index_replaced(NODE, "7", state())
    assert "'7'" in told.note
    assert "is 3" in told.note
