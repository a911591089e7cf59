"""A node that departs leaves nothing: the cluster's real garbage collector removes what the Node owns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from actors.lib.kube.errors import NotFoundError
from actors.status_writer.node_status import path_of
from kubeserver import controllers
from tests.cluster.harness import ClusterServer, eventually, kube, make_node
from tests.cluster.mirroring import mirroring
from tests.cluster.status_writing import cluster, until

POOL = "l3vnis: [{vrf: red, vni: 100, hostSession: {asn: 1, hostASN: 2, localCIDR: {ipv4: 172.27.1.0/24}}}]\n"
#: The collector looks for new kinds twice a minute, and each of its steps is retried after a pause that grows.
SECONDS = 120


@pytest.fixture
async def collector(server: ClusterServer, crds: list[str]) -> AsyncIterator[None]:
    """The garbage collector of the cluster, which knows our kinds from its start."""
    assert crds
    with controllers.running(server, controllers.GARBAGE_COLLECTOR):
        yield


async def test_mirrors_go_with_their_node_and_come_back_with_it(
    server: ClusterServer, collector: None, namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, mirroring(admin, namespace, tmp_path) as bench:
        bench.write("openpe_a.yaml", POOL + "rawfrrconfigs: [{rawConfig: '! x'}]\n")
        await bench.until(lambda stored: len(stored) == 2)
        # The daemon still runs, as on a machine whose Node was deleted before it was switched off.
        await admin.delete(f"/api/v1/nodes/{namespace}")

        async def empty() -> bool:
            return not await bench.stored()

        await until("no mirror is left", empty, seconds=SECONDS)
        await eventually("the mirror waits for its Node", lambda: bool(bench.ctx.facts.get("waiting")))
        assert await empty()
        await make_node(admin, namespace)
        await bench.until(lambda stored: len(stored) == 2)


async def test_the_status_goes_with_its_node(
    server: ClusterServer, collector: None, namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        path = path_of(namespace, "node-a")

        async def written() -> bool:
            return await exists() and "status" in await admin.get(path)

        async def exists() -> bool:
            try:
                await admin.get(path)
            except NotFoundError:
                return False
            return True

        async def gone() -> bool:
            return not await exists()

        await until("there is a status", written)
        await admin.delete("/api/v1/nodes/node-a")
        await until("no status is left", gone, seconds=SECONDS)
        # Nor does the node that still runs make another one.
        await trio.sleep(5)
        assert await gone()
        assert nodes.nodes["node-a"].ctx.facts
