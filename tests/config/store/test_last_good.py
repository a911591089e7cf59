"""The store of last good texts: what is written is read back, damage is refused, no password is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.desired import Secret
from config.store.json_store import StoreError
from config.store.last_good import LastGood, from_json, read_texts, to_json

_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_TEXTS = st.dictionaries(_TEXT, _TEXT, max_size=4)


@given(_TEXTS, _TEXTS)
def test_what_is_written_is_read_back(texts: dict[str, str], passwords: dict[str, str]) -> None:
    value = LastGood(texts, {path: Secret(password) for path, password in passwords.items()})
    assert from_json(to_json(value)) == value


#: As version 0.1 wrote it.
WRITTEN = """\
{
 "version": 1,
 "files": {
  "/etc/openperouter/configs/openpe_a.yaml": "l3vnis: []  # \\u00fc\\n"
 },
 "secrets": [
  {
   "path": "/etc/openperouter/configs/secrets/fabric",
   "password": "correct-horse"
  }
 ]
}
"""


def test_files_are_read_and_written_as_they_always_were() -> None:
    value = LastGood(
        {"/etc/openperouter/configs/openpe_a.yaml": "l3vnis: []  # ü\n"},
        {"/etc/openperouter/configs/secrets/fabric": Secret("correct-horse")},
    )
    assert from_json(WRITTEN) == value
    assert to_json(value) == WRITTEN


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
    with pytest.raises(StoreError, match=r"not JSON|not a version 1|not a valid"):
        from_json(text)


def test_texts_show_up_in_no_message() -> None:
    assert "s3cret" not in repr(LastGood({"f": "password: s3cret"}, {"g": Secret("s3cret")}))


def test_unchanged_texts_give_the_same_value() -> None:
    value = LastGood({"a": "1"})
    assert value.with_texts({"a": "1"}) is value
    assert value.with_texts({"a": "2"}).texts == {"a": "2"}


@pytest.mark.parametrize("stored", [b"\xff\xfe", b"\x00", '{"version": 1, "files": {}}'.encode("utf-16")])
def test_bytes_that_are_not_utf_8_are_damage(tmp_path: Path, stored: bytes) -> None:
    (tmp_path / "last-good.json").write_bytes(stored)
    with pytest.raises(StoreError):
        read_texts(tmp_path / "last-good.json")


def test_no_file_is_an_empty_value_but_one_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    assert read_texts(tmp_path / "none") == LastGood()
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        read_texts(tmp_path)
