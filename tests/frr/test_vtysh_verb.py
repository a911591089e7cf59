"""``openperouter vtysh`` with real FRR: what it shows, what it hides, and a daemon that does not answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.cli import main

from .harness import FrrInstance


@pytest.fixture
def settings_file(frr: FrrInstance, tmp_path: Path) -> Path:
    path = tmp_path / "openperouter.yaml"
    path.write_text(f"frrPathspace: {frr.name}\nrunDir: {tmp_path}\n")
    commands = (
        "configure",
        "router bgp 64514",
        "neighbor 192.0.2.1 remote-as 64512",
        "neighbor 192.0.2.1 password s3cret",
    )
    frr.vtysh(*commands)
    return path


def test_it_shows_without_secrets(settings_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    vtysh = ["--settings", str(settings_file), "vtysh"]
    assert main([*vtysh, "-c", "show running-config", "-c", "sh bgp summary"]) == 0
    shown = capfd.readouterr().out
    assert "neighbor 192.0.2.1 remote-as 64512" in shown
    assert "neighbor 192.0.2.1 password ********" in shown
    assert "s3cret" not in shown
    assert "Neighbor" in shown
    assert main([*vtysh, "-d", "bgpd", "-c", "show bgp summary json"]) == 0
    assert "192.0.2.1" in json.loads(capfd.readouterr().out)["ipv4Unicast"]["peers"]


def test_a_daemon_that_does_not_run_is_an_error(
    frr: FrrInstance, settings_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    frr.kill("bfdd")
    assert main(["--settings", str(settings_file), "vtysh", "-d", "bfdd", "-c", "show bfd peers"]) == 69
    assert "FRR does not answer" in capfd.readouterr().err
