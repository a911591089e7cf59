"""Planning of the NIC's way into the router and back (reference 4.4, 4.10). Pure.

A NIC loses its addresses and routes when it changes namespaces, so the journal is written first and every later step
can be found out again from the journal and the kernel alone: that is what makes a crash between any two of them
harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from config.desired import IPInterface, ResourceFailure
from config.problems import Origin, Reason, ResourceId

from .observed import (
    IFA_F_NOPREFIXROUTE,
    NIC_GROUP,
    OUR_GROUPS,
    Address,
    Link,
    LinkKind,
    Namespace,
    NicPhase,
    NicRecord,
    Observed,
    SavedRoute,
    in_order,
)
from .steps import AddAddress, AddAltname, AddRoute, ChangeLink, ForgetNic, MoveLink, SaveNic, SetNicSysctls, Step
from .wanted import KernelModel

#: An IPv6 privacy address (RFC 8981; linux/if_addr.h). On IPv4 the same bit means a secondary address.
IFA_F_TEMPORARY = 0x01
#: The flags of an address that somebody chose and that mean something when it is made again (linux/if_addr.h): nodad,
#: home address, manage temporary addresses, no prefix route, multicast auto-join.
KEPT_FLAGS = 0x02 | 0x10 | 0x100 | IFA_F_NOPREFIXROUTE | 0x400

#: Virtual NICs whose MAC the kernel made up. systemd's default MACAddressPolicy= gives such a NIC another one when it
#: appears in the host, unless somebody has set the one that it has (systemd.link(5)): so we do, before it appears.
RANDOM_MAC_KINDS = frozenset({LinkKind.VETH, "dummy", "macvlan"})


def handover(model: KernelModel, observed: Observed) -> tuple[list[Step], list[ResourceFailure]]:
    """Return the steps that bring the wanted NICs in, and what stands against those that cannot come."""
    steps: list[Step] = []
    failures: list[ResourceFailure] = []
    if model.underlay is None:
        return steps, failures
    for name in model.nics:
        obstacle = _obstacle(name, observed) or _bare(name, model, observed)
        if obstacle:
            origin = model.origins.get(model.underlay, Origin())
            failures.append(ResourceFailure(model.underlay, Reason.UNDERLAY_FAILED, obstacle, origin))
        elif name in observed.router.links:
            steps += _settle(name, observed, model.underlay)
        else:
            steps += _bring_in(name, observed, model.underlay)
    return steps, failures


def _obstacle(name: str, observed: Observed) -> str:
    """Say why a NIC cannot be the router's, or nothing."""
    inside, outside = observed.router.links.get(name), observed.host.links.get(name)
    link = inside or outside
    if link is None:
        return f"interface {name} is neither in the host nor in the router's namespace: it is taken when it appears"
    if link.ours or name == "lo":
        return f"interface {name} is a device of the router itself, not a NIC"
    if inside is None and link.master:
        return (
            f"interface {name} belongs to {link.master}: give the router {link.master} itself, or release the interface"
        )
    return ""


def _bare(name: str, model: KernelModel, observed: Observed) -> str:
    """Say that a NIC was not configured yet, as at boot before the host's network manager ran, or nothing.

    It would never get an address inside the router, out of that program's sight. One address on any of the underlay's
    NICs, or in the journal, is enough: only all of them bare is a sign of being early.
    """
    if not model.needs_address or name in observed.router.links:
        return ""
    views = (observed.host, observed.router)
    present = [interface for view in views for nic in model.nics for interface in view.interfaces(nic)]
    records = [observed.journal[nic] for nic in model.nics if nic in observed.journal]
    present += [address.interface for record in records for address in record.addresses]
    if any(not interface.ip.is_link_local for interface in present):
        return ""
    return f"interface {name} has no address yet, which every neighbour needs: it is taken when it has one"


