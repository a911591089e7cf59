"""What forwarding survives: the supervisor's death and its freezing, its stop, FRR's restart."""

from __future__ import annotations

from demo.checks import FABRIC_HOST_V4, LEAF, PLAIN_HOST, ping, session
from guestvm.machine import Machine

from .asking import active, eventually, no_ping_lost, property_of

EVPN = session("perouter", "show bgp l2vpn evpn summary", LEAF)
PLAIN = ping(PLAIN_HOST)


def replaced(node: Machine, pid: str) -> bool:
    """Say whether another supervisor than ``pid`` is ready."""
    return active(node) and property_of(node, "MainPID") not in {pid, "0"}


def test_killing_the_supervisor_loses_no_packet(node: Machine) -> None:
    killed = property_of(node, "MainPID")
    with no_ping_lost(node, FABRIC_HOST_V4):
        node.remote.run("systemctl kill --kill-whom=main --signal=KILL openperouter")
        eventually(lambda: replaced(node, killed), "the supervisor is ready again", seconds=300)


def test_a_frozen_supervisor_is_replaced_and_the_next_one_repairs(node: Machine) -> None:
    frozen = property_of(node, "MainPID")
    with no_ping_lost(node, FABRIC_HOST_V4):
        node.remote.run("systemctl kill --kill-whom=main --signal=STOP openperouter")
        node.remote.run("ip link delete dev pt-host")
        assert not PLAIN(node).ok
        eventually(lambda: replaced(node, frozen), "systemd's watchdog replaced it", seconds=300)
    assert "Watchdog timeout" in node.remote.run("journalctl --no-pager -u openperouter --since=-10min -o cat").stdout
    eventually(lambda: PLAIN(node).ok, "what was deleted meanwhile works again")


def test_frr_restarts_configured_without_the_supervisor(node: Machine) -> None:
    node.remote.run("systemctl stop openperouter", seconds=60)
    try:
        node.remote.run("systemctl restart frr@perouter", seconds=120)
        eventually(lambda: EVPN(node).ok, "the EVPN session is back")
    finally:
        node.remote.run("systemctl start openperouter", seconds=300)
    assert EVPN(node).ok


def test_stopping_the_supervisor_leaves_the_data_plane(node: Machine) -> None:
    with no_ping_lost(node, FABRIC_HOST_V4):
        node.remote.run("systemctl stop openperouter", seconds=60)
        try:
            assert "vni100" in node.remote.run("ip -n perouter link").stdout
            assert ping(FABRIC_HOST_V4, count=20)(node).ok
        finally:
            node.remote.run("systemctl start openperouter", seconds=300)
