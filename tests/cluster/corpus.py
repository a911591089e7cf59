"""Objects by hand, good and bad, from the field tables, the validation rules and the test groups of the reference.

``GOOD`` and ``BAD`` hold specs by kind; each bad one differs from a good one in one respect, which its name says.
"""

from __future__ import annotations

from typing import Any

from config.models.overlays import MAX_RAW_CONFIG
from config.problems import Kind

Spec = dict[str, Any]

#: Networks in which no address of a router can be, and some that contain one of these.
UNUSABLE = (
    *("0.0.0.0/0", "0.0.0.0/24", "127.0.0.0/8", "127.1.2.3/32", "169.254.1.0/24", "224.0.0.0/24", "128.0.0.0/1"),
    *("240.0.0.0/16", "255.255.255.255/32", "::/0", "::/128", "::1/64", "fe80::/64", "fe80::1/128", "ff02::/64"),
)


def _changed(base: Spec, changes: Spec) -> Spec:
    """Return ``base`` with keys replaced; None takes one away."""
    return {key: value for key, value in (base | changes).items() if value is not None}


def nic(name: str) -> Spec:
    """Return a link of an underlay."""
    return {"type": "NetworkDevice", "networkDevice": {"interfaceName": name}}


def cni(**changes: Any) -> Spec:
    """Return a link of an underlay that a CNI plugin makes."""
    plugin = {"type": "macvlan", "master": "eth1", "ipam": {"type": "static", "addresses": []}}
    conflist = {"cniVersion": "1.0.0", "name": "fabric", "plugins": [plugin]}
    return {"type": "CNIDevice", "cniDevice": _changed({"type": "RawConfig", "rawConfig": conflist}, changes)}


def neighbor(**changes: Any) -> Spec:
    """Return a neighbour by address."""
    return _changed({"asn": 64512, "address": "192.168.11.2"}, changes)


def dynamic(network: str) -> Spec:
    """Return a neighbour by listen range."""
    return {"type": "External", "listenRange": network}


def underlay(**changes: Any) -> Spec:
    """Return an underlay with one NIC and one neighbour."""
    return _changed({"asn": 64514, "interfaces": [nic("toswitch")], "neighbors": [neighbor()]}, changes)


def session(**changes: Any) -> Spec:
    """Return an external session with the host."""
    return _changed({"asn": 64514, "hostASN": 64515, "localCIDR": {"ipv4": "172.26.10.0/24"}}, changes)


def l3vni(**changes: Any) -> Spec:
    """Return an L3VNI without a session."""
    return _changed({"vrf": "red", "vni": 100}, changes)


def l2vni(**changes: Any) -> Spec:
    """Return a disconnected L2VNI."""
    return _changed({"vni": 210}, changes)


def routed(*gateways: str) -> Spec:
    """Return an L2VNI in a VRF."""
    return l2vni(routingDomain={"type": "L3VNI", "l3vni": {"name": "red"}}, gatewayIPs=list(gateways))


def bridge(**linux: Any) -> Spec:
    """Return an L2VNI with a bridge of the host."""
    return l2vni(hostMaster={"type": "LinuxBridge", "linuxBridge": linux})


def selector(key: str, operator: str, *values: str) -> Spec:
    """Return a node selector with one expression; no values: the list is absent."""
    expression = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
    return {"matchExpressions": [expression]}


#: A neighbour's family in which it is a route reflector's client.
CLIENT = {"type": "evpn", "properties": [{"type": "routeReflectorClient"}]}


def with_neighbor(**changes: Any) -> Spec:
    """Return an underlay whose neighbour is changed."""
    return underlay(neighbors=[neighbor(**changes)])


