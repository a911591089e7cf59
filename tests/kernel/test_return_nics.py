"""What a purge runs, a shell script written from the journal: a NIC comes back whole by it from wherever it is."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from actors.netlink.state_files import BOOT_ID, JOURNAL, StateFiles
from config.desired import DesiredState
from tests.actors.netlink.builders import state, without_underlay
from tests.kernel.nic import furnish, outside
from tests.kernel.node import Node, ip

INSIDE = state()
OUTSIDE = without_underlay(INSIDE)
PROGRAM = Path(__file__).resolve().parents[2] / "packaging" / "deb" / "return_nics.py"


@pytest.fixture(scope="module")
def return_nics() -> ModuleType:
    """The program, which is no package of ours."""
    spec = importlib.util.spec_from_file_location("return_nics", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def purge(node: Node, return_nics: ModuleType) -> str:
    """Do what prerm and postrm do with the NICs, twice; return what was complained of."""
    boot = BOOT_ID.read_text().strip()
    script = return_nics.script(Node.NETNS, boot, StateFiles(node.state, boot).journal())
    runs = [subprocess.run(["sh", "-eu"], input=script, capture_output=True, text=True, check=True) for _ in range(2)]
    (node.state / JOURNAL).unlink(missing_ok=True)
    return "".join(run.stdout + run.stderr for run in runs)


@pytest.mark.parametrize("way", [INSIDE, OUTSIDE], ids=["in", "out"])
def test_killed_after_any_step_of_the_way_a_purge_makes_the_nic_whole(
    node: Node, return_nics: ModuleType, way: DesiredState
) -> None:
    furnish()
    before = outside()
    start = OUTSIDE if way is INSIDE else INSIDE
    assert node.converge(start).clean
    total = len(node.plan(way)[1].steps)
    assert total > 8
    for count in range(total + 1):
        assert node.converge(start).clean, count
        node.apply_prefix(way, count)
        node.crash()
        assert purge(node, return_nics) == "", count
        assert outside() == before, count


def test_a_route_that_cannot_come_back_is_named_and_keeps_no_other_back(node: Node, return_nics: ModuleType) -> None:
    furnish()
    ip("route", "add", "10.77.0.0/16", "via", "203.0.113.1", "dev", Node.NIC, "onlink")
    before = outside()
    node.converge(INSIDE)
    node.crash()
    file = node.state / JOURNAL
    content = json.loads(file.read_text())
    for route in content["nics"][Node.NIC]["routes"]:
        route["flags"] *= route["destination"] != "10.77.0.0/16"
    file.write_text(json.dumps(content))
    assert "10.77.0.0/16" in purge(node, return_nics)
    ip("route", "add", "10.77.0.0/16", "via", "203.0.113.1", "dev", Node.NIC, "onlink")
    assert outside() == before
