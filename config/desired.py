"""What this node should be: the one immutable value that resolution produces, for FRR and the kernel.

Everything is computed: addresses are addresses of *this* node, address families are explicit, defaults are filled in,
names of devices are final. A reader needs neither the models nor the files. Each part has the identity
and origin of its resource. Equal contents (:meth:`DesiredState.content`) mean the same router.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network, ip_network
from typing import Literal

from config.problems import Origin, Problem, Reason, ResourceId

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network
#: An address with its prefix length, as put on a device.
IPInterface = IPv4Interface | IPv6Interface
#: How a router ID follows from its pool and the node's index (:func:`config.resolve.ipam.router_id`).
RouterIdScheme = Literal["v1", "v2"]


class Family(StrEnum):
    """IP version of an endpoint, a tunnel or a session."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"


class BGPFamily(StrEnum):
    """BGP address families that a neighbour can carry, in the order in which they are always listed (reference 5.4)."""

    IPV4_UNICAST = "ipv4unicast"
    IPV6_UNICAST = "ipv6unicast"
    EVPN = "evpn"


class Secret:
    """A string that is never shown: ``repr`` and ``str`` give stars; :meth:`reveal` gives the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. Only FRR's renderer and what writes frr.conf may call this."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(********)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, slots=True)
class Bfd:
    """BFD of one neighbour; None leaves FRR's own default. Intervals in milliseconds."""

    receive_interval: int | None = None
    transmit_interval: int | None = None
    detect_multiplier: int | None = None
    passive: bool = False
    minimum_ttl: int | None = None

    @property
    def has_profile(self) -> bool:
        """Whether anything differs from plain ``bfd``, so that a profile is needed."""
        return self != Bfd()


class EndpointKind(StrEnum):
    """How a fabric neighbour is found."""

    ADDRESS = "address"
    INTERFACE = "interface"
    LISTEN_RANGE = "listen_range"


#: ``remote-as``: a number, or FRR's words ``external`` and ``internal``.
RemoteAS = int | str


@dataclass(frozen=True, slots=True)
class FabricNeighbor:
    """One BGP neighbour of the underlay instance, resolved.

    ``endpoint`` is the address, the interface name or the (masked) range in text: FRR's name of the neighbour or of the
    peer-group. Times in seconds; None leaves FRR's default. It is a route reflector's client in ``reflected_families``.
    """

    endpoint: str
    endpoint_kind: EndpointKind
    family: Family
    remote_as: RemoteAS
    ebgp: bool
    families: tuple[BGPFamily, ...]
    port: int | None = None
    password: Secret | None = None
    hold_time: int | None = None
    keepalive_time: int | None = None
    connect_time: int | None = None
    ebgp_multihop: int | None = None
    bfd: Bfd | None = None
    disable_connected_check: bool = False
    extended_nexthop: bool = False
    ttl_security_hops: int | None = None
    maximum_prefixes: int | None = None
    reflected_families: tuple[BGPFamily, ...] = ()


@dataclass(frozen=True, slots=True)
class GracefulRestart:
    """BGP graceful restart, seconds."""

    restart_time: int = 120
    stale_path_time: int = 360


@dataclass(frozen=True, slots=True)
class CniAttachment:
    """An interface that CNI plugins make in the router.

    ``conflist`` is the network configuration list and ``runtime`` the values of capabilities: JSON objects as text,
    sorted and compact, so that equal configurations are equal texts.
    """

    name: str
    conflist: str
    runtime: str = "{}"


@dataclass(frozen=True, slots=True)
class DesiredUnderlay:
    """The fabric side.

    ``vteps`` are /32 or /128, at most one a family, for ``lo``, from ``vtep_pools``; ``advertise_evpn`` says
    that the EVPN address family is rendered, with ``advertise-all-vni`` when there are ``vteps``. ``router_id`` follows
    from ``router_id_pool`` by ``router_id_scheme``. ``cluster_id`` is a route reflector's; None: its router ID.
    ``interfaces`` has the names of all links, ``attachments`` those of them that CNI plugins make.
    """

    resource: ResourceId
    origin: Origin = field(compare=False)
    asn: int
    router_id: IPv4Address
    interfaces: tuple[str, ...]
    neighbors: tuple[FabricNeighbor, ...]
    vteps: tuple[IPInterface, ...] = ()
    vtep_pools: tuple[str, ...] = field(default=(), compare=False)
    graceful_restart: GracefulRestart | None = None
    advertise_evpn: bool = False
    router_id_pool: str = field(default="", compare=False)
    router_id_scheme: RouterIdScheme = field(default="v1", compare=False)
    cluster_id: IPv4Address | None = None
    attachments: tuple[CniAttachment, ...] = ()

    @property
    def nics(self) -> tuple[str, ...]:
        """Return the links that are devices of the host, moved into the router."""
        made = {attachment.name for attachment in self.attachments}
        return tuple(name for name in self.interfaces if name not in made)

    def vtep(self, family: Family) -> IPInterface | None:
        """Return this node's tunnel endpoint of a family, if it has one."""
        version = 4 if family is Family.IPV4 else 6
        return next((vtep for vtep in self.vteps if vtep.version == version), None)


@dataclass(frozen=True, slots=True)
class SessionAddresses:
    """One family's two ends of a session's veth, each with the pool's prefix length (IPAM, reference 4.0)."""

    router: IPInterface
    host: IPInterface


@dataclass(frozen=True, slots=True)
class DesiredProbe:
    """What the router pings besides the host's end, every ``interval`` seconds; down after ``count`` without answer."""

    targets: tuple[IPAddress, ...] = ()
    interval: int = 10
    count: int = 3


