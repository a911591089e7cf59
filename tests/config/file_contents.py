"""Random contents of a configuration file, every one of them valid, as hypothesis strategies."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from .samples import underlay_spec

#: What is a password in them.
SECRET: Final = "hush-9f2"


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


Specs = st.SearchStrategy[dict[str, Any]]
NONE: Specs = st.just({})
VNIS = st.integers(1, 16777215)
ASNS = st.integers(1, 64511)
TARGETS = st.lists(st.sampled_from(["64514:1", "64514:70000", "192.0.2.1:7"]), max_size=3)
POOLS = st.sampled_from(
    [{"ipv4": "192.0.2.0/24"}, {"ipv6": "2001:DB8::/64"}, {"ipv4": "192.0.2.1/24", "ipv6": "fd00::/64"}]
)
REMOTES = st.one_of(
    ASNS.map(lambda number: {"hostASN": number + 70000}),
    st.just({"hostType": "Internal"}),
    st.just({"hostType": "External"}),
)
SESSIONS = st.builds(lambda asn, pools, remote: {"asn": asn, "localCIDR": pools} | remote, ASNS, POOLS, REMOTES)
BFD = optional(
    receiveInterval=st.integers(10, 60000), sessionMode=st.sampled_from(["Active", "Passive"]), minimumTTL=st.just(3)
)
TIMERS = st.sampled_from([{}, {"holdTimeSeconds": 9, "keepaliveTimeSeconds": 3}])
NEIGHBORS = st.builds(
    lambda asn, timers, rest: {"asn": asn} | timers | rest,
    ASNS,
    TIMERS,
    optional(
        port=st.integers(0, 16384),
        password=st.just(SECRET),
        connectTimeSeconds=st.integers(1, 65535),
        bfd=BFD,
        properties=st.sampled_from(
            [[], [{"type": "ebgpMultiHop"}], [{"type": "ebgpMultiHop", "ebgpMultiHop": {"ttl": 4}}]]
        ),
        addressFamilies=st.sampled_from([[], [{"type": "evpn"}], [{"type": "ipv4unicast"}, {"type": "evpn"}]]),
    ),
)
UNDERLAYS = st.builds(
    lambda neighbors, rest: (
        underlay_spec(neighbors=[one | {"address": f"192.0.2.{number}"} for number, one in enumerate(neighbors)]) | rest
    ),
    st.lists(NEIGHBORS, min_size=1, max_size=3),
    optional(
        routerIDCIDR=st.just("10.9.0.0/16"),
        gracefulRestart=optional(restartTimeSeconds=st.integers(1, 4095), stalePathTimeSeconds=st.integers(1, 4095)),
    ),
)
COMMON = {
    "vxlanPort": st.integers(1, 65535),
    "underlayAddressFamily": st.sampled_from(["IPv4", "IPv6"]),
    "nodeSelector": st.just({"matchLabels": {"a": "b"}}),
}
L3VNIS = st.builds(
    lambda vni, rest: {"vni": vni, "vrf": f"v{vni}"} | rest,
    VNIS,
    optional(**COMMON, hostSession=SESSIONS, exportRTs=TARGETS, importRTs=TARGETS, name=st.just("chosen")),
)
GATEWAYS: list[dict[str, Any]] = [{}, {"gatewayIPs": []}, {"gatewayIPs": ["192.0.2.1/24", "2001:db8::1/64"]}]
ROUTED: Specs = st.sampled_from(GATEWAYS).map(
    lambda gateways: {"routingDomain": {"type": "L3VNI", "l3vni": {"name": "red"}}} | gateways
)
MASTERS: Specs = st.sampled_from([{"lifecycle": "Managed"}, {"lifecycle": "External", "name": "br0"}]).map(
    lambda bridge: {"hostMaster": {"type": "LinuxBridge", "linuxBridge": bridge}}
)
L2VNIS = st.builds(
    lambda vni, routed, master, rest: {"vni": vni} | routed | master | rest,
    VNIS, NONE | ROUTED, NONE | MASTERS, optional(**COMMON),
)  # fmt: skip
RAWS = st.builds(
    lambda text, rest: {"rawConfig": text} | rest,
    st.sampled_from(["! x\n", "route-map a permit 1\n set community 1:2\n", " neighbor 192.0.2.9 description é"]),
    optional(priority=st.integers(0, 9)),
)
PASSTHROUGHS = SESSIONS.map(lambda one: {"hostSession": one})
FILES = optional(
    underlays=st.lists(UNDERLAYS, max_size=1),
    l3vnis=st.lists(L3VNIS, max_size=3),
    l2vnis=st.lists(L2VNIS, max_size=3),
    bgppassthrough=PASSTHROUGHS,
    rawfrrconfigs=st.lists(RAWS, max_size=2),
)
