"""What each key of the configuration is: for the reference, the manual pages, ``openperouter explain`` and ``schema``.

Everything comes from the models' JSON Schema, so that it cannot differ from what is accepted. Only the examples of
values are written here; a test validates them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

#: JSON Schema, as pydantic makes it.
Schema = dict[str, Any]

#: What says the same to the API server, and what repeats a key.
_NOT_FOR_EDITORS: Final = frozenset({"x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields", "title"})

#: The version that brought keys, by the end of their paths; with them come the keys inside. The others are the first's.
SINCE: Final[Mapping[str, tuple[str, ...]]] = {
    "0.2.0": (
        "podRunDir",
        "routerIDScheme",
        "runtime",
        "hostSession.allowedPrefixes[]",
        "hostSession.hostVRF",
        "hostSession.localCIDRs[]",
        "hostSession.maximumPrefixes",
        "hostSession.password",
        "hostSession.passwordSecret",
        "hostSession.probe",
        "hostSession.ttlSecurityHops",
        "l2vnis[].exportRTs[]",
        "l2vnis[].importRTs[]",
        "l2vnis[].rd",
        "routingDomain.l3vni.namespace",
        "l3vnis[].allowedNamespaces[]",
        "interfaces[].cniDevice",
        "addressFamilies[].properties[]",
        "neighbors[].maximumPrefixes",
        "neighbors[].passwordSecret.key",
        "neighbors[].passwordSecret.name",
        "neighbors[].ttlSecurityHops",
        "underlays[].routeReflector",
        "allowDuplicateIndex",
        "autoApply",
        "cniPluginDir",
        "externalBridges[]",
        "kubeconfigPrograms",
        "kubeconfigWithoutAuthority",
        "maxResources",
        "metrics",
        "rawSnippetsFromAPI",
        "silentHostProbes",
        "silentHostSeconds",
        "underlayNamespaces[]",
    ),
}
FIRST_VERSION: Final = "0.1.0"

#: A value for keys that have neither a default nor a fixed set of values, by the end of their path.
EXAMPLES: Final[Mapping[str, Any]] = {
    "index": 3,
    "nodeIndex.interfaceName": "eth1",
    "nodeIndex.cidr": "192.0.2.0/24",
    "nodeName": "worker-3",
    "underlays[].asn": 64514,
    "neighbors[].asn": 64512,
    "neighbors[].address": "192.0.2.1",
    "neighbors[].interface": "eth1",
    "neighbors[].listenRange": "192.0.2.0/24",
    "port": 179,
    "password": "correct-horse",
    "passwordSecret.name": "fabric",
    "passwordSecret.key": "password",
    "ttlSecurityHops": 1,
    "maximumPrefixes": 10000,
    "holdTimeSeconds": 9,
    "keepaliveTimeSeconds": 3,
    "connectTimeSeconds": 5,
    "receiveInterval": 300,
    "transmitInterval": 300,
    "detectMultiplier": 3,
    "minimumTTL": 254,
    "networkDevice.interfaceName": "eth1",
    "cniDevice.rawConfig": {
        "cniVersion": "1.0.0",
        "name": "fabric",
        "plugins": [
            {
                "type": "macvlan",
                "master": "eth1",
                "ipam": {"type": "static", "addresses": [{"address": "192.0.2.3/24"}]},
            }
        ],
    },
    "cniDevice.runtimeConfig": {"mac": "02:00:00:00:00:01"},
    "tunnelEndpoint.cidrs[]": "100.65.0.0/24",
    "matchLabels": {"rack": "a1"},
    "matchExpressions[].key": "rack",
    "matchExpressions[].values[]": "a1",
    "l3vnis[].name": "red",
    "l2vnis[].name": "blue",
    "vrf": "red",
    "l3vnis[].vni": 100,
    "l2vnis[].vni": 110,
    "hostSession.asn": 64514,
    "hostASN": 64515,
    "localCIDR.ipv4": "192.168.100.0/24",
    "localCIDR.ipv6": "2001:db8:100::/64",
    "localCIDRs[]": "192.168.100.0/24",
    "hostVRF": True,
    "probe.targets[]": "192.168.200.1",
    "allowedPrefixes[]": "10.0.0.0/8",
    "exportRTs[]": "64514:100",
    "rd": "192.0.2.1:100",
    "importRTs[]": "64514:100",
    "allowedNamespaces[]": "tenants",
    "l3vni.name": "red",
    "l3vni.namespace": "tenants",
    "linuxBridge.name": "br0",
    "gatewayIPs[]": "192.168.110.1/24",
    "rawConfig": "ip prefix-list only seq 5 permit 10.0.0.0/8 le 24\n",
    "metricsFile": "/var/lib/prometheus/node-exporter/openperouter.prom",
    "kubeconfig": "/etc/openperouter/kubeconfig",
    "metrics.listen": "https://192.0.2.11:9473",
    "metrics.certificate": "/etc/openperouter/metrics.crt",
    "metrics.key": "/etc/openperouter/metrics.key",
    "metrics.clientAuthority": "/etc/openperouter/metrics-ca.crt",
    "underlayNamespaces[]": "fabric",
    "externalBridges[]": "br-*",
}


class ReferenceEntry(NamedTuple):
    """What is shown about one key. ``default`` and ``constraints`` are Markdown; ``schema`` is a list's element's."""

    path: str
    type: str
    default: str
    constraints: str
    description: str
    schema: Schema


def entries(model: type[BaseModel]) -> Iterator[ReferenceEntry]:
    """Yield an entry for each field, then those of the models inside it. The manual pages are made of them too."""
    schema = model.model_json_schema()
    return _entries(schema, schema.get("$defs", {}), "")


def _entries(model: Schema, models: dict[str, Schema], prefix: str) -> Iterator[ReferenceEntry]:
    for name, field in model["properties"].items():
        schema = resolved(field, models)
        element = resolved(schema["items"], models) if schema.get("type") == "array" else None
        path = f"{prefix}{name}{'[]' if element else ''}"
        default = "**required**" if name in model.get("required", ()) else default_text(field)
        limits = ", ".join(dict.fromkeys((*constraints(schema), *constraints(element or {}))))
        described = {
            **(element or schema),
            **({"default": field["default"]} if field.get("default") is not None else {}),
        }
        yield ReferenceEntry(path, word(schema, element), default, limits, field.get("description", ""), described)
        if "properties" in (element or schema):
            yield from _entries(element or schema, models, f"{path}.")


def resolved(schema: Schema, models: dict[str, Schema]) -> Schema:
    """Return what a reference refers to, and of an optional value what it is when it is there."""
    [schema] = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"][:1]
    return models[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def word(schema: Schema, element: Schema | None = None) -> str:
    """Return a user's word for a type."""
    if element:
        return f"list of {word(element)}"
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "object":
        return "object" if "properties" in schema else "mapping"
    return "path" if schema.get("format") == "path" else str(schema.get("type", "string"))


