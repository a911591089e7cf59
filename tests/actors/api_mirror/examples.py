"""Files' resources and snapshots that the tests of this folder share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from actors.lib.kube.mirror_signature import proof
from config.api import ApiNode, ApiObject, ApiSnapshot
from config.outcomes import NodeIdentity, StaticSnapshot
from config.problems import Kind, Origin, ResourceId
from config.resources import Resource, UnknownContent, Unusable
from tests.config.samples import l3vni, session

NODE = ApiNode("node", "node-uid", {"kubernetes.io/hostname": "node"})
KEY = b"k" * 32


def prove(resource: ResourceId) -> str:
    return proof(KEY, resource)


def red(vni: int = 100, *, pool: str = "192.0.2.0/24", path: str = "/c/openpe_a.yaml", line: int = 2) -> Resource:
    resource = l3vni("red", vni, hostSession=session(pool))
    return replace(resource, name="static-node-red", origin=Origin(path, line, 5))


def blue(vni: int = 200) -> Resource:
    return replace(l3vni("blue", vni), name="static-node-blue", origin=Origin("/c/openpe_b.yaml", 2, 5))


def broken(resource: Resource) -> Resource:
    return replace(resource, spec=Unusable())


def unknown(path: str) -> Resource:
    return Resource(Kind.UNDERLAY, "ns", "static-node-unknown-a", Origin(path), UnknownContent())


def files(*resources: Resource, name: str = "node") -> StaticSnapshot:
    return StaticSnapshot(NodeIdentity(name, 0), resources)


def stored(mirror: ApiObject, **changes: Any) -> ApiObject:
    """Return a mirror as the server would show it."""
    return replace(mirror, **({"uid": "u1", "resource_version": "7"} | changes))


def snapshot(*mirrored: ApiObject, objects: tuple[ApiObject, ...] = (), live: bool = True) -> ApiSnapshot:
    return ApiSnapshot(NODE, objects, mirrored, live=live)
