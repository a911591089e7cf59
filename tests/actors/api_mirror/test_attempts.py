"""When a change may be sent."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from actors.api_mirror.attempts import FORGET_SECONDS, LAG_SECONDS, Ledger
from actors.api_mirror.planning import ABSENT, Change, Plan, mirrors
from actors.lib.kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError, ServerError
from config.api import ApiObject
from config.problems import ResourceId

from .examples import blue, files, prove, red, stored
from .fake import NODE

MIRROR = mirrors(files(red()), NODE, prove)[red().id]
OTHER = mirrors(files(blue()), NODE, prove)[blue().id]
CREATE = Change(None, MIRROR)
EDITED = stored(MIRROR, labels={}, resource_version="9")


def sent(ledger: Ledger, change: Change, now: float, answer: ApiObject | None = None) -> None:
    ledger.sent(change, answer, {change.seen}, now, 0.5)


def test_what_was_never_sent_is_due() -> None:
    assert Ledger().due_at(CREATE) == -math.inf


def test_what_was_sent_is_not_sent_again_before_the_watch_had_its_time() -> None:
    ledger = Ledger()
    sent(ledger, CREATE, 100)
    assert ledger.due_at(CREATE) == 100 + LAG_SECONDS


def test_an_edit_after_our_write_is_reverted_at_once() -> None:
    ledger = Ledger()
    sent(ledger, CREATE, 100)
    assert ledger.due_at(Change(EDITED, MIRROR)) == 100


def test_what_was_deleted_after_the_watch_had_shown_it_is_created_at_once() -> None:
    ledger = Ledger()
    sent(ledger, CREATE, 100)
    ledger.begin(Plan(), 101)
    assert ledger.due_at(CREATE) == 100 + LAG_SECONDS
    ledger.begin(Plan(versions={MIRROR.id: "8"}), 102)
    assert ledger.due_at(CREATE) == 100


def test_a_new_wish_does_not_wait_for_the_old_one() -> None:
    ledger = Ledger()
    sent(ledger, CREATE, 100)
    assert ledger.due_at(Change(None, replace(MIRROR, spec={}))) == -math.inf


def test_between_deletion_and_creation_nothing_is_created_again() -> None:
    ledger = Ledger()
    ledger.sent(Change(EDITED, MIRROR), MIRROR, {"9", ABSENT}, 100, 0.5)
    assert ledger.due_at(CREATE) == 100 + LAG_SECONDS


def test_what_the_server_makes_of_a_wish_is_as_good_as_it_gets() -> None:
    ledger = Ledger()
    made = stored(MIRROR, spec=MIRROR.spec | {"unheard": 1}, resource_version="10")
    sent(ledger, Change(EDITED, MIRROR), 100, made)
    assert ledger.due_at(Change(replace(made, resource_version="11"), MIRROR)) == math.inf
    assert ledger.due_at(Change(stored(made, labels={}), MIRROR)) == 100


def test_who_keeps_undoing_our_writes_is_answered_at_a_growing_distance() -> None:
    ledger, now, pauses = Ledger(), 0.0, []
    for version in range(12):
        change = Change(replace(EDITED, resource_version=str(version)), MIRROR)
        now = max(now, ledger.due_at(change))
        pauses.append(now - ledger.records[MIRROR.id].at if ledger.records else 0)
        sent(ledger, change, now)
    assert pauses == [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]


def test_a_quiet_time_makes_a_revert_the_first_again() -> None:
    ledger = Ledger()
    for version in range(6):
        sent(ledger, Change(replace(EDITED, resource_version=str(version)), MIRROR), 0)
    late = Change(replace(EDITED, resource_version="77"), MIRROR)
    sent(ledger, late, FORGET_SECONDS)
    assert ledger.attempts(late) == 1


@pytest.mark.parametrize(("error", "first"), [(ServerError("x"), 1), (ConflictError("x"), 1), (InvalidError("x"), 600)])
def test_a_failure_is_tried_again_after_a_pause_that_grows(error: ApiError, first: float) -> None:
    ledger = Ledger()
    ledger.failed(CREATE, error, 100, 0.5)
    assert ledger.due_at(CREATE) == 100 + first
    ledger.failed(CREATE, error, 200, 0.5)
    assert ledger.due_at(CREATE) == 200 + (2 if first == 1 else 600)


def test_pauses_differ_from_node_to_node() -> None:
    pauses = []
    for chance in (0.0, 0.9):
        for error in (ServerError("x"), InvalidError("x")):
            ledger = Ledger()
            ledger.failed(CREATE, error, 0, chance)
            pauses.append(ledger.due_at(CREATE))
    assert pauses == pytest.approx([0.8, 480, 1.16, 696])


def test_a_failure_is_over_when_the_wish_is_another() -> None:
    ledger = Ledger()
    ledger.failed(CREATE, InvalidError("x"), 100, 0.5)
    assert ledger.due_at(Change(None, replace(MIRROR, spec={}))) == -math.inf
    assert ledger.attempts(Change(None, replace(MIRROR, spec={}))) == 0


def test_what_refuses_some_refuses_all_of_the_sort_for_a_while() -> None:
    ledger = Ledger()
    names = (replace(MIRROR, name=f"static-node-{number}") for number in range(3))
    for change in (Change(None, mirror) for mirror in names):
        assert ledger.due_at(Change(None, OTHER)) == -math.inf
        ledger.failed(change, ForbiddenError("x"), 100, 0.5)
    assert ledger.due_at(Change(None, OTHER)) == 101
    assert ledger.due_at(Change(stored(OTHER), None)) == -math.inf


def test_what_refuses_one_object_says_nothing_of_others() -> None:
    ledger = Ledger()
    for number in range(9):
        ledger.failed(Change(None, replace(MIRROR, name=f"static-node-{number}")), InvalidError("x"), 100, 0.5)
    assert ledger.due_at(Change(None, OTHER)) == -math.inf


def test_a_sort_that_goes_on_failing_waits_longer_until_one_succeeds() -> None:
    ledger = Ledger()
    for now in (100, 200):
        ledger.begin(Plan(), now)
        for number in range(3):
            ledger.failed(Change(None, replace(MIRROR, name=f"n{now}-{number}")), ForbiddenError("x"), now, 0.5)
    assert ledger.due_at(Change(None, OTHER)) == 202
    sent(ledger, Change(None, replace(MIRROR, name="n")), 201)
    assert ledger.due_at(Change(None, OTHER)) == -math.inf


def test_failures_of_separate_passes_do_not_add_up() -> None:
    ledger = Ledger()
    for now in (100, 200, 300):
        ledger.begin(Plan(), now)
        ledger.failed(Change(None, replace(MIRROR, name=f"n{now}")), ForbiddenError("x"), now, 0.5)
    assert ledger.due_at(Change(None, OTHER)) == -math.inf


def test_old_entries_are_forgotten_unless_they_still_matter() -> None:
    ledger = Ledger()
    sent(ledger, CREATE, 0)
    sent(ledger, Change(None, OTHER), 0)
    ledger.begin(Plan((CREATE,)), FORGET_SECONDS)
    assert list(ledger.records) == [MIRROR.id]


def test_failures_are_those_of_changes_that_are_still_planned() -> None:
    ledger = Ledger()
    error = ServerError("x")
    ledger.failed(CREATE, error, 0, 0.5)
    assert ledger.failing([CREATE, Change(None, OTHER)]) == [(CREATE, error)]
    assert ledger.failing([Change(None, OTHER)]) == []
    sent(ledger, CREATE, 5)
    assert ledger.failing([CREATE]) == []


@pytest.mark.parametrize(("catches_up", "fights"), [(True, [MIRROR.id]), (False, [])])
def test_a_write_is_undone_only_where_the_watch_had_shown_it(catches_up: bool, fights: list[ResourceId]) -> None:
    ledger = Ledger()
    for number in range(4):
        sent(ledger, CREATE, 100 * number)
        if catches_up:
            ledger.begin(Plan((CREATE,), versions={MIRROR.id: str(number)}), 100 * number + 1)
    assert ledger.fights() == fights


def test_a_fight_is_over_after_a_quiet_time_and_with_the_wish() -> None:
    ledger = Ledger()
    for number in range(4):
        sent(ledger, CREATE, number)
        ledger.begin(Plan((CREATE,), versions={MIRROR.id: str(number)}), number)
    assert ledger.fights() == [MIRROR.id]
    ledger.begin(Plan(versions={MIRROR.id: "3"}), 3 + FORGET_SECONDS)
    assert ledger.fights() == []
    for number in range(4):
        sent(ledger, CREATE, number)
        ledger.begin(Plan((CREATE,), versions={MIRROR.id: str(number)}), number)
    sent(ledger, Change(EDITED, None), 5)
    assert ledger.fights() == []
