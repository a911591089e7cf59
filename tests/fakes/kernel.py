"""A kernel in memory: as much of its behaviour as plans rely on.

It passes the same contract (:mod:`.kernel_contract`) as the real kernel. Of the production code it uses the types of
steps and observations only, and nothing that plans, parses or computes.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Self

from actors.netlink.kernel import Kernel, Refusal
from actors.netlink.planning.observed import (
    CONDEMNED_GROUP,
    IFA_F_PERMANENT,
    OWNED_GROUP,
    Address,
    Link,
    LinkKind,
    Namespace,
    NamespaceView,
    NicRecord,
    Observed,
    SavedRoute,
)
from actors.netlink.planning.packet_filter import canonical, filter_objects
from actors.netlink.planning.steps import (
    AddAddress,
    AddAltname,
    AddRoute,
    AddUnreachable,
    AwaitZebra,
    ChangeLink,
    CreateLink,
    DeleteLinks,
    ForgetNic,
    MoveLink,
    RemoveAddress,
    RemoveUnreachable,
    ReplaceFilter,
    SaveNic,
    SaveTables,
    SetNicSysctls,
    SetSysctl,
    Step,
)
from actors.netlink.wire.socket import KernelRefusal
from config.desired import DesiredState, Family
from config.resolve.host_networks import HostNetwork

Key = tuple[Namespace, str]
#: The sysctls of a new namespace with what they are there.
SYSCTLS = {
    "net.ipv4.conf.all.forwarding": "0",
    "net.ipv6.conf.all.forwarding": "0",
    "net.ipv4.conf.all.rp_filter": "2",
    "net.ipv4.conf.all.arp_accept": "0",
    "net.ipv4.conf.default.arp_accept": "1",
    "net.ipv6.conf.default.accept_ra": "1",
    "net.ipv6.conf.default.accept_untracked_na": "0",
    "net.ipv4.tcp_l3mdev_accept": "0",
    "net.ipv4.udp_l3mdev_accept": "1",
}
#: Those of a new device.
DEVICE_SYSCTLS = {
    "ipv4.arp_ignore": "0",
    "ipv6.disable_ipv6": "0",
    "ipv6.accept_ra": "1",
    "ipv4.rp_filter": "2",
    "ipv4.forwarding": "1",
    "ipv4.arp_accept": "0",
    "ipv6.accept_untracked_na": "0",
}


def one_by_one(kernel: Kernel, batch: Sequence[Step]) -> list[Refusal | None]:
    """Apply a batch's steps one after the other, as a kernel does that continues after a refusal."""
    results: list[Refusal | None] = []
    for step in batch:
        try:
            kernel.apply(step)
        except (KernelRefusal, OSError) as refusal:
            results.append(refusal)
        else:
            results.append(None)
    return results


