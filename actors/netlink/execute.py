"""Executing a plan, step by step.

A step that the kernel refuses fails its resource and what depends on it, and nothing else; the rest of its unit is
skipped if the step was vital, everything else is still carried out. A refused removal belongs to no resource: it is an
error of the pass, which is then incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from config.desired import ResourceFailure
from config.problems import Kind, Reason

from .planning.plan import Failures
from .planning.steps import Plan, Step
from .wire.kernel import Kernel
from .wire.socket import KernelRefusal


@dataclass(frozen=True, slots=True)
class Applied:
    """An executed plan's result. ``failures`` are those that planning did not find; ``errors`` belong to no resource;
    ``refused`` means that at least one step was."""

    writes: int = 0
    failures: tuple[ResourceFailure, ...] = ()
    errors: tuple[str, ...] = ()
    refused: bool = False


@dataclass
class _Progress:
    plan: Plan
    failures: Failures
    #: Units whose remaining steps are pointless, and units of which something is missing.
    broken: set[str] = field(default_factory=set)
    partial: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def skips(self, step: Step) -> bool:
        """Return whether a step is pointless now: its own unit broke, or the resource that it depends on failed."""
        parent = None if step.resource is None else self.plan.model.parents.get(step.resource)
        stopped = self.broken | self.partial if step.completes else self.broken
        return (bool(step.unit) and step.unit in stopped) or parent in self.failures

    def fail(self, step: Step, message: str) -> None:
        (self.broken if step.vital else self.partial).add(step.unit)
        if step.resource is None:
            self.errors.append(message)
            return
        reason = Reason.UNDERLAY_FAILED if step.resource.kind is Kind.UNDERLAY else Reason.OVERLAY_ATTACHMENT_FAILED
        known = self.failures.get(step.resource)
        if known is not None and not step.vital:
            # Neither follows from the other: both have to be fixed.
            self.failures[step.resource] = replace(known, message=f"{known.message}; {message}")
        self.failures.add(step.resource, reason, message)


def apply_plan(plan: Plan, kernel: Kernel) -> Applied:
    """Carry out every step that still makes sense, in order."""
    progress = _Progress(plan, Failures(plan.model, plan.failures))
    writes = 0
    for step in plan.steps:
        if progress.skips(step):
            continue
        try:
            kernel.apply(step)
        except (KernelRefusal, OSError) as error:
            progress.fail(step, f"{step}: {error}")
        else:
            writes += step.writes_kernel
    progress.failures.spread()
    found = tuple(failure for failure in progress.failures.values() if failure not in plan.failures)
    return Applied(writes, found, tuple(progress.errors), refused=bool(progress.broken or progress.partial))
