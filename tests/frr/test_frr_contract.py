"""Real FRR does what unit tests assume of it: the assertions that the fake FRR has to pass."""

from __future__ import annotations

import pytest

from actors.frr.driver import FrrDriver, VtyshDriver
from config.settings import Settings
from tests.fakes.frr_contract import FrrContract

from .harness import FrrInstance, eventually


class TestRealFrr(FrrContract):
    @pytest.fixture
    def configured(self, frr: FrrInstance, settings: Settings) -> FrrDriver:
        backends = "show mgmt backend-adapter all"
        # Until then mgmtd is locked, or keeps what it is sent to itself.
        eventually("zebra is connected to mgmtd", lambda: "zebra" in frr.vtysh(backends))
        return VtyshDriver(settings)
