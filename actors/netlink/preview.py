"""Reading the kernel without changing it, for the command line and for resolution.

``openperouter plan`` shows what the actor would do now (:func:`preview`), ``openperouter show kernel`` our part of the
kernel as data or text. The start of a daemon that has lost its memory asks whether the files alone would take something
away (:func:`would_remove`), and resolution may derive the node's index from a NIC's address
(:func:`interface_addresses`).
Each call opens its own sockets and closes them, so all of it works beside a running daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

import trio

from actors.lib.kube.credentials import kubeconfig_path, server_host
from actors.lib.network_namespace import NAMESPACES
from config.desired import DesiredState, IPInterface
from config.outcomes import Interruption
from config.resolve.host_networks import HostNetwork
from config.settings import Settings
from supervisor.logs.logger import get_logger
from supervisor.runtime.faults import KernelFault

from .converge import observe_and_plan
from .kernel import RESOLV_CONF, LinuxKernel, nameservers, server_network
from .planning.host_networks import machine_networks
from .planning.observed import (
    NIC_GROUP,
    Link,
    Namespace,
    NamespaceView,
    Observed,
    host_veth,
    router_bridge,
    router_veth,
)
from .planning.plan_links import ALIAS
from .planning.steps import DeleteLinks, DetachCni, MoveLink, Plan
from .state_files import StateFiles
from .wire import routes
from .wire.namespace import NamespaceHandle, NamespaceMissing

T = TypeVar("T")
log = get_logger("netlink")


async def preview(desired: DesiredState, settings: Settings) -> Plan:
    """Return what would be done now; writes nothing. Raises NamespaceMissing, KernelRefusal."""
    return await _with_kernel(settings, lambda kernel: observe_and_plan(desired, kernel)[1])


async def preview_interruptions(desired: DesiredState, settings: Settings) -> tuple[Plan, tuple[Interruption, ...]]:
    """Return the same with what it would take down."""

    def call(kernel: LinuxKernel) -> tuple[Plan, tuple[Interruption, ...]]:
        observed, plan = observe_and_plan(desired, kernel)
        return plan, tuple(interruptions(plan, observed))

    return await _with_kernel(settings, call)


def interruptions(plan: Plan, observed: Observed) -> Iterator[Interruption]:
    """Yield the VNIs whose devices go, or go and come back, and the NICs that change sides."""
    deleted = {name for step in plan.steps if isinstance(step, DeleteLinks) for name in step.names}
    wanted = {link.name for link in plan.model.links}
    for link in sorted(observed.router.links.values(), key=lambda link: link.vxlan.vni if link.vxlan else 0):
        if not link.ours or link.vxlan is None:
            continue
        vni = link.vxlan.vni
        owner = link.alias.removeprefix(ALIAS)
        name = f"{owner} (VNI {vni})" if link.alias.startswith(ALIAS) else f"VNI {vni}"
        if link.name in deleted and link.name not in wanted:
            yield Interruption("vni", name, "is removed")
        elif vni in plan.moves or deleted & {link.name, router_bridge(vni)}:
            yield Interruption("vni", name, "is made again, and does not forward meanwhile")
        elif deleted & {host_veth(vni), router_veth(vni)}:
            yield Interruption("vni", name, "the veth to the host goes, and what is attached to it loses the network")
    for step in plan.steps:
        if isinstance(step, MoveLink):
            into = step.target is Namespace.ROUTER
            effect = "moves into the router: connections of the host over it end" if into else "returns to the host"
            yield Interruption("nic", f"NIC {step.name}", effect)
        elif isinstance(step, DetachCni):
            yield Interruption("nic", f"CNI interface {step.name}", "is made again" if step.reason else "is removed")
    for name in plan.model.kept:
        yield Interruption("nic", f"NIC {name}", "returns to the host once the others are in the router")


async def would_remove(desired: DesiredState, settings: Settings) -> bool:
    """Return whether it would delete a device or give a NIC back to the host; without the namespace there is none."""
    try:
        plan = await preview(desired, settings)
    except NamespaceMissing:
        return False
    return bool(plan.later) or any(
        isinstance(step, DeleteLinks)
        or (isinstance(step, MoveLink) and step.target is Namespace.HOST)
        or (isinstance(step, DetachCni) and not step.reason)
        for step in plan.steps
    )


async def observe_kernel(settings: Settings) -> dict[str, Any]:
    """Return our part of the kernel as plain data: both namespaces' devices of ours and NICs, journal and tables."""
    return describe(await _with_kernel(settings, LinuxKernel.observe))


async def observe_text(settings: Settings) -> str:
    """Return the same as readable lines."""
    return observed_text(await _with_kernel(settings, LinuxKernel.observe))


