"""One pass over the kernel: observe, plan, apply, and look again until nothing is left to do.

The last look is the verification: a pass that says "applied" has seen an empty plan. Blocks; called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from config.desired import DesiredState, ResourceFailure
from config.problems import ResourceId

from .execute import Applied, apply_plan
from .planning.observed import Observed
from .planning.plan import model_for, plan_model, wish_for
from .planning.steps import Plan
from .wire.kernel import Kernel

#: Rounds of observe-plan-apply in one pass. Two are normal: the second only looks.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass came to. ``steps`` is the first round's text, for the log."""

    observed: Observed
    plan: Plan
    writes: int = 0
    failures: tuple[ResourceFailure, ...] = ()
    errors: tuple[str, ...] = ()
    steps: str = ""
    mtu: int | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do but what failed by name."""
        return not self.errors

    @property
    def clean(self) -> bool:
        """Whether nothing failed at all."""
        return not self.errors and not self.failures


def look(desired: DesiredState, kernel: Kernel, persisted: dict[str, int]) -> tuple[Observed, Plan]:
    """Observe and plan without acting."""
    observed = kernel.observe(wish_for(desired, persisted))
    return observed, plan_model(model_for(desired, observed), observed)


def converge(
    desired: DesiredState, kernel: Kernel, persisted: dict[str, int], before_look: Callable[[], None] = lambda: None
) -> Pass:
    """Bring the kernel to a desired state. ``before_look`` is called before each observation."""
    writes, first, stuck = 0, "", False
    applied = Applied()
    for turn in range(ROUNDS):
        before_look()
        observed = kernel.observe(wish_for(desired, persisted))
        model = model_for(desired, observed)
        plan = plan_model(model, observed)
        if turn == 0 and plan.steps:
            first = plan.text
        if not plan.steps or stuck:
            break
        applied = apply_plan(plan, model, kernel)
        writes += applied.writes
        # What the kernel refused is for the next pass, after a pause; the look in between is for the report.
        stuck = applied.refused
    else:
        applied = Applied(errors=("the kernel does not settle: something else keeps changing it",))
    failures: dict[ResourceId, ResourceFailure] = {f.resource: f for f in (*plan.failures, *applied.failures)}
    return Pass(observed, plan, writes, tuple(failures.values()), applied.errors, first, model.mtu)
