"""L3VNI, L2VNI, passthrough and raw snippets: defaults, constraints, and what comes later."""

from __future__ import annotations

from typing import Any

import pytest

from config.models import L2Vni, L3Passthrough, L3Vni, RawFrrConfig
from config.models.overlays import MAX_RAW_CONFIG

from ..samples import session


def domain(name: str = "red") -> dict[str, Any]:
    return {"type": "L3VNI", "l3vni": {"name": name}}


def bridge(**fields: Any) -> dict[str, Any]:
    return {"hostMaster": {"type": "LinuxBridge", "linuxBridge": fields}}


def refuse(model: type[L3Vni] | type[L2Vni], fields: dict[str, Any], message: str) -> None:
    base = {"vrf": "red", "vni": 1} if model is L3Vni else {"vni": 1}
    with pytest.raises(ValueError, match=message):
        model.model_validate(base | fields)


def test_an_l3vni_needs_only_vrf_and_vni() -> None:
    spec = L3Vni.model_validate({"vrf": "red", "vni": 100})
    assert (spec.vxlan_port, spec.host_session, spec.export_rts, spec.import_rts) == (4789, None, (), ())
    assert spec.underlay_address_family is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vrf": "a" * 16}, "at most 15 characters in Linux; this one has 16"),
        ({"vrf": ""}, "must not be empty"),
        ({"vrf": "9lives"}, "must be a letter followed by"),
        ({"vrf": "br-pe-100"}, "reserved"),
        ({"vni": 0}, "greater than or equal to 1"),
        ({"vni": 16777216}, "less than or equal"),
        ({"vxlanPort": 0}, "greater than or equal to 1"),
        ({"vxlanPort": 65536}, "less than or equal"),
        ({"underlayAddressFamily": "ipv4"}, "IPv4"),
        ({"exportRTs": ["1"]}, "exactly one ':'"),
        ({"importRTs": ["1:1"] * 101}, "at most 100"),
        ({"hostSession": session("192.0.2.0/24", hostASN=64514)}, "hostType: Internal instead"),
        ({"isis": {}}, "Extra inputs"),
    ],
)
def test_a_wrong_l3vni_is_refused(fields: dict[str, Any], message: str) -> None:
    refuse(L3Vni, fields, message)


def test_ibgp_with_the_host_is_written_as_a_relation() -> None:
    fields = {"hostSession": session("192.0.2.0/24", hostType="Internal")}
    spec = L3Vni.model_validate({"vrf": "red", "vni": 1} | fields)
    assert spec.host_session is not None
    assert spec.host_session.remote_as == "internal"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"routingDomain": domain()},
        {"routingDomain": domain(), "gatewayIPs": ["10.0.0.1/24"]},
        {"routingDomain": domain(), "gatewayIPs": ["2001:db8::1/64", "10.0.0.1/24"]},
        bridge(lifecycle="Managed"),
        bridge(lifecycle="External", name="br0"),
        {"importRTs": ["64514:1", "192.0.2.1:2"], "exportRTs": ["4200000001:3"], "rd": "192.0.2.1:65535"},
    ],
)
def test_a_segment_is_accepted(fields: dict[str, Any]) -> None:
    assert L2Vni.model_validate({"vni": 1} | fields).vxlan_port == 4789


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gatewayIPs": ["10.0.0.1/24"]}, "gatewayIPs need a routingDomain"),
        ({"routingDomain": domain(), "gatewayIPs": ["10.0.0.1"]}, "prefix length"),
        ({"routingDomain": domain(), "gatewayIPs": ["10.0.0.1/24", "10.1.0.1/24"]}, "at most one IPv4 and one IPv6"),
        ({"routingDomain": domain(), "gatewayIPs": ["10.0.0.1/24", "fd00::1/64", "fd00::2/64"]}, "at most 2"),
        ({"routingDomain": {"type": "L3VNI"}}, "needs l3vni.name"),
        ({"routingDomain": {"l3vni": {"name": "x"}}}, "type"),
        ({"routingDomain": {"type": "L3VPN", "l3vpn": {"name": "x"}}}, "not supported yet in this version"),
        (
            {"hostMaster": {"type": "OVSBridge", "ovsBridge": {"lifecycle": "Managed"}}},
            "not supported yet in this version",
        ),
        ({"hostMaster": {"type": "LinuxBridge"}}, "needs linuxBridge"),
        ({"hostMaster": {"type": "Bond"}}, "LinuxBridge"),
        ({"importRTs": ["1"]}, "a route target must have exactly one ':'"),
        ({"rd": "1"}, "a route distinguisher must have exactly one ':'"),
        ({"rd": "192.0.2.1:65536"}, "the number is at most 65535"),
        (bridge(), "lifecycle"),
        (bridge(lifecycle="External"), "if and only if lifecycle is External"),
        (bridge(lifecycle="Managed", name="br0"), "if and only if lifecycle is External"),
        (bridge(lifecycle="External", name="0br"), "must be a letter followed by"),
        (bridge(lifecycle="External", name="a" * 16), "at most 15 characters in Linux; this one has 16"),
    ],
)
def test_a_wrong_segment_is_refused(fields: dict[str, Any], message: str) -> None:
    refuse(L2Vni, fields, message)


def test_a_passthrough_may_be_numeric_ibgp() -> None:
    spec = L3Passthrough.model_validate({"hostSession": session("192.0.2.0/24", hostASN=64514)})
    assert spec.host_session.remote_as == 64514


def test_a_passthrough_needs_a_session() -> None:
    with pytest.raises(ValueError, match="hostSession"):
        L3Passthrough.model_validate({})


@pytest.mark.parametrize("fields", [{}, {"rawConfig": ""}, {"rawConfig": "x", "priority": -1}, {"rawConfig": ["x"]}])
def test_a_wrong_raw_snippet_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RawFrrConfig.model_validate(fields)


def test_a_raw_snippet_has_priority_zero_by_default() -> None:
    assert RawFrrConfig.model_validate({"rawConfig": "ip route 0.0.0.0/0 blackhole\n"}).priority == 0


def test_a_raw_snippet_has_a_limit_in_characters() -> None:
    longest = "é" * MAX_RAW_CONFIG
    assert RawFrrConfig.model_validate({"rawConfig": longest}).raw_config == longest
    with pytest.raises(ValueError, match="at most 65536 characters"):
        RawFrrConfig.model_validate({"rawConfig": longest + "!"})
