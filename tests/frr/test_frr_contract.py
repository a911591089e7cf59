"""Real FRR does what unit tests assume of it: the assertions that the fake FRR has to pass."""

from __future__ import annotations

import pytest
import trio

from actors.frr.driver import FrrDriver, VtyshDriver
from config.settings import Settings
from tests.fakes.frr_contract import FrrContract

from .harness import FrrInstance, eventually


class TestRealFrr(FrrContract):
    @pytest.fixture
    async def configured(self, frr: FrrInstance, settings: Settings) -> FrrDriver:
        driver = VtyshDriver(settings)
        adapters = "show mgmt backend-adapter all"
        eventually("daemons are connected to mgmtd", lambda: {"zebra", "staticd"} <= set(frr.vtysh(adapters).split()))
        # It may still be sending them their configuration, and is locked for that time.
        with trio.fail_after(180):
            while await driver.send("hostname node1\n"):  # noqa: ASYNC110 - FRR gives no notice
                await trio.sleep(0.2)
        return driver
