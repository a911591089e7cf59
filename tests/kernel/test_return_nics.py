"""The shell script that a purge runs, written from the journal: it restores a NIC from any interrupted move."""

from __future__ import annotations

import json
import subprocess

import pytest
import return_nics

from actors.netlink.state_files import BOOT_ID, JOURNAL, StateFiles
from config.desired import DesiredState
from tests.actors.netlink.builders import state, without_underlay
from tests.kernel.nic import furnish, outside
from tests.kernel.node import Node, ip

INSIDE = state()
OUTSIDE = without_underlay(INSIDE)


def purge(node: Node) -> str:
    """Do what prerm and postrm do with the NICs, twice; return the script's output."""
    boot = BOOT_ID.read_text().strip()
    script = return_nics.script(Node.NETNS, boot, StateFiles(node.state, boot).journal())
    runs = [subprocess.run(["sh", "-eu"], input=script, capture_output=True, text=True, check=True) for _ in range(2)]
    (node.state / JOURNAL).unlink(missing_ok=True)
    return "".join(run.stdout + run.stderr for run in runs)


@pytest.mark.parametrize("direction", [INSIDE, OUTSIDE], ids=["in", "out"])
def test_after_a_crash_at_any_step_a_purge_restores_the_nic(node: Node, direction: DesiredState) -> None:
    furnish()
    before = outside()
    start = OUTSIDE if direction is INSIDE else INSIDE
    assert node.converge(start).clean
    total = len(node.plan(direction)[1].steps)
    assert total > 8
    for count in range(total + 1):
        assert node.converge(start).clean, count
        node.apply_prefix(direction, count)
        node.crash()
        assert purge(node) == "", count
        assert outside() == before, count


def test_a_route_that_cannot_be_restored_is_named_and_the_others_are_restored(node: Node) -> None:
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
    assert "10.77.0.0/16" in purge(node)
    ip("route", "add", "10.77.0.0/16", "via", "203.0.113.1", "dev", Node.NIC, "onlink")
    assert outside() == before
