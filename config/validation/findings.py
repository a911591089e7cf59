"""How validators collect what they refuse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from config.problems import Problem, Reason, Severity
from config.resolve.precedence import named
from config.resources import Resource


class RefusedError(Exception):
    """One resource breaks a rule. ``rule_field`` is the field to mend, inside the resource.

    ``winner`` is the resource that it clashes with and that stays in force.
    """

    def __init__(
        self,
        message: str,
        rule_field: str = "",
        reason: Reason = Reason.VALIDATION_FAILED,
        *,
        winner: Resource | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rule_field = rule_field
        self.reason = reason
        self.winner = winner


@dataclass(slots=True)
class Findings:
    """Problems found so far, and the resources they took out of force."""

    problems: list[Problem] = field(default_factory=list)

    def refuse(self, resource: Resource, refusal: RefusedError) -> None:
        """Note that a resource is not in force, and tell the one that it clashes with."""
        self.problems.append(problem_of(resource, refusal.message, refusal.rule_field, reason=refusal.reason))
        if refusal.winner is not None:
            self.warn(refusal.winner, f"{named(resource)} clashes with it and is refused: {refusal.message}")

    def warn(self, resource: Resource, message: str, rule_field: str = "") -> None:
        """Note something odd about a resource that stays in force."""
        self.problems.append(problem_of(resource, message, rule_field, severity=Severity.WARNING))


def problem_of(
    resource: Resource,
    message: str,
    rule_field: str = "",
    *,
    reason: Reason = Reason.VALIDATION_FAILED,
    severity: Severity = Severity.ERROR,
) -> Problem:
    """Return a problem attributed to a resource."""
    return Problem(
        message=message,
        origin=resource.origin,
        field=rule_field,
        severity=severity,
        reason=reason,
        kind=resource.kind,
        name=resource.name,
    )


def in_order(resources: Iterable[Resource]) -> list[Resource]:
    """Return resources by namespace and name, the order in which results are listed everywhere."""
    return sorted(resources, key=lambda resource: (resource.namespace, resource.name))
