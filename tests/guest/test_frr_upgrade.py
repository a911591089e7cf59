"""A higher version of FRR, installed underneath a running router, and the restart that puts it in use.

Debian's FRR is not restarted by its own upgrade: the router forwards on, and when to restart is up to the operator.
"""

from __future__ import annotations

from pathlib import Path

import autopkgtest

from demo.checks import CHECKS, FABRIC_HOST_V4
from guestvm.machine import Machine

from .commands import active, eventually, findings, no_ping_lost, property_of
from .package import higher_version


def outdated(node: Machine) -> bool:
    """Say whether the doctor finds daemons that run what was installed before."""
    return any("FRR was upgraded" in found["message"] for found in findings(node))


def test_frr_is_upgraded_and_restarted_underneath(node: Machine, tmp_path: Path) -> None:
    higher_version("frr", tmp_path)
    node.remote.copy_in(tmp_path, "/root/frr", seconds=300)
    before = property_of(node, "MainPID", "frr@perouter")
    supervisor = property_of(node, "MainPID")
    with no_ping_lost(node, FABRIC_HOST_V4):
        autopkgtest.install(node, "/root/frr/frr.deb")
    assert node.remote.run("dpkg-query -W -f '${Version}' frr").stdout.endswith("+1")
    assert property_of(node, "MainPID", "frr@perouter") == before
    assert outdated(node)

    node.remote.run("systemctl restart frr@perouter", seconds=300)
    for check in CHECKS:
        verdict = check.wait(node)
        assert verdict.ok, f"{check.title}: {verdict.evidence}"
    eventually(lambda: active(node), "the supervisor is ready")
    assert property_of(node, "MainPID") == supervisor
    assert not outdated(node)