def default_text(field: Schema) -> str:
    """Return the default, or nothing for a field that may be absent."""
    default = field.get("default")
    return "" if default in (None, [], {}) else f"`{default}`"


#: Keywords of JSON Schema for numbers, texts and lists.
LIMITS: Final = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "length at least {}",
    "minItems": "length at least {}",
    "maxLength": "length at most {}",
    "maxItems": "length at most {}",
    "pattern": "matches `{}`",
}


def constraints(schema: Schema) -> Iterator[str]:
    """Yield the ranges and lengths of a value in words."""
    for keyword, text in LIMITS.items():
        if keyword in schema:
            limit = schema[keyword]
            yield text.format(int(limit) if isinstance(limit, float) and limit.is_integer() else limit)


def example_of(path: str, schema: Schema) -> Any:
    """Return a value for a key, None for one that has keys of its own."""
    parts = path.split(".")
    for start in range(len(parts)):
        if (end := ".".join(parts[start:])) in EXAMPLES:
            return EXAMPLES[end]
    if "properties" in schema:
        return None
    return schema.get("default", schema.get("const", schema.get("enum", [None])[0]))


def since(path: str) -> str:
    """Return the version that brought a key."""
    for version, ends in SINCE.items():
        if any(f".{end}." in f".{path}." for end in ends):
            return version
    return FIRST_VERSION


def nested(path: str, value: Any) -> Any:
    """Return a value at the place that a path names, in lists of one entry."""
    for part in reversed(path.split(".")):
        value = {part.removesuffix("[]"): [value] if part.endswith("[]") else value}
    return value


def editor_schema(model: type[BaseModel]) -> Schema:
    """Return a model's JSON Schema (draft 2020-12) for editors."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
    cleaned: Schema = _without(schema)
    return cleaned


def _without(schema: Any, *, names: bool = False) -> Any:
    """Leave out keywords; what ``names`` says has keys of the configuration instead, which may be spelled the same."""
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if names or key not in _NOT_FOR_EDITORS}
        return {key: _without(value, names=not names and key in ("properties", "$defs")) for key, value in kept.items()}
    return [_without(value) for value in schema] if isinstance(schema, list) else schema
