"""When a child is overdue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.runtime.child import ChildState, ChildStatus

BUSY = ChildStatus("a", ChildState.RUNNING, progress_age=60, progress_deadline=60)


def test_a_busy_child_is_frozen_when_its_progress_is_as_old_as_its_deadline() -> None:
    assert BUSY.frozen
    assert not replace(BUSY, progress_age=59.9).frozen


def test_an_idle_child_is_never_frozen() -> None:
    assert not replace(BUSY, mode="idle", progress_age=1e9).frozen


def test_a_working_child_is_frozen_only_well_beyond_its_declared_deadline() -> None:
    working = replace(BUSY, mode="working", activity="frr-reload", progress_age=1e9)
    assert not replace(working, activity_remaining=10).frozen
    assert not replace(working, activity_remaining=-59).frozen
    assert replace(working, activity_remaining=-60).frozen


@pytest.mark.parametrize("state", [state for state in ChildState if state is not ChildState.RUNNING])
def test_only_a_running_child_can_be_frozen(state: ChildState) -> None:
    assert not replace(BUSY, state=state).frozen
