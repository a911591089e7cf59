"""Planning of the devices that we create: which must go, and what each wanted one still needs. Pure.

First :func:`survivors` decides the deletions and what remains after them, then :func:`link_steps` compares each wanted
device with what remains: creation, address generation and sysctls, one message for all attributes, addresses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .observed import (
    CONDEMNED_GROUP,
    GATEWAY_MAC_PREFIX,
    OWNED_GROUP,
    Link,
    LinkKind,
    Namespace,
    Observed,
    owned_address,
)
from .steps import DEVICES, AddAddress, ChangeLink, CreateLink, DeleteLinks, RemoveAddress, SetSysctl, Step
from .sysctls import device_writes
from .wanted import KernelModel, WantedLink

#: IFALIASZ less the final zero (linux/if.h), in bytes; a resource's name is ASCII.
LONGEST_ALIAS = 255
ALIAS = "openperouter: "
#: linux/if_link.h: IN6_ADDR_GEN_MODE_NONE, no IPv6 link-local address.
ADDR_GEN_MODE_NONE = "1"

Key = tuple[Namespace, str]


@dataclass(frozen=True, slots=True)
class Survivors:
    """The deletions, VRFs last, and what remains after them: the links that later steps may count on."""

    links: Mapping[Key, Link]
    #: The bridges and VRFs that have ports left.
    masters: frozenset[Key]
    observed: Observed
    deletions: tuple[DeleteLinks, ...]
    vrf_deletions: tuple[DeleteLinks, ...]
    #: Those that go once their ports have left them.
    in_use: frozenset[Key]


def survivors(model: KernelModel, wanted: Iterable[WantedLink], observed: Observed) -> Survivors:
    """Decide the deletions. ``model`` has everything that is wanted, ``wanted`` the part that can be carried out now.

    A device of ours is deleted when its name is not wanted, or when it cannot become what is wanted: another kind,
    other VXLAN attributes, another table, the bridge of another kind of network, a veth whose two ends do not belong
    together. What a failed resource wants stays as it is. So does, for now, a VRF or bridge with ports that stay: the
    kernel would move them to the main table, with the underlay. The next plan, after they have moved, deletes it.
    """
    existing: dict[Key, Link] = {
        (namespace, name): link for namespace in Namespace for name, link in observed.view(namespace).links.items()
    }
    named = {(link.namespace, link.name) for link in model.links}
    doomed = {key for key, link in existing.items() if link.ours and key not in named}
    for link in wanted:
        doomed |= {key for key in _unusable(link, existing) if existing[key].ours}
    peers = _peers(existing)
    gone = doomed | {peers[key] for key in doomed & peers.keys()}
    in_use = frozenset(doomed & _masters(model, existing, gone) - named)
    doomed, gone = doomed - in_use, gone - in_use
    remaining = {key: _released(key, link, gone) for key, link in existing.items() if key not in gone}
    # One deletion per namespace, the host's first: deleting a veth's host end deletes its router end.
    with_host_end = {peers[key] for key in doomed & peers.keys() if key[0] is Namespace.HOST}
    vrfs = {key for key in doomed if existing[key].kind == LinkKind.VRF}
    deletions = _deletions("devices", doomed - with_host_end - vrfs, existing, doomed)
    # The kernel would move what is left in a VRF to the main table.
    needs = tuple(step.unit for step in deletions)
    vrf_deletions = tuple(replace(step, needs=needs) for step in _deletions("VRFs", vrfs, existing, doomed))
    masters = frozenset((namespace, link.master) for (namespace, _), link in remaining.items())
    return Survivors(remaining, masters, observed, deletions, vrf_deletions, in_use)


def _masters(model: KernelModel, existing: Mapping[Key, Link], gone: Collection[Key]) -> set[Key]:
    """Return the masters of what is wanted and stays, where the attachment is ours."""
    found: set[Key] = set()
    for wanted in model.links:
        key = wanted.namespace, wanted.name
        link = existing.get(key)
        if link is not None and link.ours and key not in gone and (wanted.master is not None or _is_attached(link)):
            found.add((wanted.namespace, link.master))
    return found


def _deletions(what: str, keys: set[Key], existing: Mapping[Key, Link], doomed: set[Key]) -> tuple[DeleteLinks, ...]:
    """Return the deletion of devices by namespace. Of many, those that were made together go together."""
    found = []
    for namespace in Namespace:
        names = [name for where, name in sorted(keys, key=lambda key: existing[key].index) if where is namespace]
        batch = _may_batch(namespace, existing, doomed)
        for start in range(0, len(names), DEVICES):
            part, unit = tuple(sorted(names[start : start + DEVICES])), f"{what} {start} in {namespace}"
            found.append(DeleteLinks(namespace, part, batch, unit=unit))
    return tuple(found)


def _unusable(wanted: WantedLink, existing: Mapping[Key, Link]) -> set[Key]:
    key = (wanted.namespace, wanted.name)
    if wanted.kind is LinkKind.VETH:
        # The router's end is judged together with the host's, which names it.
        keys = set() if wanted.peer is None else {key, (Namespace.ROUTER, wanted.peer)}
        return set() if _is_pair(keys, existing) else keys & existing.keys()
    found = existing.get(key)
    return set() if found is None or fits(wanted, found) else {key}


def fits(wanted: WantedLink, found: Link) -> bool:
    """Return whether a device can become what is wanted.

    A VNI's bridge cannot lose a gateway's MAC, nor a link-local address, nor get one late: those belong to the kind of
    network that had the number before.
    """
    if (found.kind, found.vxlan, found.table) != (wanted.kind, wanted.vxlan, wanted.table):
        return False
    if wanted.kind is not LinkKind.BRIDGE or wanted.namespace is Namespace.HOST:
        return True
    if found.mac.startswith(GATEWAY_MAC_PREFIX) and not (wanted.mac or "").startswith(GATEWAY_MAC_PREFIX):
        return False
    return not found.addr_gen_none if not wanted.addr_gen_none else found.addr_gen_none is not False or not found.up


def _is_pair(keys: set[Key], existing: Mapping[Key, Link]) -> bool:
    ends = [existing[key] for key in keys if key in existing]
    if len(ends) != 2 or any(end.kind != LinkKind.VETH for end in ends):
        return False
    one, other = ends
    return one.peer_index == other.index and other.peer_index == one.index


def _peers(existing: Mapping[Key, Link]) -> dict[Key, Key]:
    """Return the other end of each veth, if that is ours and in our other namespace, and both name one another."""
    veths = {(key[0], link.index): key for key, link in existing.items() if link.kind == LinkKind.VETH}
    found: dict[Key, Key] = {}
    for (namespace, index), key in veths.items():
        elsewhere = Namespace.ROUTER if namespace is Namespace.HOST else Namespace.HOST
        other = veths.get((elsewhere, existing[key].peer_index))
        if other is not None and existing[other].ours and existing[other].peer_index == index:
            found[key] = other
    return found


def _released(key: Key, link: Link, gone: set[Key]) -> Link:
    """Return what a device is when its master is gone: no port any more, so without a port's attributes."""
    return replace(link, master="", neigh_suppress=False) if (key[0], link.master) in gone else link