class FakeKernel:
    """Applies steps to plain dictionaries. ``fail`` has the text of each step that is refused with EIO."""

    def __init__(self) -> None:
        self.links: dict[Key, Link] = {}
        self.addresses: dict[Key, list[Address]] = {}
        self.routes: dict[str, list[SavedRoute]] = {}
        self.nic_sysctls: dict[str, dict[str, str]] = {}
        self.sysctls: dict[str, str | None] = dict(SYSCTLS)
        self.device_sysctls: dict[Key, dict[str, str]] = {}
        self.filter: tuple[str, ...] = ()
        self.filter_problem = ""
        self.host_networks: tuple[HostNetwork, ...] = ()
        self.unreachable: set[tuple[Family, int]] = set()
        self.known_to_zebra: set[str] = set()
        self.busy_tables: set[int] = set()
        self.host_unreachable: set[tuple[Family, int]] = set()
        self.busy_host_tables: set[int] = set()
        self.tables: dict[str, int] = {}
        self.journal: dict[str, NicRecord] = {}
        self.fail: set[str] = set()
        self.applied: list[Step] = []
        self._index = 0
        for namespace in Namespace:
            self.add(namespace, Link(0, "lo", up=True, mtu=65536))

    def add(self, namespace: Namespace, link: Link, *addresses: Address) -> None:
        """Add a foreign device."""
        self._index += 1
        self.links[namespace, link.name] = replace(link, index=self._index)
        self.addresses[namespace, link.name] = list(addresses)

    def copy(self) -> Self:
        return deepcopy(self)

    def observe(self, desired: DesiredState | None = None, known: Observed | None = None) -> Observed:
        nics = desired.underlay.interfaces if desired is not None and desired.underlay is not None else ()
        found = Observed(
            host=self._view(Namespace.HOST),
            router=self._view(Namespace.ROUTER),
            sysctls={**self._device_sysctls(Namespace.ROUTER), **self.sysctls},
            host_sysctls=self._device_sysctls(Namespace.HOST),
            unreachable=frozenset(self.unreachable),
            busy_tables=frozenset(self.busy_tables),
            host_unreachable=frozenset(self.host_unreachable),
            busy_host_tables=frozenset(self.busy_host_tables),
            tables=dict(self.tables),
            journal=dict(self.journal),
            host_networks=self.host_networks,
            filter=None if self.filter_problem else self.filter,
            filter_problem=self.filter_problem,
            nic_routes={nic: tuple(self.routes.get(nic, ())) for nic in nics},
            nic_sysctls={nic: tuple(sorted(self.nic_sysctls.get(nic, {}).items())) for nic in nics},
        )
        if known is None:
            return found
        if known.filter is not None:
            found = replace(found, filter=known.filter, filter_problem="")
        return replace(
            found,
            host=known.host,
            router=known.router,
            sysctls=known.sysctls,
            host_sysctls=known.host_sysctls,
            unreachable=known.unreachable,
        )

    def _device_sysctls(self, namespace: Namespace) -> dict[str, str | None]:
        known = {"default": self._defaults(namespace)} | {
            n: v for (where, n), v in self.device_sysctls.items() if where is namespace
        }
        return {_key(name, key): value for name, values in known.items() for key, value in values.items()}

    def _defaults(self, namespace: Namespace) -> dict[str, str]:
        pinned = self.sysctls if namespace is Namespace.ROUTER else {}
        return {name: pinned.get(_key("default", name)) or value for name, value in DEVICE_SYSCTLS.items()}

    def _view(self, namespace: Namespace) -> NamespaceView:
        return NamespaceView(
            {name: link for (where, name), link in self.links.items() if where is namespace},
            {name: tuple(found) for (where, name), found in self.addresses.items() if where is namespace and found},
        )

    def apply_all(self, batch: Sequence[Step]) -> list[Refusal | None]:
        return one_by_one(self, batch)

    def apply(self, step: Step) -> None:
        if self.fail and str(step) in self.fail:
            raise KernelRefusal(errno.EIO)
        match step:
            case CreateLink():
                self._create(step)
            case ChangeLink():
                self._change(step)
            case DeleteLinks():
                self._delete(step)
            case MoveLink():
                self._move(step)
            case AddAddress():
                self._add_address(step)
            case RemoveAddress():
                found = self._addresses(step.namespace, step.link)
                found[:] = [address for address in found if address.interface != step.interface]
            case _:
                self._apply_state(step)
        self.applied.append(step)

    def _apply_state(self, step: Step) -> None:
        match step:
            case SetSysctl():
                self._set_sysctl(step)
            case ReplaceFilter():
                if self.filter_problem:
                    raise KernelRefusal(errno.EOPNOTSUPP)
                self.filter = canonical(filter_objects(step.ports))
            case AwaitZebra():
                self.known_to_zebra.update(vrf for vrf in step.vrfs if (Namespace.ROUTER, vrf) in self.links)
            case AddUnreachable():
                self._defaults_of(step.namespace).add((step.family, step.table))
            case RemoveUnreachable():
                self._defaults_of(step.namespace).discard((step.family, step.table))
            case SaveNic():
                self.journal[step.record.name] = step.record
            case ForgetNic():
                self.journal.pop(step.name, None)
            case SaveTables():
                self.tables = dict(step.tables)
            case _:
                self._apply_nic(step)

    def _defaults_of(self, namespace: Namespace) -> set[tuple[Family, int]]:
        return self.host_unreachable if namespace is Namespace.HOST else self.unreachable

    def _set_sysctl(self, step: SetSysctl) -> None:
        device = re.fullmatch(r"net\.(ipv[46])\.conf\.([^.]+)\.(\w+)", step.key)
        if device is None or device[2] in ("all", "default"):
            self.sysctls[step.key] = step.value
        elif (step.namespace, device[2]) not in self.links:
            raise KernelRefusal(errno.ENOENT)
        elif device[3] == "addr_gen_mode":
            self._update((step.namespace, device[2]), addr_gen_none=step.value == "1")
        else:
            self.device_sysctls[step.namespace, device[2]][f"{device[1]}.{device[3]}"] = step.value

    def _apply_nic(self, step: Step) -> None:
        match step:
            case AddRoute():
                self._add_route(step)
            case SetNicSysctls():
                self._link(Namespace.HOST, step.link)
                self.nic_sysctls.setdefault(step.link, {}).update(step.sysctls)
            case AddAltname():
                link = self._link(Namespace.HOST, step.link)
                self._update((Namespace.HOST, step.link), altnames=(*link.altnames, step.altname))
            case _:
                raise AssertionError(f"unknown step {step!r}")

    def _link(self, namespace: Namespace, name: str) -> Link:
        try:
            return self.links[namespace, name]
        except KeyError:
            raise KernelRefusal(errno.ENODEV) from None

    def _addresses(self, namespace: Namespace, name: str) -> list[Address]:
        self._link(namespace, name)
        return self.addresses.setdefault((namespace, name), [])

    def _update(self, key: Key, **changes: object) -> None:
        self.links[key] = replace(self._link(*key), **changes)  # type: ignore[arg-type]

    def _new(self, namespace: Namespace, name: str, kind: LinkKind, **fields: object) -> int:
        if (namespace, name) in self.links:
            raise KernelRefusal(errno.EEXIST)
        self._index += 1
        link = Link(index=self._index, name=name, kind=kind, group=OWNED_GROUP, mac=f"02::{self._index}")
        self.links[namespace, name] = replace(link, **fields)  # type: ignore[arg-type]
        self.addresses[namespace, name] = []
        self.device_sysctls[namespace, name] = self._defaults(namespace)
        return self._index

    def _create(self, step: CreateLink) -> None:
        wanted = step.wanted
        mtu = wanted.mtu or 1500
        if wanted.kind is not LinkKind.VETH:
            if wanted.vxlan is not None:
                same = (link.vxlan for (where, _), link in self.links.items() if where is wanted.namespace)
                if any(vxlan and (vxlan.vni, vxlan.port) == (wanted.vxlan.vni, wanted.vxlan.port) for vxlan in same):
                    raise KernelRefusal(errno.EEXIST)
            self._new(wanted.namespace, wanted.name, wanted.kind, mtu=mtu, table=wanted.table, vxlan=wanted.vxlan)
            return
        assert wanted.peer is not None
        if (Namespace.ROUTER, wanted.peer) in self.links:
            raise KernelRefusal(errno.EEXIST)
        host = self._new(Namespace.HOST, wanted.name, wanted.kind, mtu=mtu)
        router = self._new(Namespace.ROUTER, wanted.peer, wanted.kind, mtu=mtu, peer_index=host)
        self._update((Namespace.HOST, wanted.name), peer_index=router)

    def _change(self, step: ChangeLink) -> None:
        key = (step.namespace, step.name)
        old = self._link(*key)
        if step.master:
            self._link(step.namespace, step.master)
        plain = {"mtu": step.mtu, "mac": step.mac, "group": step.group, "master": step.master, "up": step.up}
        plain["alias"] = step.alias
        self._update(key, **{field: value for field, value in plain.items() if value is not None})
        if step.master is not None and step.master != old.master and old.up:
            self._drop_ipv6(key)
        if step.master is not None and not step.master:
            self._update(key, neigh_suppress=False)
        if step.neigh_suppress is not None:
            self._update(key, neigh_suppress=step.neigh_suppress)

    def _drop_ipv6(self, key: Key) -> None:
        self.addresses[key] = [address for address in self.addresses[key] if address.interface.version == 4]

    def _delete(self, step: DeleteLinks) -> None:
        victims = {name for name in step.names if (step.namespace, name) in self.links}
        if step.batch:
            members = self.links.items()
            victims |= {n for (where, n), link in members if where is step.namespace and link.group == CONDEMNED_GROUP}
        for name in victims:
            self._remove((step.namespace, name))

    def _remove(self, key: Key) -> None:
        link = self.links.pop(key, None)
        if link is None:
            return
        self.addresses.pop(key, None)
        self.device_sysctls.pop(key, None)
        for (namespace, name), member in list(self.links.items()):
            if namespace is key[0] and member.master == link.name:
                self._update((namespace, name), master="", neigh_suppress=False)
            if link.kind == LinkKind.VETH and link.peer_index == member.index and member.peer_index == link.index:
                self._remove((namespace, name))

    def _move(self, step: MoveLink) -> None:
        link = self._link(step.source, step.name)
        if (step.target, step.name) in self.links:
            raise KernelRefusal(errno.EEXIST)
        del self.links[step.source, step.name]
        self.addresses.pop((step.source, step.name), None)
        self.routes.pop(step.name, None)
        self.nic_sysctls.pop(step.name, None)
        self.links[step.target, step.name] = replace(link, up=False, master="")
        self.addresses[step.target, step.name] = []

    def _add_address(self, step: AddAddress) -> None:
        found = self._addresses(step.namespace, step.link)
        new = step.address
        if all(address.interface != new.interface for address in found):
            label = "" if new.label == step.link else new.label
            broadcast = None if new.broadcast == _last_address(new) else new.broadcast
            found.append(replace(new, flags=new.flags | IFA_F_PERMANENT, broadcast=broadcast, label=label))

    def _add_route(self, step: AddRoute) -> None:
        if not self._link(Namespace.HOST, step.link).up:
            raise KernelRefusal(errno.ENETDOWN)
        routes = self.routes.setdefault(step.link, [])
        if step.route.gateway and not step.route.flags and not self._reaches(step.link, step.route.gateway):
            raise KernelRefusal(errno.ENETUNREACH)
        if step.route not in routes:
            routes.append(step.route)

    def _reaches(self, nic: str, gateway: str) -> bool:
        """Return whether a gateway is in a subnet of a NIC, or has a route of its own."""
        near = [address.interface.network for address in self._addresses(Namespace.HOST, nic)]
        near += [ip_network(route.destination) for route in self.routes[nic] if not route.gateway]
        return any(ip_address(gateway) in network for network in near)

    def fingerprint(self) -> tuple[object, ...]:
        """Return the state without what may differ between equal histories: indices and random MACs."""
        links = {
            key: replace(link, index=0, peer_index=0, mac="" if link.mac.startswith("02::") else link.mac)
            for key, link in self.links.items()
        }
        addresses = {key: frozenset(found) for key, found in self.addresses.items() if found}
        routes = {nic: frozenset(found) for nic, found in self.routes.items() if found}
        own = {key: values for key, values in self.device_sysctls.items() if values != DEVICE_SYSCTLS}
        return (
            links,
            addresses,
            routes,
            self.filter,
            self.sysctls,
            own,
            self.nic_sysctls,
            self.host_unreachable,
            self.unreachable,
            self.tables,
            self.journal,
        )


@cache
def _key(device: str, name: str) -> str:
    family, _, rest = name.partition(".")
    return f"net.{family}.conf.{device}.{rest}"


def _last_address(address: Address) -> str:
    """Return the last address of an IPv4 subnet; empty where there is no broadcast: IPv6, /31, /32, point to point."""
    network = address.interface.network
    return str(network[-1]) if network.version == 4 and network.num_addresses > 2 and not address.peer else ""
