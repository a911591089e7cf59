"""Names that are taken: by another node's mirror, by a user's object, by a machine that has this one's name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.lib.kube.client import Json
from config.api import PROOF_ANNOTATION, SOURCE_LABEL, STATIC_NODE_LABEL, ApiNode
from config.settings import Settings
from config.sources.mirror_objects import other_name
from config.sources.naming import resource_name
from supervisor.runtime.actor import ActorContext
from tests.actors.message_catalog import explained

from .bench import L3VNIS, NAME, Bench
from .examples import blue, files, red


def elsewhere(name: str = NAME, **metadata: Any) -> Json:
    """Return an object that no watch of this node shows: the mirror of another one's "1-red", or a user's."""
    labels = {SOURCE_LABEL: "static", STATIC_NODE_LABEL: "node-1"}
    return {
        "kind": "L3VNI",
        "metadata": {"name": name, "namespace": "ns", "labels": labels} | metadata,
        "spec": {"vrf": "red", "vni": 7, "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "node-1"}}},
    }


OTHER = other_name(NAME, "node")
OWNED = {"labels": {}, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u1"}]}


@pytest.mark.parametrize("metadata", [{}, OWNED])
async def test_another_nodes_object_is_left_alone(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture, metadata: Json
) -> None:
    bench.server.put_manifest(elsewhere(**metadata))
    [theirs] = bench.server.objects.values()
    await bench.files(red(), blue())
    assert bench.names() == ["static-node-blue", NAME, OTHER]
    assert bench.server.objects[next(path for path in bench.server.objects if path.endswith(f"/{NAME}"))] == theirs
    assert bench.spec(OTHER)["vni"] == 100
    assert explained(record for record in caplog.records if "own name" in record.getMessage()) == ["MIRROR_NAME_TAKEN"]
    assert "node-1" in caplog.text
    assert bench.ctx.facts == {"mirrors": 2}
    sent = len(bench.server.requests)
    async with trio.open_nursery() as nursery:
        bench.ctx = ActorContext("api_mirror", 2)
        nursery.start_soon(bench.start)
        await bench.later(3600)
        nursery.cancel_scope.cancel()
    assert len(bench.server.requests) == sent


async def test_two_nodes_whose_names_run_together_do_not_fight(
    bench: Bench, tmp_path: Path, mock_clock: MockClock
) -> None:
    """``resource_name("node", "1-red") == resource_name("node-1", "red")``."""
    (tmp_path / "second").mkdir()
    second = Bench(
        Settings(state_dir=tmp_path / "second", namespace="ns"),
        server=bench.server,
        node=ApiNode("node-1", "uid-1", {"kubernetes.io/hostname": "node-1"}),
    )

    def changed() -> None:
        bench.watch()
        second.watch()

    bench.server.changed = changed
    one = replace(red(), name=resource_name("node", "1-red"))
    second.static.set(files(replace(red(vni=7), name=resource_name("node-1", "red")), name="node-1"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.start)
        await bench.files(one)
        for _ in range(5):
            await second.settle()
            await bench.later(100)
        sent = len(bench.server.requests)
        assert sent <= 5
        await bench.later(3600)
        assert len(bench.server.requests) == sent
        nursery.cancel_scope.cancel()
    mirrors = bench.server.find("/l3vnis/")
    owners = {one["metadata"]["ownerReferences"][0]["uid"]: one["spec"]["vni"] for one in mirrors}
    assert owners == {"node-uid": 100, "uid-1": 7}


async def test_a_users_object_is_not_deleted_for_an_immutable_field(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    users = elsewhere(labels={})
    users["spec"]["hostSession"] = {"asn": 1, "hostASN": 2, "localCIDR": {"ipv4": "198.51.100.0/24"}}
    bench.server.put_manifest(users)
    uid = bench.server.find("/l3vnis/")[0]["metadata"]["uid"]
    await bench.files(red())
    assert bench.names() == [NAME, OTHER]
    assert bench.server.find("/l3vnis/")[0]["metadata"]["uid"] == uid
    assert bench.spec(NAME) == users["spec"] | {"vxlanPort": 4789}
    assert "delete" not in [verb for verb, _ in bench.server.requests]
    assert "did not write" in caplog.text


async def test_when_both_names_are_taken_it_is_logged_and_nothing_is_changed(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.server.put_manifest(elsewhere())
    bench.server.put_manifest(elsewhere(OTHER))
    await bench.files(red(), blue())
    for _ in range(10):
        await bench.later(10)
    assert bench.ctx.facts == {"mirrors": 2, "failing": 1}
    assert {verb for verb, path in bench.server.requests if path != f"{L3VNIS}/static-node-blue"} == {"create", "get"}
    assert len(bench.server.requests) < 25
    assert "not mirrored: the object" in caplog.text


async def test_a_machine_of_the_same_name_is_suspected(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.files(red())

    def theirs(one: Json) -> None:
        one["spec"]["vni"] = 7
        one["metadata"]["annotations"][PROOF_ANNOTATION] = "another key's"

    for _ in range(60):
        bench.server.edit(NAME, theirs)
        await bench.later(1)
    [warning] = [record for record in caplog.records if "keeps changing" in record.getMessage()]
    assert warning.getMessage().startswith("another machine that has this node's name keeps changing the mirror")
