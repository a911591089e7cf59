"""One pass over the kernel: observe, plan, execute, and observe again until nothing is left to do.

In come the desired state and a kernel (:class:`.kernel.Kernel`). A step that the kernel refuses fails its resource
and what depends on it, and nothing else; the rest of its unit is skipped if the step was vital, and everything else is
carried out. A refused removal belongs to no resource: it is an error of the pass, which is then incomplete. What was
refused is left to the next pass, after a pause; the observation after it is for the report only.

Out comes a :class:`Pass`. Its last observation is the verification: a pass that reports success has seen an empty
plan. Everything blocks, so it is called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from config.desired import DesiredState, ResourceFailure
from config.problems import Kind, Reason, ResourceId

from .kernel import Kernel
from .planning.observed import Observed
from .planning.plan import Failures, plan
from .planning.steps import Plan, Step
from .wire.socket import KernelRefusal

#: Rounds of observe, plan and execute in one pass. Two are normal: the second only verifies.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass's result, with its last observation and plan. ``steps`` is the first round's plan, for the log.

    An ``interrupted`` pass has verified nothing: another one follows.
    """

    observed: Observed
    plan: Plan
    writes: int = 0
    failures: tuple[ResourceFailure, ...] = ()
    errors: tuple[str, ...] = ()
    steps: str = ""
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do, except for resources that failed."""
        return not self.errors

    @property
    def clean(self) -> bool:
        """Whether nothing failed at all."""
        return not self.errors and not self.failures


def observe_and_plan(
    desired: DesiredState, kernel: Kernel, withdrawn: Collection[int] | None = None
) -> tuple[Observed, Plan]:
    """Observe and plan without acting."""
    observed = kernel.observe(desired)
    return observed, plan(desired, observed, withdrawn)


def converge(
    desired: DesiredState,
    kernel: Kernel,
    before_observation: Callable[[], None] = lambda: None,
    *,
    withdrawn: Collection[int] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Pass:
    """Bring the kernel to a desired state. ``before_observation`` is called before each observation.

    ``withdrawn`` is as in :func:`.planning.plan.plan`. Once ``stop`` says so the pass ends after the present unit.
    """
    writes, first, stuck = 0, "", False
    applied = Applied()
    for turn in range(ROUNDS):
        before_observation()
        observed, found = observe_and_plan(desired, kernel, withdrawn)
        if turn == 0 and found.steps:
            first = found.text
        if not found.steps or stuck:
            break
        applied = apply_plan(found, kernel, stop)
        writes += applied.writes
        stuck = applied.refused
        if applied.interrupted:
            break
    else:
        applied = Applied(errors=("the kernel does not settle: something else keeps changing it",))
    failures: dict[ResourceId, ResourceFailure] = {f.resource: f for f in (*found.failures, *applied.failures)}
    return Pass(observed, found, writes, tuple(failures.values()), applied.errors, first, applied.interrupted)


@dataclass(frozen=True, slots=True)
class Applied:
    """An executed plan's result. ``failures`` are those that planning did not find; ``errors`` belong to no resource;
    ``refused`` means that at least one step was, ``interrupted`` that steps are left."""

    writes: int = 0
    failures: tuple[ResourceFailure, ...] = ()
    errors: tuple[str, ...] = ()
    refused: bool = False
    interrupted: bool = False


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


def apply_plan(plan: Plan, kernel: Kernel, stop: Callable[[], bool] = lambda: False) -> Applied:
    """Carry out every step that still makes sense, in order; between two units ``stop`` may end that."""
    progress = _Progress(plan, Failures(plan.model, plan.failures))
    writes, unit, interrupted = 0, "", False
    for step in plan.steps:
        if step.unit != unit and stop():
            interrupted = True
            break
        unit = step.unit
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
    return Applied(writes, found, tuple(progress.errors), bool(progress.broken or progress.partial), interrupted)
