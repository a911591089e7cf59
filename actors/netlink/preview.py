"""Looking at the kernel without changing it: for ``openperouter plan`` and ``openperouter show kernel``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import trio

from config.desired import DesiredState
from config.settings import Settings

from .converge import look
from .interface_addresses import NAMESPACES
from .planning.observed import NIC_GROUP, Link, NamespaceView, Observed, Wish
from .planning.steps import Plan
from .state_files import StateFiles
from .wire.kernel import LinuxKernel

T = TypeVar("T")


async def preview(desired: DesiredState, settings: Settings) -> Plan:
    """Return what would be done now; writes nothing. ``.text`` has it in lines. Raises NamespaceMissing,
    KernelRefusal."""
    return await _with_kernel(settings, lambda kernel: look(desired, kernel, kernel.persisted_tables())[1])


async def observe_kernel(settings: Settings) -> dict[str, Any]:
    """Return our part of the kernel as plain data: both namespaces' devices of ours and NICs, journal and tables."""
    return describe(await _with_kernel(settings, lambda kernel: kernel.observe(Wish())))


async def observe_text(settings: Settings) -> str:
    """Return the same in lines for people."""
    return observed_text(await _with_kernel(settings, lambda kernel: kernel.observe(Wish())))


async def _with_kernel(settings: Settings, function: Callable[[LinuxKernel], T]) -> T:
    def call() -> T:
        kernel = LinuxKernel(NAMESPACES / settings.netns, StateFiles.of(settings, read_only=True))
        try:
            return function(kernel)
        finally:
            kernel.close()

    return await trio.to_thread.run_sync(call)


def _relevant(view: NamespaceView) -> list[Link]:
    links = (link for link in view.links.values() if link.ours or link.group == NIC_GROUP)
    return sorted(links, key=lambda link: link.name)


def describe(observed: Observed) -> dict[str, Any]:
    """Return an observation's relevant part as data that JSON can hold."""
    return {
        "host": [_describe_link(link, observed.host) for link in _relevant(observed.host)],
        "router": [_describe_link(link, observed.router) for link in _relevant(observed.router)],
        "vteps": [str(address.interface) for address in observed.router.addresses.get("lo", ()) if address.ours],
        "sysctls": dict(observed.sysctls),
        "tables": dict(observed.tables),
        "unreachableDefaults": sorted(f"{family} table {table}" for family, table in observed.unreachable),
        "journal": {name: str(record.phase) for name, record in observed.journal.items()},
    }


def _describe_link(link: Link, view: NamespaceView) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(link).items() if value not in (None, "", ()) and key != "vxlan"}
    if link.vxlan is not None:
        fields["vxlan"] = {**asdict(link.vxlan), "local": str(link.vxlan.local)}
    fields["addresses"] = [str(address.interface) for address in view.addresses.get(link.name, ())]
    return fields


def observed_text(observed: Observed) -> str:
    """Return an observation's relevant part in lines."""
    lines: list[str] = []
    for title, view in (("host", observed.host), ("router", observed.router)):
        lines.append(f"{title}:")
        lines += [f"  {_link_line(link, view)}" for link in _relevant(view)]
    vteps = [str(address.interface) for address in observed.router.addresses.get("lo", ()) if address.ours]
    lines.append(f"vteps: {' '.join(vteps) or 'none'}")
    lines += [f"journal: {name} {record.phase}" for name, record in sorted(observed.journal.items())]
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
