"""The state of this node: the newest value of each channel, and what is wrong.

The actor writes nothing before it has credentials, the API server's current state, its Node and a configuration:
:meth:`ChannelValues.node_state` returns all of that as one :class:`NodeState`, or what is missing. From it follow the
failures of single resources and of the router as a whole. Their texts hold nothing that changes by itself, such as an
object's resource version: they go into the API, and each change of them is a write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from config.api import ApiAccess, ApiCredentials, ApiNode, ApiSnapshot
from config.desired import DesiredState, ResourceFailure
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.problems import RUNNING_KEPT, Kind, Origin, Problem, Reason, ResourceId, errors


@dataclass(frozen=True, slots=True)
class NodeState:
    """Everything that is reported. ``namespace`` is the program's own, and that of resources from files."""

    namespace: str
    credentials: ApiCredentials
    api: ApiSnapshot
    node: ApiNode
    desired: DesiredState
    frr: FrrOutcome | None = None
    kernel: KernelOutcome | None = None
    health: HealthReport | None = None

    @property
    def verified(self) -> bool:
        """Whether the newest configuration is in force, completely."""
        health = self.health
        return bool(health and health.verified and health.generation == self.desired.generation)

    @property
    def origins(self) -> dict[ResourceId, Origin]:
        """Return where each resource of the newest configuration was written."""
        return self.desired.origins()


@dataclass(frozen=True, slots=True)
class ChannelValues:
    """The newest value of each channel, None where there is none yet."""

    access: ApiAccess | None = None
    api: ApiSnapshot | None = None
    desired: DesiredState | None = None
    frr: FrrOutcome | None = None
    kernel: KernelOutcome | None = None
    health: HealthReport | None = None

    @property
    def credentials(self) -> ApiCredentials | None:
        """Return the API server's credentials, if there are any."""
        return self.access.credentials if self.access else None

    def node_state(self, namespace: str) -> NodeState | str:
        """Return the state of the node, or what the actor waits for."""
        if self.credentials is None:
            return "for credentials of an API server"
        if self.api is None or not self.api.live:
            return "for the API's state"
        if self.api.node is None:
            return "for this node's Node object"
        if self.desired is None:
            return "for a configuration"
        stages = (self.frr, self.kernel, self.health)
        return NodeState(namespace, self.credentials, self.api, self.api.node, self.desired, *stages)


@dataclass(frozen=True, slots=True)
class Failure:
    """One resource that is not, or not wholly, in force. ``resource`` None: a whole file, ``origin.path``.

    ``of_underlay``: it is the router's underlay, or one without which nothing on the node changes; any other Underlay
    is refused like any other resource. ``in_force`` says what stays in force meanwhile.
    """

    resource: ResourceId | None
    reason: Reason
    message: str
    origin: Origin = field(default_factory=Origin)
    of_underlay: bool = False
    in_force: str = ""


def resource_failures(state: NodeState) -> tuple[Failure, ...]:
    """Return what is wrong with resources, each failure once."""
    refused = (_of_problem(problem, state.desired) for problem in errors(state.desired.problems))
    return tuple(dict.fromkeys((*refused, *_of_stages(state))))


def router_failures(state: NodeState) -> Iterator[tuple[Reason, str]]:
    """Yield failures of the whole router: FRR or the kernel refuses the configuration, or a daemon does not run.

    Only the first failing stage is named: the kernel follows FRR.
    """
    if state.frr is not None and not state.frr.applied:
        yield Reason.FRR_CONFIGURATION_FAILED, _prefixed("FRR", state.frr.error)
    elif state.kernel is not None and not state.kernel.applied:
        yield Reason.OVERLAY_ATTACHMENT_FAILED, _prefixed("kernel", state.kernel.error)
    elif state.health is not None and state.health.problems:
        yield Reason.FRR_CONFIGURATION_FAILED, "; ".join(state.health.problems)


def duplicate_addresses(state: NodeState) -> Iterator[str]:
    """Yield messages about addresses of this node that other nodes have, whether or not the router has them."""
    for problem in state.desired.problems:
        if problem.reason is Reason.DUPLICATE_INDEX:
            yield f"{problem.message} ({problem.in_force})"


def _of_problem(problem: Problem, desired: DesiredState) -> Failure:
    field = f"{problem.field}: " if problem.field else ""
    tail = f" ({problem.in_force})" if problem.in_force else ""
    message = f"{_file_and_line(problem.origin)}{field}{problem.message}{tail}"
    of_underlay = problem.kind is Kind.UNDERLAY and (
        problem.in_force == RUNNING_KEPT
        or problem.reason is Reason.DUPLICATE_INDEX
        or (desired.underlay is not None and problem.resource == desired.underlay.resource)
    )
    return Failure(problem.resource, problem.reason, message, problem.origin, of_underlay, problem.in_force)


def _of_stages(state: NodeState) -> Iterator[Failure]:
    """Yield what failed in the newest configuration, or in an older one with the same version of the resource."""
    origins = state.origins
    for outcome in (state.frr, state.kernel):
        if outcome is not None:
            older = outcome.desired.origins()
            for failure in outcome.failures:
                origin = origins.get(failure.resource)
                if origin is not None and origin == older.get(failure.resource):
                    yield _of_failure(failure, origin)
    if state.health is not None and state.health.generation == state.desired.generation:
        for failure in state.health.failures:
            yield _of_failure(failure, origins.get(failure.resource, failure.origin))


def _of_failure(failure: ResourceFailure, origin: Origin) -> Failure:
    of_underlay = failure.resource.kind is Kind.UNDERLAY
    return Failure(failure.resource, failure.reason, f"{_file_and_line(origin)}{failure.message}", origin, of_underlay)


def _file_and_line(origin: Origin) -> str:
    """Return the place to fix; an object's name is added wherever the message is shown."""
    return f"{Origin(path=origin.path, line=origin.line)}: " if origin.path else ""


def _prefixed(name: str, error: str) -> str:
    error = error or "not applied"
    return error if error.startswith(name) else f"{name}: {error}"
