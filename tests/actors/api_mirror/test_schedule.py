"""When a change may be sent again."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from actors.api_mirror.planning import ABSENT, Change, MirrorPlan, mirrors
from actors.api_mirror.schedule import FORGET_SECONDS, LAG_SECONDS, MirrorSchedule
from actors.api_mirror.writer import WriteOutcome
from actors.lib.kube.cluster_size import ClusterSize
from actors.lib.kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError, ServerError
from config.api import ApiObject
from config.problems import ResourceId

from .examples import NODE, blue, files, prove, red, stored

MIRROR = mirrors(files(red()), NODE, prove)[red().id]
OTHER = mirrors(files(blue()), NODE, prove)[blue().id]
CREATE = Change(None, MIRROR)
EDITED = stored(MIRROR, labels={}, resource_version="9")


def one_node(chance: float = 0.5) -> MirrorSchedule:
    """Return the schedule of a node whose slot is the first of any window."""
    return MirrorSchedule(ClusterSize(1, lambda: chance))


def sent(schedule: MirrorSchedule, change: Change, now: float, answer: ApiObject | None = None) -> None:
    schedule.sent(change, WriteOutcome(answer, frozenset({change.seen})), now)


def test_a_change_that_was_never_sent_is_due() -> None:
    assert one_node().due_at(CREATE) == -math.inf


def test_a_change_is_not_sent_again_before_the_watch_had_time_to_show_it() -> None:
    schedule = one_node()
    sent(schedule, CREATE, 100)
    assert schedule.due_at(CREATE) == 100 + LAG_SECONDS


def test_an_edit_after_our_write_is_reverted_at_once() -> None:
    schedule = one_node()
    sent(schedule, CREATE, 100)
    assert schedule.due_at(Change(EDITED, MIRROR)) == 100


def test_an_object_that_was_deleted_after_the_watch_had_shown_it_is_created_at_once() -> None:
    schedule = one_node()
    sent(schedule, CREATE, 100)
    schedule.begin(MirrorPlan(), 101)
    assert schedule.due_at(CREATE) == 100 + LAG_SECONDS
    schedule.begin(MirrorPlan(versions={MIRROR.id: "8"}), 102)
    assert schedule.due_at(CREATE) == 100


def test_a_new_change_does_not_wait_for_the_old_one() -> None:
    schedule = one_node()
    sent(schedule, CREATE, 100)
    assert schedule.due_at(Change(None, replace(MIRROR, spec={}))) == -math.inf


def test_between_deletion_and_creation_nothing_is_created_again() -> None:
    schedule = one_node()
    schedule.sent(Change(EDITED, MIRROR), WriteOutcome(MIRROR, frozenset({"9", ABSENT})), 100)
    assert schedule.due_at(CREATE) == 100 + LAG_SECONDS


def test_an_object_that_is_what_the_server_made_of_it_is_left_alone() -> None:
    schedule = one_node()
    made = stored(MIRROR, spec=MIRROR.spec | {"unheard": 1}, resource_version="10")
    sent(schedule, Change(EDITED, MIRROR), 100, made)
    assert schedule.due_at(Change(replace(made, resource_version="11"), MIRROR)) == math.inf
    assert schedule.due_at(Change(stored(made, labels={}), MIRROR)) == 100


def test_a_client_that_keeps_undoing_writes_is_answered_with_increasing_back_off() -> None:
    schedule, now, last, pauses = one_node(), 0.0, 0.0, list[float]()
    for version in range(12):
        change = Change(replace(EDITED, resource_version=str(version)), MIRROR)
        now = max(now, schedule.due_at(change))
        pauses.append(now - last)
        sent(schedule, change, now)
        last = now
    assert pauses == [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]


def test_after_a_quiet_time_a_revert_counts_as_the_first() -> None:
    schedule = one_node()
    for version in range(6):
        sent(schedule, Change(replace(EDITED, resource_version=str(version)), MIRROR), 0)
    late = Change(replace(EDITED, resource_version="77"), MIRROR)
    sent(schedule, late, FORGET_SECONDS)
    assert schedule.attempts(late) == 1


@pytest.mark.parametrize(("error", "first"), [(ServerError("x"), 1), (ConflictError("x"), 1), (InvalidError("x"), 600)])
def test_a_failure_is_tried_again_after_a_pause_that_grows(error: ApiError, first: float) -> None:
    schedule = one_node()
    schedule.failed(CREATE, error, 100)
    assert schedule.due_at(CREATE) == 100 + first
    schedule.failed(CREATE, error, 200)
    assert schedule.due_at(CREATE) == 200 + (2 if first == 1 else 600)


def test_pauses_differ_from_node_to_node() -> None:
    pauses = []
    for chance in (0.0, 0.9):
        for error in (ServerError("x"), InvalidError("x")):
            schedule = one_node(chance)
            schedule.failed(CREATE, error, 0)
            pauses.append(schedule.due_at(CREATE))
    assert pauses == pytest.approx([0.8, 480, 1.16, 696])


def test_another_change_of_the_object_does_not_wait_for_a_failure() -> None:
    schedule = one_node()
    schedule.failed(CREATE, InvalidError("x"), 100)
    assert schedule.due_at(Change(None, replace(MIRROR, spec={}))) == -math.inf
    assert schedule.attempts(Change(None, replace(MIRROR, spec={}))) == 0


def test_after_several_refusals_all_changes_of_the_verb_and_kind_wait() -> None:
    schedule = one_node()
    names = (replace(MIRROR, name=f"static-node-{number}") for number in range(3))
    for change in (Change(None, mirror) for mirror in names):
        assert schedule.due_at(Change(None, OTHER)) == -math.inf
        schedule.failed(change, ForbiddenError("x"), 100)
    assert schedule.due_at(Change(None, OTHER)) == 101
    assert schedule.due_at(Change(stored(OTHER), None)) == -math.inf


def test_invalid_objects_do_not_make_others_wait() -> None:
    schedule = one_node()
    for number in range(9):
        schedule.failed(Change(None, replace(MIRROR, name=f"static-node-{number}")), InvalidError("x"), 100)
    assert schedule.due_at(Change(None, OTHER)) == -math.inf


def test_a_verb_and_kind_that_keeps_failing_waits_longer_until_one_succeeds() -> None:
    schedule = one_node()
    for now in (100, 200):
        schedule.begin(MirrorPlan(), now)
        for number in range(3):
            schedule.failed(Change(None, replace(MIRROR, name=f"n{now}-{number}")), ForbiddenError("x"), now)
    assert schedule.due_at(Change(None, OTHER)) == 202
    sent(schedule, Change(None, replace(MIRROR, name="n")), 201)
    assert schedule.due_at(Change(None, OTHER)) == -math.inf


def test_failures_of_separate_passes_do_not_add_up() -> None:
    schedule = one_node()
    for now in (100, 200, 300):
        schedule.begin(MirrorPlan(), now)
        schedule.failed(Change(None, replace(MIRROR, name=f"n{now}")), ForbiddenError("x"), now)
    assert schedule.due_at(Change(None, OTHER)) == -math.inf


def test_old_entries_are_forgotten_unless_they_still_matter() -> None:
    schedule = one_node()
    sent(schedule, CREATE, 0)
    sent(schedule, Change(None, OTHER), 0)
    schedule.begin(MirrorPlan((CREATE,)), FORGET_SECONDS)
    assert [schedule.attempts(change) for change in (CREATE, Change(None, OTHER))] == [1, 0]


def test_failures_are_those_of_changes_that_are_still_planned() -> None:
    schedule = one_node()
    error = ServerError("x")
    schedule.failed(CREATE, error, 0)
    assert schedule.failing([CREATE, Change(None, OTHER)]) == [(CREATE, error)]
    assert schedule.failing([Change(None, OTHER)]) == []
    sent(schedule, CREATE, 5)
    assert schedule.failing([CREATE]) == []


@pytest.mark.parametrize(("catches_up", "fights"), [(True, [MIRROR.id]), (False, [])])
def test_a_write_is_undone_only_where_the_watch_had_shown_it(catches_up: bool, fights: list[ResourceId]) -> None:
    schedule = one_node()
    for number in range(4):
        sent(schedule, CREATE, 100 * number)
        if catches_up:
            schedule.begin(MirrorPlan((CREATE,), versions={MIRROR.id: str(number)}), 100 * number + 1)
    assert schedule.fights() == fights


def test_a_fight_is_over_after_a_quiet_time_and_with_another_change() -> None:
    schedule = one_node()
    for number in range(4):
        sent(schedule, CREATE, number)
        schedule.begin(MirrorPlan((CREATE,), versions={MIRROR.id: str(number)}), number)
    assert schedule.fights() == [MIRROR.id]
    schedule.begin(MirrorPlan(versions={MIRROR.id: "3"}), 3 + FORGET_SECONDS)
    assert schedule.fights() == []
    for number in range(4):
        sent(schedule, CREATE, number)
        schedule.begin(MirrorPlan((CREATE,), versions={MIRROR.id: str(number)}), number)
    sent(schedule, Change(EDITED, None), 5)
    assert schedule.fights() == []
