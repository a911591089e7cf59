"""What a desired state means for the kernel: every device, address and sysctl, in creation order. Pure.

:func:`kernel_model` expands each L3VNI, L2VNI and passthrough into the devices of reference 4.1-4.9, each with the
resource that it belongs to, and says which resources depend on which. :mod:`.plan` compares the result with what
exists. It deviates from upstream in two points: the passthrough has the underlay's MTU, and VRF tables are assigned by
:mod:`.vrf_tables`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from config.desired import (
    CniAttachment,
    DesiredL2VNI,
    DesiredL3VNI,
    DesiredPassthrough,
    DesiredSession,
    DesiredState,
    DesiredUnderlay,
    EndpointKind,
    HostMasterKind,
    IPAddress,
    IPInterface,
    ResourceFailure,
    SessionAddresses,
)
from config.problems import Origin, Reason, ResourceId

from .observed import (
    PASSTHROUGH_HOST,
    PASSTHROUGH_ROUTER,
    PASSTHROUGH_VRF,
    LinkKind,
    Namespace,
    VxlanAttributes,
    gateway_mac,
    host_veth,
    host_vrf,
    router_bridge,
    router_mac,
    router_veth,
    vxlan_device,
)
from .sysctls import GATEWAY, LAYER_2_ONLY, DeviceSysctls

#: Bytes that VXLAN adds: outer IP (20 or 40), UDP 8, VXLAN 8, inner Ethernet 14.
OVERHEAD_IPV4 = 50
OVERHEAD_IPV6 = 70
#: A veth MTU must exceed IPv6's minimum of 1280 to be set at all (reference 4.6).
MTU_FLOOR = 1280
NO_TABLES: Final[Mapping[str, int]] = MappingProxyType({})
#: A new veth's MTU (linux/if_ether.h, ETH_DATA_LEN).
DEFAULT_MTU = 1500


@dataclass(frozen=True, slots=True)
class WantedLink:
    """One device that should exist, up. None leaves an attribute to the kernel; ``master`` empty means no master.

    ``master`` None leaves it to the host where the device is attached: only an attachment of our own is undone.
    ``addresses`` None leaves them alone. ``peer`` is set on a veth's host end and names the end in the router.
    ``sysctls`` are the device's own, set before it is up.
    """

    namespace: Namespace
    name: str
    kind: LinkKind
    resource: ResourceId
    master: str | None = ""
    peer: str | None = None
    mtu: int | None = None
    mac: str | None = None
    table: int | None = None
    vxlan: VxlanAttributes | None = None
    neigh_suppress: bool = False
    addr_gen_none: bool = False
    addresses: tuple[IPInterface, ...] | None = None
    sysctls: DeviceSysctls = ()


@dataclass(frozen=True, slots=True)
class KernelModel:
    """Everything that is wanted.

    ``underlay`` None means that nothing of ours should remain and the NICs belong to the host. ``kept`` are other NICs,
    which stay inside because one of ``nics`` is not there yet. ``parents`` has the resource that creates a resource's
    VRF, ``orphans`` has resources whose VRF does not exist; ``external_bridges`` must exist in the host. With
    ``needs_address`` no neighbour is reachable without an address on a NIC. ``filtered_ports`` are the VXLAN ports that
    ``passthrough`` must not reach. ``attachments`` are the underlay's links that CNI plugins make.
    """

    underlay: ResourceId | None = None
    nics: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    loopback: tuple[IPInterface, ...] = ()
    links: tuple[WantedLink, ...] = ()
    tables: Mapping[str, int] = field(default_factory=dict)
    parents: Mapping[ResourceId, ResourceId] = field(default_factory=dict)
    orphans: Mapping[ResourceId, str] = field(default_factory=dict)
    external_bridges: Mapping[ResourceId, str] = field(default_factory=dict)
    origins: Mapping[ResourceId, Origin] = field(default_factory=dict)
    mtu: int | None = None
    needs_address: bool = False
    passthrough: ResourceId | None = None
    filtered_ports: tuple[int, ...] = ()
    attachments: tuple[CniAttachment, ...] = ()

    def failure(self, resource: ResourceId, reason: Reason, message: str) -> ResourceFailure:
        """Return a resource's failure, with the place where the resource was written."""
        return ResourceFailure(resource, reason, message, self.origins.get(resource, Origin()))


