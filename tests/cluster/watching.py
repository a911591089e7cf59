"""A crd_watch actor against the real API server, over a cable that tests can cut, and as a user whose rights they give.

The user may do what the shipped roles allow and nothing else.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import trio
import yaml

from actors.crd_watch import actor
from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import NotFoundError
from config.api import API_VERSION, GROUP, NODE_STATUS_PLURAL, PLURALS, ApiAccess, ApiCredentials, ApiReach, ApiSnapshot
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.cluster.harness import MANAGER, PATIENCE, ROOT, ClusterServer, Json, kube, make_namespace, make_node

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
SYSTEM: Final = "openperouter-system"
ROLE: Final = "openperouter-controller"
PASSWORDS_ROLE: Final = "openperouter-passwords"

UNDERLAY: Final[Json] = {
    "asn": 64514,
    "interfaces": [{"type": "NetworkDevice", "networkDevice": {"interfaceName": "toswitch"}}],
    "neighbors": [{"asn": 64512, "address": "192.0.2.1"}],
}


def l3vni(number: int, **more: Any) -> Json:
    return {"vrf": f"v{number}", "vni": number, **more}


def here(node: str) -> Json:
    """Return the part of a spec that selects a node."""
    return {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node}}}


class Cable:
    """A port that leads to the server, until it is cut (connections break, new ones at once) or frozen (silence)."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._whole = True
        self._flows = trio.Event()
        self._flows.set()
        self._ends: set[trio.SocketStream] = set()
        self.port = 0

    async def lead(self, task_status: trio.TaskStatus[None]) -> None:
        """Accept connections until cancelled."""
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._join, [listener])

    async def cut(self) -> None:
        """Break everything."""
        self._whole = False
        for end in list(self._ends):
            await trio.aclose_forcefully(end)

    def freeze(self) -> None:
        """Let nothing through any more; connections stay."""
        self._flows = trio.Event()

    def restore(self) -> None:
        """Undo both."""
        self._whole = True
        self._flows.set()

    async def _join(self, near: trio.SocketStream) -> None:
        if not self._whole:
            return
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            far = await trio.open_tcp_stream("127.0.0.1", self._target)
            self._ends |= {near, far}
            async with near, far, trio.open_nursery() as nursery:
                nursery.start_soon(self._carry, near, far)
                nursery.start_soon(self._carry, far, near)
            self._ends -= {near, far}

    async def _carry(self, source: trio.SocketStream, target: trio.SocketStream) -> None:
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in source:
                await self._flows.wait()
                await target.send_all(chunk)
        await trio.aclose_forcefully(source)
        await trio.aclose_forcefully(target)


class Recorded(Latest[ApiSnapshot]):
    """A cell that remembers every value."""

    def __init__(self) -> None:
        super().__init__("api")
        self.values: list[ApiSnapshot] = []

    def set(self, value: ApiSnapshot) -> None:
        self.values.append(value)
        super().set(value)


