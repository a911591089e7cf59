"""The kernel objects that we read and write, as immutable typed values.

:mod:`..wire` decodes netlink messages into these, planning compares them with what is wanted, and the journal stores
some of them. Names, groups and numbers that users see equal upstream's (reference 4.1, 12); the groups 4243 and 4244
and the two protocol numbers are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b

from config.desired import CniAttachment, Family, IPAddress, IPInterface
from config.resolve.host_networks import HostNetwork

#: Link group of a NIC handed to the router (upstream's).
NIC_GROUP = 4242
#: Link group of every device that we create: set in the message that creates it, so no device is ever unmarked.
OWNED_GROUP = 4243
#: Link group of our devices that are about to be deleted in one call: 3.3 times as fast as one by one.
CONDEMNED_GROUP = 4244
OUR_GROUPS = frozenset({OWNED_GROUP, CONDEMNED_GROUP})

#: IFA_PROTO of the addresses that we add (kernel 5.18 and later): only these are ever removed.
ADDRESS_PROTOCOL = 79
#: rtm_protocol of the routes that we add.
ROUTE_PROTOCOL = 79
#: Protocols of routes that were configured: unspecified, kernel (connected), boot, static, DHCP.
CONFIGURED_PROTOCOLS = frozenset({0, 2, 3, 4, 16})
#: linux/rtnetlink.h RT_TABLE_MAIN
MAIN_TABLE = 254
#: FRR's documented metric for a VRF's "unreachable default": distance 255 in the top byte, so zebra never selects it.
UNREACHABLE_METRIC = 4278198272

#: linux/if_addr.h
IFA_F_PERMANENT = 0x80
IFA_F_NOPREFIXROUTE = 0x200


class Namespace(StrEnum):
    """The two network namespaces that we work in: the process's own, and the router's."""

    HOST = "host"
    ROUTER = "router"


class LinkKind(StrEnum):
    """Kinds of devices that we create, by the kernel's names."""

    VRF = "vrf"
    BRIDGE = "bridge"
    VXLAN = "vxlan"
    VETH = "veth"


@dataclass(frozen=True, slots=True)
class VxlanAttributes:
    """A VXLAN device's fixed attributes: any difference means a new device (IDEM-4)."""

    vni: int
    port: int
    local: IPAddress | None
    lower: str = "lo"
    learning: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """One device as the kernel has it. ``kind`` is empty for hardware, ``master`` for a device without one.

    ``peer_index`` is IFLA_LINK: of a veth, the other end's index. ``addr_gen_none`` None means that the kernel did not
    report it. ``alias`` is free text: of our devices, the resource that they belong to. ``arp_ignore`` is that sysctl's
    value, None for a device without IPv4.
    """

    index: int
    name: str
    kind: str = ""
    group: int = 0
    up: bool = False
    mtu: int = 1500
    mac: str = ""
    master: str = ""
    table: int | None = None
    vxlan: VxlanAttributes | None = None
    neigh_suppress: bool = False
    addr_gen_none: bool | None = False
    peer_index: int = 0
    altnames: tuple[str, ...] = ()
    alias: str = ""
    arp_ignore: int | None = None

    @property
    def ours(self) -> bool:
        """Whether we created this device."""
        return self.group in OUR_GROUPS


@dataclass(frozen=True, slots=True)
class Address:
    """One address on a device. ``flags`` are IFA_F_*, ``scope`` is RT_SCOPE_*; ``ours`` means that it has our mark.

    ``peer`` is the other end's address on a point-to-point link, in text, else empty. ``broadcast`` is None when it is
    the one that the prefix implies (:func:`usual_broadcast`), empty for none. ``label`` (IPv4) is empty when it is the
    device's name.
    """

    interface: IPInterface
    flags: int = IFA_F_PERMANENT
    scope: int = 0
    ours: bool = False
    peer: str = ""
    broadcast: str | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class SavedRoute:
    """One route through a NIC: enough to add it again. Numbers are the kernel's; an absent gateway is empty text."""

    family: Family
    destination: str
    table: int
    gateway: str = ""
    source: str = ""
    priority: int = 0
    protocol: int = 3
    scope: int = 0
    type: int = 1
    flags: int = 0
    mtu: int = 0


def in_order(routes: Iterable[SavedRoute]) -> tuple[SavedRoute, ...]:
    """Return routes in an order in which they can be added: routes to gateways, then routes through gateways.

    The kernel dumps a default route first, but refuses to add it while its gateway is not directly reachable, even one
    that is ``onlink`` if the gateway is found behind another NIC. A gateway is never behind a gateway.
    """
    return tuple(sorted(routes, key=lambda route: bool(route.gateway)))


class NicPhase(StrEnum):
    """How far a move is: written before the step that it names."""

    MOVING = "moving"
    INSIDE = "inside"
    RESTORING = "restoring"


