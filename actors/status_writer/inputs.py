"""Everything that this actor is told, and what of it must be there before it says anything."""

from __future__ import annotations

from dataclasses import dataclass

from config.api import ApiAccess, ApiCredentials, ApiNode, ApiSnapshot
from config.desired import DesiredState
from config.outcomes import FrrOutcome, HealthReport, KernelOutcome
from config.problems import Origin, ResourceId


@dataclass(frozen=True, slots=True)
class Inputs:
    """The newest value of each channel, None where there is none yet."""

    access: ApiAccess | None = None
    api: ApiSnapshot | None = None
    desired: DesiredState | None = None
    frr: FrrOutcome | None = None
    kernel: KernelOutcome | None = None
    health: HealthReport | None = None

    def basis(self) -> Basis | str:
        """Return what is needed to speak, or what is waited for."""
        credentials = self.access.credentials if self.access else None
        if credentials is None:
            return "for credentials of an API server"
        if self.api is None or not self.api.live:
            return "for the API's state"
        if self.api.node is None:
            return "for this node's Node object"
        if self.desired is None:
            return "for a configuration"
        return Basis(credentials, self.api, self.api.node, self.desired, self.frr, self.kernel, self.health)


@dataclass(frozen=True, slots=True)
class Basis:
    """What is spoken of, ``desired`` and what became of it, and to whom: the server that ``api`` shows as it is now."""

    credentials: ApiCredentials
    api: ApiSnapshot
    node: ApiNode
    desired: DesiredState
    frr: FrrOutcome | None = None
    kernel: KernelOutcome | None = None
    health: HealthReport | None = None

    @property
    def verified(self) -> bool:
        """Whether the newest state is in force, completely."""
        health = self.health
        return bool(health and health.verified and health.generation == self.desired.generation)


def origins_of(state: DesiredState) -> dict[ResourceId, Origin]:
    """Return where each resource that takes part in a state was written."""
    single = (part for part in (state.underlay, state.passthrough) if part is not None)
    parts = (*single, *state.l3vnis, *state.l2vnis, *state.raw_frr)
    return {part.resource: part.origin for part in parts}
