"""Which generation of an API object this node has dealt with, and when it counts as in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.status_writer.node_state import NodeState
from actors.status_writer.object_status import ObjectStatus, ObjectTracker
from config.api import ApiObject
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, VniHealth
from config.problems import Kind, Origin, Problem, Reason, Severity
from config.sources.mirror_objects import other_name

from .examples import (
    NAMESPACE,
    NODE,
    cr,
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
IN_FORCE = ObjectStatus(1, in_force=True)
NOT_IN_FORCE = ObjectStatus(1, in_force=False)


def status(one: ApiObject, of: NodeState) -> ObjectStatus | None:
    return ObjectTracker().update(of).get(one.id)


def test_an_object_of_the_verified_configuration_is_in_force() -> None:
    assert status(RED, node_state(RED)) == IN_FORCE


def test_a_refused_object_is_not_in_force() -> None:
    of = node_state(RED, BLUE, desired=state(BLUE, problems=(refused(RED),)))
    assert (status(RED, of), status(BLUE, of)) == (NOT_IN_FORCE, IN_FORCE)


def test_a_refused_change_is_not_in_force_though_the_generation_before_is() -> None:
    old, new = RED, cr("red", generation=2, version="20")
    problem = replace(refused(new), in_force="generation 1 stays in force")
    of = node_state(new, desired=state(old, problems=(problem,)))
    assert status(new, of) == ObjectStatus(2, in_force=False)


def test_a_problem_of_an_older_generation_does_not_concern_the_new_one() -> None:
    fixed = cr("red", generation=2, version="20")
    assert status(fixed, node_state(fixed, desired=state(problems=(refused(RED),)))) is None


def test_a_generation_that_is_not_dealt_with_yet_does_not_count() -> None:
    newer = cr("red", generation=2, version="20")
    assert status(newer, node_state(newer, desired=state(RED))) == NOT_IN_FORCE


def test_a_change_of_its_status_alone_changes_nothing() -> None:
    shown = replace(RED, resource_version="999")
    assert status(shown, node_state(shown, desired=state(RED))) == IN_FORCE


@pytest.mark.parametrize("stage", ["frr", "kernel"])
def test_an_object_that_a_stage_could_not_carry_out_is_not_in_force(stage: str) -> None:
    desired = state(RED, BLUE)
    kinds = {"frr": FrrOutcome, "kernel": KernelOutcome}
    of = node_state(RED, BLUE, desired=desired, **{stage: kinds[stage](desired, True, failures=(failure(RED),))})
    assert (status(RED, of), status(BLUE, of)) == (NOT_IN_FORCE, IN_FORCE)


def test_an_older_configurations_failure_counts_while_the_object_is_the_same() -> None:
    older, newer = state(RED, generation=5), state(RED, BLUE, generation=6)
    failed = KernelOutcome(older, True, failures=(failure(RED),))
    assert status(RED, node_state(RED, BLUE, desired=newer, kernel=failed)) == NOT_IN_FORCE


def test_an_older_configurations_failure_does_not_count_for_a_fixed_object() -> None:
    fixed = cr("red", generation=2, version="20")
    failed = KernelOutcome(state(RED, generation=5), True, failures=(failure(RED),))
    of = node_state(fixed, desired=state(fixed, generation=6), kernel=failed)
    assert status(fixed, of) == ObjectStatus(2, in_force=True)


def test_nothing_new_is_in_force_while_health_is_of_an_older_configuration() -> None:
    desired = state(RED)
    of = node_state(RED, desired=desired, health=health(replace(desired, generation=4)))
    assert status(RED, of) == NOT_IN_FORCE


def unhealthy(desired: DesiredState, broken: ApiObject) -> HealthReport:
    fault = failure(broken, "zebra does not know VNI 100")
    vnis = (VniHealth(broken.id, 100, "L3", "red", ok=False, detail="zebra does not know VNI 100"),)
    return health(desired, verified=False, failures=(fault,), vnis=vnis, summary="verifying generation 5: VNI 100")


def test_the_failure_of_another_object_does_not_count() -> None:
    desired = state(RED, BLUE)
    of = node_state(RED, BLUE, desired=desired, health=unhealthy(desired, RED))
    assert (status(RED, of), status(BLUE, of)) == (NOT_IN_FORCE, IN_FORCE)


def failing_router(*objects: ApiObject) -> NodeState:
    desired = state(RED)
    dead = health(desired, verified=False, problems=("bgpd is not running",))
    gone = FrrOutcome(desired, applied=False, error="FRR does not answer")
    return node_state(*objects, desired=desired, frr=gone, health=dead)


def test_an_object_that_was_in_force_stays_so_while_the_router_fails() -> None:
    tracker = ObjectTracker()
    assert tracker.update(node_state(RED))[RED.id] == IN_FORCE
    assert tracker.update(failing_router(RED))[RED.id] == IN_FORCE


def test_an_object_that_comes_while_the_router_fails_is_not_in_force() -> None:
    assert status(RED, failing_router(RED)) == NOT_IN_FORCE


def test_an_object_of_the_same_name_does_not_inherit_that_it_was_in_force() -> None:
    tracker = ObjectTracker()
    tracker.update(node_state(RED))
    successor = replace(RED, uid="another")
    assert tracker.update(failing_router(successor))[RED.id] == NOT_IN_FORCE


def test_a_new_object_is_not_in_force_while_the_underlay_is_unusable() -> None:
    problem = file_problem(Kind.UNDERLAY, "static-node-a-underlay-0", "two underlays")
    of = node_state(RED, BLUE, desired=state(RED, problems=(problem,)))
    assert (status(RED, of), status(BLUE, of)) == (IN_FORCE, NOT_IN_FORCE)


def test_a_refused_underlay_beside_the_routers_says_nothing_about_an_object_that_is_not_dealt_with_yet() -> None:
    of = node_state(RED, BLUE, desired=state(RED, problems=(unrelated_underlay(),)))
    assert (status(RED, of), status(BLUE, of)) == (IN_FORCE, None)


@pytest.mark.parametrize("own_name", [True, False])
def test_the_mirror_of_a_file_has_the_status_of_the_file(own_name: bool) -> None:
    written = ApiObject(Kind.L3VNI, NAMESPACE, "static-node-a-red", "u1", "7")
    name = written.name if own_name else other_name(written.name, NODE.name)
    mirror = replace(written, name=name, generation=4)
    desired = state(written)
    part = replace(desired.l3vnis[0], origin=Origin("/etc/x/openpe_a.yaml", 3, 1))
    of = node_state(desired=replace(desired, l3vnis=(part,)), api=snapshot(mirrored=(mirror,)))
    assert status(mirror, of) == ObjectStatus(4, in_force=True)
    broken = state(problems=(file_problem(Kind.L3VNI, written.name, "vni 100 is taken"),))
    of = node_state(desired=broken, api=snapshot(mirrored=(mirror,)))
    assert status(mirror, of) == ObjectStatus(4, in_force=False)


def test_a_warning_is_no_failure() -> None:
    warning = Problem("odd", RED.origin, severity=Severity.WARNING, reason=Reason.VALIDATION_FAILED, resource=RED.id)
    assert status(RED, node_state(RED, desired=state(RED, problems=(warning,)))) == IN_FORCE
