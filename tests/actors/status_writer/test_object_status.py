"""When an object of the API counts as in force here, as failing, or as not known yet."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from actors.status_writer.inputs import Basis
from actors.status_writer.object_status import PATIENCE, Judge, Verdict
from config.api import ApiObject
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome, VniHealth
from config.problems import Kind, Origin, Problem, Severity
from config.sources.mirror_objects import other_name

from .examples import NAMESPACE, NODE, basis, cr, failure, file_problem, health, refused, snapshot, state

RED = cr("red")
BLUE = cr("blue")


def judged(one: ApiObject, of: Basis, now: float = 0.0) -> Verdict | None:
    return Judge(NAMESPACE).judge(of, now).get(one.id)


def test_what_is_verified_is_in_force() -> None:
    assert judged(RED, basis(RED)) == Verdict(1, good=True)


def test_what_was_refused_fails_at_once_with_the_reason() -> None:
    of = basis(RED, BLUE, desired=state(BLUE, problems=(refused(RED),)))
    assert judged(RED, of) == Verdict(1, False, "ValidationFailed", "spec.vni: vni 100 is taken")
    assert judged(BLUE, of) == Verdict(1, good=True)


def test_a_refused_change_fails_though_what_was_before_stays_in_force() -> None:
    old, new = RED, cr("red", generation=2, version="20")
    problem = replace(refused(new), in_force="generation 1 stays in force")
    verdict = judged(new, basis(new, desired=state(old, problems=(problem,))))
    assert verdict is not None
    assert (verdict.generation, verdict.good) == (2, False)
    assert verdict.message.endswith("(generation 1 stays in force)")


def test_an_old_generations_problem_is_none_of_the_new_ones() -> None:
    mended = cr("red", generation=2, version="20")
    of = basis(mended, desired=state(problems=(refused(RED),)))
    assert judged(mended, of) is None


def test_a_generation_that_is_not_taken_in_yet_is_not_judged() -> None:
    newer = cr("red", generation=2, version="20")
    assert judged(newer, basis(newer, desired=state(RED))) == Verdict(1, None)


def test_a_change_of_status_alone_changes_nothing() -> None:
    assert judged(replace(RED, resource_version="999"), basis(replace(RED, resource_version="999"), desired=state(RED)))


@pytest.mark.parametrize("stage", ["frr", "kernel"])
def test_what_a_stage_could_not_carry_out_fails(stage: str) -> None:
    desired = state(RED, BLUE)
    kinds = {"frr": FrrOutcome, "kernel": KernelOutcome}
    of = basis(RED, BLUE, desired=desired, **{stage: kinds[stage](desired, True, failures=(failure(RED),))})
    verdict = judged(RED, of)
    assert verdict is not None
    assert (verdict.good, verdict.reason) == (False, "OverlayAttachmentFailed")
    assert judged(BLUE, of) == Verdict(1, good=True)


def test_an_older_states_failure_counts_while_the_object_is_the_same() -> None:
    older, newer = state(RED, generation=5), state(RED, BLUE, generation=6)
    failed = KernelOutcome(older, True, failures=(failure(RED),))
    verdict = judged(RED, basis(RED, BLUE, desired=newer, kernel=failed))
    assert verdict is not None
    assert verdict.good is False


def test_an_older_states_failure_does_not_count_for_a_mended_object() -> None:
    mended = cr("red", generation=2, version="20")
    failed = KernelOutcome(state(RED, generation=5), True, failures=(failure(RED),))
    verdict = judged(mended, basis(mended, desired=state(mended, generation=6), kernel=failed))
    assert verdict == Verdict(2, good=True)


def test_while_health_speaks_of_an_older_state_nothing_new_is_judged() -> None:
    desired = state(RED)
    of = basis(RED, desired=desired, health=health(replace(desired, generation=4)))
    assert judged(RED, of) == Verdict(1, None)


def unhealthy(desired: DesiredState, broken: ApiObject) -> HealthReport:
    fault = failure(broken, "zebra does not know VNI 100")
    vnis = (VniHealth(broken.id, 100, "L3", "red", ok=False, detail="zebra does not know VNI 100"),)
    return health(desired, verified=False, failures=(fault,), vnis=vnis, summary="verifying generation 5: VNI 100")


def test_anothers_failure_does_not_hold_up_the_rest() -> None:
    desired = state(RED, BLUE)
    of = basis(RED, BLUE, desired=desired, health=unhealthy(desired, RED))
    assert judged(BLUE, of) == Verdict(1, good=True)
    verdict = judged(RED, of)
    assert verdict is not None
    assert verdict.message == "zebra does not know VNI 100"


def test_what_was_good_stays_good_while_the_router_is_in_trouble() -> None:
    judge, desired = Judge(NAMESPACE), state(RED)
    assert judge.judge(basis(RED, desired=desired), 0.0)[RED.id].good
    dead = health(desired, verified=False, problems=("bgpd is not running",))
    gone = FrrOutcome(desired, applied=False, error="FRR does not answer")
    assert judge.judge(basis(RED, desired=desired, frr=gone, health=dead), 1000.0)[RED.id].good


def test_what_never_came_in_force_fails_in_the_end_with_the_routers_trouble() -> None:
    judge, desired = Judge(NAMESPACE), state(RED)
    dead = health(desired, verified=False)
    of = basis(RED, desired=desired, frr=FrrOutcome(desired, applied=False, error="FRR does not answer"), health=dead)
    assert judge.judge(of, 100.0)[RED.id].good is None
    assert judge.due(100.0) == 100.0 + PATIENCE
    assert judge.judge(of, 100.0 + PATIENCE - 1)[RED.id].good is None
    verdict = judge.judge(of, 100.0 + PATIENCE)[RED.id]
    assert verdict == Verdict(1, False, "FrrConfigurationFailed", "FRR does not answer")
    assert judge.due(200.0) == math.inf


def test_the_number_of_the_state_is_in_no_message() -> None:
    judge, desired = Judge(NAMESPACE), state(RED)
    stuck = health(desired, verified=False, summary="verifying generation 5: kernel has not yet applied it")
    of = basis(RED, desired=desired, health=stuck)
    judge.judge(of, 0.0)
    assert "generation 5" not in judge.judge(of, PATIENCE)[RED.id].message


def test_the_memory_of_a_deleted_object_is_not_its_successors() -> None:
    judge, desired = Judge(NAMESPACE), state(RED)
    judge.judge(basis(RED, desired=desired), 0.0)
    successor = replace(RED, uid="another")
    of = basis(successor, desired=desired, health=health(desired, verified=False))
    assert judge.judge(of, 1.0)[RED.id].good is None


def test_an_unusable_underlay_is_why_a_newcomer_is_not_in_force() -> None:
    problem = file_problem(Kind.UNDERLAY, "static-node-a-underlay-0", "two underlays")
    of = basis(RED, BLUE, desired=state(RED, problems=(problem,)))
    verdict = judged(BLUE, of)
    assert verdict is not None
    assert (verdict.good, verdict.reason) == (False, "DependencyFailed")
    assert "two underlays" in verdict.message
    assert judged(RED, of) == Verdict(1, good=True)


@pytest.mark.parametrize("own_name", [True, False])
def test_a_files_mirror_is_judged_by_the_file(own_name: bool) -> None:
    written = ApiObject(Kind.L3VNI, NAMESPACE, "static-node-a-red", "u1", "7")
    name = written.name if own_name else other_name(written.name, NODE.name)
    mirror = replace(written, name=name, generation=4)
    desired = state(written)
    part = replace(desired.l3vnis[0], origin=Origin("/etc/x/openpe_a.yaml", 3, 1))
    desired = replace(desired, l3vnis=(part,))
    of = basis(desired=desired, api=snapshot(mirrored=(mirror,)))
    assert judged(mirror, of) == Verdict(4, good=True)
    broken = state(problems=(file_problem(Kind.L3VNI, written.name, "vni 100 is taken"),))
    verdict = judged(mirror, basis(desired=broken, api=snapshot(mirrored=(mirror,))))
    assert verdict is not None
    assert (verdict.generation, verdict.good) == (4, False)


def test_a_warning_is_no_failure() -> None:
    warning = Problem("odd", RED.origin, severity=Severity.WARNING, resource=RED.id)
    assert judged(RED, basis(RED, desired=state(RED, problems=(warning,)))) == Verdict(1, good=True)