@dataclass(frozen=True, slots=True)
class NicRecord:
    """What the journal records of a NIC while the router has it.

    ``sysctls`` are those that the host had set for this NIC only: (``ipv4.rp_filter``, value).
    """

    name: str
    phase: NicPhase
    mtu: int
    mac: str
    up: bool
    addresses: tuple[Address, ...] = ()
    routes: tuple[SavedRoute, ...] = ()
    altnames: tuple[str, ...] = ()
    master: str = ""
    group: int = 0
    sysctls: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CniRecord:
    """What is recorded of an interface that CNI plugins make, from before they are called until it is removed.

    ``result`` is what they returned, JSON as text; empty: they were called and may have done a part of it.
    ``trusted``: CHECK refused what ADD had just made, and is not asked.
    """

    attachment: CniAttachment
    result: str = ""
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """One namespace's links by name, and addresses by link name."""

    links: Mapping[str, Link] = field(default_factory=dict)
    addresses: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)

    def interfaces(self, link: str) -> frozenset[IPInterface]:
        """Return a link's addresses with their prefix lengths."""
        return frozenset(address.interface for address in self.addresses.get(link, ()))

    def has(self, link: str, interface: IPInterface) -> bool:
        """Return whether a link has an address, without hashing all of them as a set would."""
        return any(address.interface == interface for address in self.addresses.get(link, ()))


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that planning needs, read in one pass.

    ``sysctls`` are the router's and ``host_sysctls`` the host's, by key, as far as planning needs them; None: the
    kernel does not have it. ``unreachable`` are the VRF tables with our unreachable default; ``busy_tables`` are tables
    that a VRF could get but that hold foreign routes; ``host_unreachable`` and ``busy_host_tables`` are the same of the
    host, where rules count as well; ``tables`` is the persisted map of the router's VRF tables; ``nic_routes`` and
    ``nic_sysctls`` belong to wanted NICs that are still in the host; ``host_networks`` are what else the host uses,
    read if an address of a session or a gateway is new. ``filter`` is our table of the router's packet filter
    (:mod:`.packet_filter`); None: it was not read, because it does not matter or for ``filter_problem``. ``cni`` are
    the records of interfaces that CNI plugins make; ``cni_drift`` has those that their plugins' CHECK refused, and why,
    ``cni_unchecked`` those of which it could not be asked.
    """

    host: NamespaceView = field(default_factory=NamespaceView)
    router: NamespaceView = field(default_factory=NamespaceView)
    sysctls: Mapping[str, str | None] = field(default_factory=dict)
    host_sysctls: Mapping[str, str | None] = field(default_factory=dict)
    unreachable: frozenset[tuple[Family, int]] = frozenset()
    busy_tables: frozenset[int] = frozenset()
    host_unreachable: frozenset[tuple[Family, int]] = frozenset()
    busy_host_tables: frozenset[int] = frozenset()
    tables: Mapping[str, int] = field(default_factory=dict)
    journal: Mapping[str, NicRecord] = field(default_factory=dict)
    nic_routes: Mapping[str, tuple[SavedRoute, ...]] = field(default_factory=dict)
    nic_sysctls: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    host_networks: tuple[HostNetwork, ...] = ()
    filter: tuple[str, ...] | None = None
    filter_problem: str = ""
    cni: Mapping[str, CniRecord] = field(default_factory=dict)
    cni_drift: Mapping[str, str] = field(default_factory=dict)
    cni_unchecked: Mapping[str, str] = field(default_factory=dict)

    def view(self, namespace: Namespace) -> NamespaceView:
        """Return one namespace's part."""
        return self.host if namespace is Namespace.HOST else self.router

    def unreachable_in(self, namespace: Namespace) -> frozenset[tuple[Family, int]]:
        """Return the tables with our unreachable default in one namespace."""
        return self.host_unreachable if namespace is Namespace.HOST else self.unreachable

    def sysctls_of(self, namespace: Namespace) -> Mapping[str, str | None]:
        """Return the sysctls that were read in one namespace."""
        return self.host_sysctls if namespace is Namespace.HOST else self.sysctls


def owned_address(interface: IPInterface) -> Address:
    """Return an address as we add it to devices, with our mark."""
    return Address(interface, flags=0, ours=True)


def router_bridge(vni: int) -> str:
    """Return the name of a VNI's bridge in the router."""
    return f"br-pe-{vni}"


def vxlan_device(vni: int) -> str:
    """Return the name of a VNI's VXLAN device."""
    return f"vni{vni}"


def host_veth(vni: int) -> str:
    """Return the name of a VNI's veth end in the host; 15 characters at the most, exactly IFNAMSIZ - 1."""
    return f"host-e-{vni}"


def router_veth(vni: int) -> str:
    """Return the name of a VNI's veth end in the router."""
    return f"pe-e-{vni}"


def host_vrf(vni: int) -> str:
    """Return the name of the host's VRF that a VNI's veth end is put into; 15 characters at the most."""
    return f"host-v-{vni}"


PASSTHROUGH_HOST = "pt-host"
PASSTHROUGH_ROUTER = "pt-ns"
PASSTHROUGH_VRF = "pt-vrf"


#: The kernel never gives a device of ours such a MAC: those that it generates are locally administered.
GATEWAY_MAC_PREFIX = "00:f3:"


def gateway_mac(vni: int) -> str:
    """Return the anycast gateway's MAC: 00:f3 and big-endian VNI + 1, the same on all nodes (reference 4.8)."""
    return GATEWAY_MAC_PREFIX + (vni + 1).to_bytes(4, "big").hex(":")


def router_mac(vtep: IPAddress) -> str:
    """Return the MAC of a node's L3VNI bridges: 02:f3 and the IPv4 tunnel endpoint, or 06 and a digest of an IPv6 one.

    Like the endpoint it is the node's own, and the same after a reboot: zebra of FRR 10.3 keeps the first of two
    router MACs that it receives for a next hop at once (FRR #21448).
    """
    if vtep.version == 4:
        return f"02:f3:{vtep.packed.hex(':')}"
    return f"06:{blake2b(vtep.packed, digest_size=5).digest().hex(':')}"


def usual_broadcast(interface: IPInterface, peer: str) -> str:
    """Return the broadcast address that an address has by default; empty for none."""
    if peer or interface.version != 4 or interface.network.prefixlen >= 31:
        return ""
    return str(interface.network.broadcast_address)
