"""Files are mirrored to a real API server, and the mirrors stay what they should be.

The objects of a node that departed are the garbage collector's, which :mod:`tests.cluster.test_departure` runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from actors.api_mirror.planning import difference, mirrors
from actors.api_mirror.writer import MANAGER
from config.api import API_VERSION, PROOF_ANNOTATION, SOURCE_LABEL, STATIC_NODE_LABEL, ApiAccess, ApiNode, ApiReach
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind
from config.resources import Resource
from config.sources.mirror_objects import manifest, other_name
from config.sources.router_file import parse_router_file
from config.sources.static_files import combine
from supervisor.runtime.actor import ActorContext
from tests.cluster.harness import ClusterServer, Json, both_versions, eventually, kube, make_namespace
from tests.cluster.mirroring import VERBS, Bench, collection, mirroring, parsed
from tests.config.file_contents import FILES

FABRIC = """\
underlays:
  - asn: 64514
    interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: toswitch1}}]
    neighbors:
      - {asn: 64512, address: 192.168.11.2, password: hush-1, bfd: {}, properties: [{type: ebgpMultiHop}]}
      - {type: External, listenRange: 192.168.12.0/24, addressFamilies: [{type: evpn}]}
    tunnelEndpoint: {cidrs: [100.65.0.0/24]}
    gracefulRestart: {}
bgppassthrough: {hostSession: {asn: 64514, hostASN: 64515, localCIDR: {ipv4: 172.26.0.0/24}}}
rawfrrconfigs:
  - rawConfig: |
      router bgp 64514
       neighbor 192.168.11.2 password hush-2
"""
RED = "l3vnis: [{vrf: red, vni: 100, hostSession: {asn: 1, hostASN: 2, localCIDR: {ipv4: %s}}}]\n"
SEGMENT = """\
l2vnis:
  - {name: seg, vni: 110, routingDomain: {type: L3VNI, l3vni: {name: red}}, gatewayIPs: [192.0.2.1/24],
     hostMaster: {type: LinuxBridge, linuxBridge: {lifecycle: Managed}}}
"""
POOL = "172.27.1.0/24"


def full(bench: Bench, *names: str) -> list[str]:
    return sorted(f"static-{bench.node.name}-{name}" for name in names)


async def mirrored(bench: Bench) -> tuple[str, Json]:
    """Write a file with one network; return its mirror's name and the mirror."""
    bench.write("openpe_a.yaml", RED % POOL)
    [name] = full(bench, "red")
    return name, (await bench.until(lambda stored: name in stored))[name]


async def edit(bench: Bench, name: str, patch: Json) -> None:
    await bench.admin.merge_patch(f"{collection(bench.namespace, Kind.L3VNI)}/{name}", patch, manager="kubectl-edit")


def requests(server: ClusterServer, bench: Bench) -> list[str]:
    """Return the requests of the mirror, but for the polls of the cluster's size."""
    user = f"system:serviceaccount:{bench.namespace}:mirror"
    return [f"{one.verb} {one.resource}" for one in server.requests(user) if one.verb != "list"]


def done(server: ClusterServer, bench: Bench) -> list[str]:
    """Return the requests that succeeded."""
    user = f"system:serviceaccount:{bench.namespace}:mirror"
    return [f"{one.verb} {one.resource}" for one in server.requests(user) if one.code < 300]


