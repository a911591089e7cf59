"""The kernel behind one small interface: read everything, carry out one step.

Planning, the loop and the tests know only :class:`Kernel`. :class:`LinuxKernel` is the real one; the tests' fake
passes the same contract tests. All of it blocks, so the actor calls it in a thread, and one call at a time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ..planning.observed import CONDEMNED_GROUP, OWNED_GROUP, Address, LinkKind, Namespace, Observed, SavedRoute, Wish
from ..planning.steps import (
    AddAddress,
    AddAltname,
    AddRoute,
    AddUnreachable,
    ChangeLink,
    CreateLink,
    DeleteLinks,
    DisableAddressGeneration,
    ForgetNic,
    MoveLink,
    RemoveAddress,
    RemoveUnreachable,
    SaveNic,
    SaveTables,
    SetNicSysctls,
    SetSysctl,
    Step,
)
from ..planning.wanted import ROUTER_SYSCTLS, WantedLink
from ..state_files import StateFiles
from . import addresses, links, routes
from .namespace_socket import NamespaceEnd
from .namespace_thread import NamespaceMissing
from .nic_sysctls import path_of
from .socket import KernelRefusal

#: The process's own namespace, as a file to hand to the kernel; of the thread group's leader, which never leaves it.
OWN_NAMESPACE = Path("/proc/self/ns/net")


class Kernel(Protocol):
    """What planning is done against and steps are done to."""

    def observe(self, wish: Wish) -> Observed:
        """Read both namespaces and our state files. NamespaceMissing when the router's is not there."""

    def apply(self, step: Step) -> None:
        """Carry one step out; KernelRefusal when it cannot be done. Doing it again is harmless."""


@contextmanager
def tolerating(*numbers: int) -> Any:
    """Take these errors for success: the kernel already is as the step wants it."""
    try:
        yield
    except KernelRefusal as refusal:
        if refusal.errno not in numbers:
            raise


