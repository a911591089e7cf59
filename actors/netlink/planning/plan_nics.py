"""Planning of a NIC's move into the router and back (reference 4.4, 4.10). Pure.

In: a wanted NIC is recorded in the journal, moved, and gets its addresses, its mark and its state inside the router.
Back: sysctls, addresses, link attributes, alternative names and routes are restored in the host, then the record goes.

A NIC loses its addresses and routes when it changes namespaces. Therefore the journal is written first, and every
later step follows from the journal and the kernel alone: a crash between any two steps loses nothing. While a wanted
NIC is not inside, no other one leaves: a misspelt name does not cost the node its fabric.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial

from config.desired import IPInterface, ResourceFailure
from config.problems import Reason

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
from .steps import (
    AddAddress,
    AddAltname,
    AddRoute,
    ChangeLink,
    ForgetNic,
    MoveLink,
    SaveNic,
    SetNicSysctls,
    Step,
    attributed,
)
from .wanted import KernelModel

#: An IPv6 privacy address (RFC 8981; linux/if_addr.h). On IPv4 the same bit means a secondary address.
IFA_F_TEMPORARY = 0x01
IFA_F_NODAD = 0x02
#: The flags of an address that were configured and still mean something when it is added again (linux/if_addr.h):
#: nodad, home address, manage temporary addresses, no prefix route, multicast auto-join.
KEPT_FLAGS = IFA_F_NODAD | 0x10 | 0x100 | IFA_F_NOPREFIXROUTE | 0x400

#: Virtual NICs whose MAC the kernel generated. systemd's default MACAddressPolicy= gives such a NIC another MAC when it
#: appears in the host, unless its MAC was set explicitly (systemd.link(5)): hence it is set before the NIC moves.
RANDOM_MAC_KINDS = frozenset({LinkKind.VETH, "dummy", "macvlan"})

#: Kinds that no Linux ever moves to another namespace (NETIF_F_NETNS_LOCAL; since 6.15 IFLA_NETNS_IMMUTABLE). What is
#: built on them moves.
IMMOVABLE_KINDS = frozenset({"bond", "team", LinkKind.BRIDGE, LinkKind.VRF})


def marked_nics(observed: Observed) -> tuple[str, ...]:
    """Return the NICs that the router has, by their mark."""
    return tuple(name for name, link in observed.router.links.items() if link.group == NIC_GROUP)


def kept_nics(nics: Collection[str], observed: Observed) -> tuple[str, ...]:
    """Return the NICs inside that are not wanted any more but stay there until every wanted one is inside.

    Else a misspelt name, or a NIC that the kernel refuses to move, would cost the node the fabric that it has.
    """
    inside = {name for name, link in observed.router.links.items() if not link.ours and name != "lo"}
    if inside.issuperset(nics):
        return ()
    return tuple(sorted(inside.intersection((*marked_nics(observed), *observed.journal)).difference(nics)))


def handover(model: KernelModel, observed: Observed) -> tuple[list[Step], list[ResourceFailure]]:
    """Return the steps that bring the wanted NICs in, and the reasons why some cannot be brought in."""
    steps: list[Step] = []
    failures: list[ResourceFailure] = []
    if model.underlay is None:
        return steps, failures
    for name in (*model.nics, *model.kept):
        obstacle = _obstacle(name, observed) or _bare(name, model, observed)
        if obstacle:
            kept = f"; until then the router keeps {', '.join(model.kept)}" if model.kept else ""
            failures.append(model.failure(model.underlay, Reason.UNDERLAY_FAILED, obstacle + kept))
        else:
            nic = _settle(name, observed) if name in observed.router.links else _bring_in(name, observed)
            steps += attributed(nic, model.underlay, f"nic {name}")
    return steps, failures


def _obstacle(name: str, observed: Observed) -> str:
    """Return why the router cannot have a NIC, or nothing."""
    inside, outside = observed.router.links.get(name), observed.host.links.get(name)
    link = inside or outside
    if link is None:
        return f"interface {name} is neither in the host nor in the router's namespace: it is moved when it appears"
    if link.ours or name == "lo":
        return f"interface {name} is a device of the router itself, not a NIC"
    if inside is None and link.kind in IMMOVABLE_KINDS:
        return f"interface {name} is a {link.kind}, which the kernel never moves: {interface_on(name)}"
    if inside is None and link.master:
        return f"interface {name} belongs to {link.master}: release it, or {interface_on(link.master)}"
    return ""


def interface_on(lower: str) -> str:
    """Return the advice for a device that cannot be moved."""
    return f"create a VLAN or macvlan interface on {lower} in the host, and name that one"


def _bare(name: str, model: KernelModel, observed: Observed) -> str:
    """Return why a NIC must wait for its configuration, as at boot before the host's network manager ran, or nothing.

    Inside the router, where that program does not see it, it would never get an address. One address on any of the
    underlay's NICs, or in the journal, is enough: only when all of them are bare is it too early.
    """
    if not model.needs_address or name in observed.router.links:
        return ""
    views = (observed.host, observed.router)
    present = [interface for view in views for nic in model.nics for interface in view.interfaces(nic)]
    records = [observed.journal[nic] for nic in model.nics if nic in observed.journal]
    present += [address.interface for record in records for address in record.addresses]
    if any(not interface.ip.is_link_local for interface in present):
        return ""
    return f"interface {name} has no address yet, which all neighbours need: it is moved when it has one"


def _settle(name: str, observed: Observed) -> Iterator[Step]:
    """Yield what a NIC inside still needs. One that was put there by other means is adopted, with a journal record."""
    link, addresses = observed.router.links[name], observed.router.addresses.get(name, ())
    record = observed.journal.get(name)
    if record is None:
        record = record_of(link, addresses, (), NicPhase.INSIDE)
        yield SaveNic(record)
    yield from _restore_addresses(Namespace.ROUTER, record, observed.router.interfaces(name))
    change = ChangeLink(
        Namespace.ROUTER,
        name,
        group=NIC_GROUP if link.group != NIC_GROUP else None,
        up=True if not link.up else None,
    )
    if not change.empty:
        yield change
    if record.phase is not NicPhase.INSIDE:
        yield SaveNic(replace(record, phase=NicPhase.INSIDE))


def _bring_in(name: str, observed: Observed) -> Iterator[Step]:
    link, addresses = observed.host.links[name], observed.host.addresses.get(name, ())
    current = record_of(link, addresses, observed.nic_routes.get(name, ()), NicPhase.MOVING)
    current = replace(current, sysctls=observed.nic_sysctls.get(name, ()))
    record = _merged(current, observed.journal.get(name))
    if record != observed.journal.get(name):
        yield SaveNic(record)
    yield MoveLink(name, Namespace.HOST, Namespace.ROUTER)
    yield from _restore_addresses(Namespace.ROUTER, record, frozenset())
    yield ChangeLink(Namespace.ROUTER, name, group=NIC_GROUP, up=True)
    yield SaveNic(replace(record, phase=NicPhase.INSIDE))


def _merged(current: NicRecord, old: NicRecord | None) -> NicRecord:
    """Return the record of a NIC in the host, from its current state and an older record.

    The older record counts when the NIC may have lost what it had: its return was interrupted, or the router's
    namespace was destroyed and the kernel put the NIC back bare. A record of a move that never happened is replaced.
    """
    if old is None or (old.phase is NicPhase.MOVING and current.addresses):
        return current
    known = {address.interface for address in current.addresses}
    routes = {(route.family, route.table, route.destination, route.priority) for route in current.routes}
    return replace(
        current,
        mtu=old.mtu,
        up=current.up or old.up,
        group=old.group,
        altnames=(*current.altnames, *(name for name in old.altnames if name not in current.altnames)),
        sysctls=tuple(sorted({**dict(old.sysctls), **dict(current.sysctls)}.items())),
        addresses=current.addresses + tuple(a for a in old.addresses if a.interface not in known),
        routes=in_order(
            (*current.routes, *(r for r in old.routes if (r.family, r.table, r.destination, r.priority) not in routes))
        ),
    )


def _never_moved(record: NicRecord, addresses: Iterable[Address]) -> bool:
    """Whether a record is of a move that did not happen: the NIC has an address, which a move takes.

    A link-local one says nothing, since the host gets it by setting the NIC up.
    """
    return record.phase is NicPhase.MOVING and any(not one.interface.ip.is_link_local for one in addresses)


def record_of(link: Link, addresses: tuple[Address, ...], routes: tuple[SavedRoute, ...], phase: NicPhase) -> NicRecord:
    """Return the record of a NIC as it is.

    Addresses with a lifetime (DHCP, router advertisements) are kept permanently, since nothing renews them inside the
    router. Only IPv6 privacy addresses are left out, which are meant to be temporary.
    """
    kept = tuple(
        address for address in addresses if address.interface.version == 4 or not address.flags & IFA_F_TEMPORARY
    )
    return NicRecord(
        link.name, phase, link.mtu, link.mac, link.up, kept, in_order(routes), link.altnames, link.master, link.group
    )


def host_addresses(record: NicRecord) -> Iterator[Address]:
    """Yield a NIC's addresses as they are restored in the host.

    Those that routes name as their source are not checked for duplicates: the kernel refuses such a route while it does
    that. The NIC had them all the time.
    """
    sources = {route.source for route in record.routes}
    for address in record.addresses:
        is_source = address.interface.version == 6 and str(address.interface.ip) in sources
        yield replace(address, flags=address.flags | IFA_F_NODAD) if is_source else address


def _restore_addresses(namespace: Namespace, record: NicRecord, present: frozenset[IPInterface]) -> Iterator[Step]:
    """Yield the journalled addresses that are missing; inside the router each gets its prefix route (KRN-U-2)."""
    cleared = IFA_F_NOPREFIXROUTE if namespace is Namespace.ROUTER else 0
    for address in record.addresses if namespace is Namespace.ROUTER else host_addresses(record):
        if address.interface not in present:
            restored = replace(address, flags=address.flags & KEPT_FLAGS & ~cleared, ours=False)
            yield AddAddress(namespace, record.name, restored, vital=namespace is Namespace.ROUTER)


def restoration(model: KernelModel, observed: Observed) -> list[Step]:
    """Return the steps that return NICs to the host: marked ones that are not wanted, and interrupted returns."""
    steps: list[Step] = []
    for name in sorted({*marked_nics(observed), *observed.journal}.difference(model.nics, model.kept)):
        if name in observed.router.links:
            nic = _return(name, observed)
        elif name in observed.host.links:
            record, link = observed.journal[name], observed.host.links[name]
            if _never_moved(record, observed.host.addresses.get(name, ())) or (
                record.phase is NicPhase.MOVING and link.master
            ):
                # The host has used it since: what it was then is not what it should be now.
                nic = iter([ForgetNic(name)])
            else:
                nic = _restore(record, link, observed.host.interfaces(name))
        else:
            nic = iter([ForgetNic(name)])
        steps += attributed(nic, model.underlay, f"nic {name}")
    return steps


def _return(name: str, observed: Observed) -> Iterator[Step]:
    link = observed.router.links[name]
    old = observed.journal.get(name)
    if old is None:
        old = record_of(link, observed.router.addresses.get(name, ()), (), NicPhase.RESTORING)
    record = replace(old, phase=NicPhase.RESTORING)
    if record != observed.journal.get(name):
        yield SaveNic(record)
    mac = record.mac or link.mac
    if mac and (link.kind in RANDOM_MAC_KINDS or mac != link.mac):
        yield ChangeLink(Namespace.ROUTER, name, mac=mac, vital=False)
    yield MoveLink(name, Namespace.ROUTER, Namespace.HOST)
    yield from _restore(record, replace(link, up=False, mac=mac, altnames=record.altnames), frozenset())


def _restore(record: NicRecord, link: Link, present: frozenset[IPInterface]) -> Iterator[Step]:
    """Yield sysctls, addresses, link attributes, then routes (a gateway needs its address), then the record's removal.

    The sysctls come while the link is down: it must not process a router advertisement that the host had disabled. A
    refused step holds nothing up except the record's removal, so what could not be restored is not forgotten. MTU and
    MAC have a message each: a VLAN's MTU is refused when its lower device has a smaller one by now, a virtual
    function's MAC when its host has set it, and the kernel ignores the rest of a message, which would leave the NIC
    down.
    """
    # Of a NIC whose journal was lost only the group that the router gave it is known.
    group = 0 if record.group in {NIC_GROUP, *OUR_GROUPS} else record.group
    up = record.up or bool(record.routes)
    changed = partial(ChangeLink, Namespace.HOST, record.name)
    changes = (
        changed(mtu=record.mtu if link.mtu != record.mtu else None, vital=False),
        changed(mac=record.mac if record.mac and link.mac != record.mac else None, vital=False),
        changed(group=group if link.group != group else None, up=up if link.up != up else None),
    )
    if record.sysctls:
        yield SetNicSysctls(record.name, record.sysctls, vital=False)
    yield from _restore_addresses(Namespace.HOST, record, present)
    yield from (change for change in changes if not change.empty)
    for altname in record.altnames:
        if altname not in link.altnames:
            yield AddAltname(record.name, altname, vital=False)
    # Sorted again: older versions recorded routes in the kernel's order.
    for route in in_order(record.routes):
        yield AddRoute(record.name, route, vital=False)
    yield ForgetNic(record.name)
