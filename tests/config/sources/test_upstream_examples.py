"""What upstream's definitions accept, in the field styles of all its versions: accepted here, or named as a later part.

Each line is one style of a field, as an entry of a router file. A part that upstream gains belongs into this list.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from config.models.rules import NOT_YET
from config.problems import Severity
from config.resources import Unusable
from config.sources.router_file import parse_router_file

NIC = "interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: eth1}}]"
PEER = "neighbors: [{asn: 64512, address: 192.168.11.2}]"
SESSION = "asn: 64514, hostASN: 64515"
V4 = "172.26.10.0/24"

ACCEPTED = {
    "links (0.1)": f"underlays: [{{asn: 1, nics: [eth1], {PEER}}}]",
    "links": f"underlays: [{{asn: 1, {NIC}, {PEER}}}]",
    "tunnel endpoint (0.1)": f"underlays: [{{asn: 1, {NIC}, {PEER}, evpn: {{vtepcidr: 10.1.0.0/24}}}}]",
    "tunnel endpoint": f"underlays: [{{asn: 1, {NIC}, {PEER}, tunnelEndpoint: {{cidrs: [10.1.0.0/24, 'fd00::/64']}}}}]",
    "router IDs": f"underlays: [{{asn: 1, routerIDCIDR: 10.9.0.0/24, {NIC}, {PEER}}}]",
    "route reflector": f"underlays: [{{asn: 1, {NIC}, {PEER}, routeReflector: {{}}}}]",
    "route reflector's client": f"underlays: [{{asn: 1, {NIC}, neighbors: [{{type: Internal, address: 192.0.2.1, "
    "addressFamilies: [{type: evpn, properties: [{type: routeReflectorClient}]}]}]}]",
    "graceful restart": f"underlays: [{{asn: 1, {NIC}, {PEER}, gracefulRestart: {{restartTimeSeconds: 60}}}}]",
    **{
        f"neighbour: {style}": f"underlays: [{{asn: 1, {NIC}, neighbors: [{{{fields}}}]}}]"
        for style, fields in {
            "type (0.2.0)": "type: external, address: 192.0.2.1",
            "type": "type: Internal, address: 192.0.2.1",
            "unnumbered": "asn: 2, interface: eth1",
            "listen range": "asn: 2, listenRange: 192.0.2.0/24, password: a",
            "multihop (0.2.0)": "asn: 2, address: 192.0.2.1, ebgpMultiHop: true",
            "multihop": "asn: 2, address: 192.0.2.1, properties: [{type: ebgpMultiHop, ebgpMultiHop: {ttl: 2}}]",
            "passive BFD (0.2.0)": "asn: 2, address: 192.0.2.1, bfd: {passiveMode: true, minimumTtl: 9}",
            "passive BFD": "asn: 2, address: 192.0.2.1, bfd: {sessionMode: Passive, minimumTTL: 9}",
            "timers": "asn: 2, address: 192.0.2.1, holdTimeSeconds: 9, keepaliveTimeSeconds: 3, connectTimeSeconds: 5",
            "families": "asn: 2, address: 192.0.2.1, addressFamilies: [{type: ipv4unicast}, {type: evpn}]",
            "password": "asn: 2, address: 192.0.2.1, password: a",
        }.items()
    },
    "L3VNI (0.1)": "l3vnis: [{vrf: red, vni: 1, vxlanport: 4789, hostsession: "
    f"{{asn: 1, hostasn: 2, localcidr: {{ipv4: {V4}}}}}}}]",
    "L3VNI (0.2.0)": f"l3vnis: [{{vrf: red, vni: 1, hostSession: {{{SESSION}, localCIDR: {{ipv4: {V4}}}}}}}]",
    "L3VNI": f"l3vnis: [{{vrf: red, vni: 1, hostSession: {{{SESSION}, localCIDRs: [{V4}, 'fd00::/64']}}}}]",
    "L3VNI by type": f"l3vnis: [{{vrf: red, vni: 1, hostSession: {{asn: 1, hostType: Internal, localCIDRs: [{V4}]}}}}]",
    "route targets": "l3vnis: [{vrf: red, vni: 1, importRTs: ['1:1'], exportRTs: ['192.0.2.1:1']}]",
    "tunnel family": "l3vnis: [{vrf: red, vni: 1, underlayAddressFamily: IPv6}]",
    "L2VNI (0.1)": "l2vnis: [{vni: 1, vrf: red, l2gatewayip: 10.1.1.1/24, "
    "hostmaster: {type: bridge, autocreate: true}}]",
    "L2VNI (0.2.0)": "l2vnis: [{vni: 1, vrf: red, l2gatewayips: [10.1.1.1/24], "
    "hostMaster: {type: linux-bridge, linuxBridge: {autoCreate: true}}}]",
    "L2VNI": "l2vnis: [{vni: 1, routingDomain: {type: L3VNI, l3vni: {name: red}}, gatewayIPs: [10.1.1.1/24], "
    "hostMaster: {type: LinuxBridge, linuxBridge: {lifecycle: Managed}}}]",
    "L2VNI on a bridge": "l2vnis: [{vni: 1, hostMaster: {type: LinuxBridge, "
    "linuxBridge: {lifecycle: External, name: br0}}}]",
    "passthrough (0.2.0)": f"bgppassthrough: {{hostSession: {{{SESSION}, localCIDR: {{ipv4: {V4}}}}}}}",
    "passthrough": f"bgppassthrough: {{hostSession: {{{SESSION}, localCIDRs: [{V4}]}}}}",
    "CNI": f"underlays: [{{asn: 1, {PEER}, interfaces: [{{type: CNIDevice, cniDevice: {{type: RawConfig, "
    "interfaceName: net1, rawConfig: {cniVersion: 1.0.0, name: fabric, plugins: [{type: macvlan, master: eth1, "
    "ipam: {type: static, addresses: [{address: 192.0.2.3/24}]}}]}}}]}]",
    "CNI with DHCP": f"underlays: [{{asn: 1, {PEER}, interfaces: [{{type: CNIDevice, cniDevice: {{type: RawConfig, "
    "rawConfig: {cniVersion: 1.0.0, name: fabric, plugins: [{type: macvlan, ipam: {type: dhcp}}]}}}]}]",
    "raw snippet": "rawfrrconfigs: [{priority: 1, rawConfig: 'ip prefix-list a permit any'}]",
}

LATER = {
    "IS-IS": f"underlays: [{{asn: 1, {NIC}, {PEER}, isis: {{baseNet: 49.0001.0002.0003.0004.00}}}}]",
    "SRv6": f"underlays: [{{asn: 1, {NIC}, {PEER}, srv6: {{locator: {{basePrefix: 'fd00::/48'}}}}}}]",
    "VPN family": f"underlays: [{{asn: 1, {NIC}, neighbors: [{{asn: 2, address: '2001:db8::1', "
    "addressFamilies: [{type: ipv4vpn}]}]}]",
    "OVS": "l2vnis: [{vni: 1, hostMaster: {type: OVSBridge, ovsBridge: {lifecycle: Managed}}}]",
    "L3VPN as domain": "l2vnis: [{vni: 1, routingDomain: {type: L3VPN, l3vpn: {name: red}}}]",
    "L3VPN": "l3vpns: [{vrf: red, rdAssignedNumber: 1, importRTs: ['1:1']}]",
}


@pytest.mark.parametrize("style", ACCEPTED)
def test_it_is_accepted(style: str) -> None:
    content = parse_router_file(ACCEPTED[style].encode(), Path("/c/openpe_a.yaml"), "node")
    [entry] = content.entries
    assert not isinstance(entry.resource.spec, Unusable), entry.problems
    assert all(problem.severity is Severity.WARNING for problem in (*content.problems, *entry.problems))


@pytest.mark.parametrize("style", LATER)
def test_it_is_named_as_a_later_part(style: str) -> None:
    content = parse_router_file(LATER[style].encode(), Path("/c/openpe_a.yaml"), "node")
    problems = [*content.problems, *(problem for entry in content.entries for problem in entry.problems)]
    assert NOT_YET in " ".join(problem.message for problem in problems if problem.severity is Severity.ERROR)
