"""The kernel behind one small interface: observe everything, carry out steps.

:class:`LinuxKernel` reads both namespaces and our state files into an :class:`Observed` and turns each step of a plan
into netlink requests, sysctl writes or a write to a state file. What independent steps need in one namespace goes there
in one go. Passes depend on the protocol :class:`Kernel` only; the tests' fake passes the same contract tests.
Everything blocks, so the actor calls it in a thread, one call at a time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Protocol

from config.desired import DesiredState, DesiredUnderlay, Family
from config.resolve.host_networks import HostNetwork

from .cni.attachments import AttachmentRefused, Attachments, Exists
from .cni.protocol import PluginError
from .planning import steps
from .planning.host_networks import has_new_address
from .planning.observed import (
    CONDEMNED_GROUP,
    PASSTHROUGH_ROUTER,
    LinkKind,
    Namespace,
    NamespaceView,
    Observed,
    SavedRoute,
    router_bridge,
)
from .planning.packet_filter import filter_objects
from .planning.sysctls import GATEWAY, LAYER_2_MARK, LAYER_2_ONLY, ROUTER_SYSCTLS, Sysctls, sysctl_key
from .planning.vrf_tables import candidate_host_tables, candidate_tables
from .planning.wanted import host_vrfs
from .state_files import StateFiles
from .wire import addresses, links, routes
from .wire.namespace import NamespaceHandle, NamespaceMissing, SysctlWrite, Work
from .wire.nftables import FilterUnavailableError, read_table, replace_table
from .wire.nic_sysctls import path_of
from .wire.socket import KernelRefusal

RESOLV_CONF = Path("/etc/resolv.conf")
#: The process's own namespace, as a file for the kernel: that of the thread group's leader, which never leaves it.
OWN_NAMESPACE = Path("/proc/self/ns/net")


#: Why a step was not carried out: the kernel refused it, or the disk or a CNI plugin did.
Refusal = KernelRefusal | OSError | AttachmentRefused


class Kernel(Protocol):
    """What plans are made from, and what their steps are applied to."""

    def observe(self, desired: DesiredState | None = None, known: Observed | None = None) -> Observed:
        """Read both namespaces and our state files, with what planning for ``desired`` needs besides.

        What grows with the number of networks (links, addresses, sysctls and unreachable defaults) and our table of
        the packet filter, for which a program is run, are taken from ``known`` if there is one. NamespaceMissing when
        the router's namespace does not exist.
        """

    def apply(self, step: steps.Step) -> None:
        """Carry one step out; KernelRefusal when the kernel refuses it. Repeating a step is harmless."""

    def apply_all(self, batch: Sequence[steps.Step]) -> list[Refusal | None]:
        """Carry out steps that do not depend on one another; return what was refused of each, None for success."""


class LinuxKernel:
    """The running kernel: this process's namespace as the host's, and a named one as the router's."""

    def __init__(
        self,
        router: Path,
        state: StateFiles,
        await_zebra: Callable[[Mapping[str, int]], None] = lambda vrfs: None,
        plugins: Attachments | None = None,
    ) -> None:
        """``await_zebra`` gets the indices of VRFs and returns once zebra knows all, or need not be waited for.

        Without ``plugins`` this kernel is only read, or has no interfaces that CNI plugins make.
        """
        self._path = router
        self._await_vrfs = await_zebra
        self._state = state
        self._plugins = plugins
        self._host = NamespaceHandle("host", None)
        self._router: NamespaceHandle | None = None
        self._filter_seen = False
        self._defaults_seen = False
        #: The API server's address, if it is known as such.
        self.api_server = ""
        self._encoders: dict[type[steps.Step], Callable[[Any], Work]] = {
            steps.ChangeLink: self._change,
            steps.SetSysctl: lambda step: [SysctlWrite(step.key.replace(".", "/"), step.value)],
            steps.AddAddress: self._add_address,
            steps.RemoveAddress: self._remove_address,
            steps.AddUnreachable: lambda step: [routes.add_unreachable(step.family, step.table)],
            steps.RemoveUnreachable: lambda step: [routes.remove_unreachable(step.family, step.table)],
        }
        self._handlers: dict[type[steps.Step], Callable[[Any], None]] = {
            steps.DeleteLinks: self._delete,
            steps.ReplaceFilter: lambda step: replace_table(self.router, filter_objects(step.ports)),
            steps.AwaitZebra: self._await_zebra,
            steps.MoveLink: self._move,
            steps.SetNicSysctls: self._set_nic_sysctls,
            steps.AddRoute: self._add_route,
            steps.AddAltname: lambda step: self._host.request(links.add_altname(step.link, step.altname)),
            steps.SaveNic: lambda step: state.save_nic(step.record),
            steps.ForgetNic: lambda step: state.forget_nic(step.name),
            steps.SaveTables: lambda step: state.save_tables(step.tables),
            steps.AttachCni: lambda step: self._call_plugins(
                step.attachment.name, lambda plugins, exists: plugins.attach(step.attachment, self._path, exists)
            ),
            steps.DetachCni: lambda step: self._call_plugins(
                step.name, lambda plugins, exists: plugins.detach(step.name, self._path, exists)
            ),
        }

    def close(self) -> None:
        """Close the sockets and end the threads."""
        self.release_router()
        self._host.close()

    def release_router(self) -> None:
        """Close the router's namespace; the next call opens it again."""
        router, self._router = self._router, None
        self._filter_seen = False
        if router is not None:
            router.close()

    def router_is_current(self) -> bool:
        """Return whether the open namespace, if any, still is the one of that name. Safe beside all other calls."""
        router = self._router
        return router is None or router.is_current()

    @property
    def router(self) -> NamespaceHandle:
        """The router's namespace, opened again when it was replaced."""
        if not self.router_is_current():
            self.release_router()
        if self._router is None:
            self._router = NamespaceHandle("router", self._path)
        return self._router

    def _handle(self, namespace: Namespace) -> NamespaceHandle:
        return self._host if namespace is Namespace.HOST else self.router

    def observe(self, desired: DesiredState | None = None, known: Observed | None = None) -> Observed:
        """Read both namespaces and our state files, or only what ``known`` cannot have."""
        router_handle = self.router
        if known is None:
            router, host = router_handle.view(), self._host.view()
        else:
            router, host = known.router, known.host
        tables = self._state.tables()
        underlay = None if desired is None else desired.underlay
        coming = [
            name for name in (underlay.nics if underlay else ()) if name in host.links and name not in router.links
        ]
        nic_routes: dict[str, tuple[SavedRoute, ...]] = {
            name: self._host.call(partial(routes.routes_via, index=host.links[name].index)) for name in coming
        }
        existing = _vrfs(router)
        candidates = set(() if desired is None else candidate_tables(desired, tables, existing))
        probed = candidates - {link.table for link in router.links.values()}
        if known is None or known.filter is None:
            table, problem = self._packet_filter(desired, router)
        else:
            table, problem = known.filter, ""
        checks = self._check_plugins(underlay, router)
        if known is None:
            keys = (key for key, _, _ in ROUTER_SYSCTLS)
            sysctls = read_sysctls(router_handle, router, keys, **_bridges(router, desired))
            ours = [name for name, link in host.links.items() if link.ours]
            host_sysctls = read_sysctls(self._host, host, devices=ours)
            unreachable = router_handle.call(routes.unreachable_tables)
        else:
            sysctls, host_sysctls, unreachable = known.sysctls, known.host_sysctls, known.unreachable
        return Observed(
            host=host,
            router=router,
            sysctls=sysctls,
            host_sysctls=host_sysctls,
            unreachable=unreachable,
            busy_tables=router_handle.call(partial(routes.busy_tables, tables=probed)) if probed else frozenset(),
            host_unreachable=self._host_defaults(desired, host),
            busy_host_tables=self._busy_host_tables(desired, host),
            tables=tables,
            journal=self._state.journal(),
            nic_routes=nic_routes,
            nic_sysctls={name: self._host.own_sysctls(name) for name in coming},
            host_networks=self._host_networks(desired, host, router),
            filter=table,
            filter_problem=problem,
            cni=self._state.cni(),
            cni_drift={name: str(error) for name, error in checks.items() if not error.unable},
            cni_unchecked={name: str(error) for name, error in checks.items() if error.unable},
        )

    def _check_plugins(self, underlay: DesiredUnderlay | None, router: NamespaceView) -> dict[str, PluginError]:
        """Return what CNI plugins say against the interfaces that they made."""
        if self._plugins is None or underlay is None or not underlay.attachments:
            return {}
        found = {one.name: self._plugins.check(one, router, self._path) for one in underlay.attachments}
        return {name: error for name, error in found.items() if error is not None}

    def _call_plugins(self, name: str, call: Callable[[Attachments, Exists], None]) -> None:
        if self._plugins is None:
            raise AttachmentRefused("this program calls no CNI plugins")
        self.router.forget(name)
        # Held open: what the path names must be the namespace that was observed.
        with self._descriptor(Namespace.ROUTER):
            call(self._plugins, lambda: name in self.router.view().links)

    def _packet_filter(self, desired: DesiredState | None, router: NamespaceView) -> tuple[tuple[str, ...] | None, str]:
        """Return our table of the packet filter and why it cannot be read.

        Without a passthrough it is looked for once, for what another process left.
        """
        wanted = desired is not None and desired.passthrough is not None
        if self._filter_seen and not wanted and PASSTHROUGH_ROUTER not in router.links:
            return None, ""
        try:
            found = read_table(self.router)
        except FilterUnavailableError as problem:
            return None, str(problem)
        self._filter_seen = not found
        return found, ""

    def _host_defaults(self, desired: DesiredState | None, host: NamespaceView) -> frozenset[tuple[Family, int]]:
        """Return the host's tables with our unreachable default.

        A host may have many routes. Without a VRF of ours they are read once, for what another process left.
        """
        if self._defaults_seen and not _vrfs(host) and (desired is None or not host_vrfs(desired)):
            return frozenset()
        found = self._host.call(routes.unreachable_tables)
        self._defaults_seen = not found
        return found

    def _busy_host_tables(self, desired: DesiredState | None, host: NamespaceView) -> frozenset[int]:
        """Return which of the tables that a new VRF in the host could get hold foreign routes, or are in a rule."""
        candidates = () if desired is None else candidate_host_tables(desired, _vrfs(host))
        if not candidates:
            return frozenset()
        busy = self._host.call(partial(routes.busy_tables, tables=candidates))
        return busy | self._host.call(routes.ruled_tables)

    def _host_networks(
        self, desired: DesiredState | None, host: NamespaceView, router: NamespaceView
    ) -> tuple[HostNetwork, ...]:
        """Return what the host uses, if an address is to come; only then its table is read as a whole."""
        if desired is None or desired.underlay is None or not has_new_address(desired, host, router):
            return ()
        names = {link.index: name for name, link in host.links.items()}
        ours = {link.index for link in host.links.values() if link.ours}
        found = self._host.call(partial(routes.host_networks, names=names, ours=ours))
        return (*found, *server_network(self.api_server), *nameservers(RESOLV_CONF))

    def apply(self, step: steps.Step) -> None:
        """Carry one step out."""
        [refusal] = self.apply_all((step,))
        if refusal is not None:
            raise refusal

    def apply_all(self, batch: Sequence[steps.Step]) -> list[Refusal | None]:
        """Carry out steps that do not depend on one another; return what was refused of each."""
        results: list[Refusal | None] = [None] * len(batch)
        works: dict[Namespace, dict[int, Work]] = {namespace: {} for namespace in Namespace}
        self._look_up(batch)
        with self._peers(batch) as peers:
            for number, step in enumerate(batch):
                try:
                    if isinstance(step, steps.CreateLink):
                        works[step.wanted.namespace][number] = self._create(step, peers)
                    elif type(step) in self._encoders:
                        works[_namespace_of(step)][number] = self._encoders[type(step)](step)
                    else:
                        self._handlers[type(step)](step)
                except (KernelRefusal, OSError, AttachmentRefused) as refusal:
                    results[number] = refusal
            for namespace, wanted in works.items():
                refusals = self._handle(namespace).carry_out(tuple(wanted.values())) if wanted else ()
                for number, found in zip(wanted, refusals, strict=True):
                    results[number] = found
        return results

    def _look_up(self, batch: Sequence[steps.Step]) -> None:
        """Ask for the indices of the devices that the steps need them of, in one go for each namespace."""
        names: dict[Namespace, list[str]] = {namespace: [] for namespace in Namespace}
        for step in batch:
            if isinstance(step, steps.ChangeLink) and step.master:
                names[step.namespace].append(step.master)
            elif isinstance(step, steps.AddAddress | steps.RemoveAddress):
                names[step.namespace].append(step.link)
        for namespace, wanted in names.items():
            if wanted:
                self._handle(namespace).indices(wanted)

    def _peers(self, batch: Sequence[steps.Step]) -> AbstractContextManager[int]:
        """Give a descriptor of the namespace of new veths' other ends, if there are any."""
        needed = any(isinstance(step, steps.CreateLink) and step.wanted.peer is not None for step in batch)
        return self._descriptor(Namespace.ROUTER) if needed else nullcontext(-1)

    def _create(self, step: steps.CreateLink, peers: int) -> Work:
        wanted = step.wanted
        handle = self._handle(wanted.namespace)
        handle.forget(wanted.name)
        if wanted.peer is not None:
            self.router.forget(wanted.peer)
        elif wanted.kind is LinkKind.VETH:
            raise KernelRefusal(errno.EINVAL, f"{wanted.name}: a veth is created from its host end")
        lower = 0 if wanted.vxlan is None else handle.index(wanted.vxlan.lower)
        return [links.create_link(wanted, lower=lower, peer_namespace=peers)]

    @contextmanager
    def _descriptor(self, namespace: Namespace) -> Iterator[int]:
        """Give a descriptor of a namespace; the router's must be the namespace that is open."""
        identity = None if namespace is Namespace.HOST else self.router.identity
        try:
            descriptor = os.open(OWN_NAMESPACE if identity is None else self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if identity is None:
                raise
            raise NamespaceMissing(f"netns {self._path.name} missing: {error.strerror}") from error
        try:
            status = os.fstat(descriptor)
            if identity not in (None, (status.st_dev, status.st_ino)):
                raise NamespaceMissing(f"netns {self._path.name} was replaced in the meantime")
            yield descriptor
        finally:
            os.close(descriptor)

    def _change(self, step: steps.ChangeLink) -> Work:
        if not step.master:
            return links.change_link(step, None if step.master is None else 0)
        return links.change_link(step, self._handle(step.namespace).index(step.master))

    def _add_address(self, step: steps.AddAddress) -> Work:
        return [addresses.add_address(self._handle(step.namespace).index(step.link), step.address)]

    def _remove_address(self, step: steps.RemoveAddress) -> Work:
        return [addresses.remove_address(self._handle(step.namespace).index(step.link), step.interface)]

    def _delete(self, step: steps.DeleteLinks) -> None:
        handle = self._handle(step.namespace)
        for name in step.names:
            handle.forget(name)
        if not step.batch:
            handle.request(*(links.delete_link(name) for name in step.names))
            return
        condemned = (steps.ChangeLink(step.namespace, name, group=CONDEMNED_GROUP) for name in step.names)
        marks = (request for change in condemned for request in links.change_link(change))
        handle.request(*(replace(request, tolerated=(errno.ENODEV,)) for request in marks))
        handle.request(links.delete_group(CONDEMNED_GROUP))

    def _await_zebra(self, step: steps.AwaitZebra) -> None:
        known = self.router.indices(step.vrfs)
        self._await_vrfs({vrf: known[vrf] for vrf in step.vrfs if vrf in known})

    def _move(self, step: steps.MoveLink) -> None:
        handle = self._handle(step.source)
        self.router.forget(step.name)
        self._host.forget(step.name)
        with self._descriptor(step.target) as descriptor:
            handle.request(links.move_link(step.name, descriptor))

    def _set_nic_sysctls(self, step: steps.SetNicSysctls) -> None:
        writes = [[SysctlWrite(f"net/{path_of(step.link, key)}", value)] for key, value in step.sysctls]
        refusals = [refusal for refusal in self._host.carry_out(writes) if refusal is not None]
        if refusals:
            raise KernelRefusal(refusals[0].errno, ", ".join(str(refusal) for refusal in refusals))

    def _add_route(self, step: steps.AddRoute) -> None:
        self._host.request(routes.add_route(self._host.index(step.link), step.route))


def _namespace_of(step: steps.Step) -> Namespace:
    """Return where a step works."""
    if isinstance(step, steps.ChangeLink | steps.SetSysctl | steps.AddAddress | steps.RemoveAddress):
        return step.namespace
    return step.namespace if isinstance(step, steps.AddUnreachable | steps.RemoveUnreachable) else Namespace.ROUTER


def server_network(text: str) -> tuple[HostNetwork, ...]:
    """Return the API server, if its host is an address."""
    return tuple(_single(text, "the API server {}"))


def _single(text: str, what: str) -> Iterator[HostNetwork]:
    """Yield the network of an address but a local one; none for a name."""
    try:
        address = ip_address(text)
    except ValueError:
        return
    if not address.is_loopback:
        yield HostNetwork(ip_network(address), what.format(address))


def nameservers(path: Path) -> Iterator[HostNetwork]:
    """Yield the name servers of a resolv.conf(5) but local ones; none if it cannot be read."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            yield from _single(words[1].partition("%")[0], f"name server {{}} of {path}")


def _vrfs(view: NamespaceView) -> set[str]:
    return {name for name, link in view.links.items() if link.kind == LinkKind.VRF and link.ours}


def _bridges(router: NamespaceView, desired: DesiredState | None) -> dict[str, list[str]]:
    """Return our bridges as arguments of :func:`read_sysctls`: those whose segment is to have gateways, and others."""
    found = [name for name, link in router.links.items() if link.ours and link.kind == LinkKind.BRIDGE]
    if desired is None:
        return {"bridges": found}
    gateways = {router_bridge(vni.vni) for vni in desired.l2vnis if vni.gateways}
    return {
        "devices": [name for name in found if name not in gateways],
        "bridges": [name for name in found if name in gateways],
    }


def read_sysctls(
    handle: NamespaceHandle,
    view: NamespaceView,
    keys: Iterable[str] = (),
    devices: Iterable[str] = (),
    bridges: Iterable[str] = (),
) -> Sysctls:
    """Return these sysctls, and of ``devices`` and of ``bridges`` with gateways what planning needs.

    A device without the mark of layer 2 has nothing to compare, and the mark itself came with its link: most devices
    cost no file.
    """
    name, mark = LAYER_2_MARK
    gateways = tuple(bridges)
    ignored = {device: view.links[device].arp_ignore for device in (*devices, *gateways)}
    marks = {device: None if value is None else str(value) for device, value in ignored.items()}
    marked = [device for device, value in marks.items() if value == mark]
    more = [sysctl_key(device, key) for device in ("default", *marked) for key, _ in LAYER_2_ONLY]
    more += [sysctl_key(device, key) for device in ("default", *gateways) for key, _ in GATEWAY]
    return {
        **{sysctl_key(device, name): value for device, value in marks.items()},
        **handle.read_sysctls((*keys, *more)),
    }
