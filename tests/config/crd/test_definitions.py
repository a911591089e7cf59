"""The definitions: names that users know, sound schemas, and files that are the same every time.

That a real API server takes them, and judges as the models do, is seen in ``tests/cluster/test_crds*.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from config.api import GROUP, NODE_STATUS_KIND, PLURALS
from config.crd.definitions import DEFINITIONS, Definition
from config.crd.structural import Schema
from config.models.rules import VALIDATIONS
from config.models.types import NEVER_USABLE
from config.problems import Kind

ROOT = Path(__file__).resolve().parents[3]
each = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind)


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema inside a schema."""
    yield schema
    for inner in schema.get("properties", {}).values():
        yield from nodes(inner)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key])


def test_every_kind_is_defined_once() -> None:
    assert [definition.kind for definition in DEFINITIONS] == [*(kind.value for kind in Kind), NODE_STATUS_KIND]
    assert {definition.name for definition in DEFINITIONS} > {f"{plural}.{GROUP}" for plural in PLURALS.values()}


@each
def test_the_file_is_current_with_whatever_version_of_the_libraries(definition: Definition) -> None:
    """Fix with ``python3 packaging/crds/generate.py --write``."""
    text = (ROOT / "packaging" / "crds" / definition.file_name).read_text()
    assert text == definition.to_yaml()
    assert yaml.safe_load(text) == definition.to_data()


@each
def test_names_and_parts_are_upstream_s(definition: Definition) -> None:
    data = definition.to_data()
    [version] = data["spec"]["versions"]
    assert (data["spec"]["scope"], version["name"]) == ("Namespaced", "v1alpha1")
    assert version["subresources"] == {"status": {}}
    assert data["spec"]["names"]["singular"] == definition.kind.lower()
    assert data["spec"]["names"]["listKind"] == f"{definition.kind}List"
    assert version["additionalPrinterColumns"][-1]["name"] == "Age"


@each
def test_schemas_are_structural(definition: Definition) -> None:
    """What the API server asks of every node, and bounds for whatever has a rule inside a list (its cost)."""
    for schema in nodes(definition.schema()):
        assert schema["type"] in ("object", "array", "string", "integer", "boolean")
        if schema["type"] == "array":
            assert schema["x-kubernetes-list-type"] in ("atomic", "map")
        if schema["type"] == "integer":
            assert "minimum" in schema
            assert "format" not in schema


@each
def test_every_configuration_has_conditions_that_several_may_write(definition: Definition) -> None:
    conditions = definition.schema()["properties"]["status"]["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


def test_list_types_are_upstream_s() -> None:
    spec = DEFINITIONS[0].schema()["properties"]["spec"]["properties"]
    neighbor = spec["neighbors"]["items"]["properties"]
    found = {key: spec[key]["x-kubernetes-list-type"] for key in ("neighbors", "interfaces")}
    found |= {key: neighbor[key]["x-kubernetes-list-type"] for key in ("properties", "addressFamilies")}
    assert found == {"neighbors": "atomic", "interfaces": "atomic", "properties": "map", "addressFamilies": "map"}
    assert spec["nodeSelector"]["x-kubernetes-map-type"] == "atomic"


def test_what_is_not_supported_yet_is_not_in_half() -> None:
    text = "".join(definition.to_yaml() for definition in DEFINITIONS)
    for word in (
        "ovsBridge",
        "OVSBridge",
        "isis",
        "srv6",
        "l3vpn",
        "L3VPN",
    ):
        assert word not in text


def immutable(schema: Schema, path: str = "") -> set[str]:
    """Return the paths of the fields that the API server does not let change."""
    found = {path for rule in schema.get(VALIDATIONS, ()) if "oldSelf" in rule["rule"]}
    return found.union(*(immutable(inner, f"{path}.{key}") for key, inner in schema.get("properties", {}).items()))


def test_pools_and_gateways_cannot_be_changed() -> None:
    found = {one.kind: immutable(one.schema()["properties"].get("spec", {})) for one in DEFINITIONS}
    assert {kind: fields for kind, fields in found.items() if fields} == {
        Kind.L3VNI: {".hostSession"},
        Kind.L3PASSTHROUGH: {".hostSession"},
        Kind.L2VNI: {".gatewayIPs"},
    }


#: Every field whose network the router puts on a device or announces, and what it needs around it to be judged.
NETWORK_FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "Underlay.tunnelEndpoint.cidrs[]": lambda text: {"tunnelEndpoint": {"cidrs": [text]}},
    "L3VNI.hostSession.localCIDR.ipv4": lambda text: session(localCIDR={"ipv4": text}),
    "L3VNI.hostSession.localCIDR.ipv6": lambda text: session(localCIDR={"ipv6": text}),
    "L3VNI.hostSession.localCIDRs[]": lambda text: session(localCIDRs=[text]),
    "L3Passthrough.hostSession.localCIDR.ipv4": lambda text: session(localCIDR={"ipv4": text}),
    "L3Passthrough.hostSession.localCIDR.ipv6": lambda text: session(localCIDR={"ipv6": text}),
    "L3Passthrough.hostSession.localCIDRs[]": lambda text: session(localCIDRs=[text]),
    "L2VNI.gatewayIPs[]": lambda text: {
        "vni": 7, "gatewayIPs": [text], "routingDomain": {"type": "L3VNI", "l3vni": {"name": "red"}}
    },
}  # fmt: skip


def session(**pools: Any) -> dict[str, Any]:
    return {"hostSession": {"asn": 64514, "hostASN": 64515, **pools}}


def whole(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec with all that its kind needs."""
    nic = {"type": "NetworkDevice", "networkDevice": {"interfaceName": "eth1"}}
    needed: dict[str, dict[str, Any]] = {
        "Underlay": {"asn": 1, "interfaces": [nic], "neighbors": [{"asn": 2, "address": "192.0.2.1"}]},
        "L3VNI": {"vrf": "red", "vni": 5},
    }
    return needed.get(kind, {}) | spec


@pytest.mark.parametrize("field", NETWORK_FIELDS)
def test_no_field_takes_a_network_in_which_no_router_can_be(field: str) -> None:
    """By the models; the rules in CEL are at the same fields, and judged by real servers (test_crds_agree.py)."""
    kind, *path = field.replace("[]", ".[]").split(".")
    [definition] = [one for one in DEFINITIONS if one.kind == kind]
    assert definition.spec is not None
    schema = definition.schema()["properties"]["spec"]
    for step in path:
        schema = schema["items"] if step == "[]" else schema["properties"][step]
    rules = " ".join(one["rule"] for one in schema["x-kubernetes-validations"])
    assert all(never in rules for never in NEVER_USABLE)
    assert "prefixLength() >=" in rules
    good = {4: "198.51.100.0/24", 6: "2001:db8::/64"}
    versions = (6,) if path[-1] == "ipv6" else (4,) if path[-1] == "ipv4" else (4, 6)
    for version in versions:
        definition.spec.model_validate(whole(kind, NETWORK_FIELDS[field](good[version])))
        everything = "0.0.0.0/0" if version == 4 else "::/0"
        for never in (*NEVER_USABLE, everything):
            if (":" in never) == (version == 6):
                with pytest.raises(ValidationError, match="use routable unicast addresses"):
                    definition.spec.model_validate(whole(kind, NETWORK_FIELDS[field](never)))
