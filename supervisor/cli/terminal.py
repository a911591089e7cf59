"""Plain and coloured text for people: aligned tables, and no control characters from outside."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Literal, TextIO

from config.syntax.printable import printable

if TYPE_CHECKING:
    from config.problems import Problem

Style = Literal["plain", "good", "bad", "warn", "dim", "bold"]

_CODES: Final[dict[Style, str]] = {
    "plain": "",
    "good": "\033[32m",
    "bad": "\033[31m",
    "warn": "\033[33m",
    "dim": "\033[2m",
    "bold": "\033[1m",
}
_RESET: Final = "\033[0m"

#: A piece of text and how to show it.
Cell = tuple[str, Style]


#: When to colour, as ``--color`` takes it.
ColourChoice = Literal["auto", "always", "never"]
_chosen: ContextVar[ColourChoice] = ContextVar("colour", default="auto")


def choose_colour(choice: ColourChoice) -> None:
    """Decide for this process when to colour."""
    _chosen.set(choice)


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def choose_quiet(*, quiet: bool) -> None:
    """Decide for this process whether it prints only errors and what was asked for."""
    _quiet.set(quiet)


def is_quiet() -> bool:
    """Whether ``--quiet`` is given."""
    return _quiet.get()


def wants_colour(stream: TextIO = sys.stdout) -> bool:
    """Whether to colour: as chosen; else on a terminal, unless it is dumb or NO_COLOR (no-color.org) is set."""
    if _chosen.get() != "auto":
        return _chosen.get() == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Painter:
    """Renders styled text for one output."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def paint(self, text: str, style: Style) -> str:
        """Return text for the terminal; control characters in it are replaced."""
        safe = printable(text)
        code = _CODES[style] if self._colour else ""
        return f"{code}{safe}{_RESET}" if code and safe else safe

    def table(self, head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
        """Return lines with aligned columns, indented by two; columns that are empty everywhere are left out."""
        body = [list(row) for row in rows]
        kept = [column for column in range(len(head)) if any(row[column][0] for row in body)]
        titles: list[Cell] = [(title, "dim") for title in head]
        lines = [[row[column] for column in kept] for row in [titles, *body]]
        widths = [max(len(line[column][0]) for line in lines) for column in range(len(kept))]
        return [self._row(line, widths) for line in lines]

    def _row(self, cells: Sequence[Cell], widths: Sequence[int]) -> str:
        padded = (
            self.paint(text, style) + " " * (width - len(text))
            for (text, style), width in zip(cells, widths, strict=True)
        )
        return f"  {'  '.join(padded)}".rstrip()


def print_line(text: str, style: Style = "plain") -> None:
    """Print one styled line."""
    print(Painter(colour=wants_colour()).paint(text, style))


def say(text: str, style: Style = "plain") -> None:
    """Print one styled line at once, unless ``--quiet`` is given: what is done, and how it went if it went well."""
    if not is_quiet():
        print_line(text, style)
        sys.stdout.flush()


def print_problems(problems: Sequence[Problem]) -> int:
    """Print problems, errors in red and warnings, unless quiet, in yellow; return how many errors there are."""
    from config.problems import errors

    wrong = errors(problems)
    for problem in wrong if is_quiet() else problems:
        print_line(str(problem), "bad" if problem in wrong else "warn")
    return len(wrong)


def moment(seconds: float) -> str:
    """Return a time, given in Unix seconds, in the local time zone."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))


def duration(seconds: float) -> str:
    """Return a length of time in its two largest units, e.g. ``3d4h``, ``5m10s``."""
    left = max(0, int(seconds))
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts[:2]) or "0s"
