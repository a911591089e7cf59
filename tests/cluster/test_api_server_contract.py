"""The real API server keeps the contract that the unit tests' server in memory is held to."""

from __future__ import annotations

import pytest
import trio

from actors.lib.kube.errors import ThrottledError
from config.api import API_VERSION
from tests.cluster.harness import PATIENCE, ClusterServer, both_versions, kube
from tests.fakes.api_server_contract import CONTRACT, Clause, ServerUnderTest


@both_versions
@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
async def test_the_real_server_keeps_the_contract(
    server: ClusterServer, crds: list[str], namespace: str, clause: Clause
) -> None:
    async def forget() -> None:
        """Let history be forgotten. What it has seen itself, only a server that begins again forgets."""
        for step in (server.compact, server.stop, server.start):
            await trio.to_thread.run_sync(step)
        with trio.fail_after(PATIENCE):
            while not await watches_are_served(server):  # noqa: ASYNC110
                await trio.sleep(0.05)

    assert "l3vnis.network.openperouter.io" in crds
    user = server.credentials("openperouter-tests-unprivileged")
    async with kube(server.admin) as client, kube(user) as unprivileged:
        await clause(ServerUnderTest(client, unprivileged, namespace, forget))


async def watches_are_served(server: ClusterServer) -> bool:
    """Whether watches of our kinds are served: for a moment after its start a server that is ready refuses them."""
    path = f"/apis/{API_VERSION}/l3vnis"
    async with kube(server.admin) as client:
        version = (await client.get(path))["metadata"]["resourceVersion"]
        try:
            async with client.watch(path, {"resourceVersion": version}):
                return True
        except ThrottledError:
            return False
