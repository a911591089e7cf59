"""The underlay: defaults, constraints and what may not be there twice."""

from __future__ import annotations

from typing import Any

import pytest

from config.desired import Secret
from config.models import Underlay
from config.models.passwords import with_passwords

from ..samples import interface, neighbor, underlay_spec

OWN_DAEMON = {"type": "dhcp", "daemonSocketPath": "/run/cni/dhcp.sock"}


def cni(device: dict[str, Any] | None = None, **conflist: Any) -> dict[str, Any]:
    plugin = {"type": "macvlan", "master": "eth1", "ipam": {"type": "static"}}
    content = {"cniVersion": "1.0.0", "name": "fabric", "plugins": [plugin]} | conflist
    return {"type": "CNIDevice", "cniDevice": {"type": "RawConfig", "rawConfig": content} | (device or {})}


def listener(network: str) -> dict[str, Any]:
    return {"asn": 1, "listenRange": network}


def test_defaults_are_upstreams() -> None:
    spec = Underlay.model_validate(underlay_spec(tunnelEndpoint=None))
    assert (spec.router_id_cidr, spec.tunnel_endpoint, spec.graceful_restart) == ("10.0.0.0/24", None, None)
    restart = Underlay.model_validate(underlay_spec(gracefulRestart={})).graceful_restart
    assert restart is not None
    assert (restart.restart_time_seconds, restart.stale_path_time_seconds) == (120, 360)
    reflector = Underlay.model_validate(underlay_spec(routeReflector={})).route_reflector
    assert reflector is not None
    assert reflector.cluster_id == "192.0.2.1"