async def _with_kernel(settings: Settings, function: Callable[[LinuxKernel], T]) -> T:
    def call() -> T:
        kernel = LinuxKernel(NAMESPACES / settings.netns, StateFiles.of(settings, read_only=True))
        try:
            return function(kernel)
        finally:
            kernel.close()

    return await trio.to_thread.run_sync(call)


def interface_addresses(name: str, netns: str) -> tuple[IPInterface, ...]:
    """Return an interface's addresses in the kernel's order; empty when it does not exist or has none. Blocks.

    Looks in the router as well as in the host. Upstream looks in the host only, and so cannot start again once the
    router has the NIC (openperouter#718). KernelRefusal when the kernel cannot be read.
    """
    for label, path in (("host", None), ("router", NAMESPACES / netns)):
        try:
            handle = NamespaceHandle(label, path)
        except NamespaceMissing:
            continue
        try:
            view = handle.view()
        finally:
            handle.close()
        if name in view.links:
            return tuple(address.interface for address in view.addresses.get(name, ()))
    return ()


def host_networks(settings: Settings) -> tuple[HostNetwork, ...]:
    """Return what this machine uses and tunnel endpoints must not take, wherever the router's NICs are now. Blocks.

    Nothing where the kernel cannot be read: a configuration does not fail for that.
    """
    try:
        views, found = _views(settings.netns)
        journal = StateFiles.of(settings, read_only=True).journal()
    except (KernelFault, OSError) as error:
        log.info("tunnel endpoints are not compared with the host's networks", error=error)
        return ()
    servers = (*server_network(server_host(kubeconfig_path(settings))), *nameservers(RESOLV_CONF))
    return (*machine_networks(*views, journal, found), *servers)


def _views(netns: str) -> tuple[tuple[NamespaceView, NamespaceView], list[HostNetwork]]:
    """Return the host and the router without our devices, and the destinations of the host's routes."""
    host = NamespaceHandle("host", None)
    try:
        names, view = host.others()
        ours = names.keys() - {link.index for link in view.links.values()}
        found = host.call(lambda socket: routes.host_networks(socket, names, ours))
    finally:
        host.close()
    try:
        router = NamespaceHandle("router", NAMESPACES / netns)
    except NamespaceMissing:
        return (view, NamespaceView()), found
    try:
        return (view, router.others()[1]), found
    finally:
        router.close()


def _relevant(view: NamespaceView) -> list[Link]:
    links = (link for link in view.links.values() if link.ours or link.group == NIC_GROUP)
    return sorted(links, key=lambda link: link.name)


def _vteps(observed: Observed) -> list[str]:
    return [str(address.interface) for address in observed.router.addresses.get("lo", ()) if address.ours]


def describe(observed: Observed) -> dict[str, Any]:
    """Return an observation's relevant part as data for JSON."""
    return {
        "host": [_describe_link(link, observed.host) for link in _relevant(observed.host)],
        "router": [_describe_link(link, observed.router) for link in _relevant(observed.router)],
        "vteps": _vteps(observed),
        "sysctls": dict(observed.sysctls),
        "tables": dict(observed.tables),
        "unreachableDefaults": sorted(f"{family} table {table}" for family, table in observed.unreachable),
        "hostUnreachableDefaults": sorted(f"{family} table {table}" for family, table in observed.host_unreachable),
        "journal": {name: str(record.phase) for name, record in observed.journal.items()},
        "cni": {name: "made" if record.result else "unfinished" for name, record in observed.cni.items()},
    }


def _describe_link(link: Link, view: NamespaceView) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(link).items() if value not in (None, "", ()) and key != "vxlan"}
    if link.vxlan is not None:
        fields["vxlan"] = {**asdict(link.vxlan), "local": str(link.vxlan.local)}
    fields["addresses"] = [str(address.interface) for address in view.addresses.get(link.name, ())]
    return fields


def observed_text(observed: Observed) -> str:
    """Return an observation's relevant part as readable lines."""
    lines: list[str] = []
    for title, view in (("host", observed.host), ("router", observed.router)):
        lines.append(f"{title}:")
        lines += [f"  {_link_line(link, view)}" for link in _relevant(view)]
    lines.append(f"vteps: {' '.join(_vteps(observed)) or 'none'}")
    lines += [f"journal: {name} {record.phase}" for name, record in sorted(observed.journal.items())]
    lines += [f"cni: {name} {'made' if record.result else 'unfinished'}" for name, record in observed.cni.items()]
    return "\n".join(lines)


def _link_line(link: Link, view: NamespaceView) -> str:
    words = [link.name, link.kind or "nic", "up" if link.up else "down", f"mtu {link.mtu}"]
    if link.master:
        words.append(f"master {link.master}")
    if link.table is not None:
        words.append(f"table {link.table}")
    if link.vxlan is not None:
        words.append(f"vni {link.vxlan.vni} local {link.vxlan.local}")
    words += [str(address.interface) for address in view.addresses.get(link.name, ())]
    return " ".join(words)