GOOD: dict[Kind, list[Spec]] = {
    Kind.UNDERLAY: [
        underlay(),
        underlay(
            nodeSelector={"matchLabels": {"kubernetes.io/hostname": "worker-1", "rack": ""}},
            routerIDCIDR="10.1.0.0/16",
            interfaces=[nic("eth0.100"), nic("enp1s0f0np0"), nic("bond-a_b")],
            tunnelEndpoint={"cidrs": ["100.65.0.0/24", "fd00:65::/112"]},
            gracefulRestart={},
        ),
        underlay(gracefulRestart={"restartTimeSeconds": 4095, "stalePathTimeSeconds": 1}),
        underlay(interfaces=[cni()]),
        underlay(interfaces=[cni(), cni(interfaceName="net2", runtimeConfig={"mac": "02:00:00:00:00:01"})]),
        underlay(tunnelEndpoint={"cidrs": ["10.0.0.0/8", "2001:db8::/32"]}),
        underlay(tunnelEndpoint={"cidrs": ["fd00:65::/64"]}, gracefulRestart={"restartTimeSeconds": 4095}),
        underlay(asn=4294967295, neighbors=[neighbor(asn=4294967295)], nodeSelector={}),
        underlay(
            neighbors=[
                neighbor(address="2001:db8::1", asn=None, type="Internal"),
                neighbor(address="169.254.0.1"),
                neighbor(address="fec0::1"),
                neighbor(address=None, interface="eth0"),
                dynamic("10.1.2.3/16"),
                dynamic("10.2.0.0/16"),
                dynamic("2001:db8::/32"),
            ]
        ),
        with_neighbor(port=0, password="s3cret!~", holdTimeSeconds=0, keepaliveTimeSeconds=0, connectTimeSeconds=65535),
        with_neighbor(
            port=16384, passwordSecret={"name": "tor-1", "key": "p.w"}, holdTimeSeconds=3, keepaliveTimeSeconds=3
        ),
        with_neighbor(ttlSecurityHops=254, maximumPrefixes=4294967295, properties=[]),
        with_neighbor(
            properties=[{"type": "ebgpMultiHop"}],
            bfd={},
            addressFamilies=[{"type": "evpn"}, {"type": "ipv4unicast"}, {"type": "ipv6unicast"}],
        ),
        with_neighbor(
            properties=[{"type": "ebgpMultiHop", "ebgpMultiHop": {"ttl": 1}}],
            bfd={
                "receiveInterval": 10,
                "transmitInterval": 60000,
                "detectMultiplier": 2,
                "sessionMode": "Passive",
                "minimumTTL": 254,
            },
        ),
        underlay(
            routeReflector={},
            neighbors=[neighbor(asn=None, type="Internal", addressFamilies=[CLIENT, {"type": "ipv4unicast"}])],
        ),
        with_neighbor(addressFamilies=[{"type": "evpn", "properties": []}]),
        underlay(routeReflector={"clusterID": "198.51.100.1"}, routerIDCIDR="10.1.0.0/16"),
        underlay(nodeSelector=selector("rack", "In", "a", "b"), interfaces=[nic("a" * 15)]),
        underlay(nodeSelector=selector("rack", "DoesNotExist")),
    ],
    Kind.L3VNI: [
        l3vni(),
        l3vni(vrf="a-very-long_vrf", vni=16777215, vxlanPort=65535, underlayAddressFamily="IPv6"),
        l3vni(vni=1, vxlanPort=1, hostSession=session(), nodeSelector=selector("a", "NotIn", "b")),
        l3vni(hostSession=session(hostASN=None, hostType="Internal", localCIDR={"ipv6": "2001:db9:1::/64"})),
        l3vni(hostSession=session(localCIDR={"ipv4": "172.26.10.7/24", "ipv6": "2001:DB9:1::/64"})),
        l3vni(hostSession=session(password="s3cret!~", ttlSecurityHops=1, maximumPrefixes=1)),
        l3vni(hostSession=session(passwordSecret={"name": "host"}, allowedPrefixes=["10.0.0.0/8", "2001:db8::1/32"])),
        l3vni(hostSession=session(hostVRF=True, probe={"targets": ["10.0.0.9"], "intervalSeconds": 1, "count": 100})),
        l3vni(hostSession=session(localCIDR=None, localCIDRs=["172.26.10.0/24"])),
        l3vni(hostSession=session(localCIDR=None, localCIDRs=["2001:db9:1::/64", "172.26.10.0/24"])),
        l3vni(
            exportRTs=["64514:100", "65536:65535", "4294967295:1", "65535:4294967295"],
            importRTs=["192.0.2.1:65535", "0:0", "255.255.255.255:65535"],
        ),
        l3vni(hostSession=session(localCIDR={"ipv4": "223.255.0.0/16", "ipv6": "fec0::/64"})),
        l3vni(importRTs=[], exportRTs=[f"64514:{number}" for number in range(100)]),
        l3vni(allowedNamespaces=["a", "a-0" + "b" * 60, "*"]),
        l3vni(allowedNamespaces=["a"] * 100),
    ],
    Kind.L2VNI: [
        l2vni(),
        l2vni(vxlanPort=65535),
        l2vni(underlayAddressFamily="IPv4", nodeSelector=selector("a", "Exists")),
        bridge(lifecycle="Managed"),
        bridge(lifecycle="External", name="br0"),
        bridge(lifecycle="External", name="br-hs-5"),
        routed(),
        l2vni(routingDomain={"type": "L3VNI", "l3vni": {"name": "red", "namespace": "tenant"}}),
        routed("172.28.24.1/24"),
        routed("2001:db8:24::1/64", "172.28.24.1/24"),
        l2vni(importRTs=["64514:100", "192.0.2.1:65535"], exportRTs=["4294967295:1"], rd="4294967295:65535"),
        l2vni(rd="192.0.2.1:100", importRTs=[]),
    ],
    Kind.L3PASSTHROUGH: [
        {"hostSession": session()},
        {"hostSession": session(hostASN=64514)},
        {
            "nodeSelector": {"matchLabels": {"a": "b"}},
            "hostSession": session(hostASN=None, hostType="External", localCIDR={"ipv6": "fd00:1::/64"}),
        },
    ],
    Kind.RAW_FRR_CONFIG: [
        {"rawConfig": "ip prefix-list a permit any\n"},
        {"rawConfig": " ", "priority": 2147483647},
        {"rawConfig": "! ünïcode\x07", "priority": 0, "nodeSelector": {}},
    ],
}

