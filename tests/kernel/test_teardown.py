"""``openperouter teardown`` on a real kernel: the NIC is returned as it was, and no device of ours remains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.netlink.planning.observed import NIC_GROUP, OUR_GROUPS
from config.desired import DesiredState
from config.settings import Settings
from supervisor.cli import main
from supervisor.operations import teardown
from supervisor.operations.teardown import clear_kernel, nothing
from supervisor.process.instance_lock import single_instance
from tests.actors.netlink.builders import demo
from tests.kernel.node import Node, ip, ip_json

NIC = Node.NIC


@pytest.fixture
def settings_file(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings for this node, with an FRR that is not there, and a NIC with everything that a NIC can have."""
    monkeypatch.setattr(teardown, "SYSTEMD_BOOTED", tmp_path / "no-systemd")
    ip("addr", "add", "192.0.2.5/24", "dev", NIC)
    ip("addr", "add", "2001:db8:5::5/64", "dev", NIC, "nodad")
    ip("link", "set", NIC, "mtu", "1600")
    ip("link", "property", "add", "dev", NIC, "altname", "uplink-of-the-rack")
    ip("route", "add", "default", "via", "192.0.2.1", "metric", "100")
    ip("route", "add", "198.51.100.0/24", "via", "192.0.2.9", "mtu", "1400")
    ip("-6", "route", "add", "2001:db8:6::/48", "via", "2001:db8:5::1")
    path = tmp_path / "openperouter.yaml"
    path.write_text(
        f"netns: {Node.NETNS}\nstateDir: {node.state}\nrunDir: {tmp_path}/run\n"
        f"vtysh: {tmp_path}/no-vtysh\nfrrEtcDir: {tmp_path}/frr\n"
    )
    return path


def run_teardown(settings_file: Path, *words: str) -> int:
    return main(["--settings", str(settings_file), "teardown", "--yes", *words])


def witness() -> dict[str, Any]:
    """Return what the NIC has in the host, as iproute2 sees it."""
    [link] = ip_json("link", "show", "dev", NIC)
    kept = {key: link.get(key) for key in ("mtu", "group", "master", "address", "altnames")}
    [addresses] = ip_json("addr", "show", "dev", NIC)
    found = {
        (one["local"], one["prefixlen"], one["scope"], one.get("noprefixroute"))
        for one in addresses["addr_info"]
        if one["scope"] != "link"
    }
    routes = {
        json.dumps({key: value for key, value in route.items() if key not in ("flags", "metrics")}, sort_keys=True)
        for family in ("-4", "-6")
        for route in json.loads(ip("-j", family, "route", "show", "dev", NIC, "table", "main") or "[]")
        if not route["dst"].startswith("fe80:")
    }
    return {**kept, "up": "UP" in link["flags"], "addresses": found, "routes": routes}


def ours() -> set[str]:
    """Return the names of our devices and NICs in both namespaces."""
    marks = {str(group) for group in (*OUR_GROUPS, NIC_GROUP)}
    links = ip_json("link") + ip_json("-n", Node.NETNS, "link")
    return {link["ifname"] for link in links if link["group"] in marks}


def test_the_nic_is_restored_and_no_device_of_ours_remains(
    node: Node, settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = witness()
    assert node.converge(demo()).clean
    assert ours()
    node.crash()
    assert run_teardown(settings_file) == 0
    assert witness() == before
    assert ours() == set()
    assert "unreachable" not in node.router("route", "show", "table", "all")
    assert not list(Path(node.state).iterdir())
    output = capsys.readouterr().out
    assert "kernel: " in output
    assert NIC in output
    assert Node.NETNS in ip("netns", "list")


def test_a_second_teardown_does_nothing(node: Node, settings_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node.converge(demo())
    node.crash()
    assert run_teardown(settings_file) == 0
    before = witness()
    capsys.readouterr()
    assert run_teardown(settings_file) == 0
    assert witness() == before
    assert "nothing of the router is left" in capsys.readouterr().out


def test_after_a_crash_at_any_step_the_next_teardown_completes(
    node: Node, settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = witness()
    empty: DesiredState = nothing()
    assert node.converge(demo()).clean
    steps = len(node.plan(empty)[1].steps)
    assert steps > 8
    for count in range(1, steps):
        node.apply_prefix(empty, count)
        node.crash()
        assert run_teardown(settings_file) == 0, count
        assert witness() == before, count
        assert ours() == set(), count
        assert node.converge(demo()).clean, count
    capsys.readouterr()


def test_devices_in_the_host_are_removed_even_without_the_namespace(
    node: Node, settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.converge(demo())
    node.crash()
    ip("netns", "del", Node.NETNS)
    assert run_teardown(settings_file) == 0
    marks = {str(group) for group in OUR_GROUPS}
    assert not [link["ifname"] for link in ip_json("link") if link["group"] in marks]
    assert "missing" in capsys.readouterr().out
    node.add_netns()


def test_a_namespace_with_a_foreign_device_is_kept(
    node: Node, settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.router("link", "add", "theirs", "type", "dummy")
    node.converge(demo())
    node.crash()
    assert run_teardown(settings_file, "--netns") == 69
    assert "theirs" in node.names()
    assert "theirs" in capsys.readouterr().err


def test_with_netns_the_namespace_is_deleted_as_well(
    node: Node, settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = witness()
    node.converge(demo())
    node.crash()
    assert run_teardown(settings_file, "--netns") == 0
    assert Node.NETNS not in ip("netns", "list")
    assert witness() == before
    capsys.readouterr()


def test_while_the_daemon_runs_nothing_is_touched(
    node: Node, settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.converge(demo())
    there = ours()
    with single_instance(tmp_path / "run"):
        assert run_teardown(settings_file) == 75
    assert ours() == there
    assert "systemctl stop openperouter" in capsys.readouterr().err


def test_a_refusal_of_the_kernel_is_reported_and_the_journal_stays(node: Node, tmp_path: Path) -> None:
    node.converge(demo())
    node.crash()
    ip("link", "add", NIC, "type", "dummy")
    try:
        errors = clear_kernel(Settings(netns=Node.NETNS, state_dir=node.state), lambda _line: None)
        assert errors
        assert (Path(node.state) / "nic-journal.json").exists()
        assert NIC in node.names()
    finally:
        ip("link", "del", NIC)
