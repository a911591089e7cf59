"""Manual pages as text: man(7) macros around escaped words, so that no value can turn into a macro."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Iterable, Iterator
from typing import Final

_CODE: Final = re.compile(r"``?([^`]+)``?")


def plain(text: str) -> str:
    """Return text in which roff sees nothing of its own."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha").replace("~", "\\(ti")
    )
    return "\\&" + escaped if escaped.startswith(".") else escaped


def bold(text: str) -> str:
    """Return escaped text in bold."""
    return f"\\fB{plain(text)}\\fR"


def italic(text: str) -> str:
    """Return escaped text in italics, or underlined: a word that stands for a value."""
    return f"\\fI{plain(text)}\\fR"


def prose(text: str) -> str:
    """Return a paragraph on one line, what stands in backticks in bold."""
    words = " ".join(text.split())
    pieces = (bold(piece) if odd else plain(piece) for odd, piece in _alternating(words))
    line = "".join(pieces)
    return "\\&" + line if line.startswith(".") else line


def _alternating(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the pieces between and, marked, inside backticks."""
    for position, piece in enumerate(_CODE.split(text)):
        if piece:
            yield position % 2 == 1, piece


def header(name: str, section: int, version: str, manual: str) -> str:
    """Return the title line. The date is that of the build, which reproducible builds fix (SOURCE_DATE_EPOCH)."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    return f'.TH "{name}" "{section}" "{date}" "openperouter {version}" "{manual}"'


def heading(text: str) -> str:
    """Return a section's heading."""
    return f'.SH "{plain(text.upper())}"'


def subheading(text: str) -> str:
    """Return a subsection's heading."""
    return f'.SS "{plain(text)}"'


def paragraphs(text: str) -> list[str]:
    """Return text as paragraphs; an empty line separates them. An indented block keeps its shape."""
    lines: list[str] = []
    for block in re.split(r"\n[ \t]*\n", text.strip("\n")):
        indented = all(line.startswith("  ") for line in block.splitlines())
        lines += example(textwrap.dedent(block).splitlines()) if indented else [".PP", prose(block)]
    return lines


def item(tag: str, text: str) -> list[str]:
    """Return one hanging item; ``tag`` is roff already."""
    return [".TP", tag, prose(text) if text else "\\&"]


def example(lines: Iterable[str]) -> list[str]:
    """Return lines that keep their shape."""
    return [".PP", ".in +4n", ".EX", *(plain(line) or "\\&" for line in lines), ".EE", ".in"]


def see_also(*pages: tuple[str, int]) -> list[str]:
    """Return the section that points at other pages."""
    references = [f"{bold(name)}({section})" for name, section in pages]
    return [heading("see also"), ",\n".join(references)]