BAD: dict[Kind, dict[str, Any]] = {
    Kind.UNDERLAY: {
        "nothing": {},
        "no AS": underlay(asn=None),
        "AS 0": underlay(asn=0),
        "AS of 33 bits": underlay(asn=4294967296),
        "AS in quotes": underlay(asn="64514"),
        "no neighbours": underlay(neighbors=[]),
        "neighbours missing": underlay(neighbors=None),
        "129 neighbours": underlay(neighbors=[neighbor(address=f"10.0.0.{number}") for number in range(129)]),
        "no links": underlay(interfaces=[]),
        "65 links": underlay(interfaces=[nic(f"eth{number}") for number in range(65)]),
        "a link twice": underlay(interfaces=[nic("eth0"), nic("eth1"), nic("eth0")]),
        "a link without its device": underlay(interfaces=[{"type": "NetworkDevice"}]),
        "a link without a name": underlay(interfaces=[{"type": "NetworkDevice", "networkDevice": {}}]),
        "a link with an empty name": underlay(interfaces=[nic("")]),
        "a link's name that is too long": underlay(interfaces=[nic("a" * 16)]),
        "a link's name with a dot in front": underlay(interfaces=[nic(".eth0")]),
        "a link's name with a colon": underlay(interfaces=[nic("eth0:1")]),
        "a link's name with a newline": underlay(interfaces=[nic("eth0\n")]),
        "a link with the loopback's name": underlay(interfaces=[nic("lo")]),
        "a link with the name of a device of ours": underlay(interfaces=[nic("br-pe-100")]),
        "a router ID pool of IPv6": underlay(routerIDCIDR="2001:db8::/64"),
        "a router ID pool without a length": underlay(routerIDCIDR="10.0.0.0"),
        "an empty router ID pool": underlay(routerIDCIDR=""),
        "a tunnel endpoint without networks": underlay(tunnelEndpoint={}),
        "a tunnel endpoint with no networks": underlay(tunnelEndpoint={"cidrs": []}),
        "three tunnel networks": underlay(tunnelEndpoint={"cidrs": ["10.0.0.0/8", "fd00::/32", "11.0.0.0/8"]}),
        "two tunnel networks of one family": underlay(tunnelEndpoint={"cidrs": ["10.0.0.0/8", "11.0.0.0/8"]}),
        **{
            f"a tunnel network of {cidr}": underlay(tunnelEndpoint={"cidrs": [cidr]})
            for cidr in (*UNUSABLE, "10.0.0.0/7", "fd00::/31", "169.0.0.0/8", "64::/16")
        },
        "a tunnel network with a wrong length": underlay(tunnelEndpoint={"cidrs": ["10.0.0.0/33"]}),
        "a restart time of 0": underlay(gracefulRestart={"restartTimeSeconds": 0}),
        "a stale time of 4096": underlay(gracefulRestart={"stalePathTimeSeconds": 4096}),
        "a selector with an unknown operator": underlay(nodeSelector=selector("a", "Is", "b")),
        "In without values": underlay(nodeSelector=selector("a", "In")),
        "Exists with values": underlay(nodeSelector=selector("a", "Exists", "b")),
        "a selector without a key": underlay(nodeSelector=selector("", "Exists")),
        "a label that is a number": underlay(nodeSelector={"matchLabels": {"a": 1}}),
        "a neighbour that is null": underlay(neighbors=[None]),
        "a neighbour without AS and type": with_neighbor(asn=None),
        "a neighbour with AS and type": with_neighbor(type="External"),
        "a neighbour's type in lower case": with_neighbor(asn=None, type="external"),
        "a neighbour found in no way": with_neighbor(address=None),
        "a neighbour found in two ways": with_neighbor(interface="eth0"),
        "a neighbour found in two other ways": with_neighbor(address=None, interface="eth0", listenRange="10.0.0.0/8"),
        "a neighbour found in three ways": with_neighbor(interface="eth0", listenRange="10.0.0.0/8"),
        "an address that is a name": with_neighbor(address="leaf"),
        "a loopback address": with_neighbor(address="127.0.0.53"),
        "an IPv6 loopback address": with_neighbor(address="::1"),
        "an IPv6 link-local address": with_neighbor(address="fe80::1"),
        "an IPv6 address at the end of the link-local ones": with_neighbor(address="febf:ffff::1"),
        "an address with a zone": with_neighbor(address="fe80::1%eth0"),
        "an IPv4-mapped address": with_neighbor(address="::ffff:192.0.2.1"),
        "an address with leading zeros": with_neighbor(address="192.0.2.01"),
        "an interface with a space": with_neighbor(address=None, interface="a b"),
        "an interface with a slash": with_neighbor(address=None, interface="a/b"),
        "a link-local listen range": underlay(neighbors=[dynamic("fe80::/64")]),
        "a listen range with leading zeros": underlay(neighbors=[dynamic("10.0.0.0/08")]),
        "a port above the limit": with_neighbor(port=16385),
        "a negative port": with_neighbor(port=-1),
        "a password with a space": with_neighbor(password="a b"),
        "an empty password": with_neighbor(password=""),
        "a password that is too long": with_neighbor(password="x" * 129),
        "both passwords": with_neighbor(password="a", passwordSecret={"name": "b"}),
        "a secret's name with a slash": with_neighbor(passwordSecret={"name": "../b"}),
        "a secret's key with a slash": with_neighbor(passwordSecret={"name": "b", "key": "a/b"}),
        "a secret without a name": with_neighbor(passwordSecret={"key": "b"}),
        "a hold time alone": with_neighbor(holdTimeSeconds=9),
        "a keepalive time alone": with_neighbor(keepaliveTimeSeconds=3),
        "a hold time of 2": with_neighbor(holdTimeSeconds=2, keepaliveTimeSeconds=1),
        "a keepalive time above the hold time": with_neighbor(holdTimeSeconds=9, keepaliveTimeSeconds=10),
        "a connect time of 0": with_neighbor(connectTimeSeconds=0),
        "multihop with TTL 0": with_neighbor(properties=[{"type": "ebgpMultiHop", "ebgpMultiHop": {"ttl": 0}}]),
        "multihop with GTSM": with_neighbor(properties=[{"type": "ebgpMultiHop"}], ttlSecurityHops=1),
        "GTSM over 255 hops": with_neighbor(ttlSecurityHops=255),
        "no prefix at all": with_neighbor(maximumPrefixes=0),
        "an unknown property": with_neighbor(properties=[{"type": "other"}]),
        "a property twice": with_neighbor(properties=[{"type": "ebgpMultiHop"}] * 2),
        "a BFD interval of 9": with_neighbor(bfd={"receiveInterval": 9}),
        "a BFD interval of 60001": with_neighbor(bfd={"transmitInterval": 60001}),
        "a BFD multiplier of 1": with_neighbor(bfd={"detectMultiplier": 1}),
        "a BFD TTL of 255": with_neighbor(bfd={"minimumTTL": 255}),
        "a BFD mode in lower case": with_neighbor(bfd={"sessionMode": "passive"}),
        "an unknown address family": with_neighbor(addressFamilies=[{"type": "l2vpn"}]),
        "an address family twice": with_neighbor(addressFamilies=[{"type": "evpn"}, {"type": "evpn"}]),
        "an unknown key": underlay(nics=["eth0"]),
        "an address twice": underlay(neighbors=[neighbor(), neighbor(asn=64513)]),
        "an address twice, spelled differently": underlay(
            neighbors=[neighbor(address="2001:db8::1"), neighbor(address="2001:DB8:0::0:1")]
        ),
        "an interface twice": underlay(neighbors=[neighbor(address=None, interface="eth0")] * 2),
        "a listen range twice": underlay(neighbors=[dynamic("10.1.0.0/16"), dynamic("10.1.2.3/16")]),
        "a listen range in another": underlay(
            neighbors=[dynamic("10.1.2.0/24"), dynamic("10.2.0.0/16"), dynamic("10.0.0.0/15")]
        ),
        "a CNI device without configuration": underlay(
            interfaces=[{"type": "CNIDevice", "cniDevice": {"type": "RawConfig"}}]
        ),
        "a CNI device of another kind": underlay(interfaces=[cni(type="ConfigMap")]),
        "a CNI device with a reserved name": underlay(interfaces=[cni(interfaceName="lo")]),
        "a CNI device twice": underlay(interfaces=[cni(), cni()]),
        "a CNI device and a NIC": underlay(interfaces=[cni(), nic("eth0")]),
        "a CNI device that is a NIC too": underlay(interfaces=[nic("eth0") | cni()]),
        "a NIC that is a CNI device too": underlay(interfaces=[cni() | nic("eth0")]),
        # Not in this version of the data model.
        "IS-IS": underlay(isis={"baseNet": "49.0001.0000.0000.0001.00"}),
        "SRv6": underlay(srv6={"locator": {"basePrefix": "fd00::/32", "format": "usid-f3216"}}),
        "a VPN family": with_neighbor(addressFamilies=[{"type": "ipv4vpn"}]),
        "a cluster ID of IPv6": underlay(routeReflector={"clusterID": "2001:db8::1"}),
        "a cluster ID that is a router ID": underlay(routeReflector={"clusterID": "10.0.0.9"}),
        "a route reflector's client by number": with_neighbor(addressFamilies=[CLIENT]),
        "a route reflector's external client": with_neighbor(asn=None, type="External", addressFamilies=[CLIENT]),
        "an unknown property of a family": with_neighbor(
            addressFamilies=[{"type": "evpn", "properties": [{"type": "other"}]}]
        ),
    },
    Kind.L3VNI: {
        "nothing": {},
        "null": None,
        "a list": [],
        "no VRF": l3vni(vrf=None),
        "a VRF that is a number": l3vni(vrf=7),
        "an empty VRF": l3vni(vrf=""),
        "a VRF that is too long": l3vni(vrf="a" * 16),
        "a VRF with a dot": l3vni(vrf="red.1"),
        "a VRF that begins with a digit": l3vni(vrf="1red"),
        "a reserved VRF": l3vni(vrf="default"),
        "a VRF with the name of a device of ours": l3vni(vrf="vni100"),
        "no VNI": l3vni(vni=None),
        "VNI 0": l3vni(vni=0),
        "a VNI of 25 bits": l3vni(vni=16777216),
        "a VNI that is true": l3vni(vni=True),
        "a VNI and a half": l3vni(vni=1.5),
        "port 0": l3vni(vxlanPort=0),
        "a port above the limit": l3vni(vxlanPort=65536),
        "a family in lower case": l3vni(underlayAddressFamily="ipv4"),
        "a session without its AS": l3vni(hostSession=session(asn=None)),
        "a session without the host's AS": l3vni(hostSession=session(hostASN=None)),
        "a session with AS and type": l3vni(hostSession=session(hostType="External")),
        "a session with equal numbers": l3vni(hostSession=session(hostASN=64514)),
        "a session without addresses": l3vni(hostSession=session(localCIDR=None)),
        "a session with no address": l3vni(hostSession=session(localCIDR={})),
        "a session whose addresses are null": l3vni(hostSession=session(localCIDR={"ipv4": None})),
        **{
            f"a session within {cidr}": l3vni(hostSession=session(localCIDR={f"ipv{6 if ':' in cidr else 4}": cidr}))
            for cidr in (*UNUSABLE, "10.0.0.0/15", "fd00::/63")
        },
        **{
            f"a session with a listed pool within {cidr}": l3vni(hostSession=session(localCIDR=None, localCIDRs=[cidr]))
            for cidr in UNUSABLE
        },
        "a session with IPv6 for IPv4": l3vni(hostSession=session(localCIDR={"ipv4": "2001:db8::/64"})),
        "a session with IPv4 for IPv6": l3vni(hostSession=session(localCIDR={"ipv6": "10.0.0.0/8"})),
        "a session with both passwords": l3vni(hostSession=session(password="a", passwordSecret={"name": "b"})),
        "a session with pools in both forms": l3vni(hostSession=session(localCIDRs=["172.26.10.0/24"])),
        "a session with an empty list of pools": l3vni(hostSession=session(localCIDR=None, localCIDRs=[])),
        "a session with two pools of a family": l3vni(
            hostSession=session(localCIDR=None, localCIDRs=["172.26.10.0/24", "172.26.11.0/24"])
        ),
        "a session with a listed pool that is too large": l3vni(
            hostSession=session(localCIDR=None, localCIDRs=["fd00::/63"])
        ),
        "a session with GTSM over no hop": l3vni(hostSession=session(ttlSecurityHops=0)),
        "a session with an allowed address": l3vni(hostSession=session(allowedPrefixes=["192.0.2.1"])),
        "a session that may announce nothing": l3vni(hostSession=session(allowedPrefixes=[])),
        "101 route targets": l3vni(importRTs=["1:1"] * 101),
        "101 allowed namespaces": l3vni(allowedNamespaces=["a"] * 101),
        "an allowed namespace in upper case": l3vni(allowedNamespaces=["A"]),
        "an allowed namespace with a star in it": l3vni(allowedNamespaces=["a*"]),
        "an allowed namespace without a name": l3vni(allowedNamespaces=[""]),
        "an allowed namespace of 64 characters": l3vni(allowedNamespaces=["a" * 64]),
        "an allowed namespace of two lines": l3vni(allowedNamespaces=["a\n"]),
        "a route target without a colon": l3vni(importRTs=["64514"]),
        "a route target with two colons": l3vni(importRTs=["1:2:3"]),
        "a route target with half an address": l3vni(importRTs=["192.0.2:1"]),
        "a route target with a wrong address": l3vni(importRTs=["192.0.2.256:1"]),
        "a route target of 17 bits beside an address": l3vni(importRTs=["192.0.2.1:65536"]),
        "a route target of 17 bits beside a long AS": l3vni(exportRTs=["65536:65536"]),
        "a route target of 33 bits": l3vni(exportRTs=["65535:4294967296"]),
        "a route target with an AS of 33 bits": l3vni(exportRTs=["4294967296:1"]),
        "a route target with eleven digits": l3vni(exportRTs=["00000000001:1"]),
        "a route target in hexadecimal": l3vni(exportRTs=["0x1:1"]),
        "a route target with a wildcard": l3vni(exportRTs=["*:1"]),
        "a route target that is null": l3vni(exportRTs=[None]),
        "upstream's older spelling": l3vni(hostsession=session()),
    },
    Kind.L2VNI: {
        "nothing": {},
        "a master without a type": l2vni(hostMaster={"linuxBridge": {"lifecycle": "Managed"}}),
        "a master without its bridge": l2vni(hostMaster={"type": "LinuxBridge"}),
        "a bridge without a lifecycle": bridge(name="br0"),
        "a managed bridge with a name": bridge(lifecycle="Managed", name="br0"),
        "an external bridge without a name": bridge(lifecycle="External"),
        "an external bridge with an empty name": bridge(lifecycle="External", name=""),
        "an external bridge with a name that is too long": bridge(lifecycle="External", name="b" * 16),
        "an external bridge with a reserved name": bridge(lifecycle="External", name="lo"),
        "an external bridge with the name of a device of ours": bridge(lifecycle="External", name="host-e-5"),
        "a gateway without a VRF": l2vni(gatewayIPs=["172.28.24.1/24"]),
        **{f"a gateway of {cidr}": routed(cidr) for cidr in (*UNUSABLE, "10.0.0.1/15", "fd00::1/63")},
        "a gateway without a length": routed("172.28.24.1"),
        "two gateways of one family": routed("172.28.24.1/24", "172.28.25.1/24"),
        "three gateways": routed("172.28.24.1/24", "2001:db8::1/64", "2001:db9::1/64"),
        "a domain without a type": l2vni(routingDomain={"l3vni": {"name": "red"}}),
        "a domain without its reference": l2vni(routingDomain={"type": "L3VNI"}),
        "a domain with an empty reference": l2vni(routingDomain={"type": "L3VNI", "l3vni": {"name": ""}}),
        "an OVS bridge": l2vni(hostMaster={"type": "OVSBridge", "ovsBridge": {"lifecycle": "Managed"}}),
        "a domain in a namespace without a name": l2vni(
            routingDomain={"type": "L3VNI", "l3vni": {"name": "red", "namespace": ""}}
        ),
        "an L3VPN as domain": l2vni(routingDomain={"type": "L3VPN", "l3vpn": {"name": "red"}}),
    },
    Kind.L3PASSTHROUGH: {
        "nothing": {},
        "a session that is null": {"hostSession": None},
        "a session without its AS": {"hostSession": session(asn=None)},
        "a session with AS 0": {"hostSession": session(asn=0)},
        "a session with no address": {"hostSession": session(localCIDR={})},
    },
    Kind.RAW_FRR_CONFIG: {
        "nothing": {},
        "an empty snippet": {"rawConfig": ""},
        "a snippet that is a number": {"rawConfig": 1},
        "a snippet that is too long": {"rawConfig": "é" * (MAX_RAW_CONFIG + 1)},
        "a negative priority": {"rawConfig": "!", "priority": -1},
        "a priority of 32 bits": {"rawConfig": "!", "priority": 2147483648},
    },
}
