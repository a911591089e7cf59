"""What resolution finds wrong: refused resources, and warnings about those that stay in force."""

from __future__ import annotations

from dataclasses import dataclass, field

from config.problems import Problem, Reason, Severity
from config.resources import Resource


def described(resource: Resource) -> str:
    """Return a resource with its place in a file, for messages about another one.

    An object of the API is found by its name; its resource version would make each message new.
    """
    return f"{resource.id} ({resource.origin})" if resource.origin.path else str(resource.id)


class RefusedError(Exception):
    """One resource breaks a rule. ``rule_field`` is the field to correct, inside the resource.

    ``winner`` is the resource that it conflicts with and that stays in force.
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
    """The problems found so far."""

    problems: list[Problem] = field(default_factory=list)

    def refuse(self, resource: Resource, refusal: RefusedError) -> None:
        """Record that a resource is not in force, for the resource that it conflicts with as well."""
        self._add(resource, refusal.message, refusal.rule_field, refusal.reason, Severity.ERROR)
        if refusal.winner is not None:
            loser = described(resource)
            self.warn(refusal.winner, f"{loser} conflicts with this one and is ignored: {refusal.message}")

    def warn(self, resource: Resource, message: str, rule_field: str = "") -> None:
        """Record something noteworthy about a resource that stays in force."""
        self._add(resource, message, rule_field, Reason.VALIDATION_FAILED, Severity.WARNING)

    def sorted(self) -> tuple[Problem, ...]:
        """Return the problems in the order of their places."""
        return tuple(sorted(self.problems, key=lambda one: (one.origin, one.field, one.message, str(one.resource))))

    def _add(self, resource: Resource, message: str, rule_field: str, reason: Reason, severity: Severity) -> None:
        self.problems.append(
            Problem(message, resource.origin, rule_field, severity=severity, reason=reason, resource=resource.id)
        )
