"""The fabric side of a node."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from config.desired import IPInterface

from .base import Model
from .cni import CniDevice
from .names import InterfaceName
from .neighbors import Neighbor, first_duplicate
from .rules import NOT_YET, cel, check
from .selector import Selected
from .types import (
    ONE_OF_EACH_FAMILY,
    Asn,
    Ipv4Address,
    Ipv4Cidr,
    Pool,
    one_of_each_family,
    parse_address,
    parse_cidr,
)

#: More than any node has; the API server wants a bound for lists in which it looks for duplicates.
MAX_INTERFACES = 64
#: Parts of upstream's Underlay that a later version will know.
LATER_FEATURES = ("isis", "srv6")


class NetworkDevice(Model):
    """A device of the host that moves into the router."""

    interface_name: InterfaceName = Field(description="Name of the host's network device.")


class UnderlayInterface(Model):
    """A link to the fabric."""

    type: Literal["NetworkDevice", "CNIDevice"] = Field(
        description="Kind of link: NetworkDevice, a device of the host; CNIDevice, made by CNI plugins."
    )
    network_device: NetworkDevice | None = Field(default=None, description="The device, when type is NetworkDevice.")
    cni_device: CniDevice | None = Field(
        default=None, alias="cniDevice", description="What the plugins make, when type is CNIDevice."
    )

    @check(
        "(self.type == 'NetworkDevice') == has(self.networkDevice)",
        "type NetworkDevice needs networkDevice.interfaceName, and no other type has it",
    )
    def _device_fits_type(self) -> bool:
        return (self.type == "NetworkDevice") == (self.network_device is not None)

    @check(
        "(self.type == 'CNIDevice') == has(self.cniDevice)",
        "type CNIDevice needs cniDevice.rawConfig, and no other type has it",
    )
    def _plugins_fit_type(self) -> bool:
        return (self.type == "CNIDevice") == (self.cni_device is not None)

    @property
    def name(self) -> str:
        """Return the name of the device inside the router."""
        device = self.network_device or self.cni_device
        return device.interface_name if device else ""


class TunnelEndpoint(Model):
    """Pools of the tunnel endpoints: node ``i`` takes host number ``i``."""

    cidrs: tuple[Pool, ...] = Field(min_length=1, max_length=2, description="One pool, or one per family.")

    @field_validator("cidrs")
    @classmethod
    @cel(ONE_OF_EACH_FAMILY, "at most one IPv4 and one IPv6 network", field="cidrs")
    def _one_a_family(cls, cidrs: tuple[str, ...]) -> tuple[str, ...]:
        return one_of_each_family(cidrs, "network")


class GracefulRestartSettings(Model):
    """BGP graceful restart (RFC 4724)."""

    restart_time_seconds: int = Field(
        default=120, strict=True, ge=1, le=4095, description="How long neighbours wait for the router to come back."
    )
    stale_path_time_seconds: int = Field(
        default=360, strict=True, ge=1, le=4095, description="How long stale routes of a restarting neighbour are kept."
    )


class RouteReflector(Model):
    """The router as a route reflector (RFC 4456) for neighbours that are its clients."""

    cluster_id: Ipv4Address = Field(
        default="192.0.2.1",
        alias="clusterID",
        description="Cluster ID: the same on each reflector of the same clients, and the router ID of none of them.",
    )


def _overlap(neighbors: tuple[Neighbor, ...]) -> tuple[int, int] | None:
    """Return the indices of two neighbours whose listen ranges overlap, or None.

    Sorted by network, an overlap always shows between neighbours in the order.
    """
    ranges: dict[int, list[tuple[IPInterface, int]]] = defaultdict(list)
    for index, neighbor in enumerate(neighbors):
        if neighbor.listen_range is not None:
            interface = parse_cidr(neighbor.listen_range)
            ranges[interface.version].append((interface, index))
    for group in ranges.values():
        group.sort(key=lambda pair: (int(pair[0].network.network_address), pair[0].network.prefixlen))
        for (one, first), (other, second) in pairwise(group):
            if other.ip in one.network or one.ip in other.network or one.network == other.network:
                return min(first, second), max(first, second)
    return None


class Underlay(Selected):
    """How the node is attached to the fabric; at most one applies to a node."""

    asn: Asn = Field(description="The router's AS number towards the fabric.")
    router_id_cidr: Ipv4Cidr = Field(
        default="10.0.0.0/24",
        alias="routerIDCIDR",
        description="Pool of router IDs: node i gets host number i, or i+1 by the node's routerIDScheme v1.",
    )
    neighbors: tuple[Neighbor, ...] = Field(min_length=1, max_length=128, description="BGP neighbours in the fabric.")
    interfaces: tuple[UnderlayInterface, ...] = Field(
        min_length=1, max_length=MAX_INTERFACES, description="Links to the fabric."
    )
    tunnel_endpoint: TunnelEndpoint | None = Field(default=None, description="VXLAN tunnel endpoints; VNIs need one.")
    graceful_restart: GracefulRestartSettings | None = Field(
        default=None, description="BGP graceful restart; absent: off."
    )

    route_reflector: RouteReflector | None = Field(
        default=None,
        description="The router reflects routes between its clients; absent: its router ID is its cluster ID.",
    )

    @model_validator(mode="before")
    @classmethod
    def _not_yet(cls, data: Any) -> Any:
        if isinstance(data, dict):
            wanted = [key for key in LATER_FEATURES if data.get(key) is not None]
            if wanted:
                raise ValueError(f"{', '.join(wanted)}: {NOT_YET}")
        return data

    @check(
        "!has(self.routeReflector) || !isCIDR(self.routerIDCIDR) || !isIP(self.routeReflector.clusterID)"
        " || !cidr(self.routerIDCIDR).containsIP(self.routeReflector.clusterID)",
        "routeReflector.clusterID must be outside of routerIDCIDR: it is the router ID of no node",
    )
    def _cluster_is_no_router(self) -> bool:
        reflector = self.route_reflector
        return reflector is None or parse_address(reflector.cluster_id) not in parse_cidr(self.router_id_cidr).network

    @field_validator("interfaces")
    @classmethod
    @cel(
        "self.all(one, !has(one.networkDevice) || self.exists_one(other, has(other.networkDevice)"
        " && other.networkDevice.interfaceName == one.networkDevice.interfaceName))",
        "an interface is given twice",
        field="interfaces",
    )
    @cel(
        "self.all(one, !has(one.cniDevice) || self.exists_one(other, has(other.cniDevice)"
        " && other.cniDevice.interfaceName == one.cniDevice.interfaceName))",
        "an interface is given twice",
        field="interfaces",
    )
    @cel(
        "self.all(one, one.type == self[0].type)",
        "all interfaces must be of one type, NetworkDevice or CNIDevice",
        field="interfaces",
    )
    def _each_interface_once(cls, interfaces: tuple[UnderlayInterface, ...]) -> tuple[UnderlayInterface, ...]:
        index = first_duplicate(interface.name for interface in interfaces)
        if index is not None:
            raise ValueError(f"interface {interfaces[index].name} is given twice")
        if len({interface.type for interface in interfaces}) > 1:
            raise ValueError("all interfaces must be of one type, NetworkDevice or CNIDevice")
        return interfaces

    @field_validator("neighbors")
    @classmethod
    @cel(
        "self.all(one, !has(one.address) || !isIP(one.address) || self.exists_one(other, has(other.address)"
        " && isIP(other.address) && ip(other.address) == ip(one.address)))",
        "a neighbour's address is given twice",
        field="neighbors",
    )
    @cel(
        "self.all(one, !has(one.interface)"
        " || self.exists_one(other, has(other.interface) && other.interface == one.interface))",
        "a neighbour's interface is given twice",
        field="neighbors",
    )
    @cel(
        "self.all(one, !has(one.listenRange) || !isCIDR(one.listenRange)"
        " || self.exists_one(other, has(other.listenRange) && isCIDR(other.listenRange)"
        " && (cidr(other.listenRange).containsIP(cidr(one.listenRange).ip())"
        " || cidr(one.listenRange).containsIP(cidr(other.listenRange).ip()))))",
        "two listen ranges overlap",
        field="neighbors",
    )
    def _each_neighbor_once(cls, neighbors: tuple[Neighbor, ...]) -> tuple[Neighbor, ...]:
        index = first_duplicate((neighbor.endpoint_kind, neighbor.endpoint) for neighbor in neighbors)
        if index is not None:
            raise ValueError(f"neighbour {neighbors[index].endpoint} is given twice")
        pair = _overlap(neighbors)
        if pair is not None:
            first, second = (neighbors[number].listen_range for number in pair)
            raise ValueError(f"listen ranges {first} and {second} overlap")
        return neighbors