def _may_batch(namespace: Namespace, existing: Mapping[Key, Link], doomed: set[Key]) -> bool:
    """Return whether all members of the condemned group are doomed: deletion by group takes every member."""
    members = {key for key, link in existing.items() if key[0] is namespace and link.group == CONDEMNED_GROUP}
    return members <= doomed


def link_steps(wanted: WantedLink, remaining: Survivors) -> Iterator[Step]:
    """Yield what one wanted device still needs.

    Addresses come last, since the kernel drops IPv6 addresses of a device that gets a master.
    """
    found = remaining.links.get((wanted.namespace, wanted.name))
    created = found is None
    if found is None:
        is_router_end = wanted.kind is LinkKind.VETH and wanted.peer is None
        if not is_router_end:
            yield CreateLink(wanted)
        found = _newborn(wanted)
    if wanted.addr_gen_none and found.addr_gen_none is False:
        yield SetSysctl(wanted.namespace, f"net.ipv6.conf.{wanted.name}.addr_gen_mode", ADDR_GEN_MODE_NONE)
    known = remaining.observed.sysctls_of(wanted.namespace)
    for key, value in device_writes(wanted.name, wanted.sysctls, known, created=created):
        yield SetSysctl(wanted.namespace, key, value)
    # Of the bridges with a MAC of ours, only an L3VNI's has no address generation.
    keeps_mac = wanted.addr_gen_none and (wanted.namespace, wanted.name) in remaining.masters
    yield from _change_steps(wanted, found, keeps_mac=keeps_mac)
    yield from _address_steps(wanted, remaining.observed, created=created)


