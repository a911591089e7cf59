"""The API server in memory keeps the contract (tests/cluster checks it on the real one)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.fakes.api_server import UNPRIVILEGED, FakeApiServer
from tests.fakes.api_server_contract import CONTRACT, Clause, ServerUnderTest


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
async def test_the_fake_server_keeps_the_contract(autojump_clock: MockClock, clause: Clause) -> None:
    server = FakeApiServer()

    async def forget() -> None:
        await trio.lowlevel.checkpoint()
        server.compact()

    async with (
        server.connect(server.credentials()) as client,
        server.connect(server.credentials(UNPRIVILEGED)) as unprivileged,
    ):
        await clause(ServerUnderTest(client, unprivileged, "ns", forget))
