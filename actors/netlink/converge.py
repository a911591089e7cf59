"""One pass over the kernel: observe, plan, execute, and observe again until nothing is left to do.

In come the desired state and a kernel (:class:`.wire.kernel.Kernel`). The last observation is the verification: a pass
that reports success has seen an empty plan. What the kernel refused is left to the next pass, after a pause; the
observation after it is for the report only. Out comes a :class:`Pass`. Everything blocks, so it is called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from config.desired import DesiredState, ResourceFailure, ResourceId

from .execute import Applied, apply_plan
from .planning.observed import Observed
from .planning.plan import plan
from .planning.steps import Plan
from .wire.kernel import Kernel

#: Rounds of observe, plan and execute in one pass. Two are normal: the second only verifies.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass's result, with its last observation and plan. ``steps`` is the first round's plan, for the log."""

    observed: Observed
    plan: Plan
    writes: int = 0
    failures: tuple[ResourceFailure, ...] = ()
    errors: tuple[str, ...] = ()
    steps: str = ""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do, except for resources that failed."""
        return not self.errors

    @property
    def clean(self) -> bool:
        """Whether nothing failed at all."""
        return not self.errors and not self.failures


def look(desired: DesiredState, kernel: Kernel) -> tuple[Observed, Plan]:
    """Observe and plan without acting."""
    observed = kernel.observe(desired)
    return observed, plan(desired, observed)


def converge(desired: DesiredState, kernel: Kernel, before_look: Callable[[], None] = lambda: None) -> Pass:
    """Bring the kernel to a desired state. ``before_look`` is called before each observation."""
    writes, first, stuck = 0, "", False
    applied = Applied()
    for turn in range(ROUNDS):
        before_look()
        observed, found = look(desired, kernel)
        if turn == 0 and found.steps:
            first = found.text
        if not found.steps or stuck:
            break
        applied = apply_plan(found, kernel)
        writes += applied.writes
        stuck = applied.refused
    else:
        applied = Applied(errors=("the kernel does not settle: something else keeps changing it",))
    failures: dict[ResourceId, ResourceFailure] = {f.resource: f for f in (*found.failures, *applied.failures)}
    return Pass(observed, found, writes, tuple(failures.values()), applied.errors, first)
