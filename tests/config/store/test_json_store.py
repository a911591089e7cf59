"""The common form of files with state: versions, checksums, and errors that name the place and not the value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.store.json_store import JsonStore, StoreError


@dataclass(frozen=True)
class Content:
    count: int
    texts: tuple[str, ...] = ()


PLAIN = JsonStore(Content, "list of texts")
VERSIONED = JsonStore(Content, "list of texts", version=2)
CHECKED = JsonStore(Content, "list of texts", version=2, checksum=True)
VALUE = Content(3, ("a", "b"))


@pytest.mark.parametrize("store", [PLAIN, VERSIONED, CHECKED])
def test_what_is_encoded_is_decoded(store: JsonStore[Content]) -> None:
    assert store.decode(store.encode(VALUE)) == VALUE
    assert store.decode(store.encode(VALUE).encode()) == VALUE


def test_each_layout_is_as_documented() -> None:
    content = {"count": 3, "texts": ["a", "b"]}
    assert json.loads(PLAIN.encode(VALUE)) == content
    assert json.loads(VERSIONED.encode(VALUE)) == {"version": 2} | content
    checked = json.loads(CHECKED.encode(VALUE))
    assert (checked["version"], checked["content"], len(checked["sha256"])) == (2, content, 64)


def test_unknown_members_are_ignored_and_missing_ones_default() -> None:
    assert PLAIN.decode('{"version": 7, "count": 3, "novelty": [1]}') == Content(3)


@pytest.mark.parametrize(
    ("store", "text", "reason"),
    [
        (PLAIN, "{", "^not JSON$"),
        (PLAIN, b"\xff", "^not JSON$"),
        (PLAIN, "[" * 100_000, "^not JSON$"),
        (PLAIN, "[]", "^not a valid list of texts: document: "),
        (PLAIN, '{"count": "many"}', "^not a valid list of texts: count: Input should be a valid integer"),
        (PLAIN, '{"count": 1, "texts": ["a", 7]}', r"^not a valid list of texts: texts\.1: "),
        (VERSIONED, '{"count": 1}', "^not a version 2 list of texts$"),
        (VERSIONED, '{"version": 1, "count": 1}', "^not a version 2 list of texts$"),
        (VERSIONED, "[]", "^not a version 2 list of texts$"),
        (CHECKED, '{"version": 2, "content": {"count": 1}}', "^damaged: the checksum does not match$"),
        (CHECKED, CHECKED.encode(VALUE).replace("3", "4", 1), "^damaged: the checksum does not match$"),
    ],
)
def test_damage_is_refused_with_the_reason(store: JsonStore[Content], text: str | bytes, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        store.decode(text)


def test_no_error_quotes_the_content() -> None:
    with pytest.raises(StoreError) as caught:
        PLAIN.decode('{"count": "correct-horse"}')
    assert "correct-horse" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_absent_file_differs_from_one_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(PLAIN.encode(VALUE))
    assert PLAIN.read(tmp_path / "file") == VALUE
    assert PLAIN.read(tmp_path / "none") is None
    assert PLAIN.read(tmp_path / "file" / "below") is None
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        PLAIN.read(tmp_path)
