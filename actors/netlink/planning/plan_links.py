"""Planning of the devices that we make: which go, and what each wanted one still needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from .observed import CONDEMNED_GROUP, OWNED_GROUP, Link, LinkKind, Namespace, NamespaceView, Observed
from .steps import AddAddress, ChangeLink, CreateLink, DisableAddressGeneration, RemoveAddress, Step, veth_ends
from .wanted import KernelModel, WantedLink

#: IFALIASZ less the final zero (linux/if.h), in bytes; a resource's name is ASCII.
LONGEST_ALIAS = 255
_ALIAS = "openperouter: "

Key = tuple[Namespace, str]
#: Names, and whether they may be deleted by group.
Victims = tuple[Namespace, tuple[str, ...], bool]


@dataclass(frozen=True, slots=True)
class Survivors:
    """What is left once the deletions are done: the links that later steps may count on."""

    links: Mapping[Key, Link]
    observed: Observed
    victims: tuple[Victims, ...]


def survivors(model: KernelModel, wanted: Iterable[WantedLink], observed: Observed) -> Survivors:
    """Decide the deletions. ``model`` says what is wanted at all, ``wanted`` what of it can be carried out now.

    A device of ours goes when nobody wants its name, or when it cannot become what is wanted: another kind, other
    VXLAN attributes, another table, a veth whose two ends do not belong together. What a failed resource wants stays
    as it is.
    """
    there: dict[Key, Link] = {
        (namespace, name): link for namespace in Namespace for name, link in observed.view(namespace).links.items()
    }
    named = {(link.namespace, link.name) for link in model.links}
    doomed = {key for key, link in there.items() if link.ours and key not in named}
    for link in wanted:
        doomed |= _unusable(link, there)
    doomed = {key for key in doomed if there[key].ours}
    fallen = _with_veth_peers(doomed, there)
    left = {key: _released(key, link, fallen) for key, link in there.items() if key not in fallen}
    victims = tuple(
        (namespace, _names(namespace, doomed), _may_batch(observed.view(namespace), namespace, doomed))
        for namespace in Namespace
    )
    return Survivors(left, observed, _without_peers(victims, there))


def _unusable(wanted: WantedLink, there: Mapping[Key, Link]) -> set[Key]:
    key = (wanted.namespace, wanted.name)
    ends = veth_ends(wanted)
    if ends is not None:
        keys = {(Namespace.HOST, ends[0]), (Namespace.ROUTER, ends[1])}
        return {each for each in keys if each in there} if not _is_pair(keys, there) else set()
    found = there.get(key)
    if found is None or wanted.kind is LinkKind.VETH:
        return set()
    fits = found.kind == wanted.kind and found.vxlan == wanted.vxlan and found.table == wanted.table
    return set() if fits else {key}


def _is_pair(keys: set[Key], there: Mapping[Key, Link]) -> bool:
    ends = [there[key] for key in keys if key in there]
    if len(ends) != 2 or any(end.kind != LinkKind.VETH for end in ends):
        return False
    one, other = ends
    return one.peer_index == other.index and other.peer_index == one.index


def _with_veth_peers(doomed: set[Key], there: Mapping[Key, Link]) -> set[Key]:
    """Return the doomed and the other ends of doomed veths."""
    fallen = set(doomed)
    for key in doomed:
        peer = _peer(key, there)
        if peer is not None:
            fallen.add(peer)
    return fallen


def _peer(key: Key, there: Mapping[Key, Link]) -> Key | None:
    """Return a veth's other end if it is in our other namespace, going by both ends' word."""
    link = there[key]
    if link.kind != LinkKind.VETH:
        return None
    elsewhere = Namespace.ROUTER if key[0] is Namespace.HOST else Namespace.HOST
    for (namespace, name), other in there.items():
        if namespace is elsewhere and other.kind == LinkKind.VETH and other.index == link.peer_index:
            return (namespace, name) if other.peer_index == link.index and other.ours else None
    return None


def _without_peers(victims: tuple[Victims, ...], there: Mapping[Key, Link]) -> tuple[Victims, ...]:
    """Drop from the router's deletions the veth ends that go with their host ends."""
    (host, host_names, host_batch), (router, router_names, router_batch) = victims
    gone = {_peer((host, name), there) for name in host_names}
    left = tuple(name for name in router_names if (router, name) not in gone)
    return (host, host_names, host_batch), (router, left, router_batch)


def _released(key: Key, link: Link, fallen: set[Key]) -> Link:
    return replace(link, master="") if link.master and (key[0], link.master) in fallen else link


