"""All checks, in the order in which a person would look: the ground first, then what stands on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import credentials_checks, frr_checks, machine_checks, router_checks
from .facts import Facts
from .findings import Finding, warning

#: Judges one aspect of the facts; says nothing of what could not be looked at.
Check = Callable[[Facts], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    *machine_checks.CHECKS,
    *frr_checks.CHECKS,
    *credentials_checks.CHECKS,
    *router_checks.CHECKS,
)


def examine(facts: Facts) -> list[Finding]:
    """Return every finding, good ones included."""
    findings = [finding for check in CHECKS for finding in check(facts)]
    return [*findings, *(_gap(gap.area, gap.reason) for gap in facts.gaps)]


def _gap(area: str, reason: str) -> Finding:
    return warning(area, f"could not be looked at: {reason}", "run 'openperouter doctor' as root, and mend the cause")
