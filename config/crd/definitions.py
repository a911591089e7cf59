"""The custom resource definitions: names, columns and schemas of each kind, as ``packaging/crds`` holds them.

Names, group and version are upstream's, so that existing YAML and ``kubectl get`` keep working.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import yaml

from config.api import GROUP, NODE_STATUS_KIND, NODE_STATUS_PLURAL, PLURALS, VERSION
from config.models import L2Vni, L3Passthrough, L3Vni, Model, RawFrrConfig, Underlay
from config.problems import Kind

from .conditions import DEGRADED, READY, ResourceStatus
from .node_status import NodeStatus
from .structural import Schema, structural

#: ``kubectl get openperouter`` lists all kinds.
CATEGORY: Final = "openperouter"
_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``; ``wide``: only with ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def to_data(self) -> dict[str, Any]:
        """Return it as the definition has it."""
        data: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return data | ({"priority": 1} if self.wide else {})


def _condition(name: str, part: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{name}")].{part}'


_READY: Final = Column("Ready", _condition(READY))
_DEGRADED: Final = Column("Degraded", _condition(DEGRADED))
_MESSAGE: Final = Column("Message", _condition(READY, "message"), wide=True)
_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind. ``spec`` None: it has a status only."""

    kind: str
    plural: str
    description: str
    spec: type[Model] | None
    status: type[Model]
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the definition's own name in the API."""
        return f"{self.plural}.{GROUP}"

    @property
    def file_name(self) -> str:
        """Return the name of its file."""
        return f"{GROUP}_{self.plural}.yaml"

    def to_data(self) -> dict[str, Any]:
        """Return the CustomResourceDefinition object."""
        names: dict[str, Any] = {
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.plural,
            "singular": self.kind.lower(),
            "categories": [CATEGORY],
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        version = {
            "name": VERSION,
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "additionalPrinterColumns": [column.to_data() for column in self.columns],
            "schema": {"openAPIV3Schema": self.schema()},
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
        }

    def schema(self) -> Schema:
        """Return the schema of a whole object."""
        properties: Schema = {
            "apiVersion": {"type": "string", "description": "Version of the schema: group/version."},
            "kind": {"type": "string", "description": "Kind of the object."},
            "metadata": {"type": "object"},
            "status": structural(self.status),
        }
        schema: Schema = {"type": "object", "description": self.description, "properties": properties}
        if self.spec is not None:
            properties["spec"] = structural(self.spec)
            schema["required"] = ["spec"]
        return schema

    def to_yaml(self) -> str:
        """Return its file: sorted keys, the same bytes every time."""
        head = "# Generated from the models by packaging/crds/generate.py; do not edit.\n---\n"
        return head + yaml.dump(self.to_data(), Dumper=_Dumper, width=_WIDTH, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes values that occur twice out, each time: anchors are hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _config(kind: Kind, spec: type[Model], *columns: Column) -> Definition:
    description = (spec.__doc__ or "").strip()
    return Definition(kind.value, PLURALS[kind], description, spec, ResourceStatus, (*columns, _READY, _MESSAGE, _AGE))


_VNI: Final = Column("VNI", ".spec.vni", "integer")
DEFINITIONS: Final = (
    _config(
        Kind.UNDERLAY,
        Underlay,
        Column("ASN", ".spec.asn", "integer"),
        Column("Endpoints", ".spec.tunnelEndpoint.cidrs", wide=True),
    ),
    _config(
        Kind.L3VNI,
        L3Vni,
        Column("VRF", ".spec.vrf"),
        _VNI,
        Column("Host IPv4", ".spec.hostSession.localCIDR.ipv4", wide=True),
        Column("Host IPv6", ".spec.hostSession.localCIDR.ipv6", wide=True),
    ),
    _config(
        Kind.L2VNI,
        L2Vni,
        _VNI,
        Column("Routing Domain", ".spec.routingDomain.l3vni.name"),
        Column("Gateway IPs", ".spec.gatewayIPs"),
    ),
    _config(
        Kind.L3PASSTHROUGH,
        L3Passthrough,
        Column("Host IPv4", ".spec.hostSession.localCIDR.ipv4"),
        Column("Host IPv6", ".spec.hostSession.localCIDR.ipv6"),
    ),
    _config(Kind.RAW_FRR_CONFIG, RawFrrConfig, Column("Priority", ".spec.priority", "integer")),
    Definition(
        NODE_STATUS_KIND,
        NODE_STATUS_PLURAL,
        "Status of the configuration on one node. The node of the same name writes it; it has no spec.",
        None,
        NodeStatus,
        (_READY, _DEGRADED, _MESSAGE, _AGE),
        ("rncs",),
    ),
)