class LinuxKernel:
    """The running kernel: this process's namespace as the host's, and a named one as the router's."""

    def __init__(self, router: Path, state: StateFiles) -> None:
        self._path = router
        self._state = state
        self._host = NamespaceEnd("host", None)
        self._router: NamespaceEnd | None = None
        self._handlers: dict[type[Step], Callable[[Any], None]] = {
            CreateLink: self._create,
            ChangeLink: self._change,
            DeleteLinks: self._delete,
            DisableAddressGeneration: self._disable_address_generation,
            SetSysctl: lambda step: self.router.write_sysctl(step.key.replace(".", "/"), step.value),
            AddAddress: self._add_address,
            RemoveAddress: self._remove_address,
            AddUnreachable: self._add_unreachable,
            RemoveUnreachable: self._remove_unreachable,
            MoveLink: self._move,
            SetNicSysctls: self._set_nic_sysctls,
            AddRoute: self._add_route,
            AddAltname: self._add_altname,
            SaveNic: lambda step: state.save_nic(step.record),
            ForgetNic: lambda step: state.forget_nic(step.name),
            SaveTables: lambda step: state.save_tables(step.tables),
        }

    def close(self) -> None:
        """Close the sockets and end the threads."""
        self.release_router()
        self._host.close()

    def release_router(self) -> None:
        """Let go of the router's namespace; the next call opens it again."""
        router, self._router = self._router, None
        if router is not None:
            router.close()

    def router_is_current(self) -> bool:
        """Say whether the namespace that we hold, if any, is the one that the name leads to now."""
        if self._router is None:
            return True
        try:
            status = self._path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._router.identity

    @property
    def router(self) -> NamespaceEnd:
        """Our end of the router's namespace, opened again when it was replaced."""
        if not self.router_is_current():
            self.release_router()
        if self._router is None:
            self._router = NamespaceEnd("router", self._path)
        return self._router

    def _end(self, namespace: Namespace) -> NamespaceEnd:
        return self._host if namespace is Namespace.HOST else self.router

    def persisted_tables(self) -> dict[str, int]:
        """Return the persisted VRF tables, which decide what to observe."""
        return self._state.tables()

    def observe(self, wish: Wish) -> Observed:
        """Read both namespaces and our state files."""
        router_end = self.router
        router, host = router_end.view(), self._host.view()
        coming = [name for name in wish.nics if name in host.links and name not in router.links]
        nic_routes: dict[str, tuple[SavedRoute, ...]] = {
            name: self._host.call(partial(routes.routes_via, index=host.links[name].index)) for name in coming
        }
        probed = [table for table in wish.tables if table not in {link.table for link in router.links.values()}]
        busy = [table for table in probed if router_end.call(partial(routes.is_busy, table=table))]
        return Observed(
            host=host,
            router=router,
            sysctls={key: router_end.read_sysctl(key) for key, _, _ in ROUTER_SYSCTLS},
            unreachable=router_end.call(routes.unreachable_tables),
            busy_tables=frozenset(busy),
            tables=self._state.tables(),
            journal=self._state.journal(),
            nic_routes=nic_routes,
            nic_sysctls={name: self._host.own_sysctls(name) for name in coming},
        )

    def apply(self, step: Step) -> None:
        """Carry one step out."""
        self._handlers[type(step)](step)

    def _create(self, step: CreateLink) -> None:
        wanted = step.wanted
        end = self._end(wanted.namespace)
        end.forget(wanted.name)
        if wanted.kind is LinkKind.VETH:
            self._create_veth(wanted)
            return
        data: Any = ()
        if wanted.table is not None:
            data = links.vrf_data(wanted.table)
        elif wanted.vxlan is not None:
            data = links.vxlan_data(wanted.vxlan, end.index(wanted.vxlan.lower))
        end.call(
            lambda socket: links.create_link(
                socket, wanted.name, wanted.kind, group=OWNED_GROUP, data=data, mtu=wanted.mtu
            )
        )

    def _create_veth(self, wanted: WantedLink) -> None:
        if wanted.peer is None:
            raise KernelRefusal(errno.EINVAL, f"{wanted.name}: a veth is created from its host end")
        peer = wanted.peer
        self.router.forget(peer)
        descriptor = self._open(Namespace.ROUTER)
        try:
            self._host.call(
                lambda socket: links.create_veth(
                    socket, wanted.name, peer, peer_namespace=descriptor, group=OWNED_GROUP, mtu=wanted.mtu
                )
            )
        finally:
            os.close(descriptor)

    def _open(self, namespace: Namespace) -> int:
        """Return a new file descriptor of a namespace; the router's is checked to be the one that we hold."""
        if namespace is Namespace.HOST:
            return os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        identity = self.router.identity
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != identity:
            os.close(descriptor)
            raise NamespaceMissing(f"netns {self._path.name} was replaced meanwhile")
        return descriptor

    def _change(self, step: ChangeLink) -> None:
        end = self._end(step.namespace)
        master = None if step.master is None else (end.index(step.master) if step.master else 0)
        end.call(
            lambda socket: links.change_link(
                socket,
                step.name,
                master=master,
                mtu=step.mtu,
                mac=step.mac,
                group=step.group,
                neigh_suppress=step.neigh_suppress,
                alias=step.alias,
                up=step.up,
            )
        )

    def _delete(self, step: DeleteLinks) -> None:
        end = self._end(step.namespace)
        for name in step.names:
            end.forget(name)
            with tolerating(errno.ENODEV):
                if step.batch:
                    end.call(partial(links.change_link, name=name, group=CONDEMNED_GROUP))
                else:
                    end.call(partial(links.delete_link, name=name))
        if step.batch:
            with tolerating(errno.ENODEV):
                end.call(partial(links.delete_group, group=CONDEMNED_GROUP))

    def _disable_address_generation(self, step: DisableAddressGeneration) -> None:
        self.router.write_sysctl(f"net/ipv6/conf/{step.name}/addr_gen_mode", str(links.ADDR_GEN_NONE))

    def _add_address(self, step: AddAddress) -> None:
        end = self._end(step.namespace)
        index = end.index(step.link)
        address = Address(
            step.interface,
            flags=step.flags,
            scope=step.scope,
            ours=step.marked,
            peer=step.peer,
            broadcast=step.broadcast,
            label=step.label,
        )
        with tolerating(errno.EEXIST):
            end.call(partial(addresses.add_address, index=index, address=address))

    def _remove_address(self, step: RemoveAddress) -> None:
        end = self._end(step.namespace)
        index = end.index(step.link)
        with tolerating(errno.EADDRNOTAVAIL):
            end.call(partial(addresses.remove_address, index=index, interface=step.interface))

    def _add_unreachable(self, step: AddUnreachable) -> None:
        with tolerating(errno.EEXIST):
            self.router.call(partial(routes.add_unreachable, family=step.family, table=step.table))

    def _remove_unreachable(self, step: RemoveUnreachable) -> None:
        with tolerating(errno.ESRCH, errno.ENOENT):
            self.router.call(partial(routes.remove_unreachable, family=step.family, table=step.table))

    def _move(self, step: MoveLink) -> None:
        end = self._end(step.source)
        self.router.forget(step.name)
        self._host.forget(step.name)
        descriptor = self._open(step.target)
        try:
            end.call(partial(links.move_link, name=step.name, namespace=descriptor))
        finally:
            os.close(descriptor)

    def _set_nic_sysctls(self, step: SetNicSysctls) -> None:
        refusals: list[KernelRefusal] = []
        for key, value in step.sysctls:
            try:
                self._host.write_sysctl(f"net/{path_of(step.link, key)}", value)
            except KernelRefusal as refusal:
                refusals.append(refusal)
        if refusals:
            raise KernelRefusal(refusals[0].errno, ", ".join(str(refusal) for refusal in refusals))

    def _add_route(self, step: AddRoute) -> None:
        index = self._host.index(step.link)
        with tolerating(errno.EEXIST):
            self._host.call(partial(routes.add_route, index=index, route=step.route))

    def _add_altname(self, step: AddAltname) -> None:
        with tolerating(errno.EEXIST):
            self._host.call(partial(links.add_altname, name=step.link, altname=step.altname))
