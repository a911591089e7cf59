"""The things that this actor does, alike in shape: each looks, says when it has something to send, and sends it.

They fail alone: what RBAC forbids one of them does not stop another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from actors.lib.kube.client import KubeClient
from config.problems import ResourceId

from .inputs import Basis
from .object_status import Verdict


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to speak of. ``namespace`` is the program's own."""

    basis: Basis
    verdicts: Mapping[ResourceId, Verdict]
    namespace: str


class Duty(Protocol):
    """Times are seconds of one clock."""

    name: str

    def see(self, scene: Scene, now: float) -> None:
        """Take in what there is; called for every change, and when something is due."""

    def due(self, now: float) -> float:
        """Return when :meth:`act` is to be called, infinity for never, or :meth:`see`."""

    async def act(self, client: KubeClient, now: float) -> None:
        """Send one thing, if one is due. Raises the errors of the client."""