def _names(namespace: Namespace, doomed: set[Key]) -> tuple[str, ...]:
    return tuple(sorted(name for where, name in doomed if where is namespace))


def _may_batch(view: NamespaceView, namespace: Namespace, doomed: set[Key]) -> bool:
    """Say whether the condemned group has no member but the doomed: deletion by group takes every member."""
    members = {(namespace, name) for name, link in view.links.items() if link.group == CONDEMNED_GROUP}
    return members <= doomed


def link_steps(wanted: WantedLink, remaining: Survivors) -> Iterator[Step]:
    """Yield what one wanted device still needs: existence, attributes, master, then addresses (enslaving drops IPv6
    ones)."""
    found = remaining.links.get((wanted.namespace, wanted.name))
    resource, unit = wanted.resource, str(wanted.resource)
    is_far_end = wanted.kind is LinkKind.VETH and wanted.peer is None
    created = found is None
    if found is None:
        if not is_far_end:
            yield CreateLink(wanted, resource=resource, unit=unit)
        found = _newborn(wanted)
    if wanted.addr_gen_none and found.addr_gen_none is False:
        yield DisableAddressGeneration(wanted.name, resource=resource, unit=unit)
    change = _difference(wanted, found)
    if not change.empty:
        yield change
    yield from _address_steps(wanted, remaining.observed, created=created)


def _newborn(wanted: WantedLink) -> Link:
    """Return what a device is right after the step that creates it: marked, down, free, sized."""
    return Link(
        index=0,
        name=wanted.name,
        kind=wanted.kind,
        group=OWNED_GROUP,
        mtu=wanted.mtu or 0,
        table=wanted.table,
        vxlan=wanted.vxlan,
    )


def _difference(wanted: WantedLink, found: Link) -> ChangeLink:
    """Return the one message that makes a device right; empty when it is."""
    alias = _alias(wanted)
    return ChangeLink(
        wanted.namespace,
        wanted.name,
        master=_other_master(wanted, found),
        mtu=wanted.mtu if wanted.mtu is not None and found.mtu != wanted.mtu else None,
        mac=wanted.mac if wanted.mac is not None and found.mac != wanted.mac else None,
        # A condemned device that is wanted again must leave the group that is deleted as a whole.
        group=OWNED_GROUP if found.group != OWNED_GROUP else None,
        neigh_suppress=True if wanted.neigh_suppress and not found.neigh_suppress else None,
        # Somebody else's words on a device of ours stay.
        alias=alias if found.alias != alias and (not found.alias or found.alias.startswith(_ALIAS)) else None,
        up=True if not found.up else None,
        resource=wanted.resource,
        unit=str(wanted.resource),
    )


def _other_master(wanted: WantedLink, found: Link) -> str | None:
    """Return the master that a device needs, empty for none, or None when it can stay where it is.

    A host may attach the end of a veth that it was given: to a VRF of its own, to a bridge. The alias, written together
    with the master, remembers what was our doing, over restarts too.
    """
    if wanted.master is None:
        return "" if found.master and found.alias.endswith(_attached(found.master)) else None
    return wanted.master if found.master != wanted.master else None


def _alias(wanted: WantedLink) -> str:
    """Return whom a device is for, and where we attach a veth's host end."""
    attached = _attached(wanted.master) if wanted.peer is not None and wanted.master else ""
    return f"{_ALIAS}{wanted.resource}"[: LONGEST_ALIAS - len(attached)] + attached


def _attached(master: str) -> str:
    return f", put into {master}"


def _address_steps(wanted: WantedLink, observed: Observed, *, created: bool) -> Iterator[Step]:
    if wanted.addresses is None:
        return
    present = () if created else observed.view(wanted.namespace).addresses.get(wanted.name, ())
    for address in present:
        if address.ours and address.interface not in wanted.addresses:
            yield RemoveAddress(
                wanted.namespace,
                wanted.name,
                address.interface,
                resource=wanted.resource,
                unit=str(wanted.resource),
            )
    there = set() if _loses_ipv6(wanted, observed) else {address.interface for address in present}
    for interface in wanted.addresses:
        if interface not in there:
            yield AddAddress(
                wanted.namespace, wanted.name, interface, resource=wanted.resource, unit=str(wanted.resource)
            )


def _loses_ipv6(wanted: WantedLink, observed: Observed) -> bool:
    """Say whether the plan moves an existing device to another VRF, upon which the kernel drops its IPv6 addresses."""
    found = observed.view(wanted.namespace).links.get(wanted.name)
    return found is not None and _other_master(wanted, found) is not None
