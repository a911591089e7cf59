"""Reads YAML that an operator wrote, and remembers where each value stood.

PyYAML's ready-made loaders lose positions, keep the last of two equal keys, expand aliases without bound and turn
``off``, ``0755`` and ``22:22`` into something else than what was written. This reader works on the parser's events
instead and promises:

* every fault is an :class:`InvalidYamlError` whose problems carry ``file:line:column`` and never quote a value, since
  a value may be a password;
* the result is plain data (dict with text keys, list, str, int, float, bool, None) within fixed bounds of size, depth
  and alias expansion;
* only ``true``/``false``, plain decimal numbers and ``null`` leave the text form. What other YAML readers would turn
  into booleans, octal or base-60 numbers stays the text that was written;
* :meth:`Document.origin` gives the position of any field path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import yaml

from config.problems import Origin, Problem, Reason

from .files import UnreadableFileError, read_bounded
from .hints import Written
from .yaml_errors import MAX_DEPTH, NOT_READABLE, NOT_RENDERED, TOO_DEEP, explain, foreign_blank, position

#: A field's place inside a document: keys and list indices.
FieldPath: TypeAlias = tuple[str | int, ...]

#: Largest accepted file in bytes: 1 MiB, what etcd and with it the API server accept for one object.
MAX_BYTES: Final = 1024 * 1024
#: Most values after aliases are expanded; a 1 MiB file of real configuration has about a third of that.
MAX_VALUES: Final = 200_000

_TAG: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = frozenset({None, "!", *(_TAG + name for name in ("str", "int", "float", "bool", "null"))})
_INT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
#: Python refuses to convert integers of more digits (CVE-2020-10735); no field is that large.
_MAX_INT_DIGITS: Final = 40
#: The second takes longer to compile than most files to read, so it is compiled only for texts that need it.
_UNPRINTABLE_ASCII: Final = re.compile(r"[^\t\n\r\x20-\x7e]")
_UNPRINTABLE: Final = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class InvalidYamlError(Exception):
    """A file's text is not acceptable YAML; ``problems`` say where and why, and there is at least one."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(slots=True, eq=False)
class _Node:
    """One value with its position (1-based). ``size`` counts it and everything below, aliases expanded.

    ``depth`` is the number of collections inside one another, itself included: 0 for a scalar.
    """

    line: int
    column: int
    value: Any = None
    text: str = ""
    plain: bool = False
    items: list[_Node] | None = None
    entries: dict[str, tuple[_Node, _Node]] | None = None
    size: int = 1
    depth: int = 0

    def data(self) -> Any:
        """Return the value as plain data; every call makes new containers."""
        if self.entries is not None:
            return {key: value.data() for key, (_, value) in self.entries.items()}
        if self.items is not None:
            return [item.data() for item in self.items]
        return self.value

    def entry(self, key: str) -> tuple[_Node, _Node] | None:
        """Return a key and its value, or None. A key counts that differs only in case: models correct it."""
        entries = self.entries or {}
        return entries.get(key) or next((pair for name, pair in entries.items() if name.lower() == key.lower()), None)

    def child(self, step: str | int) -> _Node | None:
        """Return the value under a key or an index, or None."""
        if isinstance(step, str):
            pair = self.entry(step)
            return pair[1] if pair else None
        items = self.items or []
        return items[step] if 0 <= step < len(items) else None


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed file: its data and the way back from a field path to a position."""

    path: str
    root: _Node = field(repr=False)

    def data(self) -> Any:
        """Return the content as plain data, a new copy each time; None for an empty file."""
        return self.root.data()

    def origin(self, path: FieldPath = ()) -> Origin:
        """Return the position of a value, or of its nearest enclosing value when there is none of that path."""
        node = self._nearest(path)[0]
        return Origin(path=self.path, line=node.line, column=node.column)

    def key_origin(self, path: FieldPath) -> Origin:
        """Return the position of the key that ends ``path``; of the value when it is a list item."""
        parent, depth = self._nearest(path[:-1])
        if path and depth == len(path) - 1 and isinstance(path[-1], str) and parent.entries:
            pair = parent.entry(path[-1])
            if pair:
                return Origin(path=self.path, line=pair[0].line, column=pair[0].column)
        return self.origin(path)

    def place(self, path: FieldPath) -> Origin:
        """Return where a field is to be corrected: a scalar's value, or the key of a mapping or list, or near it."""
        return self.origin(path) if self.written(path) else self.key_origin(path)

    def written(self, path: FieldPath) -> Written | None:
        """Return a scalar as written, or None for anything else."""
        node, depth = self._nearest(path)
        scalar = node.items is None and node.entries is None
        return Written(node.text, node.plain) if depth == len(path) and scalar else None

    def _nearest(self, path: FieldPath) -> tuple[_Node, int]:
        node = self.root
        for depth, step in enumerate(path):
            child = node.child(step)
            if child is None:
                return node, depth
            node = child
        return node, len(path)


