"""The store of last good texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.last_good import LastGood, LastGoodError, from_json, to_json

_TEXTS = st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4)


@given(_TEXTS)
def test_what_is_stored_comes_back(texts: dict[str, str]) -> None:
    assert from_json(to_json(LastGood(texts))).texts == texts


def test_equal_values_are_stored_alike() -> None:
    assert to_json(LastGood({"a": "1", "b": "2"})) == to_json(LastGood({"b": "2", "a": "1"}))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"version": 2, "files": {}}', '{"version": 1}', '{"version": 1, "files": {"a": 1}}',
     '{"version": 1, "files": []}', "[" * 100_000],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(LastGoodError):
        from_json(text)


def test_texts_show_up_in_no_message() -> None:
    assert "s3cret" not in repr(LastGood({"f": "password: s3cret"}))


def test_unchanged_texts_give_the_same_value() -> None:
    value = LastGood({"a": "1"})
    assert value.with_texts({"a": "1"}) is value
    assert value.with_texts({"a": "2"}).texts == {"a": "2"}
