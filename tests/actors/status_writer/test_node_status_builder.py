"""What a node reports in its status, and that nothing in it changes by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.status_writer.node_state import NodeState
from actors.status_writer.node_status_builder import build_status, is_pending
from actors.status_writer.object_status import ObjectTracker
from config.crd.conditions import Condition
from config.crd.node_status import NodeStatus
from config.desired import ResourceFailure, RouterAddresses
from config.outcomes import FrrOutcome, KernelOutcome, SessionHealth
from config.problems import RUNNING_KEPT, Kind, Origin, Problem, Reason, ResourceId, Severity
from config.sources.mirror_objects import other_name

from .examples import (
    NAMESPACE,
    NODE,
    UNDERLAY,
    cr,
    duplicate,
    failure,
    file_problem,
    health,
    node_state,
    refused,
    snapshot,
    state,
    unrelated_underlay,
)

RED = cr("red")
BLUE = cr("blue")
NOW = 1_800_000_000.0


def built(of: NodeState, now: float = NOW, previous: Iterable[Condition] = ()) -> NodeStatus:
    return build_status(of, ObjectTracker().update(of), now=now, previous=previous)


def statuses(status: NodeStatus) -> tuple[str, str, str]:
    ready, degraded = status.conditions
    assert (ready.type, degraded.type) == ("Ready", "Degraded")
    assert ready.reason == degraded.reason
    return ready.status, degraded.status, ready.reason


def test_a_healthy_node() -> None:
    status = built(node_state(RED))
    assert statuses(status) == ("True", "False", "ConfigurationSuccessful")
    data = status.to_data()
    assert "failedResources" not in data
    assert data["resources"] == [
        {"kind": "L3VNI", "namespace": "tenants", "name": "red", "observedGeneration": 1, "inForce": True}
    ]
    assert data["vnis"] == [
        {"kind": "L3VNI", "namespace": "tenants", "name": "red", "vni": 100, "vrf": "red", "ok": True}
    ]
    assert data["sessions"] == [
        {
            "peer": "192.0.2.1",
            "vrf": "default",
            "remoteASN": 64512,
            "role": "fabric",
            "state": "Established",
            "up": True,
        }
    ]


def test_the_newest_state_is_not_ready_before_it_is_verified() -> None:
    newer = state(RED, BLUE, generation=6)
    of = node_state(RED, BLUE, desired=newer, health=health(state(RED)))
    assert statuses(built(of)) == ("False", "False", "ConfigurationPending")
    assert is_pending(of)
    assert not is_pending(node_state(RED))


def test_no_health_is_not_ready() -> None:
    assert statuses(built(node_state(RED, health=None))) == ("False", "False", "ConfigurationPending")


def test_a_failing_resource_of_a_file_is_named_as_its_mirror_and_not_as_the_object_that_has_its_name() -> None:
    other = cr("static-node-a-red", namespace=NAMESPACE)
    mirror = replace(other, name=other_name(other.name, NODE.name))
    problems = (file_problem(Kind.L3VNI, other.name, "vni 100 is taken"), refused(other, "its own failure"))
    data = built(node_state(desired=state(problems=problems), api=snapshot(other, mirrored=(mirror,)))).to_data()
    assert {one["name"]: one["message"] for one in data["failedResources"]} == {
        mirror.name: "/etc/x/openpe_a.yaml:3: asn: vni 100 is taken",
        other.name: "spec.vni: its own failure",
    }
    assert {one["name"]: one["inForce"] for one in data["resources"]} == {mirror.name: False, other.name: False}


def test_a_refused_object_is_named() -> None:
    status = built(node_state(RED, BLUE, desired=state(BLUE, problems=(refused(RED),))))
    assert statuses(status) == ("False", "True", "ConfigurationFailed")
    assert "1 resource is not in force, see failedResources" in status.conditions[0].message
    [entry] = status.to_data()["failedResources"]
    assert entry == {
        "kind": "L3VNI",
        "namespace": "tenants",
        "name": "red",
        "reason": "ValidationFailed",
        "message": "spec.vni: vni 100 is taken",
    }
    assert [(one.name, one.in_force) for one in status.resources] == [("blue", True), ("red", False)]


def test_resource_versions_are_nowhere() -> None:
    """A status that had them would be written for each report on an object, by every node."""
    one = replace(RED, resource_version="987654321")
    of = node_state(one, desired=state(problems=(refused(one),)), kernel=KernelOutcome(state(), True))
    assert "987654321" not in str(built(of).to_data())


def test_failures_of_files_name_the_line() -> None:
    problems = (
        file_problem(None, "", "not YAML"),
        file_problem(Kind.L3VNI, "static-node-a-green", "vni is missing"),
    )
    file, vni = built(node_state(RED, desired=state(RED, problems=problems))).failed_resources
    assert (file.kind, file.name) == ("File", "/etc/x/openpe_a.yaml")
    assert file.message == "/etc/x/openpe_a.yaml:3: asn: not YAML"
    assert (vni.kind, vni.namespace, vni.name) == ("L3VNI", NAMESPACE, "static-node-a-green")


def test_an_unusable_underlay_has_upstreams_reason() -> None:
    problem = file_problem(Kind.UNDERLAY, "static-node-a-underlay-1", "vni is missing")
    problem = replace(problem, in_force=RUNNING_KEPT)
    status = built(node_state(RED, desired=state(RED, problems=(problem,))))
    assert statuses(status) == ("False", "True", "UnderlayFailed")
    assert status.conditions[0].message.endswith("; what was in force before stays in force")


def test_a_refused_underlay_beside_the_routers_is_a_resource_like_any_other() -> None:
    status = built(node_state(RED, desired=state(RED, problems=(unrelated_underlay(),))))
    assert statuses(status) == ("False", "True", "ConfigurationFailed")
    assert status.conditions[0].message == "1 resource is not in force, see failedResources"
    assert [(entry.kind, entry.name) for entry in status.failed_resources] == [("Underlay", "fabric")]


def test_a_missing_nic_keeps_nothing_in_force_whatever_other_underlay_is_refused() -> None:
    desired = state(RED, problems=(unrelated_underlay(),))
    fault = ResourceFailure(UNDERLAY.resource, Reason.UNDERLAY_FAILED, "interface eth1 is not there")
    status = built(node_state(RED, desired=desired, kernel=KernelOutcome(desired, True, failures=(fault,))))
    assert statuses(status) == ("False", "True", "UnderlayFailed")
    assert status.conditions[0].message.endswith("interface eth1 is not there")


def test_an_underlay_that_waits_for_another_node_has_it_too() -> None:
    waits = replace(duplicate(Severity.ERROR), in_force="no underlay is in force meanwhile")
    ready, *_ = built(node_state(RED, desired=state(RED, underlay=None, problems=(waits,)))).conditions
    assert (ready.status, ready.reason) == ("False", "UnderlayFailed")
    assert ready.message.endswith("node b has it (no underlay is in force meanwhile)")


def test_an_underlay_that_fails_in_the_kernel_has_it_too() -> None:
    desired = state(RED)
    fault = ResourceFailure(UNDERLAY.resource, Reason.UNDERLAY_FAILED, "interface eth1 is not there")
    of = node_state(RED, desired=desired, kernel=KernelOutcome(desired, False, error="no eth1", failures=(fault,)))
    status = built(of)
    assert statuses(status) == ("False", "True", "UnderlayFailed")
    assert "stays in force" not in status.conditions[0].message
    [entry] = status.failed_resources
    assert (entry.kind, entry.reason) == ("Underlay", "DependencyFailed")


def test_frr_that_refuses_is_a_failed_resource_of_its_own() -> None:
    desired = state(RED)
    status = built(
        node_state(RED, desired=desired, frr=FrrOutcome(desired, False, error="FRR refuses the configuration: x"))
    )
    assert statuses(status) == ("False", "True", "ConfigurationFailed")
    assert status.conditions[0].message == "FRR refuses the configuration: x"
    [entry] = status.failed_resources
    assert (entry.kind, entry.reason) == ("FrrConfiguration", "FrrConfigurationFailed")
    assert [one.in_force for one in status.resources] == [False]


def test_a_dead_daemon_degrades() -> None:
    desired = state(RED)
    report = health(desired, verified=False, problems=("bgpd is not running",))
    status = built(node_state(RED, desired=desired, health=report))
    assert statuses(status) == ("False", "True", "ConfigurationFailed")
    assert status.conditions[0].message == "bgpd is not running"


def test_a_warning_degrades_nothing() -> None:
    warning = Problem("odd", RED.origin, severity=Severity.WARNING, resource=RED.id)
    assert statuses(built(node_state(RED, desired=state(RED, problems=(warning,))))) == (
        "True",
        "False",
        "ConfigurationSuccessful",
    )


def test_a_resource_is_listed_once_for_each_reason() -> None:
    desired = state(
        problems=(refused(RED, "one"), refused(RED, "two"), refused(RED, "three", Reason.DEPENDENCY_FAILED))
    )
    entries = built(node_state(RED, desired=desired)).failed_resources
    assert [(entry.reason, entry.message) for entry in entries] == [
        ("ValidationFailed", "spec.vni: one; spec.vni: two"),
        ("DependencyFailed", "spec.vni: three"),
    ]


def test_the_order_does_not_depend_on_which_failure_was_found_first() -> None:
    one = state(RED, BLUE, problems=())
    first = node_state(RED, BLUE, desired=one, kernel=KernelOutcome(one, True, failures=(failure(RED), failure(BLUE))))
    second = node_state(RED, BLUE, desired=one, kernel=KernelOutcome(one, True, failures=(failure(BLUE), failure(RED))))
    assert built(first) == built(second)


@pytest.mark.parametrize("states", [("Active", "Connect"), ("Idle", "OpenSent"), ("OpenConfirm", "Clearing")])
def test_a_session_that_is_down_looks_the_same_whatever_frr_is_trying(states: tuple[str, str]) -> None:
    def with_state(name: str) -> NodeState:
        session = SessionHealth("192.0.2.1", "default", 64512, name, 17, bfd="init" if name == "Active" else "down")
        return node_state(RED, health=health(state(RED), sessions=(session,)))

    first, second = (built(with_state(name)) for name in states)
    assert first == second
    assert first.sessions[0].state == "Down"
    assert not first.sessions[0].up


def test_ages_and_counters_change_nothing() -> None:
    def with_counters(number: int) -> NodeState:
        desired = state(RED)
        session = SessionHealth("192.0.2.1", "default", 64512, "Established", number, {"ipv4Unicast": number})
        report = health(desired, sessions=(session,), summary=f"{number} sessions up")
        vnis = tuple(replace(vni, routes=number, remote_vteps=number) for vni in report.vnis)
        return node_state(RED, desired=desired, health=replace(report, vnis=vnis))

    assert built(with_counters(1)) == built(with_counters(2))


def test_the_number_of_the_state_changes_nothing() -> None:
    assert built(node_state(RED, desired=state(RED))) == built(node_state(RED, desired=state(RED, generation=9)))


def test_transition_times_stay_while_the_status_stays() -> None:
    first = built(node_state(RED))
    later = built(node_state(RED, BLUE, desired=state(RED, BLUE)), NOW + 100, first.conditions)
    assert later.conditions == first.conditions
    broken = built(node_state(RED, desired=state(problems=(refused(RED),))), NOW + 200, later.conditions)
    assert {one.last_transition_time for one in broken.conditions} == {"2027-01-15T08:03:20Z"}


def test_a_vni_that_is_not_checked_yet_is_not_ok() -> None:
    [vni] = built(node_state(RED, health=None)).vnis
    assert (vni.ok, vni.detail) == (False, "not checked yet")


@settings(max_examples=40)
@given(
    st.lists(
        st.builds(
            Problem,
            st.text(max_size=3000),
            st.builds(Origin, st.sampled_from(["", "/a/b.yaml"]), st.integers(0, 9), namespace=st.text(max_size=80)),
            st.text(max_size=300),
            reason=st.sampled_from(list(Reason)),
            resource=st.none()
            | st.builds(ResourceId, st.sampled_from(Kind), st.text(max_size=80), st.text(max_size=400)),
        ),
        max_size=200,
    )
)
def test_whatever_goes_wrong_the_status_is_legal(problems: list[Problem]) -> None:
    data: dict[str, Any] = built(node_state(RED, desired=state(RED, problems=tuple(problems)))).to_data()
    NodeStatus.model_validate(data)
    entries = data.get("failedResources", [])
    assert len(entries) <= 128
    assert all(1 <= len(entry["message"]) <= 500 and 1 <= len(entry["name"]) <= 253 for entry in entries)


def test_objects_that_are_not_dealt_with_yet_are_not_listed() -> None:
    assert built(node_state(desired=state(), api=snapshot(RED))).resources == ()


def test_a_duplicate_index_is_a_condition_of_its_own_and_stays_one_when_it_is_over() -> None:
    """A router that works stays Ready. Left out, it would stay on the server."""
    ready, degraded, shared = built(node_state(RED, desired=state(RED, problems=(duplicate(),)))).conditions
    assert [one.status for one in (ready, degraded, shared)] == ["True", "False", "True"]
    assert (shared.type, shared.reason) == ("DuplicateIndex", "DuplicateIndex")
    assert "node b has it" in shared.message
    over = built(node_state(RED), now=NOW + 60, previous=[shared]).conditions[-1]
    assert (over.type, over.status, over.reason) == ("DuplicateIndex", "False", "UniqueIndex")
    assert over.last_transition_time != shared.last_transition_time


def test_a_router_that_waits_for_its_addresses_is_degraded_and_says_which() -> None:
    awaited = RouterAddresses(3, "10.0.0.3", ("100.65.0.3",))
    waiting = state(problems=(duplicate(Severity.ERROR),), underlay=None, awaited=awaited)
    status = built(node_state(desired=waiting))
    assert [one.status for one in status.conditions] == ["False", "True", "True"]
    addresses = {"nodeIndex": 3, "routerID": "10.0.0.3", "tunnelEndpoints": ["100.65.0.3"]}
    assert status.to_data()["router"] == {**addresses, "inForce": False}
    in_force = {"nodeIndex": 3, "routerID": "10.0.0.1", "tunnelEndpoints": ["100.65.0.1"], "inForce": True}
    assert built(node_state(RED)).to_data()["router"] == in_force
    assert "router" not in built(node_state(desired=state(underlay=None))).to_data()
