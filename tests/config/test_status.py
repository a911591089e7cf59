"""The status model: its JSON form lasts, its essence leaves out what changes by itself."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.status import (
    ActorStatus,
    FailureStatus,
    Generations,
    InterfaceStatus,
    ProblemStatus,
    ReloadStatus,
    SessionStatus,
    Status,
    StatusFormatError,
    UnderlayStatus,
    VniStatus,
)

FULL = Status(
    pid=7,
    node="n1",
    node_index=3,
    phase="degraded",
    ready=True,
    summary="sum ✓",
    generations=Generations(4, 3, 2, 1),
    reload=ReloadStatus(3, 2, 1, 2, "why"),
    actors=(ActorStatus("frr", "running", 1, "boom", facts={"n": 1, "s": "x", "none": None}),),
    daemons={"bgpd": True},
    underlay=UnderlayStatus("u", vteps=("100.65.0.0/32",), interfaces=(InterfaceStatus("eth1", True, True, 9000),)),
    sessions=(SessionStatus("192.0.2.1", prefixes_received={"ipv4Unicast": 3}, uptime_seconds=5),),
    vnis=(VniStatus("L3VNI", "red", 100),),
    problems=(ProblemStatus("a.yaml:1:2", "field", "message", in_force="kept"),),
    failures=(FailureStatus("L3VNI", "red", message="why", origin="a.yaml:1"),),
    notes=("a note",),
)


@pytest.mark.parametrize("status", [Status(), FULL])
def test_a_status_survives_its_json_form(status: Status) -> None:
    assert Status.from_json(status.to_json()) == status
    assert Status.from_json(status.to_json(indent=2).encode()) == status


def test_one_line_of_json_is_one_line() -> None:
    assert "\n" not in FULL.to_json()


def test_members_of_a_newer_version_are_ignored_at_every_level() -> None:
    document = json.loads(FULL.to_json())
    document["novelty"] = [1]
    document["actors"][0]["novelty"] = {}
    document["underlay"]["interfaces"][0]["novelty"] = True
    assert Status.from_data(document) == FULL


def test_members_that_an_older_version_did_not_have_take_their_defaults() -> None:
    assert Status.from_json('{"schema_version": 1, "vnis": [{"name": "red"}]}').vnis == (VniStatus(name="red"),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "schema version None"),
        ('{"schema_version": 2}', "schema version 2 is not known"),
        ('{"schema_version": 1, "pid": "x"}', "status.pid: expected int, not str"),
        ('{"schema_version": 1, "vnis": {}}', "status.vnis: expected a list"),
        ('{"schema_version": 1, "vnis": [7]}', r"status.vnis\[0\]: expected an object"),
        ('{"schema_version": 1, "underlay": []}', "status.underlay: expected an object"),
        ('{"schema_version": 1, "daemons": []}', "status.daemons: expected dict"),
    ],
)
def test_what_is_no_status_is_refused_with_the_place(text: str, complaint: str) -> None:
    with pytest.raises(StatusFormatError, match=complaint):
        Status.from_json(text)


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_no_text_does_worse_than_being_refused(text: bytes | str) -> None:
    with pytest.raises(StatusFormatError):
        Status.from_json(text)


def test_ages_and_counters_are_no_news() -> None:
    [session] = FULL.sessions
    [actor] = FULL.actors
    later = replace(
        FULL,
        updated_at=99.0,
        sessions=(replace(session, uptime_seconds=50, prefixes_received={"ipv4Unicast": 4}),),
        actors=(replace(actor, progress_age_seconds=4.0, mode="idle", facts={"n": 2}),),
    )
    assert later != FULL
    assert later.essence() == FULL.essence()


@pytest.mark.parametrize(
    "changed",
    [
        replace(FULL, summary="other"),
        replace(FULL, sessions=(replace(FULL.sessions[0], state="Idle"),)),
        replace(FULL, actors=(replace(FULL.actors[0], restarts=2),)),
        replace(FULL, vnis=()),
        replace(FULL, underlay=None),
    ],
)
def test_everything_else_is_news(changed: Status) -> None:
    assert changed.essence() != FULL.essence()


def test_a_problem_reads_like_a_compilers() -> None:
    problem = ProblemStatus("a.yaml:1:2", "vni", "taken", kind="L3VNI", name="red", in_force="left out")
    assert str(problem) == "a.yaml:1:2: error: L3VNI red: vni: taken (left out)"
    assert str(FailureStatus("L3VNI", "red", message="why", origin="a.yaml:1")) == "a.yaml:1: L3VNI red: why"


def test_every_member_has_a_default_so_that_any_older_document_can_be_read() -> None:
    for record in (Status, ActorStatus, UnderlayStatus, InterfaceStatus, SessionStatus, VniStatus, ProblemStatus):
        assert len(fields(record())) > 0
