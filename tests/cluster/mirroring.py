"""A mirror that runs against the real API server: files on one side, the actor that follows the server on the other.

The mirror uses a service account that may do what its docstring lists and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from actors.api_mirror import actor
from actors.crd_watch import actor as crd_watch
from actors.lib.kube.client import KubeClient
from actors.lib.kube.mirror_signature import is_ours, mirror_key
from config.api import (
    API_VERSION,
    GROUP,
    NODE_STATUS_PLURAL,
    PLURALS,
    ApiAccess,
    ApiCredentials,
    ApiNode,
    ApiObject,
    ApiReach,
    ApiSnapshot,
)
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind
from config.settings import Settings
from config.sources.static_files import read_directory
from config.store.last_good import LastGood
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.cluster.harness import PATIENCE, Json, make, make_node, service_account

#: The least that the mirror works with.
VERBS: Final = ("create", "patch", "delete", "get")


def collection(namespace: str, kind: Kind) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURALS[kind]}"


async def mirror_account(client: KubeClient, namespace: str, verbs: Sequence[str] = VERBS) -> ApiCredentials:
    """Return credentials that may do these verbs to our kinds in one namespace."""
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [GROUP], "resources": list(PLURALS.values()), "verbs": list(verbs)}
    counting = {"apiGroups": [GROUP], "resources": [NODE_STATUS_PLURAL], "verbs": ["list"]}
    who = {"kind": "ServiceAccount", "name": "mirror", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mirror"}
    credentials = await service_account(client, namespace, "mirror")
    await make(client, f"{role}/roles", {"metadata": {"name": "mirror"}, "rules": [rule, counting]})
    await make(
        client, f"{role}/rolebindings", {"metadata": {"name": "mirror"}, "roleRef": reference, "subjects": [who]}
    )
    return credentials


@dataclass
class Bench:
    """Files, a Node, a mirror, and an administrator who reads and edits."""

    admin: KubeClient
    namespace: str
    settings: Settings
    node: ApiNode
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    ctx: ActorContext = field(default_factory=lambda: ActorContext("api_mirror"))
    watch_access: Latest[ApiAccess] = field(default_factory=lambda: Latest("watch_access"))

    async def mirror(self) -> None:
        """Run the actor."""
        await actor.run(
            self.ctx,
            settings=self.settings,
            access=self.access.reader(),
            snapshots=self.static.reader(),
            api=self.api.reader(),
        )

    async def watch(self) -> None:
        """Run the actor that follows the API server, with an administrator's credentials."""
        await crd_watch.run(
            ActorContext("crd_watch"),
            settings=self.settings,
            access=self.watch_access.reader(),
            snapshots=self.static.reader(),
            out=self.api,
        )

    def write(self, name: str, text: str) -> None:
        """Write a configuration file and publish the resources of all of them."""
        (self.settings.configs_dir / name).write_text(text)
        self.read()

    def read(self) -> None:
        """Publish the resources of the files."""
        found = read_directory(self.settings.configs_dir, self.node.name, LastGood(), namespace=self.namespace)
        self.static.set(StaticSnapshot(NodeIdentity(self.node.name, 0), found.resources, found.problems))

    async def stored(self) -> dict[str, Json]:
        """Return all objects of our kinds in the namespace, by name."""
        pages = [await self.admin.get(collection(self.namespace, kind)) for kind in Kind]
        return {one["metadata"]["name"]: one for page in pages for one in page["items"]}

    async def until(self, what: Callable[[dict[str, Json]], bool]) -> dict[str, Json]:
        """Wait until the stored objects are as wanted, and the mirror has nothing more to do."""
        stored: dict[str, Json] = {}
        with trio.move_on_after(PATIENCE):
            while True:
                stored = await self.stored()
                if what(stored) and self.ctx.mode == "idle" and self.converged(stored):
                    return stored
                await trio.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE:g} s; {self.ctx.facts}; {stored}")

    def converged(self, stored: dict[str, Json]) -> bool:
        """Whether the snapshot that the mirror has is of what is stored, and it finds nothing to do."""
        snapshot = self.api.peek()
        if snapshot is None or not snapshot.live or "failing" in self.ctx.facts:
            return False
        key = mirror_key(self.settings.state_dir)
        there = {one["metadata"]["uid"]: parsed(Kind(one["kind"]), one) for one in stored.values()}
        ours = {uid: one.resource_version for uid, one in there.items() if is_ours(key, one)}
        return ours == {one.uid: one.resource_version for one in snapshot.mirrored}


@asynccontextmanager
async def mirroring(
    admin: KubeClient, namespace: str, state: Path, verbs: Sequence[str] = VERBS
) -> AsyncIterator[Bench]:
    """Run a mirror with a watch for a new Node of the namespace's name."""
    node = (await make_node(admin, namespace))["metadata"]
    (state / "configs").mkdir(exist_ok=True)
    settings = Settings(state_dir=state, namespace=namespace, configs_dir=state / "configs")
    credentials = await mirror_account(admin, namespace, verbs)
    bench = Bench(admin, namespace, settings, ApiNode(node["name"], node["uid"], node["labels"]))
    bench.access.set(ApiAccess(ApiReach.REACHABLE, credentials))
    bench.watch_access.set(ApiAccess(ApiReach.REACHABLE, admin.credentials))
    bench.read()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.watch)
        nursery.start_soon(bench.mirror)
        yield bench
        nursery.cancel_scope.cancel()
    # A namespace never goes away here, and what selects every node would be seen by other tests.
    for kind in Kind:
        await admin.delete(collection(namespace, kind))
    await admin.delete(f"/api/v1/nodes/{namespace}")


def parsed(kind: Kind, data: dict[str, Any]) -> ApiObject:
    metadata = data["metadata"]
    return ApiObject(
        kind=kind,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        labels=metadata.get("labels", {}),
        annotations=metadata.get("annotations", {}),
        owners=tuple(metadata.get("ownerReferences", ())),
        spec=data.get("spec", {}),
    )