def kernel_model(
    desired: DesiredState,
    tables: Mapping[str, int],
    mtu: int | None,
    kept: tuple[str, ...] = (),
    host_tables: Mapping[str, int] = NO_TABLES,
) -> KernelModel:
    """Return what a desired state means for the kernel.

    ``tables`` has each wanted VRF's table, ``host_tables`` that of each VRF in the host; ``mtu`` is the smallest MTU of
    the underlay's NICs, None when there is none yet; ``kept`` are NICs that stay inside for now.
    """
    if desired.underlay is None:
        return KernelModel(tables={})
    vrfs, overheads = vrf_owners(desired), vrf_overheads(desired)
    links: list[WantedLink] = []
    for l3vni in desired.l3vnis:
        inner = veth_mtu(mtu, overheads[l3vni.vrf])
        owns_vrf = vrfs[l3vni.vrf] is l3vni
        links.extend(_l3vni_links(l3vni, tables, inner, owns_vrf=owns_vrf, host_tables=host_tables))
    for l2vni in desired.l2vnis:
        overhead = overhead_of(l2vni.vtep) if l2vni.vrf is None else overheads[l2vni.vrf]
        links.extend(_l2vni_links(l2vni, veth_mtu(mtu, overhead)))
    if desired.passthrough is not None:
        links.extend(_passthrough_links(desired.passthrough, mtu, host_tables))
    return KernelModel(
        underlay=desired.underlay.resource,
        nics=desired.underlay.nics,
        kept=kept,
        loopback=desired.underlay.vteps,
        links=tuple(links),
        tables=dict(tables),
        parents=_parents(desired, vrfs),
        orphans={vni.resource: vni.vrf for vni in desired.l2vnis if vni.vrf is not None and vni.vrf not in vrfs},
        external_bridges={
            vni.resource: vni.bridge
            for vni in desired.l2vnis
            if vni.host_master is HostMasterKind.EXTERNAL_BRIDGE and vni.bridge is not None
        },
        origins=_origins(desired),
        mtu=mtu,
        needs_address=_needs_address(desired.underlay),
        passthrough=desired.passthrough.resource if desired.passthrough else None,
        filtered_ports=_filtered_ports(desired),
        attachments=desired.underlay.attachments,
    )


def _filtered_ports(desired: DesiredState) -> tuple[int, ...]:
    """Return the VXLAN ports that the passthrough must not reach."""
    if desired.passthrough is None:
        return ()
    vnis: list[DesiredL3VNI | DesiredL2VNI] = [*desired.l3vnis, *desired.l2vnis]
    return tuple(sorted({vni.vxlan_port for vni in vnis}))


def _needs_address(underlay: DesiredUnderlay) -> bool:
    kinds = {neighbor.endpoint_kind for neighbor in underlay.neighbors}
    return bool(kinds) and EndpointKind.INTERFACE not in kinds


def vrf_owners(desired: DesiredState) -> dict[str, DesiredL3VNI]:
    """Return each wanted VRF with the L3VNI that creates it: the first in it."""
    owners: dict[str, DesiredL3VNI] = {}
    for l3vni in desired.l3vnis:
        owners.setdefault(l3vni.vrf, l3vni)
    return owners


def host_vrfs(desired: DesiredState) -> dict[str, int]:
    """Return each VRF that is wanted in the host with the number that its table follows from: its VNI, or 0."""
    if desired.underlay is None:
        return {}
    found = {host_vrf(vni.vni): vni.vni for vni in desired.l3vnis if vni.session is not None and vni.session.host_vrf}
    if desired.passthrough is not None and desired.passthrough.session.host_vrf:
        found[PASSTHROUGH_VRF] = 0
    return found


def overhead_of(vtep: IPAddress) -> int:
    """Return the bytes that a tunnel over this endpoint's family adds to a packet."""
    return OVERHEAD_IPV4 if vtep.version == 4 else OVERHEAD_IPV6


def vrf_overheads(desired: DesiredState) -> dict[str, int]:
    """Return the largest overhead in each VRF: a packet may enter it by one VNI and leave it by any other."""
    overheads: dict[str, int] = {}
    vnis: list[DesiredL3VNI | DesiredL2VNI] = [*desired.l3vnis, *desired.l2vnis]
    for vni in vnis:
        if vni.vrf is not None:
            overheads[vni.vrf] = max(overheads.get(vni.vrf, 0), overhead_of(vni.vtep))
    return overheads


def veth_mtu(underlay_mtu: int | None, overhead: int) -> int | None:
    """Return the MTU of a VNI's veth: a new one's for a result at the floor, None to leave it while none is known."""
    if underlay_mtu is None:
        return None
    mtu = underlay_mtu - overhead
    return mtu if mtu > MTU_FLOOR else DEFAULT_MTU


def _parents(desired: DesiredState, vrfs: Mapping[str, DesiredL3VNI]) -> dict[ResourceId, ResourceId]:
    members: list[DesiredL3VNI | DesiredL2VNI] = [*desired.l3vnis, *desired.l2vnis]
    return {
        member.resource: vrfs[member.vrf].resource
        for member in members
        if member.vrf is not None and member.vrf in vrfs and vrfs[member.vrf] is not member
    }


def _origins(desired: DesiredState) -> dict[ResourceId, Origin]:
    parts = [desired.underlay, *desired.l3vnis, *desired.l2vnis, desired.passthrough]
    return {part.resource: part.origin for part in parts if part is not None}


