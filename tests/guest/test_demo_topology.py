"""What ``make demo`` shows, judged by the same checks."""

from __future__ import annotations

import pytest

from demo.checks import CHECKS, Check
from guestvm.machine import Machine

from .commands import property_of


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.title)
def test_the_node_forwards(node: Machine, check: Check) -> None:
    verdict = check.wait(node)
    assert verdict.ok, verdict.evidence


def test_systemd_says_ready_and_what_the_router_does(node: Machine) -> None:
    assert property_of(node, "ActiveState") == "active"
    assert property_of(node, "StatusText")


def test_the_node_is_its_own_provider_edge_before_kubelet_and_without_waiting_for_the_network(node: Machine) -> None:
    before = property_of(node, "Before").split()
    after = property_of(node, "After").split()
    assert "kubelet.service" in before
    assert "network-online.target" in before
    assert "network-online.target" not in after
