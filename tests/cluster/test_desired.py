"""Files and the objects of a real API server become one state, which outlives the server and the daemon."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.crd_watch import actor as crd_watch
from actors.desired import actor as desired
from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import NotFoundError
from config.api import API_VERSION, GROUP, PLURALS, ApiAccess, ApiReach, ApiSnapshot
from config.desired import DesiredState, Secret
from config.models import L2Vni, L3Vni, Underlay
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind, Origin, Severity
from config.resources import Resource
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

from .harness import CRD_PATH, PATIENCE, ClusterServer, eventually, install_crds, kube, make, make_node

NODE = "merging-node"
PASSWORD = "correct-horse"
UNDERLAY = {
    "asn": 64514,
    "interfaces": [{"type": "NetworkDevice", "networkDevice": {"interfaceName": "eth1"}}],
    "neighbors": [{"asn": 64512, "address": "192.0.2.1"}],
    "tunnelEndpoint": {"cidrs": ["100.65.0.0/24"]},
}


def of_file(kind: Kind, name: str, spec: Any) -> Resource:
    return Resource(kind, "openperouter-system", f"static-{NODE}-{name}", Origin(path=f"/etc/{name}.yaml"), spec, name)


FABRIC = of_file(Kind.UNDERLAY, "underlay-0", Underlay.model_validate(UNDERLAY))


def file_l3vni(name: str, vni: int) -> Resource:
    return of_file(Kind.L3VNI, name, L3Vni.model_validate({"vrf": name, "vni": vni}))


@dataclass
class Life:
    """One life of the daemon, as far as it follows the API and merges: what is in channels ends with it."""

    server: ClusterServer
    settings: Settings
    static: Latest[StaticSnapshot] = field(default_factory=lambda: Latest("static"))
    access: Latest[ApiAccess] = field(default_factory=lambda: Latest("access"))
    api: Latest[ApiSnapshot] = field(default_factory=lambda: Latest("api"))
    out: Latest[DesiredState] = field(default_factory=lambda: Latest("desired"))

    def begin(self, nursery: trio.Nursery, *resources: Resource) -> None:
        self.files(*resources)
        self.access.set(ApiAccess(ApiReach.REACHABLE, self.server.admin))
        nursery.start_soon(self._follow)
        nursery.start_soon(self._merge)

    def files(self, *resources: Resource) -> None:
        self.static.set(StaticSnapshot(NodeIdentity(NODE, 0), resources))

    async def _follow(self) -> None:
        await crd_watch.run(
            ActorContext("crd_watch"),
            settings=self.settings,
            access=self.access.reader(),
            snapshots=self.static.reader(),
            out=self.api,
        )

    async def _merge(self) -> None:
        await desired.run(
            ActorContext("desired"),
            settings=self.settings,
            snapshots=self.static.reader(),
            api=self.api.reader(),
            forget_api=Latest[int]("forget_api").reader(),
            out=self.out,
            removes=nothing_runs,
        )

    @property
    def vrfs(self) -> list[str]:
        state = self.out.peek()
        return [vni.vrf for vni in state.l3vnis] if state else []

    @property
    def domains(self) -> list[str | None]:
        state = self.out.peek()
        return [vni.vrf for vni in state.l2vnis] if state else []

    def reported(self, severity: Severity) -> list[str]:
        state = self.out.peek()
        return [f"{one.name}: {one.message}" for one in (state.problems if state else ()) if one.severity is severity]

    def live(self) -> bool:
        api = self.api.peek()
        return api is not None and api.live


async def nothing_runs(_state: DesiredState) -> bool:
    """Answer for a kernel without a router."""
    return False


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path, run_dir=tmp_path / "run")


async def create(server: ClusterServer, kind: Kind, namespace: str, name: str, spec: dict[str, Any]) -> None:
    async with kube(server.admin) as client:
        path = f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURALS[kind]}"
        meta = {"name": name, "namespace": namespace}
        await make(client, path, {"apiVersion": API_VERSION, "kind": kind.value, "metadata": meta, "spec": spec})


async def delete(server: ClusterServer, kind: Kind, namespace: str, name: str) -> None:
    async with kube(server.admin) as client:
        await client.delete(f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURALS[kind]}/{name}")


def only_here(**spec: Any) -> dict[str, Any]:
    return spec | {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": NODE}}}


async def until(what: str, check: Callable[[], bool]) -> None:
    await eventually(what, check, 60)


async def test_the_networks_of_objects_outlive_the_server_and_the_daemon(
    server: ClusterServer, crds: list[str], namespace: str, system: str, settings: Settings
) -> None:
    assert crds
    assert system
    async with kube(server.admin) as client:
        await make_node(client, NODE)
    await create(server, Kind.L3VNI, namespace, "blue", only_here(vrf="blue", vni=200))
    domain = {"routingDomain": {"type": "L3VNI", "l3vni": {"name": "blue"}}}
    segment = of_file(Kind.L2VNI, "seg", L2Vni.model_validate({"vni": 300} | domain))
    file = settings.state_dir / "api-snapshot.json"

    first = Life(server, settings)
    async with trio.open_nursery() as nursery:
        first.begin(nursery, FABRIC, segment)
        await until("a file's segment joins a network of the API", lambda: first.domains == ["blue"])
        await until("it is remembered", file.exists)
        await trio.to_thread.run_sync(server.stop)
        await until("the server's absence is noticed", lambda: not first.live())
        assert first.vrfs == ["blue"]
        nursery.cancel_scope.cancel()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = first.out.peek()

    second = Life(server, settings)
    async with trio.open_nursery() as nursery:
        second.begin(nursery, FABRIC, segment)
        await until("the first state has the object's network", lambda: second.out.version > 0)
        state = second.out.peek()
        assert before is not None
        assert state is not None
        assert state.content() == before.content()
        assert state.remembered is not None
        assert second.api.peek() is None
        await trio.to_thread.run_sync(server.start)
        await until("the server is followed again", second.live)
        assert second.domains == ["blue"]
        assert second.out.version == 1
        await delete(server, Kind.L3VNI, namespace, "blue")
        await until("the network of a deleted object goes", lambda: second.vrfs == [])
        assert any('"blue" not found' in line for line in second.reported(Severity.ERROR))
        nursery.cancel_scope.cancel()


async def test_a_node_that_was_deleted_keeps_the_networks_of_its_labels_over_a_restart(
    server: ClusterServer, crds: list[str], namespace: str, system: str, settings: Settings
) -> None:
    assert crds
    assert system
    zoned = {"nodeSelector": {"matchLabels": {"zone": "a"}}}
    await create(server, Kind.L3VNI, namespace, "blue", {"vrf": "blue", "vni": 200, **zoned})
    async with kube(server.admin) as client:
        await make_node(client, NODE, {"zone": "a"})
    first = Life(server, settings)
    async with trio.open_nursery() as nursery:
        first.begin(nursery, FABRIC)
        await until("what its labels choose is in force", lambda: first.vrfs == ["blue"])
        await until("it is remembered", (settings.state_dir / "api-snapshot.json").exists)
        nursery.cancel_scope.cancel()
    async with kube(server.admin) as client:
        await client.delete(f"/api/v1/nodes/{NODE}")
    for _ in range(2):
        life = Life(server, settings)
        async with trio.open_nursery() as nursery:
            life.begin(nursery, FABRIC)
            await until("it is followed", life.live)
            assert life.vrfs == ["blue"]
            nursery.cancel_scope.cancel()
    third = Life(server, settings)
    async with trio.open_nursery() as nursery:
        third.begin(nursery, FABRIC)
        async with kube(server.admin) as client:
            await make_node(client, NODE, {"zone": "b"})
        await until("the new Node's labels choose", lambda: third.live() and third.vrfs == [])
        nursery.cancel_scope.cancel()


async def test_a_kind_that_is_not_installed_after_a_restart_keeps_its_networks_until_it_is_listed(
    server: ClusterServer, crds: list[str], namespace: str, system: str, settings: Settings
) -> None:
    assert crds
    assert system
    async with kube(server.admin) as client:
        await make_node(client, NODE)
    await create(server, Kind.L3VNI, namespace, "blue", only_here(vrf="blue", vni=200))
    await create(server, Kind.L2VNI, namespace, "segment", only_here(vni=300))
    first = Life(server, settings)
    async with trio.open_nursery() as nursery:
        first.begin(nursery, FABRIC)
        await until("the segment is in force", lambda: first.domains == [None] and first.vrfs == ["blue"])
        nursery.cancel_scope.cancel()
    second = Life(server, settings)
    async with kube(server.admin) as client:
        path = f"{CRD_PATH}/{PLURALS[Kind.L2VNI]}.{GROUP}"
        try:
            await client.delete(path)
            with trio.fail_after(PATIENCE):
                while not await is_gone(client, path):  # noqa: ASYNC110 - another process's work
                    await trio.sleep(0.05)
            async with trio.open_nursery() as nursery:
                second.begin(nursery, FABRIC)
                await until("it is followed", second.live)
                await create(server, Kind.L3VNI, namespace, "green", only_here(vrf="green", vni=201))
                await until("the rest continues", lambda: second.vrfs == ["blue", "green"])
                assert second.domains == [None]
                [message] = second.reported(Severity.WARNING)
                assert "l2vnis are not installed on the API server: 1 last known object stays in force" in message
                await install_crds(client)
                await until("what the server has now counts", lambda: second.domains == [])
                await until("nothing is left to report", lambda: second.reported(Severity.WARNING) == [])
                nursery.cancel_scope.cancel()
        finally:
            await install_crds(client)


async def is_gone(client: KubeClient, path: str) -> bool:
    try:
        await client.get(path)
    except NotFoundError:
        return True
    return False


async def both_are_reported(life: Life, namespace: str) -> None:
    """Wait until the file's network and the object's underlay are refused, and see that the winners know."""
    await until("both conflicts are reported", lambda: len(life.reported(Severity.ERROR)) == 2)
    assert life.vrfs == ["blue"]
    assert set(life.reported(Severity.ERROR)) == {
        f"{namespace}/another: only one underlay per node, and {FABRIC.id} ({FABRIC.origin}) is used",
        f"aaa: VNI 200 is also used by L3VNI {namespace}/blue; change one of them",
    }
    assert {line.partition(":")[0] for line in life.reported(Severity.WARNING)} == {f"{namespace}/blue", FABRIC.label}


async def test_what_is_in_force_wins_and_both_are_reported_also_after_a_restart(
    server: ClusterServer, crds: list[str], namespace: str, system: str, settings: Settings
) -> None:
    assert crds
    assert system
    async with kube(server.admin) as client:
        await make_node(client, NODE)
    await create(server, Kind.L3VNI, namespace, "blue", only_here(vrf="blue", vni=200))
    settings = settings.model_copy(update={"underlay_namespaces": (namespace,)})
    first = Life(server, settings)
    async with trio.open_nursery() as nursery:
        first.begin(nursery, FABRIC)
        await until("the object is in force", lambda: first.vrfs == ["blue"])
        await create(server, Kind.UNDERLAY, namespace, "another", only_here(**UNDERLAY))
        first.files(FABRIC, file_l3vni("aaa", 200))
        await both_are_reported(first, namespace)
        nursery.cancel_scope.cancel()
    second = Life(server, settings)
    async with trio.open_nursery() as nursery:
        second.begin(nursery, FABRIC, file_l3vni("aaa", 200))
        await until("it is followed", second.live)
        await both_are_reported(second, namespace)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("levels", [500, 4000])
async def test_an_object_of_another_tenant_that_is_nested_too_deeply_is_refused_alone(
    server: ClusterServer, crds: list[str], namespace: str, settings: Settings, levels: int
) -> None:
    assert crds
    async with kube(server.admin) as client:
        await make_node(client, NODE)
        nested = '{"a":' * levels + "[]" + "}" * levels
        interface = f'{{"type": "CNIDevice", "cniDevice": {{"type": "RawConfig", "rawConfig": {nested}}}}}'
        spec = only_here(**{**UNDERLAY, "interfaces": ["HERE"]})
        body = {"apiVersion": API_VERSION, "kind": "Underlay", "metadata": {"name": "deep"}, "spec": spec}
        text = json.dumps(body).replace('"HERE"', interface)
        path = f"/apis/{API_VERSION}/namespaces/{namespace}/underlays"
        created = await client._client().post(path, content=text, headers={"Content-Type": "application/json"})
        assert created.status_code == 201, created.text
    life = Life(server, settings)
    async with trio.open_nursery() as nursery:
        life.begin(nursery, FABRIC)
        await until("it is refused", lambda: life.reported(Severity.ERROR) != [])
        await create(server, Kind.L3VNI, namespace, "blue", only_here(vrf="blue", vni=200))
        await until("another object is in force", lambda: life.vrfs == ["blue"])
        assert life.live()
        assert f"{namespace}/deep: nested deeper than 32 levels" in life.reported(Severity.ERROR)
        nursery.cancel_scope.cancel()


async def test_a_password_comes_from_a_secret_and_follows_it(
    server: ClusterServer, system: str, settings: Settings
) -> None:
    def secret(password: str) -> dict[str, Any]:
        meta = {"name": "fabric", "namespace": system}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"password": password}}

    async with kube(server.admin) as client:
        await make_node(client, NODE)
        neighbors = [{"asn": 64512, "address": "192.0.2.1", "passwordSecret": {"name": "fabric"}}]
        await create(server, Kind.UNDERLAY, system, "fabric", only_here(**UNDERLAY | {"neighbors": neighbors}))
        life = Life(server, settings.model_copy(update={"namespace": system}))

        def password() -> Secret | None:
            state = life.out.peek()
            return state.underlay.neighbors[0].password if state and state.underlay else None

        async with trio.open_nursery() as nursery:
            life.begin(nursery)
            await until(
                "the missing Secret is reported", lambda: any("Secret" in one for one in life.reported(Severity.ERROR))
            )
            assert password() is None
            await make(client, f"/api/v1/namespaces/{system}/secrets", secret(PASSWORD))
            await until("the password is there", lambda: password() == Secret(PASSWORD))
            await client.apply(f"/api/v1/namespaces/{system}/secrets/fabric", secret("another"), manager="tests")
            await until("it follows", lambda: password() == Secret("another"))
            await client.delete(f"/api/v1/namespaces/{system}/secrets/fabric")
            await until("its loss is reported", lambda: bool(life.reported(Severity.ERROR)))
            assert password() == Secret("another")
            nursery.cancel_scope.cancel()
