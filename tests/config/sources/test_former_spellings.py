"""Files of upstream 0.1 and 0.2.0 mean what they meant, with a warning that shows today's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.problems import Kind, Severity
from config.sources.former_spellings import names_by_vrf, rewrites, rewritten, written
from config.sources.router_file import parse_router_file

#: As upstream's documentation of 0.2.0 had it, with what 0.1 had in other places.
FORMER = """\
underlays:
  - asn: 64514
    nics: [eth1, eth2]
    evpn: {vtepcidr: 100.65.0.0/24}
    neighbors:
      - {asn: 64512, address: 192.168.11.2, ebgpMultiHop: true, bfd: {passiveMode: true, minimumTtl: 200}}
      - {type: internal, address: 192.168.11.3, ebgpMultiHop: false, bfd: {passiveMode: false}}
l3vnis:
  - {name: tenant, vrf: red, vni: 100, hostsession: {asn: 64514, hostasn: 64515, localcidr: {ipv4: 172.26.10.0/24}}}
  - {vrf: blue, vni: 200}
l2vnis:
  - {vni: 110, vrf: red, l2gatewayips: [10.1.1.1/24], hostmaster: {type: linux-bridge, linuxBridge: {autoCreate: true}}}
  - {vni: 111, vrf: blue, l2gatewayip: 10.1.2.1/24, hostmaster: {type: bridge, autocreate: true}}
  - {vni: 112, hostmaster: {type: linux-bridge, linuxBridge: {name: br0, autoCreate: false}}}
"""
TODAY = """\
underlays:
  - asn: 64514
    interfaces:
      - {type: NetworkDevice, networkDevice: {interfaceName: eth1}}
      - {type: NetworkDevice, networkDevice: {interfaceName: eth2}}
    tunnelEndpoint: {cidrs: [100.65.0.0/24]}
    neighbors:
      - asn: 64512
        address: 192.168.11.2
        properties: [{type: ebgpMultiHop}]
        bfd: {sessionMode: Passive, minimumTTL: 200}
      - {type: Internal, address: 192.168.11.3, bfd: {}}
l3vnis:
  - {name: tenant, vrf: red, vni: 100, hostSession: {asn: 64514, hostASN: 64515, localCIDR: {ipv4: 172.26.10.0/24}}}
  - {vrf: blue, vni: 200}
l2vnis:
  - vni: 110
    routingDomain: {type: L3VNI, l3vni: {name: tenant}}
    gatewayIPs: [10.1.1.1/24]
    hostMaster: {type: LinuxBridge, linuxBridge: {lifecycle: Managed}}
  - vni: 111
    routingDomain: {type: L3VNI, l3vni: {name: blue}}
    gatewayIPs: [10.1.2.1/24]
    hostMaster: {type: LinuxBridge, linuxBridge: {lifecycle: Managed}}
  - {vni: 112, hostMaster: {type: LinuxBridge, linuxBridge: {lifecycle: External, name: br0}}}
"""


def specs(text: str) -> list[Any]:
    content = parse_router_file(text.encode(), Path("/c/openpe_a.yaml"), "node")
    assert content.usable
    for entry in content.entries:
        assert all(problem.severity is Severity.WARNING for problem in entry.problems), entry.problems
    return [entry.resource.spec for entry in content.entries]


def test_a_former_file_means_what_it_means_today() -> None:
    assert specs(FORMER) == specs(TODAY)


def test_each_former_spelling_has_a_warning_with_its_place_and_todays_form() -> None:
    content = parse_router_file(FORMER.encode(), Path("/c/openpe_a.yaml"), "node")
    shown = [str(problem) for entry in content.entries for problem in entry.problems]
    assert (
        "/c/openpe_a.yaml:4:5: warning: Underlay underlay-0: underlays[0].evpn: a former spelling: write "
        "tunnelEndpoint: {cidrs: [100.65.0.0/24]}, or let openperouter migrate do it"
    ) in shown
    assert sum("a former spelling" in line for line in shown) == 14


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Kind.UNDERLAY, {"nics": ["eth1"], "interfaces": []}),
        (Kind.UNDERLAY, {"nics": [{"a": 1}], "evpn": {"vtepInterface": "eth9"}, "neighbors": [1, {"bfd": True}]}),
        (Kind.UNDERLAY, {"evpn": {"vtepCIDR": "10.0.0.0/8", "vtepInterface": "eth9"}}),
        (Kind.L2VNI, {"vrf": "red", "routingDomain": {}}),
        (Kind.L2VNI, {"hostMaster": {"type": "ovs-bridge", "ovsBridge": {"autoCreate": True}}}),
        (Kind.L2VNI, {"hostMaster": {"type": "linux-bridge", "linuxBridge": {"autoCreate": True, "name": "br0"}}}),
        (Kind.L2VNI, {"hostMaster": {"type": "LinuxBridge", "linuxBridge": {"lifecycle": "Managed"}}}),
        (Kind.L2VNI, {"hostMaster": {"type": "linux-bridge"}}),
        (Kind.L3VNI, {"vrf": "red", "vni": 100}),
        (Kind.UNDERLAY, "nics"),
    ],
)
def test_what_has_no_equivalent_and_what_is_written_as_today_is_left_alone(kind: Kind, data: Any) -> None:
    assert rewrites(kind, data, {}) == ()


def test_a_rewrite_changes_neither_the_order_nor_the_original() -> None:
    data = {"asn": 1, "nics": ["eth1"], "neighbors": [{"type": "external", "address": "192.0.2.1"}]}
    found = rewrites(Kind.UNDERLAY, data, {})
    assert list(rewritten(data, found)) == ["asn", "interfaces", "neighbors"]
    assert data["nics"] == ["eth1"]
    assert written(found[0]) == "interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: eth1}}]"
    assert (found[1].place, found[1].value) == (("neighbors", 0, "type"), "External")


def test_the_first_l3vni_of_a_vrf_gives_its_name() -> None:
    entries = [{"VRF": "red", "Name": "tenant"}, {"vrf": "red"}, {"vrf": "blue"}, {"vni": 1}, 7]
    assert names_by_vrf(entries) == {"red": "tenant", "blue": "blue"}
