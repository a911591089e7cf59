"""The status model: its JSON form is stable, its essence leaves out what changes by itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.desired import ResourceFailure
from config.outcomes import InterfaceHealth, SessionHealth, VniHealth
from config.problems import Kind, Origin, Problem, Reason, ResourceId, Severity
from config.status import ActorStatus, ApiStatus, Generations, ReloadStatus, Status, StatusFormatError, UnderlayStatus

RED = ResourceId(Kind.L3VNI, "ns", "red")

FULL = Status(
    pid=7,
    started_at=1.0,
    updated_at=2.0,
    node="n1",
    node_index=3,
    phase="degraded",
    ready=True,
    summary="sum ✓",
    generations=Generations(4, 3, 2, 1),
    reload=ReloadStatus(3, 2, 1, 2, "why"),
    actors=(ActorStatus("frr", "running", 1, "boom", facts={"n": 1, "s": "x", "none": None}),),
    daemons={"bgpd": True},
    underlay=UnderlayStatus(
        "u",
        "/c/openpe_u.yaml:1:2",
        64514,
        "10.0.0.1",
        ("100.65.0.0/32",),
        (InterfaceHealth("eth1", present=True, up=True, mtu=9000),),
        9000,
    ),
    sessions=(SessionHealth("192.0.2.1", "default", 64512, "Established", 5, {"ipv4Unicast": 3}, bfd="up"),),
    vnis=(
        VniHealth(RED, 100, "L3", "red", ok=True, origin=Origin("/c/openpe_v.yaml:2:5"), routes=7),
        VniHealth(
            ResourceId(Kind.L2VNI, "ns", "blue"), 110, "L2", "", False, "why", Origin("ns/blue@7"), remote_vteps=2
        ),
    ),
    problems=(
        Problem("message", Origin("/c/a.yaml:1:2"), "field", Severity.WARNING, Reason.FILE_INVALID, in_force="kept"),
        Problem("taken", Origin("ns/x@7"), "vni", resource=ResourceId(Kind.L3VNI, "ns", "x")),
    ),
    failures=(
        ResourceFailure(RED, Reason.OVERLAY_ATTACHMENT_FAILED, "why", Origin("/c/a.yaml:1")),
        ResourceFailure(ResourceId(Kind.L2VNI, "ns", "blue"), Reason.DEPENDENCY_FAILED, "why"),
    ),
    notes=("a note",),
    remarks=("a remark",),
    api=ApiStatus("reachable", "https://192.0.2.1", since=3.0, source="server", live=True, objects=2),
)

#: What version 0.1 wrote for the same node: resources had no namespace.
WRITTEN = """\
{
 "schema_version": 1,
 "pid": 7,
 "boot_id": "",
 "started_at": 1.0,
 "updated_at": 2.0,
 "version": "",
 "node": "n1",
 "node_index": 3,
 "phase": "degraded",
 "ready": true,
 "summary": "sum ✓",
 "generations": {"desired": 4, "frr": 3, "kernel": 2, "verified": 1},
 "reload": {"requested": 3, "taken_in": 2, "verified": 1, "failed": 2, "reason": "why"},
 "actors": [
  {"name": "frr", "state": "running", "restarts": 1, "last_error": "boom", "critical": false, "incarnation": 1,
   "mode": "", "activity": "", "progress_age_seconds": 0.0, "facts": {"n": 1, "s": "x", "none": null}}
 ],
 "daemons": {"bgpd": true},
 "underlay": {"name": "u", "origin": "/c/openpe_u.yaml:1:2", "asn": 64514, "router_id": "10.0.0.1",
   "vteps": ["100.65.0.0/32"], "interfaces": [{"name": "eth1", "present": true, "up": true, "mtu": 9000,
   "detail": ""}], "mtu": 9000},
 "sessions": [
  {"peer": "192.0.2.1", "vrf": "default", "remote_as": 64512, "state": "Established", "up": true, "role": "fabric",
   "bfd": "up", "detail": "", "uptime_seconds": 5, "prefixes_received": {"ipv4Unicast": 3}}
 ],
 "vnis": [
  {"kind": "L3VNI", "name": "red", "vni": 100, "type": "L3", "vrf": "red", "ok": true, "detail": "",
   "origin": "/c/openpe_v.yaml:2:5", "remote_vteps": 0, "routes": 7},
  {"kind": "L2VNI", "name": "blue", "vni": 110, "type": "L2", "vrf": "", "ok": false, "detail": "why",
   "origin": "ns/blue@7", "remote_vteps": 2, "routes": 0}
 ],
 "problems": [
  {"origin": "/c/a.yaml:1:2", "field": "field", "message": "message", "severity": "warning", "reason": "FileInvalid",
   "kind": "", "name": "", "in_force": "kept"},
  {"origin": "ns/x@7", "field": "vni", "message": "taken", "severity": "error", "reason": "ValidationFailed",
   "kind": "L3VNI", "name": "x", "in_force": ""}
 ],
 "failures": [
  {"kind": "L3VNI", "name": "red", "reason": "OverlayAttachmentFailed", "message": "why", "origin": "/c/a.yaml:1"},
  {"kind": "L2VNI", "name": "blue", "reason": "DependencyFailed", "message": "why", "origin": ""}
 ],
 "notes": ["a note"],
 "remarks": ["a remark"],
 "api": {"reach": "reachable", "server": "https://192.0.2.1", "detail": "", "since": 3.0, "source": "server",
   "live": true, "objects": 2, "mirrored": 0, "not_followed": [], "snapshot_age_seconds": 0.0}
}
"""


def without_namespaces(status: Status) -> Status:
    def bare(resource: ResourceId) -> ResourceId:
        return replace(resource, namespace="")

    return replace(
        status,
        vnis=tuple(replace(one, resource=bare(one.resource)) for one in status.vnis),
        problems=tuple(replace(one, resource=one.resource and bare(one.resource)) for one in status.problems),
        failures=tuple(replace(one, resource=bare(one.resource)) for one in status.failures),
    )


def test_an_older_daemons_status_is_read() -> None:
    assert Status.from_json(WRITTEN) == without_namespaces(FULL)


def test_scripts_that_read_the_json_form_find_what_they_always_did() -> None:
    written = json.loads(FULL.to_json())
    for one in (*written["vnis"], *written["failures"], *written["problems"]):
        assert one.pop("namespace") == ("ns" if one["name"] else "")
    # Later additions, of which older scripts know nothing.
    assert [one.pop("causes") for one in written["actors"]] == [{}]
    assert [one.pop("flaps") for one in written["sessions"]] == [0]
    for one in written["vnis"]:
        assert (one.pop("evpn_received"), one.pop("evpn_advertised")) == ({}, {})
    assert written["api"].pop("expires_at") == 0
    assert written.pop("probes") == []
    assert written == json.loads(WRITTEN)


def test_the_origin_of_a_reported_value_is_its_text() -> None:
    origin = Origin(namespace="ns", name="blue", resource_version="7", generation=2)
    read = Status.from_json(Status(problems=(Problem("taken", origin),)).to_json())
    assert [str(problem) for problem in read.problems] == ["ns/blue@7: error: taken"]


def test_a_files_resource_goes_by_its_name_in_the_file() -> None:
    mirrored = ResourceId(Kind.L3VNI, "openperouter-system", "static-node-red", label="red")
    written = Status(failures=(ResourceFailure(mirrored, Reason.DEPENDENCY_FAILED, "why"),)).to_json()
    [member] = json.loads(written)["failures"]
    assert (member["kind"], member["namespace"], member["name"]) == ("L3VNI", "", "red")
    [failure] = Status.from_json(written).failures
    assert str(failure) == "L3VNI red: why"


@pytest.mark.parametrize("status", [Status(), FULL])
def test_a_status_survives_its_json_form(status: Status) -> None:
    assert Status.from_json(status.to_json()) == status
    assert Status.from_json(status.to_json().encode()) == status


def test_one_line_of_json_is_one_line() -> None:
    assert "\n" not in FULL.to_json()


def test_members_of_a_newer_version_are_ignored_at_every_level() -> None:
    document = json.loads(FULL.to_json())
    document["novelty"] = [1]
    document["actors"][0]["novelty"] = {}
    document["underlay"]["interfaces"][0]["novelty"] = True
    document["vnis"][0]["novelty"] = 7
    assert Status.from_data(document) == FULL


def test_members_that_an_older_version_did_not_have_take_their_defaults() -> None:
    text = '{"schema_version": 1, "sessions": [{"peer": "a", "vrf": "red", "remote_as": 1, "state": "Idle"}]}'
    assert Status.from_json(text) == Status(sessions=(SessionHealth("a", "red", 1, "Idle"),))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "schema version None"),
        ('{"schema_version": 2}', "schema version 2 is not supported"),
        ('{"schema_version": 1, "pid": "x"}', r"status\.pid: Input should be a valid integer"),
        ('{"schema_version": 1, "phase": "odd"}', r"status\.phase: Input should be 'starting'"),
        ('{"schema_version": 1, "vnis": {}}', r"status\.vnis: Input should be a valid tuple"),
        ('{"schema_version": 1, "vnis": [7]}', r"status\.vnis\.0: Input should be a dictionary"),
        ('{"schema_version": 1, "underlay": []}', r"status\.underlay: Input should be a dictionary"),
        ('{"schema_version": 1, "daemons": []}', r"status\.daemons: Input should be a valid dictionary"),
    ],
)
def test_a_document_of_another_form_is_refused_with_the_place(text: str, reason: str) -> None:
    with pytest.raises(StatusFormatError, match=reason):
        Status.from_json(text)


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_any_text_is_refused_without_a_crash(text: bytes | str) -> None:
    with pytest.raises(StatusFormatError):
        Status.from_json(text)


def test_ages_and_counters_are_no_change() -> None:
    [session] = FULL.sessions
    [actor] = FULL.actors
    later = replace(
        FULL,
        updated_at=99.0,
        vnis=tuple(
            replace(one, routes=9, remote_vteps=9, evpn_received={"5": 9}, evpn_advertised={"5": 1})
            for one in FULL.vnis
        ),
        api=replace(FULL.api, snapshot_age_seconds=9.0),
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
def test_everything_else_is_a_change(changed: Status) -> None:
    assert changed.essence() != FULL.essence()


def test_a_problem_reads_like_a_compilers() -> None:
    red = replace(RED, label="red")
    problem = Problem("taken", Origin("a.yaml", 1, 2), "vni", resource=red, in_force="left out")
    assert str(problem) == "a.yaml:1:2: error: L3VNI red: vni: taken (left out)"
    failure = ResourceFailure(red, Reason.DEPENDENCY_FAILED, "why", Origin("a.yaml", 1))
    assert str(failure) == "a.yaml:1: L3VNI red: why"
    assert str(replace(failure, origin=Origin())) == "L3VNI red: why"
