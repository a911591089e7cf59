"""Rewrites a router file's text from the spellings of earlier versions of upstream to today's.

Only the affected keys and their values are replaced; everything else, comments too, stays as it was written. Comments
inside a replaced value move above it. The new text is parsed and compared with the intended content; if it differs
(because of aliases or merge keys), the text is left unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import yaml

from config.api import API_VERSION, RETIRED_GROUP
from config.sources.former_spellings import Rewrite, names_by_vrf, rewrites, rewritten, written
from config.sources.naming import SECTIONS
from config.syntax.model_errors import case_match
from config.syntax.yaml_reader import FieldPath, InvalidYamlError, format_path, parse_yaml

_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#[^\n]*")
_QUOTED: Final = re.compile(r"'(?:[^'\n]|'')*'|\"(?:[^\"\\\n]|\\.)*\"")


class MigrationError(ValueError):
    """The text cannot be rewritten safely; the message says what to do."""


@dataclass(frozen=True, slots=True)
class _Edit:
    """Characters of the text and what takes their place. ``above`` are comments for the lines before."""

    start: int
    end: int
    text: str
    column: int
    above: tuple[str, ...]


def migrated(content: bytes, path: str) -> str:
    """Return a file's text in today's spellings: the same text where there is nothing to do.

    Raises :class:`~config.syntax.yaml_reader.InvalidYamlError`, and :class:`MigrationError`.
    """
    data = parse_yaml(content, path).data()
    text = content.decode("utf-8-sig")
    found = list(_rewrites_of_file(data))
    if not found:
        return text
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    edits = sorted((_edit(text, root, one) for one in found), key=lambda one: one.start)
    result = _carried_out(text, edits)
    if _data(result) != rewritten(data, found):
        raise MigrationError(f"{path}: cannot be rewritten, since parts of it are used elsewhere: change it by hand")
    return result


def _data(text: str) -> Any:
    """Return a text's content, None if it can no longer be read."""
    try:
        return parse_yaml(text.encode(), "").data()
    except InvalidYamlError:
        return None


def _rewrites_of_file(data: Any) -> Iterator[Rewrite]:
    if not isinstance(data, dict):
        return
    keys = {case_match(key, tuple(SECTIONS)): key for key in data}
    entries = {name: data[key] for name, key in keys.items() if name is not None and isinstance(data[key], list)}
    names = names_by_vrf(entries.get("l3vnis", ()))
    for key, value in data.items():
        if key.lower() == "apiversion" and str(value).startswith(f"{RETIRED_GROUP}/"):
            yield Rewrite((key,), "apiVersion", API_VERSION)
    for name, section in SECTIONS.items():
        for index, entry in enumerate(entries.get(name, ())):
            yield from (one.below((keys[name], index)) for one in rewrites(section.kind, entry, names))


def _edit(text: str, root: Any, one: Rewrite) -> _Edit:
    key, value = _pair(root, one.place)
    start, end = key.start_mark.index, _end(value)
    if value.start_mark.index < start:
        raise MigrationError(f"{format_path(one.place)} is an alias: change it by hand")
    comments = tuple(match[0] for match in _COMMENT.finditer(_QUOTED.sub(_blank, text[start:end])))
    # What follows a key in a flow mapping must not become a part of the value.
    return _Edit(start, end, written(one), key.start_mark.column, comments)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _pair(root: Any, place: FieldPath) -> tuple[Any, Any]:
    """Return the nodes of the key that ends a place, and of its value."""
    node = root
    for step in place[:-1]:
        node = node.value[step] if isinstance(step, int) else _member(node, step)[1]
    return _member(node, str(place[-1]))


def _member(node: Any, name: str) -> tuple[Any, Any]:
    for key, value in node.value:
        if key.value == name:
            return key, value
    raise MigrationError(f"{name} comes from a merge key (<<): change it by hand")


def _end(node: Any) -> int:
    """Return where a value ends, without the comments and blank lines that follow a block."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _carried_out(text: str, edits: list[_Edit]) -> str:
    if any(second.start < first.end for first, second in pairwise(edits)):
        raise MigrationError("two former spellings overlap: change them by hand")
    for one in reversed(edits):
        text = text[: one.start] + one.text + text[one.end :]
        line = text.rfind("\n", 0, one.start) + 1
        text = text[:line] + "".join(f"{' ' * one.column}{comment}\n" for comment in one.above) + text[line:]
    return text
