"""Carrying a plan out: dull on purpose.

A step that the kernel refuses fails its resource and what depends on it, and only that; everything else goes on, the
rest of a unit too if the step was not vital to it. What the kernel refused to take away belongs to no resource and
makes the pass incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from config.desired import ResourceFailure
from config.problems import Kind, Origin, Reason, ResourceId

from .planning.plan import dependency_message
from .planning.steps import Plan, Step
from .planning.wanted import KernelModel
from .wire.kernel import Kernel
from .wire.socket import KernelRefusal


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan. ``failures`` are those that planning did not know of; ``errors`` belong to no resource;
    ``refused`` says that any step at all was."""

    writes: int = 0
    failures: tuple[ResourceFailure, ...] = ()
    errors: tuple[str, ...] = ()
    refused: bool = False


@dataclass
class _Progress:
    model: KernelModel
    failures: dict[ResourceId, ResourceFailure]
    #: Units whose rest makes no sense, and units of which something is missing.
    broken: set[str] = field(default_factory=set)
    partial: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    writes: int = 0

    def skips(self, step: Step) -> bool:
        """Say whether a step is pointless now: its own unit broke, or what it hangs on did."""
        parents = self.model.parents.get(step.resource, ()) if step.resource is not None else ()
        stopped = self.broken | self.partial if step.completes else self.broken
        return (bool(step.unit) and step.unit in stopped) or any(parent in self.failures for parent in parents)

    def fail(self, step: Step, message: str) -> None:
        (self.broken if step.vital else self.partial).add(step.unit)
        if step.resource is None:
            self.errors.append(message)
            return
        reason = Reason.UNDERLAY_FAILED if step.resource.kind is Kind.UNDERLAY else Reason.OVERLAY_ATTACHMENT_FAILED
        known = self.failures.get(step.resource)
        if known is not None and not step.vital:
            # One does not follow from the other: each has to be mended.
            self.failures[step.resource] = replace(known, message=f"{known.message}; {message}")
        self._record(step.resource, reason, message)

    def spread(self) -> None:
        for resource, parents in self.model.parents.items():
            for parent in parents:
                if parent in self.failures:
                    self._record(resource, Reason.DEPENDENCY_FAILED, dependency_message(parent))

    def _record(self, resource: ResourceId, reason: Reason, message: str) -> None:
        origin = self.model.origins.get(resource, Origin())
        self.failures.setdefault(resource, ResourceFailure(resource, reason, message, origin))


def apply_plan(plan: Plan, model: KernelModel, kernel: Kernel) -> Applied:
    """Carry out every step that still makes sense, in order."""
    progress = _Progress(model, {failure.resource: failure for failure in plan.failures})
    for step in plan.steps:
        if progress.skips(step):
            continue
        try:
            kernel.apply(step)
        except (KernelRefusal, OSError) as error:
            progress.fail(step, f"{step.text}: {error}")
        else:
            progress.writes += step.writes_kernel
    progress.spread()
    found = tuple(failure for failure in progress.failures.values() if failure not in plan.failures)
    return Applied(progress.writes, found, tuple(progress.errors), refused=bool(progress.broken or progress.partial))
