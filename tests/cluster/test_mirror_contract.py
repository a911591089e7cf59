"""The real API server keeps the contract that the one in memory is held to (tests/actors/api_mirror)."""

from __future__ import annotations

import pytest

from tests.actors.api_mirror.contract import PROMISES, Promise
from tests.cluster.harness import ClusterServer, both_versions, kube


@both_versions
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_the_real_server_keeps_the_contract(
    server: ClusterServer, crds: list[str], namespace: str, promise: Promise
) -> None:
    assert "l3vnis.network.openperouter.io" in crds
    async with kube(server.admin) as client:
        await promise(client, namespace)