@both_versions
async def test_every_kind_shows(server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        bench.write("openpe_a.yaml", FABRIC + RED % POOL + SEGMENT)
        wanted = full(bench, "underlay-0", "red", "seg", "l3passthrough", "rawfrrconfig-0")
        stored = await bench.until(lambda stored: sorted(stored) == wanted)
        segment = stored[f"static-{namespace}-seg"]["spec"]
        assert segment["routingDomain"]["l3vni"]["name"] == f"static-{namespace}-red"
        for one in stored.values():
            metadata = one["metadata"]
            assert metadata["labels"] == {SOURCE_LABEL: "static", STATIC_NODE_LABEL: namespace}
            assert one["spec"]["nodeSelector"] == {"matchLabels": {"kubernetes.io/hostname": namespace}}
            assert [manager["manager"] for manager in metadata["managedFields"]] == [MANAGER]
            assert "hush" not in json.dumps(one)


@both_versions
async def test_a_converged_node_sends_nothing_even_after_a_restart(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        bench.write("openpe_a.yaml", FABRIC + RED % POOL + SEGMENT)
        await bench.until(lambda stored: len(stored) == 5)
        before = requests(server, bench)
        bench.read()
        async with trio.open_nursery() as nursery:
            bench.ctx = ActorContext("api_mirror", 2)
            nursery.start_soon(bench.mirror)
            await eventually("the second incarnation has looked", lambda: bench.ctx.facts == {"mirrors": 5})
            # A write that is due shows that all that was due before it has been sent.
            bench.write("openpe_b.yaml", "rawfrrconfigs: [{rawConfig: '! x'}]\n")
            await bench.until(lambda stored: len(stored) == 6)
            nursery.cancel_scope.cancel()
        assert len(before) == 5
        assert set(requests(server, bench)[5:]) <= {"create rawfrrconfigs", "get rawfrrconfigs"}


async def test_the_owner_is_the_node_and_blocks_nothing(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    """A node that departs leaves nothing: the garbage collector acts on this reference."""
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        _, mirror = await mirrored(bench)
        node = await admin.get(f"/api/v1/nodes/{namespace}")
        [owner] = mirror["metadata"]["ownerReferences"]
        assert owner == {"apiVersion": "v1", "kind": "Node", "name": namespace, "uid": node["metadata"]["uid"]}


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"vni": 7}},
        {"spec": {"vxlanPort": 4790, "exportRTs": ["1:1"]}},
        {"spec": {"nodeSelector": None}},
        {"metadata": {"labels": None}},
        {"metadata": {"annotations": None}},
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"labels": None, "annotations": None, "ownerReferences": None}, "spec": {"vni": 7}},
    ],
)
async def test_a_manual_edit_is_reverted(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path, patch: dict[str, Any]
) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        name, before = await mirrored(bench)
        await edit(bench, name, patch)
        after = (await bench.until(lambda stored: same(stored[name], before)))[name]
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


def same(one: Json, other: Json) -> bool:
    keys = ("labels", "annotations", "ownerReferences")
    return one["spec"] == other["spec"] and all(one["metadata"].get(key) == other["metadata"][key] for key in keys)


