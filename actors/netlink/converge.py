"""One pass over the kernel: observe, plan, execute, and observe again until nothing is left to do.

In come the desired state and a kernel (:class:`.kernel.Kernel`). A step that the kernel refuses fails its resource
and what depends on it, and nothing else; the rest of its unit is skipped if the step was vital, and everything else is
carried out. A refused removal belongs to no resource: it is an error of the pass, which is then incomplete. What was
refused is left to the next pass, after a pause; the observation after it is for the report only.

Steps of different units do not depend on one another, but for a resource inside another's VRF. So neighbouring units
are carried out side by side (:func:`groups`): the first step of each, then the second of each, in one batch per turn.
A unit's steps keep their order, and a step that is refused stops its unit before the next one, as it does one by one.
A unit with a step that has to be alone (``BATCHED`` has those that need not be) is carried out by itself: the journal
before a move, deletions, the wait for zebra.

Out comes a :class:`PassResult`. Its last observation is the verification: a pass that reports success has seen an empty
plan. Everything blocks, so it is called in a thread.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby

from actors.lib.metrics.counters import NETLINK_OPS
from config.desired import DesiredState, ResourceFailure
from config.problems import Kind, Reason, ResourceId

from .kernel import Kernel
from .planning.observed import Observed
from .planning.plan import Failures, plan
from .planning.steps import (
    AddAddress,
    AddUnreachable,
    AwaitZebra,
    ChangeLink,
    CreateLink,
    Plan,
    RemoveAddress,
    RemoveUnreachable,
    SetSysctl,
    Step,
)

#: Rounds of observe, plan and execute in one pass. Two are normal: the second only verifies.
ROUNDS = 4
#: Steps that may go together with those of other units.
BATCHED = (AddAddress, AddUnreachable, ChangeLink, CreateLink, RemoveAddress, RemoveUnreachable, SetSysctl)
#: Units that are carried out side by side. FRR waits for no more than these when it has something to change, and their
#: requests fit into a socket's buffers with the default sizes.
UNITS = 128

#: Why a pass has to end before the next group of units, or nothing. The argument is whether zebra has just been waited
#: for after something was written: a pass that ends there has got further, however long its observation took.
Stop = Callable[[bool], str]


@dataclass(frozen=True, slots=True)
class PassResult:
    """A pass's result, with its last observation and plan. ``steps`` is the first round's plan, for the log.

    A pass that was ``interrupted``, for that reason, has verified nothing: another one follows.
    """

    observed: Observed
    plan: Plan
    writes: int = 0
    failures: tuple[ResourceFailure, ...] = ()
    errors: tuple[str, ...] = ()
    steps: str = ""
    interrupted: str = ""

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


class Planner:
    """Plans, and keeps the last plan: it is not made again while neither what is wanted nor what exists differs."""

    def __init__(self) -> None:
        self._known: tuple[DesiredState, Collection[int] | None, Observed, Plan] | None = None

    def plan(self, desired: DesiredState, observed: Observed, withdrawn: Collection[int] | None) -> Plan:
        """Return what :func:`.planning.plan.plan` does."""
        known = self._known
        if known is None or known[0] is not desired or known[1:3] != (withdrawn, observed):
            known = self._known = desired, withdrawn, observed, plan(desired, observed, withdrawn)
        return known[3]


def converge(
    desired: DesiredState,
    kernel: Kernel,
    before_observation: Callable[[], None] = lambda: None,
    *,
    withdrawn: Collection[int] | None = None,
    stop: Stop = lambda waited: "",
    planner: Planner | None = None,
    known: Observed | None = None,
) -> PassResult:
    """Bring the kernel to a desired state. ``before_observation`` is called before each observation.

    ``planner`` is that of the passes before. ``withdrawn`` is as in :func:`.planning.plan.plan`. Once ``stop`` has a
    reason the pass ends after the present unit. The first plan is made from ``known`` if there is one: what the last
    pass has verified. It decides nothing that the observation after it does not see: a refusal, or a plan without a
    step, may come from something that has changed since.
    """
    writes, first, stuck = 0, "", False
    applied, planner = Applied(), planner or Planner()
    for _ in range(ROUNDS):
        if known is None:
            before_observation()
        observed, reused = kernel.observe(desired, known), known is not None
        known = None
        found = planner.plan(desired, observed, withdrawn)
        if reused and not found.steps:
            continue
        if not found.steps or stuck:
            break
        first = first or found.text
        applied = apply_plan(found, kernel, stop)
        writes += applied.writes
        if applied.interrupted:
            break
        stuck = applied.refused and not reused
        if reused:
            applied = Applied()
    else:
        applied = Applied(errors=("the kernel does not settle: something else keeps changing it",))
    failures: dict[ResourceId, ResourceFailure] = {f.resource: f for f in (*found.failures, *applied.failures)}
    return PassResult(observed, found, writes, tuple(failures.values()), applied.errors, first, applied.interrupted)


@dataclass(frozen=True, slots=True)
class Applied:
    """An executed plan's result. ``failures`` are those that planning did not find; ``errors`` belong to no resource;
    ``refused`` means that at least one step was, ``interrupted`` is why steps are left."""

    writes: int = 0
    failures: tuple[ResourceFailure, ...] = ()
    errors: tuple[str, ...] = ()
    refused: bool = False
    interrupted: str = ""


@dataclass
class _Progress:
    plan: Plan
    failures: Failures
    #: Units whose remaining steps are pointless, and units of which something is missing.
    broken: set[str] = field(default_factory=set)
    partial: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether anything was refused."""
        return bool(self.broken or self.partial)

    def skips(self, step: Step) -> bool:
        """Return whether a step is pointless now: its own unit or one that it needs broke, or its parent failed."""
        parent = None if step.resource is None else self.plan.model.parents.get(step.resource)
        stopped = self.broken | self.partial if step.completes else self.broken
        return parent in self.failures or not stopped.isdisjoint({step.unit, *step.needs} - {""})

    def fail(self, step: Step, message: str) -> None:
        follows = step.vital and step.unit in self.broken
        (self.broken if step.vital else self.partial).add(step.unit)
        if step.resource is None:
            self.errors.append(message)
            return
        reason = Reason.UNDERLAY_FAILED if step.resource.kind is Kind.UNDERLAY else Reason.OVERLAY_ATTACHMENT_FAILED
        known = self.failures.get(step.resource)
        if known is not None and not follows:
            # Neither follows from the other: both have to be fixed.
            self.failures[step.resource] = replace(known, message=f"{known.message}; {message}")
        self.failures.add(step.resource, reason, message)


