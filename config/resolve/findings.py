"""What resolution finds wrong: refused resources, and warnings about those that stay in force."""

from __future__ import annotations

from dataclasses import dataclass, field

from config.problems import Problem, Reason, Severity
from config.resources import Resource


@dataclass(frozen=True, slots=True)
class Claim:
    """A number, a name or an address range that a resource occupies, by the ``field`` that says so; or it as a whole.

    As text: the resource with the field's place in a file. An object of the API is found by its name; its resource
    version would make each message new.
    """

    resource: Resource
    field: str = ""

    def __str__(self) -> str:
        origin = self.resource.place_of(self.field)
        return f"{self.resource.id} ({origin})" if origin.path else str(self.resource.id)


class RefusedError(Exception):
    """One resource breaks a rule. ``rule_field`` is the field to correct, inside the resource.

    ``winner`` is what it conflicts with and what stays in force.
    """

    def __init__(
        self,
        message: str,
        rule_field: str = "",
        reason: Reason = Reason.VALIDATION_FAILED,
        *,
        winner: Claim | None = None,
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
            loser, winner = Claim(resource, refusal.rule_field), refusal.winner
            message = f"{loser} conflicts with this one and is ignored: {refusal.message}"
            self.warn(winner.resource, message, winner.field)

    def warn(self, resource: Resource, message: str, rule_field: str = "") -> None:
        """Record something noteworthy about a resource that stays in force."""
        self._add(resource, message, rule_field, Reason.VALIDATION_FAILED, Severity.WARNING)

    def sorted(self) -> tuple[Problem, ...]:
        """Return the problems in the order of their places."""
        return tuple(sorted(self.problems, key=lambda one: (one.origin, one.field, one.message, str(one.resource))))

    def _add(self, resource: Resource, message: str, rule_field: str, reason: Reason, severity: Severity) -> None:
        place = resource.place_of(rule_field)
        self.problems.append(
            Problem(message, place, rule_field, severity=severity, reason=reason, resource=resource.id)
        )