def _settle(name: str, observed: Observed, resource: ResourceId) -> Iterator[Step]:
    """Yield what a NIC inside still needs. One that somebody else put there is adopted, journal and all."""
    unit = f"nic {name}"
    link, addresses = observed.router.links[name], observed.router.addresses.get(name, ())
    record = observed.journal.get(name)
    if record is None:
        record = record_of(link, addresses, (), NicPhase.INSIDE)
        yield SaveNic(record, resource=resource, unit=unit)
    yield from _give_addresses(Namespace.ROUTER, name, record, observed.router.interfaces(name), resource)
    change = ChangeLink(
        Namespace.ROUTER,
        name,
        group=NIC_GROUP if link.group != NIC_GROUP else None,
        up=True if not link.up else None,
        resource=resource,
        unit=unit,
    )
    if not change.empty:
        yield change
    if record.phase is not NicPhase.INSIDE:
        yield SaveNic(replace(record, phase=NicPhase.INSIDE), resource=resource, unit=unit)


def _bring_in(name: str, observed: Observed, resource: ResourceId) -> Iterator[Step]:
    unit = f"nic {name}"
    link, addresses = observed.host.links[name], observed.host.addresses.get(name, ())
    fresh = record_of(link, addresses, observed.nic_routes.get(name, ()), NicPhase.MOVING)
    fresh = replace(fresh, sysctls=observed.nic_sysctls.get(name, ()))
    record = _merged(fresh, observed.journal.get(name))
    if record != observed.journal.get(name):
        yield SaveNic(record, resource=resource, unit=unit)
    yield MoveLink(name, Namespace.HOST, Namespace.ROUTER, resource=resource, unit=unit)
    yield from _give_addresses(Namespace.ROUTER, name, record, frozenset(), resource)
    yield ChangeLink(Namespace.ROUTER, name, group=NIC_GROUP, up=True, resource=resource, unit=unit)
    yield SaveNic(replace(record, phase=NicPhase.INSIDE), resource=resource, unit=unit)


def _merged(fresh: NicRecord, old: NicRecord | None) -> NicRecord:
    """Return what to remember of a NIC in the host.

    An older record counts when the NIC may have lost what it had: its return was interrupted, or the router's
    namespace died and the kernel put the NIC back bare. A record of a move that never happened is simply replaced.
    """
    if old is None or (old.phase is NicPhase.MOVING and fresh.addresses):
        return fresh
    known = {address.interface for address in fresh.addresses}
    routes = {(route.family, route.table, route.destination, route.priority) for route in fresh.routes}
    return replace(
        fresh,
        mtu=old.mtu,
        up=fresh.up or old.up,
        group=old.group,
        altnames=(*fresh.altnames, *(name for name in old.altnames if name not in fresh.altnames)),
        sysctls=tuple(sorted({**dict(old.sysctls), **dict(fresh.sysctls)}.items())),
        addresses=fresh.addresses + tuple(a for a in old.addresses if a.interface not in known),
        routes=in_order(
            (*fresh.routes, *(r for r in old.routes if (r.family, r.table, r.destination, r.priority) not in routes))
        ),
    )


def record_of(link: Link, addresses: tuple[Address, ...], routes: tuple[SavedRoute, ...], phase: NicPhase) -> NicRecord:
    """Return the record of a NIC as it is.

    Addresses with a lifetime (DHCP, router advertisements) are kept as well, for good: nobody renews them inside the
    router. Only IPv6 privacy addresses are not, since they were never meant to last.
    """
    kept = tuple(
        address for address in addresses if address.interface.version == 4 or not address.flags & IFA_F_TEMPORARY
    )
    return NicRecord(
        link.name, phase, link.mtu, link.mac, link.up, kept, in_order(routes), link.altnames, link.master, link.group
    )


