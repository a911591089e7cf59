"""One finding of the doctor: what was looked at, how it is, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """``error``: the router does not, or will not, work as configured; ``warning``: it may surprise you."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """``topic`` is one stable word; ``cure`` is what to do, a command where there is one; empty only for ``ok``."""

    topic: str
    level: Level
    message: str
    cure: str = ""


def ok(topic: str, message: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(topic, Level.OK, message)


def warning(topic: str, message: str, cure: str) -> Finding:
    """Return that something may surprise."""
    return Finding(topic, Level.WARNING, message, cure)


def error(topic: str, message: str, cure: str) -> Finding:
    """Return that something does not work."""
    return Finding(topic, Level.ERROR, message, cure)
