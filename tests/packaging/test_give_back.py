"""The shell commands of a purge, beyond what tests/checks asks of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from actors.netlink.objects import NicPhase, NicRecord, SavedRoute
from config.desired import Family

PROGRAM = Path(__file__).resolve().parents[2] / "packaging" / "deb" / "give_back.py"


@pytest.fixture(scope="module")
def give_back() -> ModuleType:
    spec = importlib.util.spec_from_file_location("give_back", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_way_to_a_gateway_comes_back_before_what_is_behind_it(give_back: ModuleType) -> None:
    default = SavedRoute(Family.IPV4, "0.0.0.0/0", 254, gateway="10.0.0.1")
    way = SavedRoute(Family.IPV4, "10.0.0.1/32", 254, scope=253)
    record = NicRecord("eth1", NicPhase.INSIDE, 1500, "", up=True, routes=(default, way))
    found = [line for line in give_back.restoring(record) if "route add" in line]
    assert [line.split()[3] for line in found] == ["10.0.0.1/32", "0.0.0.0/0"]