def _segment(
    vni: DesiredL3VNI | DesiredL2VNI,
    *,
    addr_gen_none: bool,
    mac: str | None,
    addresses: tuple[IPInterface, ...],
    sysctls: DeviceSysctls = (),
) -> Iterator[WantedLink]:
    """Yield a VNI's bridge and VXLAN device."""
    yield WantedLink(
        Namespace.ROUTER,
        router_bridge(vni.vni),
        LinkKind.BRIDGE,
        vni.resource,
        master=vni.vrf or "",
        addr_gen_none=addr_gen_none,
        mac=mac,
        addresses=addresses,
        sysctls=sysctls,
    )
    yield WantedLink(
        Namespace.ROUTER,
        vxlan_device(vni.vni),
        LinkKind.VXLAN,
        vni.resource,
        master=router_bridge(vni.vni),
        vxlan=VxlanAttributes(vni.vni, vni.vxlan_port, vni.vtep),
        neigh_suppress=True,
        addr_gen_none=True,
    )


def _veth(
    resource: ResourceId,
    host: str,
    router: str,
    *,
    mtu: int | None = None,
    host_master: str | None = None,
    router_master: str | None = "",
    pairs: tuple[SessionAddresses, ...] = (),
    host_sysctls: DeviceSysctls = (),
) -> Iterator[WantedLink]:
    """Yield both ends of a veth, with their addresses."""
    outside, inside = tuple(pair.host for pair in pairs), tuple(pair.router for pair in pairs)
    yield WantedLink(
        Namespace.HOST,
        host,
        LinkKind.VETH,
        resource,
        master=host_master,
        peer=router,
        mtu=mtu,
        addresses=outside,
        sysctls=host_sysctls,
    )
    yield WantedLink(Namespace.ROUTER, router, LinkKind.VETH, resource, master=router_master, mtu=mtu, addresses=inside)


def _host_vrf(
    resource: ResourceId, session: DesiredSession, name: str, tables: Mapping[str, int]
) -> Iterator[WantedLink]:
    """Yield the host's VRF of a session that has one."""
    if session.host_vrf:
        yield WantedLink(Namespace.HOST, name, LinkKind.VRF, resource, table=tables[name])


def _l3vni_links(
    vni: DesiredL3VNI,
    tables: Mapping[str, int],
    mtu: int | None,
    *,
    owns_vrf: bool,
    host_tables: Mapping[str, int],
) -> Iterator[WantedLink]:
    if owns_vrf:
        yield WantedLink(Namespace.ROUTER, vni.vrf, LinkKind.VRF, vni.resource, table=tables[vni.vrf])
    yield from _segment(vni, addr_gen_none=True, mac=router_mac(vni.vtep), addresses=())
    if vni.session is not None:
        outside = host_vrf(vni.vni)
        yield from _host_vrf(vni.resource, vni.session, outside, host_tables)
        yield from _veth(
            vni.resource,
            host_veth(vni.vni),
            router_veth(vni.vni),
            mtu=mtu,
            host_master=outside if vni.session.host_vrf else None,
            router_master=vni.vrf,
            pairs=vni.session.addresses,
        )


def _l2vni_links(vni: DesiredL2VNI, mtu: int | None) -> Iterator[WantedLink]:
    gateway = gateway_mac(vni.vni) if vni.gateways else None
    # Without routing domain it would be in the default VRF, with the underlay.
    sysctls = LAYER_2_ONLY if vni.vrf is None else GATEWAY if vni.gateways else ()
    yield from _segment(vni, addr_gen_none=False, mac=gateway, addresses=vni.gateways, sysctls=sysctls)
    if vni.host_master is HostMasterKind.MANAGED_BRIDGE and vni.bridge is not None:
        yield WantedLink(Namespace.HOST, vni.bridge, LinkKind.BRIDGE, vni.resource, sysctls=LAYER_2_ONLY)
    # No addresses of ours on either end: those of an L3VNI that had this number before must go.
    yield from _veth(
        vni.resource,
        host_veth(vni.vni),
        router_veth(vni.vni),
        mtu=mtu,
        host_master=vni.bridge,
        router_master=router_bridge(vni.vni),
        host_sysctls=LAYER_2_ONLY,
    )


def _passthrough_links(
    passthrough: DesiredPassthrough, underlay_mtu: int | None, host_tables: Mapping[str, int]
) -> Iterator[WantedLink]:
    """Yield the plain veth. It has the underlay's MTU, since nothing is added to its packets; IPv6 needs the floor."""
    session, resource = passthrough.session, passthrough.resource
    yield from _host_vrf(resource, session, PASSTHROUGH_VRF, host_tables)
    mtu = None if underlay_mtu is None else max(underlay_mtu, MTU_FLOOR)
    master, pairs = PASSTHROUGH_VRF if session.host_vrf else None, session.addresses
    yield from _veth(resource, PASSTHROUGH_HOST, PASSTHROUGH_ROUTER, mtu=mtu, host_master=master, pairs=pairs)