@dataclass
class Watcher:
    """One node's actor, and an administrator who makes and unmakes what it should see. Objects are in ``namespace``."""

    server: ClusterServer
    admin: KubeClient
    cable: Cable
    namespace: str
    node: str
    settings: Settings
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    out: Recorded = field(default_factory=Recorded)
    ctx: ActorContext = field(default_factory=lambda: ActorContext("crd_watch"))
    _asked: int = 0
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _ended: trio.Event = field(default_factory=trio.Event)

    @property
    def user(self) -> str:
        return f"watcher-{self.node}"

    async def run(self) -> None:
        with self._scope:
            await actor.run(
                self.ctx,
                settings=self.settings,
                access=self.access.reader(),
                snapshots=self.static.reader(),
                out=self.out,
            )
        self._ended.set()

    async def stop(self) -> float:
        """Cancel the actor; return how many seconds it took to end."""
        begin = trio.current_time()
        self._scope.cancel()
        await self._ended.wait()
        return trio.current_time() - begin

    def say(self, credentials: ApiCredentials | None) -> None:
        """Let the actor have credentials, to be used over the cable."""
        if credentials is not None:
            credentials = replace(credentials, server=f"https://127.0.0.1:{self.cable.port}")
        self.access.set(ApiAccess(ApiReach.REACHABLE if credentials else ApiReach.UNCONFIGURED, credentials))

    def begin(self) -> None:
        self.static.set(StaticSnapshot(NodeIdentity(self.node, 0), ()))
        self.say(self.server.credentials(self.user))

    async def until(self, holds: Callable[[ApiSnapshot], bool], seconds: float = PATIENCE) -> ApiSnapshot:
        """Wait for a snapshot."""
        reader = self.out.reader()
        with trio.move_on_after(seconds):
            while not holds(snapshot := await reader.receive()):
                pass
            return snapshot
        raise AssertionError(f"not within {seconds:g} s; facts: {self.ctx.facts}; last: {self.out.peek()}")

    async def names(self, *names: str, seconds: float = PATIENCE) -> ApiSnapshot:
        """Wait until exactly these objects of the namespace are published."""
        return await self.until(lambda snapshot: self.named(snapshot) == set(names), seconds)

    async def following(self, *names: str) -> ApiSnapshot:
        """Begin, and wait for these objects to be published and for all to be quiet."""
        self.begin()
        snapshot = await self.until(lambda snapshot: snapshot.live and self.named(snapshot) == set(names))
        await self.state("watching")
        self.requests()
        return snapshot

    async def state(self, state: str) -> None:
        """Wait for what the status says."""
        await self.fact("state", lambda value: value == state)

    async def fact(self, name: str, holds: Callable[[Any], bool]) -> None:
        with trio.move_on_after(PATIENCE):
            while not holds(self.ctx.facts.get(name)):  # noqa: ASYNC110 - facts are for people, who look now and then
                await trio.sleep(0.02)
            return
        raise AssertionError(f"{name} is not as expected; facts: {self.ctx.facts}")

    def named(self, snapshot: ApiSnapshot) -> set[str]:
        return {one.name for one in snapshot.objects if one.namespace == self.namespace}

    def never_without(self, *names: str) -> bool:
        """Whether these objects are in each snapshot that had them before it."""
        snapshots = [self.named(snapshot) for snapshot in self.out.values]
        first = next(index for index, found in enumerate(snapshots) if found >= set(names))
        return all(found >= set(names) for found in snapshots[first:])

    def requests(self) -> Counter[str]:
        """Return what the node has asked since the last call, as the server's audit log has it."""
        asked = self.server.requests(self.user)
        asked, self._asked = asked[self._asked :], len(asked)
        return Counter(f"{one.verb} {one.resource}" for one in asked if one.resource)

    def collection(self, kind: Kind, namespace: str = "") -> str:
        return f"/apis/{API_VERSION}/namespaces/{namespace or self.namespace}/{PLURALS[kind]}"

    async def put(self, kind: Kind, name: str, spec: Json, *, namespace: str = "", **metadata: Any) -> None:
        """Make or change an object."""
        path = f"{self.collection(kind, namespace)}/{name}"
        about = {"name": name, **metadata}
        body = {"apiVersion": API_VERSION, "kind": kind.value, "metadata": about, "spec": spec}
        await self.admin.apply(path, body, manager=MANAGER)

    async def delete(self, kind: Kind, name: str, *, namespace: str = "") -> None:
        await self.admin.delete(f"{self.collection(kind, namespace)}/{name}")

    async def put_secret(self, name: str, password: str) -> None:
        data = {"password": base64.b64encode(password.encode()).decode()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        await self.admin.apply(f"/api/v1/namespaces/{SYSTEM}/secrets/{name}", body, manager=MANAGER)

    async def label(self, **labels: str | None) -> None:
        """Set or remove labels of the Node."""
        await self.admin.merge_patch(f"/api/v1/nodes/{self.node}", {"metadata": {"labels": labels}}, manager=MANAGER)

    async def allow(self, *, networks: bool = True, own: bool = True) -> None:
        """Give the user the shipped roles: the cluster's for networks and nodes, those of the program's namespace."""
        in_namespace = f"{RBAC}/namespaces/{SYSTEM}/rolebindings"
        wanted = (
            (f"{RBAC}/clusterrolebindings", "ClusterRole", ROLE, networks),
            (in_namespace, "Role", ROLE, own),
            (in_namespace, "Role", PASSWORDS_ROLE, own),
        )
        for path, kind, role, granted in wanted:
            name = f"{self.user}-{role}"
            with suppress(NotFoundError):
                await self.admin.delete(f"{path}/{name}")
            if granted:
                reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
                who = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.user}
                await self.admin.create(path, {"metadata": {"name": name}, "roleRef": reference, "subjects": [who]})
        checks = (
            ({"verb": "watch", "resource": "l3vnis", "group": GROUP}, networks),
            ({"verb": "patch", "resource": "l3vnis", "group": GROUP, "namespace": SYSTEM}, own),
            ({"verb": "watch", "resource": "secrets", "name": "bgp-passwords", "namespace": SYSTEM}, own),
        )
        for access, granted in checks:
            await self._rights(access, granted=granted)

    async def _rights(self, access: Json, *, granted: bool) -> None:
        """Wait until the server's authorizer, which follows its own roles, decides so about the user."""
        review = {"spec": {"user": self.user, "resourceAttributes": access}}
        with trio.fail_after(PATIENCE):
            while True:
                answer = await self.admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
                if answer["status"]["allowed"] is granted:
                    return
                await trio.sleep(0.05)


async def install_roles(client: KubeClient) -> None:
    """Apply the shipped roles."""
    await make_namespace(client, SYSTEM)
    for document in yaml.safe_load_all((ROOT / "packaging/kubernetes/rbac.yaml").read_text()):
        plural = f"{document['kind'].lower()}s"
        if "rbac" in document["apiVersion"]:
            namespace = document["metadata"].get("namespace")
            path = f"{RBAC}/namespaces/{namespace}/{plural}" if namespace else f"{RBAC}/{plural}"
            await client.apply(f"{path}/{document['metadata']['name']}", document, manager=MANAGER)


@asynccontextmanager
async def watching(server: ClusterServer, namespace: str, state_dir: Path) -> AsyncIterator[Watcher]:
    """Yield an actor that runs and knows nothing yet; its Node is there and its user has the shipped roles."""
    node = f"node-{namespace}"[:60]
    cable = Cable(server.port)
    async with kube(server.admin) as admin, trio.open_nursery() as nursery:
        await install_roles(admin)
        await make_node(admin, node, {"zone": "a"})
        await nursery.start(cable.lead)
        settings = Settings(state_dir=state_dir, namespace=SYSTEM)
        watcher = Watcher(server, admin, cable, namespace, node, settings)
        await watcher.allow()
        nursery.start_soon(watcher.run)
        yield watcher
        nursery.cancel_scope.cancel()
    server.start()
    async with kube(server.admin) as admin:
        await _clear(admin, namespace, node)


async def _clear(admin: KubeClient, namespace: str, node: str) -> None:
    for plural in [*PLURALS.values(), NODE_STATUS_PLURAL]:
        with suppress(NotFoundError):
            await admin.delete(f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}")
    with suppress(NotFoundError):
        await admin.delete(f"/api/v1/nodes/{node}")


async def in_parallel(work: Callable[[int], Awaitable[object]], count: int, *, at_once: int = 20) -> None:
    """Do something ``count`` times, several at once."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(worker)