def groups(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Yield a plan's steps in parts, in order: units that go side by side, or one unit with a step that is alone."""
    together: list[Step] = []
    units: set[str] = set()
    for unit, found in groupby(steps, lambda step: step.unit):
        part = tuple(found)
        alone = not unit or not all(isinstance(step, BATCHED) for step in part)
        if together and (alone or len(units) == UNITS):
            yield tuple(together)
            together, units = [], set()
        if alone:
            yield part
        else:
            together += part
            units.add(unit)
    if together:
        yield tuple(together)


@cache
def _operation(step: str) -> str:
    """Return the name of a kind of step as the metrics have it: ``create_link``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", step).lower()


def apply_plan(plan: Plan, kernel: Kernel, stop: Stop = lambda waited: "") -> Applied:
    """Carry out every step that still makes sense, in order; between two groups of units ``stop`` may end that."""
    progress = _Progress(plan, Failures(plan.model, plan.failures))
    writes, interrupted, waited = 0, "", False
    for group in groups(plan.steps):
        if interrupted := stop(waited and writes > 0):
            break
        waited = isinstance(group[0], AwaitZebra)
        batches = _Batches(group, progress)
        while batch := batches.next():
            for step, refusal in zip(batch, kernel.apply_all(batch), strict=True):
                if step.writes_kernel:
                    NETLINK_OPS.count(_operation(type(step).__name__), "ok" if refusal is None else "refused")
                if refusal is None:
                    writes += step.writes_kernel
                else:
                    progress.fail(step, f"{step}: {refusal}")
    progress.failures.spread()
    found = tuple(failure for failure in progress.failures.values() if failure not in plan.failures)
    return Applied(writes, found, tuple(progress.errors), progress.refused, interrupted)


class _Batches:
    """The batches of one group of steps: each has the next step of every unit that does not have to wait."""

    def __init__(self, steps: Sequence[Step], progress: _Progress) -> None:
        self._progress = progress
        self._parents = progress.plan.model.parents
        self._left: dict[str, deque[Step]] = {}
        for step in steps:
            self._left.setdefault(step.unit, deque()).append(step)

    def next(self) -> list[Step]:
        """Return the next batch, whose steps do not depend on one another; empty when nothing is left.

        A resource inside another's VRF waits for all of the other's steps.
        """
        found: list[Step] = []
        while self._left and not found:
            busy = {left[0].resource for left in self._left.values()}
            for unit, left in list(self._left.items()):
                resource = left[0].resource
                parent = None if resource is None else self._parents.get(resource)
                if parent is not None and parent in busy:
                    continue
                step = left.popleft()
                if not self._progress.skips(step):
                    found.append(step)
                if not left:
                    del self._left[unit]
        return found
