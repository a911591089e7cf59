"""A running mirror with the server in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from actors.api_mirror import actor
from actors.lib.kube.client import Json
from actors.lib.kube.mirror_signature import is_ours, mirror_key
from config.api import (
    API_VERSION,
    NODE_STATUS_PLURAL,
    PLURALS,
    ApiAccess,
    ApiCredentials,
    ApiNode,
    ApiObject,
    ApiReach,
    ApiSnapshot,
)
from config.desired import Secret
from config.outcomes import StaticSnapshot
from config.problems import Kind
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.fakes.api_server import FakeApiServer, path_of

from .examples import NODE, files

ACCESS = ApiAccess(ApiReach.REACHABLE, ApiCredentials("https://fake", token=Secret("token-1")))
NAME = "static-node-red"
L3VNIS = f"/apis/{API_VERSION}/namespaces/ns/l3vnis"


@dataclass
class Bench:
    """A running mirror with a server in memory; a watch shows at once what is there, unless ``watching`` is off."""

    settings: Settings
    server: FakeApiServer = field(default_factory=FakeApiServer)
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    ctx: ActorContext = field(default_factory=lambda: ActorContext("api_mirror"))
    watching: bool = True
    node: ApiNode | None = NODE
    #: All random numbers; 0 is the first slot of any window.
    chance: float = 0.0

    def __post_init__(self) -> None:
        self.key = mirror_key(self.settings.state_dir)
        self.server.changed = lambda: self.watch() if self.watching else None
        self.access.set(ACCESS)
        self.watch()

    async def start(self) -> None:
        await actor.run(
            self.ctx,
            settings=self.settings,
            access=self.access.reader(),
            snapshots=self.static.reader(),
            api=self.api.reader(),
            connect=self.server.connect,
            chance=lambda: self.chance,
        )

    def watch(self, **changes: Any) -> None:
        self.api.set(replace(self.snapshot(), **changes))

    def snapshot(self) -> ApiSnapshot:
        """Return what a watch would have made of the server's objects."""
        found = [_parsed(one) for one in self.mirrored()]
        ours = tuple(one for one in found if is_ours(self.key, one))
        selected = (one for one in found if one not in ours and _selects(one.spec, self.node or NODE))
        return ApiSnapshot(self.node, tuple(selected), ours, live=True)

    def mirrored(self) -> list[Json]:
        """Return the objects of the kinds that are mirrored."""
        return [one for plural in PLURALS.values() for one in self.server.find(f"/{plural}/")]

    def report(self, nodes: int) -> None:
        """Let so many nodes have reported their status."""
        for number in range(nodes):
            path = path_of(NODE_STATUS_PLURAL, f"node-{number}", "ns")
            self.server.objects[path] = {"metadata": {"name": f"node-{number}"}}

    async def files(self, *resources: Any) -> None:
        self.static.set(files(*resources))
        await self.settle()

    async def settle(self) -> None:
        """Let the actor do what it has to do now."""
        await trio.testing.wait_all_tasks_blocked()
        while self.ctx.mode != "idle":
            await trio.testing.wait_all_tasks_blocked()

    async def later(self, seconds: float) -> None:
        """Let time pass, in a test that takes ``mock_clock``."""
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(seconds)
        await self.settle()

    async def edit(self, name: str, **spec: Any) -> None:
        self.server.edit(name, lambda one: one["spec"].update(spec))
        await self.settle()

    def spec(self, name: str = NAME) -> Json:
        return next(one["spec"] for path, one in self.server.objects.items() if path.endswith(f"/{name}"))

    def names(self) -> list[str]:
        return sorted(one["metadata"]["name"] for one in self.mirrored())


def _selects(spec: Json, node: ApiNode) -> bool:
    labels = (spec.get("nodeSelector") or {}).get("matchLabels", {})
    return all(node.labels.get(key) == value for key, value in labels.items())


def _parsed(one: Json) -> ApiObject:
    metadata = one["metadata"]
    return ApiObject(
        kind=Kind(one["kind"]),
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        labels=metadata.get("labels", {}),
        annotations=metadata.get("annotations", {}),
        owners=tuple(metadata.get("ownerReferences", ())),
        spec=one["spec"],
    )
