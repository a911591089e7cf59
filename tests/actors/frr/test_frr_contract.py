"""The fake FRR does what real FRR does, as far as tests rely on it."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from actors.frr.driver import FrrDriver
from tests.fakes.frr import FakeFrr
from tests.fakes.frr_contract import FrrContract


class TestFakeFrr(FrrContract):
    @pytest.fixture
    def configured(self, autojump_clock: MockClock) -> FrrDriver:
        return FakeFrr()
