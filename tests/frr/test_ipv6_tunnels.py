"""From which version on FRR can use IPv6 tunnel endpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from actors.frr.abilities import has_ipv6_tunnels
from actors.frr.driver import VtyshDriver
from config.settings import Settings

from .harness import FrrInstance, eventually, sh


def evpn(frr: FrrInstance) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(frr.vtysh("show evpn vni 100 json") or "{}")
    return found


@pytest.mark.parametrize("endpoint", ["100.65.0.1", "2001:db8::1"])
def test_zebra_reads_ipv6_endpoints_from_the_required_version_on(
    frr: FrrInstance, settings: Settings, endpoint: str
) -> None:
    """Else VNIs would be refused in vain, or come up green and carry nothing."""
    sh(f"ip -n {frr.name} link add br100 type bridge")
    sh(f"ip -n {frr.name} link add vni100 type vxlan id 100 dev lo local {endpoint} dstport 4789 nolearning")
    sh(f"ip -n {frr.name} link set vni100 master br100 up && ip -n {frr.name} link set br100 up")
    lines = ("router bgp 64514", "bgp router-id 10.0.0.1", "address-family l2vpn evpn", "advertise-all-vni")
    frr.vtysh("configure terminal", *lines)
    eventually("zebra knows the VNI", lambda: evpn(frr).get("vni") == 100)
    version = trio.run(VtyshDriver(settings).version)
    assert version[:1].isdigit()
    able = ":" not in endpoint or has_ipv6_tunnels(version)
    assert (evpn(frr).get("vtepIp") == endpoint) is able, (version, evpn(frr))
