"""A finding of the doctor: what was examined, how it is, and how to fix it; as lines for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

Emphasis = Literal["plain", "bold"]


class Level(StrEnum):
    """``error``: the router does not, or will not, work as configured; ``warning``: it may surprise you."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """``topic`` is one stable word; ``fix`` is what to do, a command where there is one; empty only for ``ok``."""

    topic: str
    level: Level
    message: str
    fix: str = ""


def ok(topic: str, message: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(topic, Level.OK, message)


def warning(topic: str, message: str, fix: str) -> Finding:
    """Return that something may surprise."""
    return Finding(topic, Level.WARNING, message, fix)


def error(topic: str, message: str, fix: str) -> Finding:
    """Return that something does not work."""
    return Finding(topic, Level.ERROR, message, fix)


def as_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return all findings as a document for programs; its members keep their meaning."""
    return {"schema_version": 2, "findings": [asdict(finding) for finding in findings]}


def as_json(findings: Sequence[Finding]) -> str:
    """Return the same as text."""
    return json.dumps(as_document(findings), indent=2)


def as_lines(
    findings: Sequence[Finding],
    paint: Callable[[str, Level | Emphasis], str] = lambda text, _: text,
    *,
    only_problems: bool = False,
) -> list[str]:
    """Return all findings for people: a line each, the fix below, a count at the end; or the problems alone.

    ``paint`` makes a text safe for a terminal and colours it.
    """
    lines = []
    for finding in findings:
        if only_problems and finding.level is Level.OK:
            continue
        headline = paint(f"{finding.topic}: {finding.message}", "plain")
        lines.append(f"{paint(f'{finding.level.value:7}', finding.level)}  {headline}")
        if finding.fix:
            lines.append(paint(f"         fix: {finding.fix}", "bold"))
    return lines if only_problems else [*lines, paint(", ".join(_counts(findings)), "bold")]


def _counts(findings: Sequence[Finding]) -> list[str]:
    errors, warnings, good = (sum(one.level is level for one in findings) for level in reversed(Level))
    return [f"{errors} error{'s' * (errors != 1)}", f"{warnings} warning{'s' * (warnings != 1)}", f"{good} ok"]
