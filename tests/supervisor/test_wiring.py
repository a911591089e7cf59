"""The composition root: one acyclic machine, and no secrets of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.process.sd_notify import Notifier
from supervisor.runtime.child import ChildState, ChildStatus
from supervisor.wiring import Tree, actor_status


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    settings = Settings(run_dir=tmp_path / "run", state_dir=tmp_path / "state")
    return Tree(settings, settings_file=tmp_path / "openperouter.yaml", version="0", notifier=Notifier())


def test_data_flows_one_way_from_files_to_status(tree: Tree) -> None:
    lines = str(tree.graph).splitlines()
    assert "static_config -> [static] -> report, desired, mirror, crd_watch" in lines
    assert "api_wait -> [access] -> report, announce, mirror, crd_watch" in lines
    assert "crd_watch -> [api] -> report, desired, announce, mirror" in lines
    assert "desired -> [desired] -> report, health, frr, announce" in lines
    assert "frr -> [frr] -> report, health, netlink, announce" in lines
    assert "netlink -> [kernel] -> report, health, announce" in lines
    assert "health -> [health] -> report, announce" in lines
    assert "report -> [status] -> control, systemd" in lines


async def test_every_child_that_decides_about_the_router_is_critical(tree: Tree) -> None:
    critical = {child.name for child in tree.snapshot() if child.critical}
    assert critical == {"watchdog", "systemd", "report", "health", "netlink", "frr", "desired", "static_config"}


async def test_readers_start_before_what_sets_them_in_motion(tree: Tree) -> None:
    names = [child.name for child in tree.snapshot()]
    assert names.index("netlink") < names.index("frr") < names.index("desired") < names.index("static_config")


def test_a_child_s_snapshot_keeps_its_meaning_in_the_status() -> None:
    child = ChildStatus(
        name="frr", state=ChildState.BACKOFF, critical=True, incarnation=3, restarts=2, last_error="FRR is not there"
    )
    status = actor_status(child)
    assert (status.name, status.state, status.restarts, status.last_error) == ("frr", "backoff", 2, "FRR is not there")
    assert status.critical
    assert status.incarnation == 3