def _give_addresses(
    namespace: Namespace, name: str, record: NicRecord, present: frozenset[IPInterface], resource: ResourceId | None
) -> Iterator[Step]:
    """Yield the journalled addresses that are missing; inside the router each gets its prefix route (KRN-U-2)."""
    cleared = IFA_F_NOPREFIXROUTE if namespace is Namespace.ROUTER else 0
    for address in record.addresses:
        if address.interface not in present:
            yield AddAddress(
                namespace,
                name,
                address.interface,
                marked=False,
                flags=address.flags & KEPT_FLAGS & ~cleared,
                scope=address.scope,
                peer=address.peer,
                broadcast=address.broadcast,
                label=address.label,
                resource=resource,
                unit=f"nic {name}",
                vital=namespace is Namespace.ROUTER,
            )


def restoration(model: KernelModel, observed: Observed) -> list[Step]:
    """Return the steps that give NICs back: marked ones inside that nobody wants, and returns that were interrupted."""
    marked = {name for name, link in observed.router.links.items() if link.group == NIC_GROUP}
    steps: list[Step] = []
    for name in sorted((marked | set(observed.journal)) - set(model.nics)):
        if name in observed.router.links:
            steps += _give_back(name, observed, model.underlay)
        elif name in observed.host.links:
            steps += _make_whole(observed.journal[name], observed, model.underlay)
        else:
            steps.append(ForgetNic(name, resource=model.underlay, unit=f"nic {name}"))
    return steps


def _give_back(name: str, observed: Observed, resource: ResourceId | None) -> Iterator[Step]:
    unit = f"nic {name}"
    old = observed.journal.get(name)
    if old is None:
        old = record_of(observed.router.links[name], observed.router.addresses.get(name, ()), (), NicPhase.RESTORING)
    record = replace(old, phase=NicPhase.RESTORING)
    if record != observed.journal.get(name):
        yield SaveNic(record, resource=resource, unit=unit)
    link = observed.router.links[name]
    mac = record.mac or link.mac
    if mac and (link.kind in RANDOM_MAC_KINDS or mac != link.mac):
        yield ChangeLink(Namespace.ROUTER, name, mac=mac, resource=resource, unit=unit)
    yield MoveLink(name, Namespace.ROUTER, Namespace.HOST, resource=resource, unit=unit)
    moved = replace(link, up=False, mac=mac, altnames=record.altnames)
    yield from _restore_steps(record, moved, frozenset(), resource)


def _make_whole(record: NicRecord, observed: Observed, resource: ResourceId | None) -> Iterator[Step]:
    name = record.name
    yield from _restore_steps(record, observed.host.links[name], observed.host.interfaces(name), resource)


def _restore_steps(
    record: NicRecord, link: Link, present: frozenset[IPInterface], resource: ResourceId | None
) -> Iterator[Step]:
    """Yield sysctls, addresses, what the link was, then routes (a gateway needs its address), then the record's end.

    The sysctls come while the link is down: it must not hear a router advertisement that the host had forbidden. What
    is refused keeps nothing back but the record's end: what was there before is not lost.
    """
    unit = f"nic {record.name}"
    # Of a NIC whose journal was lost we only know the group that the router gave it.
    group = 0 if record.group in {NIC_GROUP, *OUR_GROUPS} else record.group
    up = record.up or bool(record.routes)
    change = ChangeLink(
        Namespace.HOST,
        record.name,
        mtu=record.mtu if link.mtu != record.mtu else None,
        mac=record.mac if record.mac and link.mac != record.mac else None,
        group=group if link.group != group else None,
        up=up if link.up != up else None,
        resource=resource,
        unit=unit,
    )
    if record.sysctls:
        yield SetNicSysctls(record.name, record.sysctls, resource=resource, unit=unit, vital=False)
    yield from _give_addresses(Namespace.HOST, record.name, record, present, resource)
    if not change.empty:
        yield change
    for altname in record.altnames:
        if altname not in link.altnames:
            yield AddAltname(record.name, altname, resource=resource, unit=unit, vital=False)
    # Sorted again: an older version wrote them as the kernel dumps them.
    for route in in_order(record.routes):
        yield AddRoute(record.name, route, resource=resource, unit=unit, vital=False)
    yield ForgetNic(record.name, resource=resource, unit=unit)
