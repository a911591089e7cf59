"""Conditions are legal whatever is said, and move their time only when they change."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.crd.conditions import (
    DEGRADED,
    READY,
    SUCCESSFUL,
    Condition,
    condition,
    legal_reason,
    legal_text,
    read_conditions,
    timestamp,
)

ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT, st.integers(1, 40))
def test_any_text_becomes_legal(text: str, limit: int) -> None:
    legal = legal_text(text, limit, "x")
    assert 1 <= len(legal) <= limit
    assert "\n" not in legal
    legal.encode()


def test_a_text_within_the_limit_stays_as_it_is() -> None:
    assert legal_text("a" * 500, 500, "x") == "a" * 500
    assert legal_text("a" * 501, 500, "x") == "a" * 499 + "…"
    assert legal_text(" two\n lines\x00 ", 500, "x") == "two lines"


@given(ANY_TEXT)
def test_any_reason_becomes_legal(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", legal_reason(text))


def test_a_legal_reason_stays_as_it_is() -> None:
    assert legal_reason(SUCCESSFUL) == SUCCESSFUL


@pytest.mark.parametrize(("status", "word"), [(True, "True"), (False, "False"), (None, "Unknown")])
def test_a_condition_says_one_of_three_words(status: bool | None, word: str) -> None:
    made = condition(READY, status, SUCCESSFUL, "", now=0.0)
    assert (made.status, made.message) == (word, "")


def test_the_time_moves_only_with_the_status() -> None:
    first = condition(READY, True, SUCCESSFUL, "well", now=1_000.0, generation=1)
    other = condition(DEGRADED, True, SUCCESSFUL, "", now=1_500.0)
    same = condition(READY, True, SUCCESSFUL, "still", now=2_000.0, generation=2, previous=(other, first))
    changed = condition(READY, False, SUCCESSFUL, "", now=3_000.0, previous=(other, same))
    assert same.last_transition_time == first.last_transition_time == timestamp(1_000.0)
    assert same.observed_generation == 2
    assert changed.last_transition_time == timestamp(3_000.0) == "1970-01-01T00:50:00Z"


def test_conditions_are_read_back_and_strange_ones_left_out() -> None:
    made = condition(READY, True, SUCCESSFUL, "well", now=1_000.0)
    data = made.model_dump(by_alias=True, exclude_none=True)
    assert list(read_conditions([data, {"type": READY}, None, "text"])) == [made]
    assert list(read_conditions([data])) == [Condition.model_validate(data)]