@pytest.mark.parametrize(
    "fields",
    [
        {"interfaces": [interface("eth0.100"), interface("eth1")]},
        {"neighbors": [neighbor(asn=64514)]},
        {"neighbors": [neighbor(), neighbor(address="2001:db8::1"), {"asn": 1, "interface": "eth0"}]},
        {"neighbors": [listener("10.0.0.0/24"), listener("10.0.1.0/24"), listener("2001:db8::/64")]},
        {"neighbors": [neighbor(address=f"10.0.0.{number}") for number in range(128)]},
        {"tunnelEndpoint": {"cidrs": ["100.65.0.0/24", "2001:db8::/64"]}},
        {"tunnelEndpoint": {"cidrs": ["2001:db8::/64"]}},
        {"interfaces": [cni()]},
        {"interfaces": [cni(), cni({"interfaceName": "net2", "runtimeConfig": {"mac": "02:00:00:00:00:01"}})]},
        {"interfaces": [cni(cniVersion="1.1.0", disableCheck=True, plugins=[{"type": "a", "of its own": [1, None]}])]},
        {"interfaces": [cni(plugins=[{"type": "a", "capabilities": {"mac": True}}, {"type": "b", "ipam": {}}])]},
        {"interfaces": [cni(plugins=[{"type": "macvlan", "ipam": {"type": "dhcp", "request": []}}])]},
    ],
)
def test_an_underlay_is_accepted(fields: dict[str, Any]) -> None:
    accepted = Underlay.model_validate(underlay_spec(**fields))
    assert accepted.model_fields_set >= set(underlay_spec(**fields)) & set(Underlay.model_fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"asn": 0}, "greater than or equal"),
        ({"neighbors": []}, "at least 1"),
        ({"neighbors": [neighbor(address=f"10.0.0.{number}") for number in range(129)]}, "at most 128"),
        ({"neighbors": [neighbor(), neighbor()]}, "192.168.11.2 is given twice"),
        (
            {"neighbors": [neighbor(address="2001:db8::1"), neighbor(address="2001:DB8:0::1")]},
            "2001:db8::1 is given twice",
        ),
        ({"neighbors": [{"asn": 1, "interface": "eth0"}] * 2}, "eth0 is given twice"),
        ({"neighbors": [listener("10.0.0.0/24"), listener("10.0.0.9/24")]}, "10.0.0.0/24 is given twice"),
        (
            {"neighbors": [listener("10.0.0.0/8"), listener("11.0.0.0/8"), listener("10.9.0.0/16")]},
            "10.9.0.0/16 overlap",
        ),
        ({"neighbors": [listener("10.9.1.2/16"), listener("10.0.0.0/8")]}, "overlap"),
        ({"neighbors": [listener("2001:db8:1::/48"), listener("2001:db8::/32")]}, "overlap"),
        ({"interfaces": []}, "at least 1"),
        ({"interfaces": [interface("eth0"), interface("eth0")]}, "eth0 is given twice"),
        ({"interfaces": [interface("a" * 16)]}, "at most 15 characters in Linux; this one has 16"),
        ({"interfaces": [interface(".eth0")]}, "must be a letter followed by"),
        ({"interfaces": [interface("lo")]}, "reserved"),
        ({"interfaces": [{"type": "NetworkDevice"}]}, "needs networkDevice.interfaceName"),
        ({"interfaces": [{"networkDevice": {"interfaceName": "eth0"}}]}, "type"),
        ({"interfaces": [{"type": "Other"}]}, "NetworkDevice"),
        ({"interfaces": [{"type": "CNIDevice"}]}, "needs cniDevice.rawConfig"),
        ({"interfaces": [{"type": "CNIDevice", "cniDevice": {"type": "RawConfig"}}]}, "rawConfig"),
        ({"interfaces": [interface("eth0") | cni()]}, "needs networkDevice.interfaceName, and no other type"),
        ({"interfaces": [cni() | interface("eth0")]}, "needs cniDevice.rawConfig, and no other type"),
        ({"interfaces": [interface("eth0"), cni()]}, "all interfaces must be of one type"),
        ({"interfaces": [cni(), cni()]}, "net1 is given twice"),
        ({"interfaces": [cni(device={"interfaceName": "lo"})]}, "reserved"),
        ({"interfaces": [cni(cniVersion="0.4.0")]}, 'cniVersion: must be "1.0.0" or later'),
        ({"interfaces": [cni(cniVersion=1.0)]}, 'cniVersion: must be "1.0.0" or later'),
        ({"interfaces": [cni(name="../x")]}, "name: must be a letter or digit"),
        ({"interfaces": [cni(plugins=[])]}, "plugins: must be a list of at least one"),
        ({"interfaces": [cni(plugins=[{"type": "static"}] * 17)]}, "plugins: at most 16"),
        ({"interfaces": [cni(plugins=["macvlan"])]}, r"plugins\[0\]: must be an object"),
        ({"interfaces": [cni(plugins=[{"type": "../macvlan"}])]}, r"plugins\[0\].type: must be the name of a plugin"),
        ({"interfaces": [cni(plugins=[{"type": ".."}])]}, r"plugins\[0\].type: must be the name of a plugin"),
        ({"interfaces": [cni(plugins=[{"type": "x", "ipam": "static"}])]}, "ipam: must be an object"),
        ({"interfaces": [cni(plugins=[{"type": "x", "ipam": {"type": "a/b"}}])]}, "ipam.type: must be the name"),
        (
            {"interfaces": [cni(plugins=[{"type": "a"}, {"type": "x", "ipam": OWN_DAEMON}])]},
            r"plugins\[1\].ipam.daemonSocketPath: leave it out: the router runs a DHCP daemon of its own",
        ),
        ({"interfaces": [cni(plugins=[{"type": "x", "capabilities": ["mac"]}])]}, "capabilities: must map"),
        ({"interfaces": [cni(disableCheck="yes")]}, "disableCheck: must be true or false"),
        ({"interfaces": [cni(extra=float("nan"))]}, "must be plain JSON"),
        ({"interfaces": [cni(extra="x" * 70000)]}, "at most 65536 are accepted"),
        ({"interfaces": [cni(device={"runtimeConfig": ["mac"]})]}, "runtimeConfig"),
        ({"tunnelEndpoint": {}}, "cidrs"),
        ({"tunnelEndpoint": {"cidrs": []}}, "at least 1"),
        ({"tunnelEndpoint": {"cidrs": ["nonsense"]}}, "prefix length"),
        ({"tunnelEndpoint": {"cidrs": ["10.0.0.0/24", "10.1.0.0/24"]}}, "at most one IPv4 and one IPv6"),
        ({"routerIDCIDR": "2001:db8::/64"}, "must be an IPv4 network"),
        ({"gracefulRestart": {"restartTimeSeconds": 4096}}, "less than or equal"),
        ({"gracefulRestart": {"stalePathTimeSeconds": 0}}, "greater than or equal"),
        ({"isis": {"baseNet": "49.0001.0002.0003.0004.00"}}, "isis: not supported yet in this version"),
        ({"srv6": {}}, "srv6: not supported yet in this version"),
        ({"routeReflector": {"clusterID": "2001:db8::1"}}, "must be an IPv4 address"),
        ({"routeReflector": {"clusterID": "10.0.0.7"}}, "must be outside of routerIDCIDR"),
        ({"routeReflector": {"clusterID": "10.9.0.1"}, "routerIDCIDR": "10.9.0.0/16"}, "must be outside of routerIDC"),
    ],
)
def test_a_wrong_underlay_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Underlay.model_validate(underlay_spec(**fields))


def test_passwords_replace_references_to_them() -> None:
    neighbors = [neighbor(passwordSecret="fabric"), neighbor(address="10.0.0.1", password="inline")]
    written = Underlay.model_validate(underlay_spec(neighbors=neighbors))
    spec = with_passwords(written, {("neighbors", 0): Secret("s3cret")})
    assert isinstance(spec, Underlay)
    assert [one.password for one in spec.neighbors] == [Secret("s3cret"), Secret("inline")]
    assert [one.password_secret for one in spec.neighbors] == [None, None]
    assert "s3cret" not in repr(spec) + spec.model_dump_json()
