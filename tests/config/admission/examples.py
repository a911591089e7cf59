"""A small cluster in short words, and the decision of each of its nodes by resolving everything that selects it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from config.admission.nodes import Nodes
from config.admission.objects import Objects, entry_of
from config.admission.review import ReviewRequest, ReviewResponse, review
from config.api import (
    HOSTNAME_LABEL,
    INDEX_ANNOTATION,
    SOURCE_LABEL,
    STATIC_NODE_LABEL,
    STATIC_SOURCE,
    ApiNode,
    ApiObject,
)
from config.outcomes import NodeIdentity
from config.problems import Kind, Reason, Severity
from config.resolve.grants import Grants
from config.resolve.resolution import resolve

OWN = "openperouter-system"
GRANTS = Grants(OWN)


def node(name: str, index: int = 0, **labels: str) -> ApiNode:
    return ApiNode(name, f"uid-{name}", {HOSTNAME_LABEL: name, **labels}, {INDEX_ANNOTATION: str(index)})


def obj(kind: Kind, name: str, spec: Mapping[str, Any], namespace: str = OWN) -> ApiObject:
    return ApiObject(kind, namespace, name, f"uid-{name}", "1", 1, spec=dict(spec))


def underlay(name: str = "fabric", namespace: str = OWN, **fields: Any) -> ApiObject:
    spec: dict[str, Any] = {
        "asn": 64514,
        "interfaces": [{"type": "NetworkDevice", "networkDevice": {"interfaceName": "toswitch1"}}],
        "neighbors": [{"asn": 64512, "address": "192.168.11.2"}],
        "tunnelEndpoint": {"cidrs": ["100.65.0.0/24"]},
    }
    return obj(Kind.UNDERLAY, name, spec | fields, namespace)


def l3vni(name: str, vni: int, namespace: str = "tenant", **fields: Any) -> ApiObject:
    return obj(Kind.L3VNI, name, {"vrf": name, "vni": vni} | fields, namespace)


def l2vni(name: str, vni: int, domain: str = "", namespace: str = "tenant", **fields: Any) -> ApiObject:
    routed = {"routingDomain": {"type": "L3VNI", "l3vni": {"name": domain}}} if domain else {}
    return obj(Kind.L2VNI, name, {"vni": vni} | routed | fields, namespace)


def session(pool: str) -> dict[str, Any]:
    return {"asn": 64514, "hostASN": 64515, "localCIDR": {"ipv4": pool}}


def mirror(one: ApiObject, node_name: str) -> ApiObject:
    """Return the mirror of what a node has in a file."""
    return ApiObject(
        one.kind,
        OWN,
        f"static-{node_name}-{one.name}",
        labels={SOURCE_LABEL: STATIC_SOURCE, STATIC_NODE_LABEL: node_name},
        owners=({"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": f"uid-{node_name}"},),
        spec={"nodeSelector": {"matchLabels": {HOSTNAME_LABEL: node_name}}, **one.spec},
    )


def on(**labels: str) -> dict[str, Any]:
    """Return a selector for nodes with these labels."""
    return {"matchLabels": labels}


def judge(
    objects: Iterable[ApiObject], nodes: Iterable[ApiNode], new: ApiObject, old: ApiObject | None = None
) -> ReviewResponse:
    """Return the webhook's answer."""
    return review(Objects(entry_of(one, OWN) for one in objects), all_of(nodes), ReviewRequest(new, old), GRANTS)


def all_of(nodes: Iterable[ApiNode]) -> Nodes:
    known = Nodes()
    for node in nodes:
        known.put(node)
    return known


def refusing(objects: Iterable[ApiObject], nodes: Nodes, new: ApiObject, old: ApiObject | None) -> dict[str, bool]:
    """Return whether each node that an object selects refuses it, by resolving all that there is for each."""
    entries = [entry_of(one, OWN) for one in objects if one.id != new.id]
    candidate, former = entry_of(new, OWN), entry_of(old, OWN) if old else None
    found = {}
    for name in nodes.selected(candidate):
        identity = NodeIdentity(name, nodes.index(name))
        there = [one.resource for one in entries if name in nodes.selected(one)]
        was = [former.resource] if former is not None and name in nodes.selected(former) else []
        standing = resolve([*there, *was], identity, grants=GRANTS).standing
        after = resolve([*there, candidate.resource], identity, standing=standing, grants=GRANTS)
        found[name] = any(
            one.resource == new.id and one.severity is Severity.ERROR and one.reason is not Reason.DEPENDENCY_FAILED
            for one in after.problems
        )
    return found