def format_path(path: FieldPath) -> str:
    """Write a field path the way users say it, e.g. ``l3vnis[0].hostSession.asn``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def parse_path(text: str) -> FieldPath:
    """Return the field path that :func:`format_path` wrote."""
    return tuple(int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", text))


def read_yaml(path: Path) -> Document:
    """Read and parse one file. Raises FileNotFoundError, and :class:`InvalidYamlError` for every other failure."""
    try:
        return parse_yaml(read_bounded(path, MAX_BYTES)[0], str(path))
    except UnreadableFileError as error:
        raise InvalidYamlError([error.problem()]) from None


def parse_yaml(content: bytes, path: str) -> Document:
    """Parse one file's bytes. Raises :class:`InvalidYamlError`; nothing else."""
    text = _decode(content, path)
    try:
        return Document(path, _Builder(path, yaml.parse(text, Loader=_LOADER)).build())
    except yaml.MarkedYAMLError as error:
        found = explain(error, text)
        raise InvalidYamlError([_problem(found.message, Origin(path, found.line, found.column))]) from None
    except yaml.YAMLError:
        raise InvalidYamlError([_problem(NOT_READABLE, Origin(path))]) from None


def _problem(message: str, origin: Origin) -> Problem:
    return Problem(message=message, origin=origin, reason=Reason.FILE_INVALID)


def _decode(content: bytes, path: str) -> str:
    if len(content) > MAX_BYTES:
        raise InvalidYamlError([_problem(f"larger than {MAX_BYTES} bytes", Origin(path))])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = position(content[: error.start].decode("utf-8", "replace"))
        raise InvalidYamlError([_problem("not UTF-8 text", Origin(path, line, column))]) from None
    unprintable = re.search(_UNPRINTABLE_ASCII if text.isascii() else _UNPRINTABLE, text)
    if unprintable:
        line, column = position(text[: unprintable.start()])
        message = f"control character U+{ord(unprintable.group()):04X} is not allowed"
        raise InvalidYamlError([_problem(message, Origin(path, line, column))])
    return text


