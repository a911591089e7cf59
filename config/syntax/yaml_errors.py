"""Says what a person probably did wrong where the YAML parser gives up.

The parser names the token that it wanted and the place where it noticed, which is often a line after the mistake. No
value is ever quoted, since one of them may be a password; single characters are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

#: What git writes around the two sides of a conflict.
_CONFLICT: Final = re.compile(r"^(?:<{7} |={7}$|>{7} )", re.MULTILINE)
#: Blank characters that YAML takes for text.
_FOREIGN_BLANK: Final = re.compile("^[ \t]*(?P<blank>[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000])", re.MULTILINE)
_TEMPLATE: Final = ("{{", "{%")

NOT_RENDERED: Final = "looks like a template that was not rendered"
NOT_READABLE: Final = "not readable as YAML"
#: Deepest accepted nesting. The schemas need less than ten levels.
MAX_DEPTH: Final = 32
TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"


@dataclass(frozen=True, slots=True)
class Explained:
    """A message and its position, 1-based; 0 where it is unknown."""

    message: str
    line: int = 0
    column: int = 0


def explain(error: yaml.MarkedYAMLError, text: str) -> Explained:
    """Return what is wrong with a text that the parser refuses."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Explained(NOT_READABLE)
    lines = text.split("\n")
    shown = lines[mark.line] if mark.line < len(lines) else ""
    if shown[mark.column : mark.column + 1] == "\t":
        return _at("a tab cannot indent YAML: use spaces", mark)
    conflict = _CONFLICT.search(text)
    if conflict:
        return Explained("unresolved merge conflict", *position(text[: conflict.start()]))
    found = _FOREIGN_BLANK.search(text)
    if found:
        return Explained(foreign_blank(found["blank"]), *position(text[: found.start("blank")]))
    if any(word in shown for word in _TEMPLATE):
        return _at(NOT_RENDERED, mark)
    return _from_parser(error, mark, in_value=": " in shown[: mark.column])


def foreign_blank(character: str) -> str:
    """Return the message about a blank character that YAML does not treat as one."""
    name = " (no-break space)" if character == "\u00a0" else ""
    return f"U+{ord(character):04X}{name} in the indentation: use plain spaces"


def position(before: str) -> tuple[int, int]:
    """Return line and column (1-based) of the character that follows ``before``."""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _from_parser(error: yaml.MarkedYAMLError, mark: Any, *, in_value: bool) -> Explained:
    """Say what the parser means. ``in_value``: the line has a key before the mark."""
    problem, context = str(error.problem or NOT_READABLE), str(error.context or "")
    start = error.context_mark or mark
    column = start.column + 1
    if "quoted scalar" in context and "end of stream" in problem:
        return _at("this quote is never closed", start)
    if problem == "could not find expected ':'":
        return _at('is ": " missing after the key in this line?', start)
    # Scanner messages quote single characters and token names; names of anchors and tags are the exception.
    other = next((f"the {word} here is not valid" for word in ("anchor", "alias", "tag") if word in problem), problem)
    message = {
        "mapping values are not allowed in this context": 'a value with ": " in it needs quotes'
        if in_value
        else 'is ": " missing after the key in the line above?',
        "did not find expected '-' indicator": f"wrong indentation: the entries of this list begin in column {column} "
        f'with "- ", their keys in column {column + 2}',
        "did not find expected key": f"wrong indentation: the keys of this mapping begin in column {column}"
        if "block mapping" in context
        else other,
        "did not find expected ',' or '}'": f'"," or "}}" is missing before this: "{{" is in line {start.line + 1}',
        "did not find expected ',' or ']'": f'"," or "]" is missing before this: "[" is in line {start.line + 1}',
        "found character that cannot start any token": "a value that begins with this character needs quotes",
        # Since PyYAML 6.0.4, whose scanner may be that far before our limit is reached.
        "exceeded maximum nesting depth": TOO_DEEP,
    }
    return _at(message.get(problem, other), mark)


def _at(message: str, mark: Any) -> Explained:
    return Explained(message, mark.line + 1, mark.column + 1)