def _newborn(wanted: WantedLink) -> Link:
    """Return what a device is right after its creation: marked, down, without a master, with its MTU."""
    return Link(
        index=0,
        name=wanted.name,
        kind=wanted.kind,
        group=OWNED_GROUP,
        mtu=wanted.mtu or 0,
        table=wanted.table,
        vxlan=wanted.vxlan,
    )


def _change_steps(wanted: WantedLink, found: Link, *, keeps_mac: bool) -> Iterator[Step]:
    """Yield the one message that corrects a device, or nothing when nothing is wrong.

    The bridge of an L3VNI keeps its MAC while it has its VXLAN device: other nodes may not follow another router MAC.
    """
    alias, changes = _alias(wanted), dict[str, Any]()
    master = _other_master(wanted, found)
    if master is not None:
        changes["master"] = master
    if wanted.mtu is not None and found.mtu != wanted.mtu:
        changes["mtu"] = wanted.mtu
    if wanted.mac is not None and not keeps_mac and found.mac != wanted.mac:
        changes["mac"] = wanted.mac
    # A condemned device that is wanted again must leave the group, which is deleted as a whole.
    if found.group != OWNED_GROUP:
        changes["group"] = OWNED_GROUP
    if wanted.neigh_suppress and not found.neigh_suppress:
        changes["neigh_suppress"] = True
    # An alias that another program or user gave to a device of ours stays.
    if found.alias != alias and (not found.alias or found.alias.startswith(ALIAS)):
        changes["alias"] = alias
    if not found.up:
        changes["up"] = True
    if changes:
        yield ChangeLink(wanted.namespace, wanted.name, **changes)


def _other_master(wanted: WantedLink, found: Link) -> str | None:
    """Return the master that a device needs, empty for none, or None when it can stay where it is.

    The host may attach its end of a veth, to a VRF or a bridge of its own. The alias is written together with the
    master and records which attachment is ours, across restarts as well.
    """
    if wanted.master is None:
        return "" if _is_attached(found) else None
    return wanted.master if found.master != wanted.master else None


def _is_attached(found: Link) -> bool:
    return bool(found.master) and found.alias.endswith(_attached(found.master))


def _alias(wanted: WantedLink) -> str:
    """Return a device's resource as its alias, with the master to which we attach a veth's host end."""
    attached = _attached(wanted.master) if wanted.peer is not None and wanted.master else ""
    return f"{ALIAS}{wanted.resource}"[: LONGEST_ALIAS - len(attached)] + attached


def _attached(master: str) -> str:
    return f", put into {master}"


def _address_steps(wanted: WantedLink, observed: Observed, *, created: bool) -> Iterator[Step]:
    if wanted.addresses is None:
        return
    present = () if created else observed.view(wanted.namespace).addresses.get(wanted.name, ())
    for address in present:
        if address.ours and address.interface not in wanted.addresses:
            yield RemoveAddress(wanted.namespace, wanted.name, address.interface)
    existing = set() if _loses_ipv6(wanted, observed) else {address.interface for address in present}
    for interface in wanted.addresses:
        if interface not in existing:
            yield AddAddress(wanted.namespace, wanted.name, owned_address(interface))


def _loses_ipv6(wanted: WantedLink, observed: Observed) -> bool:
    """Return whether the plan moves an existing device to another VRF: the kernel then drops its IPv6 addresses."""
    found = observed.view(wanted.namespace).links.get(wanted.name)
    return found is not None and _other_master(wanted, found) is not None