class _Builder:
    """Builds nodes from parser events, iteratively, so that hostile nesting cannot exhaust the stack."""

    def __init__(self, path: str, events: Iterator[Any]) -> None:
        self._path = path
        self._events = events
        self._problems: list[Problem] = []
        self._anchors: dict[str, _Node | None] = {}
        self._stack: list[_Open] = []
        self._root: _Node | None = None
        self._documents = 0

    def build(self) -> _Node:
        """Consume all events and return the root."""
        for event in self._events:
            self._take(event)
        if self._problems:
            raise InvalidYamlError(self._problems)
        return self._root or _Node(1, 1)

    def _take(self, event: Any) -> None:
        # The frequent ones first.
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
            self._register(event.anchor, node)
            self._close(node)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            top = self._stack.pop()
            self._register(top.anchor, top.node)
            self._close(top.node)
        elif isinstance(event, yaml.AliasEvent):
            self._close(self._resolve(event))
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._fail("only one YAML document per file: merge them, or use two files", event)

    def _open(self, event: Any) -> None:
        if len(self._stack) >= MAX_DEPTH:
            self._fail(TOO_DEEP, event)
        wanted = "seq" if isinstance(event, yaml.SequenceStartEvent) else "map"
        if event.tag not in (None, "!", _TAG + wanted):
            self._fail("tags are not supported", event)
        node = _at(event)
        node.depth = 1
        if wanted == "seq":
            node.items = []
        else:
            node.entries = {}
        if event.anchor:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(node, event.anchor))

    def _resolve(self, event: Any) -> _Node:
        target = self._anchors.get(event.anchor)
        if target is None:
            known = event.anchor in self._anchors
            self._fail("alias of an enclosing value" if known else "alias of an anchor that is not defined", event)
        if len(self._stack) + target.depth > MAX_DEPTH:
            self._fail(TOO_DEEP, event)
        # A copy, so that a later message points to the place of use rather than to the anchor.
        return _Node(
            event.start_mark.line + 1, event.start_mark.column + 1, target.value, target.text, target.plain,
            target.items, target.entries, target.size, target.depth,
        )  # fmt: skip

    def _register(self, anchor: str | None, node: _Node) -> None:
        if anchor:
            self._anchors[anchor] = node

    def _close(self, node: _Node) -> None:
        """Hang a finished node under the innermost open collection."""
        if node.size > MAX_VALUES:
            self._fail_at(f"more than {MAX_VALUES} values", node)
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        top.node.size += node.size
        top.node.depth = max(top.node.depth, node.depth + 1)
        if top.node.size > MAX_VALUES:
            self._fail_at(f"more than {MAX_VALUES} values after aliases are expanded", node)
        if top.node.items is not None:
            top.node.items.append(node)
        elif top.key is None:
            top.key = node
        else:
            key, top.key = top.key, None
            self._entry(top, key, node)

    def _entry(self, top: _Open, key: _Node, value: _Node) -> None:
        entries = top.node.entries
        assert entries is not None  # noqa: S101 - only mappings get here
        if key.plain and key.text == "<<":
            self._merge(top, value)
            return
        if not isinstance(key.value, str):
            # What {{ name }} is to YAML.
            template = key.entries is not None and [value.text for _, value in key.entries.values()] == [""]
            message = NOT_RENDERED if template else "a key must be a string: put it in quotes"
            self._problems.append(self._at_node(message, key))
            return
        if key.plain and key.value[:1].isspace():
            self._problems.append(self._at_node(foreign_blank(key.value[0]), key))
            return
        if key.value in entries and key.value not in top.merged:
            first = entries[key.value][0]
            message = f"key {key.value!r} is given twice (first at line {first.line})"
            self._problems.append(self._at_node(message, key))
            return
        top.merged.discard(key.value)
        entries[key.value] = (key, value)

    def _merge(self, top: _Open, value: _Node) -> None:
        """Carry out a merge key: the mapping's own keys win, then earlier sources."""
        entries = top.node.entries
        assert entries is not None  # noqa: S101 - only mappings get here
        for source in value.items if value.items is not None else [value]:
            if source.entries is None:
                self._problems.append(self._at_node("the merge key << needs a mapping or a list of mappings", source))
                return
            for name, pair in source.entries.items():
                if name not in entries:
                    entries[name] = pair
                    top.merged.add(name)

    def _scalar(self, event: Any) -> _Node:
        node = _at(event)
        node.text = event.value
        implicit_plain, _ = event.implicit
        if event.tag not in _SCALAR_TAGS:
            self._fail("tags are not supported", event)
        node.plain = bool(implicit_plain) and event.style in (None, "")
        wanted = event.tag[len(_TAG) :] if event.tag and event.tag.startswith(_TAG) else ""
        if wanted and wanted != "str":
            node.plain = True
        node.value = _resolve_plain(event.value) if node.plain else event.value
        return node

    def _at_node(self, message: str, node: _Node) -> Problem:
        return _problem(message, Origin(self._path, node.line, node.column))

    def _fail_at(self, message: str, node: _Node) -> NoReturn:
        raise InvalidYamlError([*self._problems, self._at_node(message, node)])

    def _fail(self, message: str, event: Any) -> NoReturn:
        self._fail_at(message, _at(event))


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been seen. ``key`` waits for its value; ``merged`` keys may be overridden."""

    node: _Node
    anchor: str | None
    key: _Node | None = None
    merged: set[str] = field(default_factory=set)


def _at(event: Any) -> _Node:
    return _Node(event.start_mark.line + 1, event.start_mark.column + 1)


def _resolve_plain(text: str) -> str | int | float | bool | None:
    """Return what an unquoted scalar means: YAML 1.2's core schema, of numbers only the unmistakable decimal forms."""
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text) and len(text) <= _MAX_INT_DIGITS:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
