"""Resources of files and objects of the API, for the tests of this folder."""

from __future__ import annotations

from typing import Any

from config.api import ApiObject, ApiSnapshot
from config.models import L3Vni, Underlay
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind, Origin
from config.resolve.grants import Grants
from config.resources import Resource

NODE = NodeIdentity("node-a", 0)
OWN = "openperouter-system"
GRANTS = Grants(OWN)
UNDERLAY = {
    "asn": 64514,
    "interfaces": [{"type": "NetworkDevice", "networkDevice": {"interfaceName": "eth1"}}],
    "neighbors": [{"asn": 64512, "address": "192.0.2.1"}],
    "tunnelEndpoint": {"cidrs": ["100.65.0.0/24"]},
}


def resource(kind: Kind, name: str, spec: Any) -> Resource:
    return Resource(kind, OWN, name, Origin(path=f"/etc/{name}.yaml", line=1), spec, name)


def underlay(name: str = "underlay", asn: int = 64514) -> Resource:
    return resource(Kind.UNDERLAY, name, Underlay.model_validate(UNDERLAY | {"asn": asn}))


def l3vni(name: str, vni: int) -> Resource:
    return resource(Kind.L3VNI, name, L3Vni.model_validate({"vrf": name, "vni": vni}))


def files(*resources: Resource, reload_id: int = 0, on_trial: bool = False) -> StaticSnapshot:
    return StaticSnapshot(NODE, resources, reload_id=reload_id, on_trial=on_trial)


def api_underlay(name: str = "fabric", generation: int = 1, **fields: Any) -> ApiObject:
    return ApiObject(Kind.UNDERLAY, OWN, name, generation=generation, spec=UNDERLAY | fields)


def api_l3vni(name: str, vni: int, namespace: str = "tenant", **fields: Any) -> ApiObject:
    spec = {"vrf": name, "vni": vni} | fields
    return ApiObject(Kind.L3VNI, namespace, name, resource_version="1", generation=1, spec=spec)


def cluster(*objects: ApiObject, synced_at: float = 1000.0, live: bool = True) -> ApiSnapshot:
    return ApiSnapshot(objects=objects, synced_at=synced_at, live=live)
