"""The server in memory keeps the contract (tests/cluster holds the real one to the same)."""

from __future__ import annotations

import pytest

from config.api import ApiCredentials

from .contract import PROMISES, Promise
from .fake import FakeServer


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_the_fake_server_keeps_the_contract(promise: Promise) -> None:
    async with FakeServer().connect(ApiCredentials("https://fake")) as client:
        await promise(client, "ns")