@dataclass(frozen=True, slots=True)
class DesiredSession:
    """BGP between the router and the host over a veth: one neighbour a family (``addresses`` in v4, v6 order).

    ``allowed_prefixes`` are masked networks, sorted; None means any. None elsewhere means off. With ``host_vrf`` the
    host's end is in a VRF of the host.
    """

    asn: int
    remote_as: RemoteAS
    ebgp: bool
    addresses: tuple[SessionAddresses, ...]
    password: Secret | None = None
    ttl_security_hops: int | None = None
    maximum_prefixes: int | None = None
    allowed_prefixes: tuple[IPNetwork, ...] | None = None
    host_vrf: bool = False
    probe: DesiredProbe | None = None


@dataclass(frozen=True, slots=True)
class DesiredL3VNI:
    """A routed tenant network.

    ``gateway_networks`` are the subnets of the L2VNIs in its VRF: masked, sorted, unique, in text.
    """

    resource: ResourceId
    origin: Origin = field(compare=False)
    vrf: str
    vni: int
    vxlan_port: int
    vtep: IPAddress
    asn: int
    session: DesiredSession | None = None
    export_rts: tuple[str, ...] = ()
    import_rts: tuple[str, ...] = ()
    gateway_networks: tuple[str, ...] = ()


class HostMasterKind(StrEnum):
    """Where an L2VNI's host veth is attached: nowhere, a bridge that we make, or one that the user made."""

    NONE = "none"
    MANAGED_BRIDGE = "managed_bridge"
    EXTERNAL_BRIDGE = "external_bridge"


@dataclass(frozen=True, slots=True)
class DesiredL2VNI:
    """A stretched segment. ``vrf`` is its routing domain's VRF or None, ``bridge`` the host bridge's name or None.

    Without route targets or ``rd`` FRR derives them.
    """

    resource: ResourceId
    origin: Origin = field(compare=False)
    vni: int
    vxlan_port: int
    vtep: IPAddress
    vrf: str | None = None
    gateways: tuple[IPInterface, ...] = ()
    host_master: HostMasterKind = HostMasterKind.NONE
    bridge: str | None = None
    export_rts: tuple[str, ...] = ()
    import_rts: tuple[str, ...] = ()
    rd: str | None = None


@dataclass(frozen=True, slots=True)
class DesiredPassthrough:
    """Plain BGP between host and fabric through the underlay instance."""

    resource: ResourceId
    origin: Origin = field(compare=False)
    session: DesiredSession


@dataclass(frozen=True, slots=True)
class DesiredRawFRR:
    """A user's FRR snippet, which may hold secrets; lower priority first."""

    resource: ResourceId
    origin: Origin = field(compare=False)
    priority: int
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RememberedApi:
    """What a state took from the saved snapshot: how many objects, as of when (Unix seconds)."""

    objects: int
    synced_at: float


@dataclass(frozen=True, slots=True)
class RouterAddresses:
    """What follows from the index and has to be unique among all routers of a fabric, in text."""

    index: int
    router_id: str
    tunnel_endpoints: tuple[str, ...] = ()

    def named(self) -> frozenset[str]:
        """Return each address with what it is."""
        return frozenset((f"router ID {self.router_id}", *(f"tunnel endpoint {one}" for one in self.tunnel_endpoints)))


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Everything the node should be. Order inside each tuple is by namespace and name (raw snippets: by priority).

    ``generation`` grows by one for each state that a process publishes; ``reload_id`` is the last reload request
    that this state has taken in; ``problems`` are all known ones, by resource and file. ``underlay`` None means: give
    the NIC back. ``remembered`` is set when the API's part is from the saved snapshot. ``awaited`` are the addresses
    that the node would have if no other node had them.
    """

    generation: int
    node_name: str
    node_index: int
    reload_id: int = 0
    log_level: str = "info"
    underlay: DesiredUnderlay | None = None
    l3vnis: tuple[DesiredL3VNI, ...] = ()
    l2vnis: tuple[DesiredL2VNI, ...] = ()
    passthrough: DesiredPassthrough | None = None
    raw_frr: tuple[DesiredRawFRR, ...] = ()
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    remembered: RememberedApi | None = field(default=None, compare=False)
    awaited: RouterAddresses | None = field(default=None, compare=False)

    @property
    def addresses(self) -> RouterAddresses | None:
        """Return the router's own addresses, None without an underlay."""
        if self.underlay is None:
            return None
        endpoints = tuple(str(vtep.ip) for vtep in self.underlay.vteps)
        return RouterAddresses(self.node_index, str(self.underlay.router_id), endpoints)

    def content(self) -> tuple[object, ...]:
        """Return what decides the router's shape: equal contents need no work. Where it was written does not count."""
        return (self.node_name, self.node_index, self.log_level, *self._parts())

    def origins(self) -> dict[ResourceId, Origin]:
        """Return where each part was written, by its resource."""
        single = (part for part in (self.underlay, self.passthrough) if part is not None)
        return {part.resource: part.origin for part in (*single, *self.l3vnis, *self.l2vnis, *self.raw_frr)}

    def _parts(self) -> tuple[object, ...]:
        return (self.underlay, self.l3vnis, self.l2vnis, self.passthrough, self.raw_frr)


@dataclass(frozen=True, slots=True)
class ResourceFailure:
    """One resource that is not, or not wholly, in force, found while applying or checking a state."""

    resource: ResourceId
    reason: Reason
    message: str
    origin: Origin = field(default_factory=Origin)

    def __str__(self) -> str:
        place = "" if self.origin == Origin() else f"{self.origin}: "
        return f"{place}{self.resource}: {self.message}"


def network_of(interface: IPInterface) -> str:
    """Return the masked network of an address in text, e.g. ``192.168.1.1/24`` gives ``192.168.1.0/24``."""
    return str(ip_network(interface, strict=False))
