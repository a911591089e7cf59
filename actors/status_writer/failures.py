"""What is wrong now, each thing once and named: with resources, and with the router as a whole.

Texts hold nothing that changes by itself, such as an object's resource version: they go into the API, and would be
written indefinitely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from config.desired import ResourceFailure
from config.problems import Origin, Problem, Reason, ResourceId, errors

from .inputs import Basis, origins_of


@dataclass(frozen=True, slots=True)
class Blame:
    """One resource that is not, or not wholly, in force. ``resource`` None: a file as a whole, ``origin.path``."""

    resource: ResourceId | None
    reason: Reason
    message: str
    origin: Origin = field(default_factory=Origin)

    @property
    def from_file(self) -> bool:
        """Whether it is a file that has to be mended."""
        return bool(self.origin.path)


def blames(basis: Basis, namespace: str) -> tuple[Blame, ...]:
    """Return what is wrong with resources; ``namespace`` is that of resources from files."""
    refused = (_of_problem(problem) for problem in errors(basis.desired.problems))
    return tuple(dict.fromkeys((*refused, *_of_stages(basis))))


def router_faults(basis: Basis) -> Iterator[tuple[Reason, str]]:
    """Yield what is wrong with no single resource: FRR or the kernel does not take the state, a daemon is gone.

    Of the stages only the first that fails is named: the kernel's turn comes after FRR's.
    """
    if basis.frr is not None and not basis.frr.applied:
        yield Reason.FRR_CONFIGURATION_FAILED, _prefixed("FRR", basis.frr.error)
    elif basis.kernel is not None and not basis.kernel.applied:
        yield Reason.OVERLAY_ATTACHMENT_FAILED, _prefixed("kernel", basis.kernel.error)
    elif basis.health is not None and basis.health.problems:
        yield Reason.FRR_CONFIGURATION_FAILED, "; ".join(basis.health.problems)


def _of_problem(problem: Problem) -> Blame:
    field = f"{problem.field}: " if problem.field else ""
    tail = f" ({problem.in_force})" if problem.in_force else ""
    return Blame(
        problem.resource, problem.reason, f"{_place(problem.origin)}{field}{problem.message}{tail}", problem.origin
    )


def _of_stages(basis: Basis) -> Iterator[Blame]:
    """Yield what failed while carrying out the newest state, or an older one with the same version of the resource."""
    origins = origins_of(basis.desired)
    for outcome in (basis.frr, basis.kernel):
        if outcome is not None:
            older = origins_of(outcome.desired)
            for failure in outcome.failures:
                origin = origins.get(failure.resource)
                if origin is not None and origin == older.get(failure.resource):
                    yield _of_failure(failure, origin)
    if basis.health is not None and basis.health.generation == basis.desired.generation:
        for failure in basis.health.failures:
            yield _of_failure(failure, origins.get(failure.resource, failure.origin))


def _of_failure(failure: ResourceFailure, origin: Origin) -> Blame:
    return Blame(failure.resource, failure.reason, f"{_place(origin)}{failure.message}", origin)


def _place(origin: Origin) -> str:
    """Return the file and line to mend; an object is named by whoever shows the message."""
    return f"{Origin(path=origin.path, line=origin.line)}: " if origin.path else ""


def _prefixed(name: str, error: str) -> str:
    error = error or "not applied"
    return error if error.startswith(name) else f"{name}: {error}"
