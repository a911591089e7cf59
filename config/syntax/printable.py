"""Foreign text (names, messages of servers and programs, what peers call themselves) on a line or a terminal."""

from __future__ import annotations


def printable(text: str, instead: str = "?", *, keep: str = "") -> str:
    """Return text without control and direction characters, which could make a name look like another one."""
    return "".join(one if one.isprintable() or one in keep else instead for one in text)


def one_line(text: str, most: int = 500) -> str:
    """Return text on one line, without what controls a terminal, shortened to so many characters."""
    line = " ".join(printable(text, " ").split())
    return line if len(line) <= most else f"{line[:most]}..."
