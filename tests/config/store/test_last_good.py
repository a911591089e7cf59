"""The store of last good texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.desired import Secret
from config.store.last_good import LastGood, LastGoodError, from_json, read_texts, to_json

_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_TEXTS = st.dictionaries(_TEXT, _TEXT, max_size=4)


@given(_TEXTS, _TEXTS)
def test_what_is_stored_comes_back(texts: dict[str, str], passwords: dict[str, str]) -> None:
    value = LastGood(texts, {path: Secret(password) for path, password in passwords.items()})
    assert from_json(to_json(value)) == value


def test_a_store_of_an_earlier_version_has_no_passwords() -> None:
    assert from_json('{"version": 1, "files": {"a": "1"}}') == LastGood({"a": "1"})


def test_equal_values_are_stored_alike() -> None:
    a, b = Secret("1"), Secret("2")
    assert to_json(LastGood({}, {"a": a, "b": b})) == to_json(LastGood({}, {"b": b, "a": a}))
    assert to_json(LastGood({"a": "1", "b": "2"})) == to_json(LastGood({"b": "2", "a": "1"}))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"version": 2, "files": {}}', '{"version": 1}', '{"version": 1, "files": {"a": 1}}',
     '{"version": 1, "files": []}', '{"version": 1, "files": {"a": "\\ud800"}}',
     '{"version": 1, "files": {}, "secrets": {}}', '{"version": 1, "files": {}, "secrets": [3]}',
     '{"version": 1, "files": {}, "secrets": [{"path": "a"}]}', "[" * 100_000],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(LastGoodError):
        from_json(text)


def test_texts_show_up_in_no_message() -> None:
    assert "s3cret" not in repr(LastGood({"f": "password: s3cret"}, {"g": Secret("s3cret")}))


def test_unchanged_texts_give_the_same_value() -> None:
    value = LastGood({"a": "1"})
    assert value.with_texts({"a": "1"}) is value
    assert value.with_texts({"a": "2"}).texts == {"a": "2"}


@pytest.mark.parametrize("stored", [b"\xff\xfe", b"\x00", '{"version": 1, "files": {}}'.encode("utf-16")])
def test_what_is_no_text_is_refused_like_any_other_damage(tmp_path: Path, stored: bytes) -> None:
    (tmp_path / "last-good.json").write_bytes(stored)
    with pytest.raises(LastGoodError):
        read_texts(tmp_path / "last-good.json")


def test_nothing_stored_is_an_empty_value_but_a_file_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    assert read_texts(tmp_path / "none") == LastGood()
    with pytest.raises(LastGoodError, match="cannot be read: Is a directory"):
        read_texts(tmp_path)