async def test_labels_and_annotations_of_other_clients_stay(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        name, _ = await mirrored(bench)
        noted = {"labels": {"team": "x"}, "annotations": {"note": "y"}, "finalizers": ["example.com/kept"]}
        await edit(bench, name, {"metadata": noted, "spec": {"vni": 7}})
        metadata = (await bench.until(lambda stored: stored[name]["spec"]["vni"] == 100))[name]["metadata"]
        assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("x", "y")
        assert metadata["finalizers"] == ["example.com/kept"]
        await edit(bench, name, {"metadata": {"finalizers": None}})


async def test_a_label_spoofs_nothing(server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        name, mirror = await mirrored(bench)
        spoof = {
            "name": "mine",
            "labels": mirror["metadata"]["labels"],
            "annotations": mirror["metadata"]["annotations"],
        }
        body = {
            "apiVersion": mirror["apiVersion"],
            "kind": "L3VNI",
            "metadata": spoof,
            "spec": {"vrf": "mine", "vni": 9},
        }
        made = await admin.create(collection(namespace, Kind.L3VNI), body)
        (bench.settings.configs_dir / "openpe_a.yaml").unlink()
        bench.read()
        stored = await bench.until(lambda stored: name not in stored)
        assert stored == {"mine": made}


async def test_a_mirror_that_no_watch_shows_is_taken_back(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    """Its name is taken by an object of a user."""
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        [name] = full(bench, "red")
        made = await taken(bench, name)
        bench.write("openpe_a.yaml", RED % POOL)
        stored = await bench.until(lambda stored: stored[name]["spec"]["vni"] == 100)
        assert stored[name]["metadata"]["uid"] == made["metadata"]["uid"]
        assert PROOF_ANNOTATION in stored[name]["metadata"]["annotations"]


async def test_another_nodes_object_is_left_alone(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    """The mirror of "1-red" of one node has the name of that of "red" of another."""
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        [name] = full(bench, "red")
        made = await taken(bench, name, labels={SOURCE_LABEL: "static", STATIC_NODE_LABEL: "other"})
        bench.write("openpe_a.yaml", RED % POOL)
        other = other_name(name, bench.node.name)
        stored = await bench.until(lambda stored: other in stored)
        assert sorted(stored) == sorted([name, other])
        assert stored[name] == made
        assert stored[other]["spec"]["vni"] == 100
        bench.write("openpe_a.yaml", "l3vnis: []\n")
        assert await bench.until(lambda stored: other not in stored) == {name: made}


async def test_a_users_object_is_not_deleted_for_a_field_that_must_not_change(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        [name] = full(bench, "red")
        session = {"asn": 1, "hostASN": 2, "localCIDR": {"ipv4": "198.51.100.0/24"}}
        made = await taken(bench, name, hostSession=session)
        bench.write("openpe_a.yaml", RED % POOL)
        other = other_name(name, bench.node.name)
        stored = await bench.until(lambda stored: other in stored)
        assert stored[name] == made


@both_versions
async def test_a_mirror_with_a_changed_immutable_field_is_deleted_and_created_again(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        bench.write("openpe_a.yaml", RED % POOL + SEGMENT)
        before = await bench.until(lambda stored: len(stored) == 2)
        bench.write("openpe_a.yaml", RED % "172.27.2.0/24" + SEGMENT.replace("192.0.2.1/24", "198.51.100.1/24"))
        after = await bench.until(lambda stored: len(stored) == 2 and not shared(before, stored))
        assert sorted(after) == sorted(before)
        assert after[f"static-{namespace}-red"]["spec"]["hostSession"]["localCIDR"] == {"ipv4": "172.27.2.0/24"}
        assert after[f"static-{namespace}-seg"]["spec"]["gatewayIPs"] == ["198.51.100.1/24"]


def shared(one: dict[str, Json], other: dict[str, Json]) -> set[str]:
    uids = ({each["metadata"]["uid"] for each in objects.values()} for objects in (one, other))
    return next(uids) & next(uids)


async def test_a_file_that_is_gone_takes_its_mirrors_along_and_a_broken_one_does_not(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        bench.write("openpe_a.yaml", RED % POOL)
        bench.write("openpe_b.yaml", "l3vnis: [{vrf: blue, vni: 200}]\n")
        bench.write("openpe_c.yaml", "l3vnis: [{vrf: green, vni: 300}]\n")
        await bench.until(lambda stored: len(stored) == 3)
        (bench.settings.configs_dir / "openpe_a.yaml").write_text("not: [yaml")
        (bench.settings.configs_dir / "openpe_b.yaml").write_text("l3vnis: [{vrf: blue, vni: 0}]\n")
        (bench.settings.configs_dir / "openpe_c.yaml").unlink()
        bench.read()
        stored = await bench.until(lambda stored: len(stored) < 3)
        assert sorted(stored) == full(bench, "blue", "red")


@both_versions
async def test_files_that_change_while_the_server_is_unreachable_are_mirrored_when_it_is_back(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        _, before = await mirrored(bench)
        await trio.to_thread.run_sync(server.stop)
        bench.write("openpe_a.yaml", FABRIC + RED.replace("100", "101") % POOL)
        await trio.testing.wait_all_tasks_blocked(0.5)
        await trio.to_thread.run_sync(server.start)
        stored = await bench.until(lambda stored: len(stored) == 4)
        after = stored[before["metadata"]["name"]]
        assert (after["spec"]["vni"], after["metadata"]["uid"]) == (101, before["metadata"]["uid"])
        # A server that has just started may refuse once what it allows a second later.
        assert done(server, bench).count("patch l3vnis") == 1


async def test_a_namespace_that_appears_later_is_filled_then(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert crds
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        later = f"{namespace}-later"
        node = NodeIdentity(bench.node.name, 0)
        content = parse_router_file((RED % POOL).encode(), Path("openpe_a.yaml"), node.name, namespace=later)
        bench.access.set(ApiAccess(ApiReach.REACHABLE, server.admin))
        bench.static.set(StaticSnapshot(node, tuple(combine([content])[0])))
        await eventually("the missing namespace is logged", lambda: "not mirrored" in caplog.text)
        await make_namespace(admin, later)
        path = f"{collection(later, Kind.L3VNI)}/static-{namespace}-red"
        await eventually("the mirror tries again", lambda: "failing" not in bench.ctx.facts)
        assert (await admin.get(path))["spec"]["vni"] == 100


@pytest.mark.parametrize("missing", VERBS)
async def test_no_right_is_superfluous(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path, missing: str
) -> None:
    assert crds
    verbs = [verb for verb in VERBS if verb != missing]
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path, verbs) as bench:
        await provoke(bench, missing)
        await eventually("the refusal shows", lambda: bench.ctx.facts.get("failing") == 1)
        assert (403, missing) in {(one.code, one.verb) for one in server.requests() if one.namespace == namespace}


async def provoke(bench: Bench, verb: str) -> None:
    """Do what makes the mirror need a verb."""
    if verb in ("patch", "delete"):
        name, _ = await mirrored(bench)
    if verb == "patch":
        await edit(bench, name, {"spec": {"vni": 7}})
    elif verb == "delete":
        bench.write("openpe_a.yaml", "l3vnis: []\n")
    else:
        if verb == "get":
            await taken(bench, full(bench, "red")[0])
        bench.write("openpe_a.yaml", RED % POOL)


async def taken(bench: Bench, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    """Make an object of that name that no watch for the node shows, since it is for another one."""
    elsewhere = {"vrf": "mine", "vni": 9, "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "other"}}} | spec
    metadata = {"name": name, "labels": labels or {}}
    body = {"apiVersion": API_VERSION, "kind": "L3VNI", "metadata": metadata, "spec": elsewhere}
    return await bench.admin.create(collection(bench.namespace, Kind.L3VNI), body)


@both_versions
async def test_the_server_stores_every_mirror_as_it_is_compared(
    server: ClusterServer, crds: list[str], namespace: str
) -> None:
    """No default of the server, and nothing that it prunes, makes a mirror look different from what was sent."""
    assert crds
    examples = sample(60)
    node = ApiNode("node", "11111111-2222-3333-4444-555555555555", {})
    async with kube(server.admin) as admin:
        for number, resources in enumerate(examples):
            static = StaticSnapshot(NodeIdentity("node", 0), resources)
            for mirror in mirrors(static, node, lambda _: "proof").values():
                body = manifest(mirror)
                body["metadata"] |= {"namespace": namespace, "name": f"{mirror.name}-{number}"}
                stored = await admin.create(collection(namespace, mirror.kind), body)
                assert difference(parsed(mirror.kind, stored), mirror) == {}


def sample(count: int) -> list[tuple[Resource, ...]]:
    """Return the resources of random valid files, the same each time."""
    from hypothesis import HealthCheck, Phase, given, settings

    found: list[tuple[Resource, ...]] = []

    @settings(
        max_examples=count, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(FILES)
    def collect(content: dict[str, Any]) -> None:
        parsed = parse_router_file(json.dumps(content).encode(), Path("openpe_a.yaml"), "node")
        found.append(tuple(combine([parsed])[0]))

    collect()
    return found
