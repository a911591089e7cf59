"""Configuration that the tests of this folder share, and short ways to make resources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from config.models import L2Vni, L3Passthrough, L3Vni, Model, RawFrrConfig, Underlay
from config.outcomes import NodeIdentity
from config.precedence import NOTHING_IN_FORCE, Standing
from config.problems import Kind, Origin, Problem, ResourceId
from config.resolve.grants import Grants
from config.resolve.resolution import Resolution, resolve
from config.resources import Resource, Unusable

NODE = NodeIdentity("node", 0)
MODELS: dict[Kind, type[Model]] = {
    Kind.UNDERLAY: Underlay,
    Kind.L3VNI: L3Vni,
    Kind.L2VNI: L2Vni,
    Kind.L3PASSTHROUGH: L3Passthrough,
    Kind.RAW_FRR_CONFIG: RawFrrConfig,
}

UNDERLAY_FILE = """\
underlays:
  - asn: 64514
    interfaces:
      - type: NetworkDevice
        networkDevice:
          interfaceName: toswitch1
    neighbors:
      - asn: 64512
        address: 192.168.11.2
    tunnelEndpoint:
      cidrs:
        - 100.65.0.0/24
"""

RED_FILE = """\
l3vnis:
  - vrf: red
    vni: 100
    hostSession:
      asn: 64514
      hostASN: 64515
      localCIDR:
        ipv4: 172.27.10.0/24
        ipv6: 2001:db9:1::/64
"""


def make(kind: Kind, name: str, spec: dict[str, Any], namespace: str = "ns") -> Resource:
    """Return a valid resource."""
    return Resource(kind, namespace, name, Origin("f.yaml", 1, 1), MODELS[kind].model_validate(spec), name)


def unusable(kind: Kind, name: str = "broken") -> Resource:
    return Resource(kind, "ns", name, Origin("f.yaml", 9, 1), Unusable(), name)


def neighbor(**fields: Any) -> dict[str, Any]:
    return {"asn": 64512, "address": "192.168.11.2"} | fields


def interface(name: str) -> dict[str, Any]:
    return {"type": "NetworkDevice", "networkDevice": {"interfaceName": name}}


def underlay_spec(**fields: Any) -> dict[str, Any]:
    base = {
        "asn": 64514,
        "interfaces": [interface("toswitch1")],
        "neighbors": [neighbor()],
        "tunnelEndpoint": {"cidrs": ["100.65.0.0/24"]},
    }
    return {key: value for key, value in (base | fields).items() if value is not None}


def underlay(name: str = "underlay", **fields: Any) -> Resource:
    return make(Kind.UNDERLAY, name, underlay_spec(**fields))


def session(ipv4: str | None = None, ipv6: str | None = None, **fields: Any) -> dict[str, Any]:
    pools = {key: value for key, value in (("ipv4", ipv4), ("ipv6", ipv6)) if value}
    remote = {} if "hostType" in fields else {"hostASN": 64515}
    return {"asn": 64514, "localCIDR": pools} | remote | fields


def l3vni(name: str, vni: int, **fields: Any) -> Resource:
    return make(Kind.L3VNI, name, {"vrf": name, "vni": vni} | fields)


def l2vni(name: str, vni: int, domain: str | None = None, **fields: Any) -> Resource:
    routed = {"routingDomain": {"type": "L3VNI", "l3vni": {"name": domain}}} if domain else {}
    return make(Kind.L2VNI, name, {"vni": vni} | routed | fields)


def passthrough(name: str = "pass", **fields: Any) -> Resource:
    return make(Kind.L3PASSTHROUGH, name, {"hostSession": session(**({"ipv4": "172.26.0.0/24"} | fields))})


def raw(name: str, text: str = "! x", priority: int = 0) -> Resource:
    return make(Kind.RAW_FRR_CONFIG, name, {"rawConfig": text, "priority": priority})


def from_api(resource: Resource, namespace: str = "tenant") -> Resource:
    """Return the same resource as an object of the API."""
    origin = Origin(namespace=namespace, name=resource.name, resource_version="1", generation=1)
    return replace(resource, namespace=namespace, origin=origin, label="")


#: Nothing is refused for its namespace, but for what L3VNIs themselves allow.
OPEN = Grants("ns", frozenset({"*"}), ("*",))


def solve(
    *resources: Resource, node: NodeIdentity = NODE, standing: Standing = NOTHING_IN_FORCE, grants: Grants = OPEN
) -> Resolution:
    return resolve(resources, node, standing=standing, grants=grants)


def in_force(resolution: Resolution) -> set[str]:
    """Return the names of the overlay resources that are in the desired state."""
    state = resolution.desired
    assert state is not None
    names = {part.resource.name for part in state.l3vnis} | {part.resource.name for part in state.l2vnis}
    return names | ({state.passthrough.resource.name} if state.passthrough else set())


def ids_in_force(resolution: Resolution) -> set[ResourceId]:
    """Return the identities of the resources that are in the desired state, the underlay's included."""
    return set(resolution.standing) if resolution.desired else set()


def named(problem: Problem) -> str:
    """Return the name in the API of the resource that a problem is about."""
    return problem.resource.name if problem.resource else ""


def messages_about(resolution: Resolution, name: str) -> str:
    """Return the messages about one resource, joined."""
    return " | ".join(one.message for one in resolution.problems if named(one) == name)
