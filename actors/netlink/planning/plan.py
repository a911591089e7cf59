"""The difference between what is wanted and what exists, as an ordered list of steps. Pure.

In come the desired state and an observation of the kernel. :mod:`.wanted` says what the desired state means for the
kernel; resources that cannot be carried out fail here, together with what depends on them; then the steps follow, in
an order that works: sysctls; deletions, which free names, VNIs and addresses, VRFs after all that is in them; NICs back
to the host once all wanted ones are inside (:mod:`.plan_nics`); NICs into the router; VTEP addresses; VRF tables; VRFs;
once zebra knows these, their unreachable defaults, and devices with their addresses (:mod:`.plan_links`). Interfaces
that CNI plugins make go before a NIC comes and come last (:mod:`.plan_cni`). zebra is waited for
after each part of many devices (:func:`paced`). Out comes a :class:`.steps.Plan`.

An L3VNI whose devices have to be moved to another VRF, or made again, is held back together with what depends on it
while FRR has the VNI: FRR up to 10.4 may keep what it knew about the devices, and would serve one tenant's VNI with
another's devices meanwhile. The plan says which these are.

Promises: a converged node gives an empty plan; applying any prefix of a plan and planning again leads to the same
state; nothing without our mark is ever changed or removed, and a wanted name that such a device has fails its resource
(and what depends on it) instead; no device is taken down, and none is deleted because something else failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from config.desired import DesiredState, Family, ResourceFailure
from config.problems import Reason, ResourceId

from .host_networks import conflicts
from .observed import Link, LinkKind, Namespace, Observed, owned_address
from .packet_filter import filter_steps, unfiltered
from .plan_cni import attaching, detaching, made_links
from .plan_links import Survivors, fits, link_steps, survivors
from .plan_nics import handover, kept_nics, restoration
from .steps import (
    DEVICES,
    ZEBRA_WORK,
    AddAddress,
    AddUnreachable,
    AwaitZebra,
    CreateLink,
    DeleteLinks,
    Plan,
    RemoveAddress,
    RemoveUnreachable,
    SaveTables,
    SetSysctl,
    Step,
    attributed,
)
from .sysctls import ROUTER_SYSCTLS
from .vrf_tables import assign_host_tables, assign_tables
from .wanted import KernelModel, WantedLink, kernel_model


class Failures(dict[ResourceId, ResourceFailure]):
    """Resources that cannot be carried out, each with the first reason found."""

    def __init__(self, model: KernelModel, known: Iterable[ResourceFailure] = ()) -> None:
        super().__init__({failure.resource: failure for failure in known})
        self._model = model

    def add(self, resource: ResourceId, reason: Reason, message: str) -> None:
        """Fail a resource, unless it has failed already."""
        self.setdefault(resource, self._model.failure(resource, reason, message))

    def spread(self) -> None:
        """Fail what depends on a failed resource."""
        for resource, parent in self._model.parents.items():
            if parent in self:
                self.add(resource, Reason.DEPENDENCY_FAILED, dependency_message(parent))


def dependency_message(parent: ResourceId) -> str:
    """Return the message of a resource whose parent failed."""
    return f"{parent} failed, and this is in its VRF"


def underlay_mtu(nics: Iterable[str], observed: Observed, made: Iterable[Link] = ()) -> int | None:
    """Return the smallest MTU of some NICs, wherever each is now, and of ``made`` links; None when none exists."""
    found = (observed.router.links.get(name) or observed.host.links.get(name) for name in nics)
    return min((link.mtu for link in (*found, *made) if link is not None), default=None)


def plan(desired: DesiredState, observed: Observed, withdrawn: Collection[int] | None = None) -> Plan:
    """Return the steps from what exists to what is desired.

    ``withdrawn`` are the L3VNIs that FRR does not have now; None: FRR does not matter, nothing is held back.
    """
    nics = () if desired.underlay is None else desired.underlay.nics
    kept = kept_nics(nics, observed)
    tables, host_tables = assign_tables(desired, observed), assign_host_tables(desired, observed)
    mtu = underlay_mtu((*nics, *kept), observed, made_links(desired, observed))
    model = kernel_model(desired, tables, mtu, kept, host_tables)
    failures = _impossible(desired, model, observed)
    moves = _moves(desired, model, observed)
    held = frozenset() if withdrawn is None else moves.difference(withdrawn)
    waiting = {vni.resource for vni in desired.l3vnis if vni.vni in held}
    waiting |= {resource for resource, parent in model.parents.items() if parent in waiting}
    wanted = tuple(link for link in model.links if link.resource not in failures and link.resource not in waiting)
    remaining = survivors(model, wanted, observed)
    steps: list[Step] = []
    if dict(model.tables) != dict(observed.tables):
        # First: which tables are free depends on what exists, and an interrupted plan must not change it.
        steps.append(SaveTables(model.tables, dict(observed.tables)))
    steps += [*_sysctls(model, observed), *remaining.deletions]
    steps += filter_steps(model, observed)
    steps += [*_stale_tables(remaining), *remaining.vrf_deletions]
    steps += detaching(model, observed)
    nic_steps, nic_failures = handover(model, observed)
    steps += [*restoration(model, observed), *nic_steps]
    steps += attributed(_loopback(model, observed), model.underlay, "loopback")
    vrfs = [link for link in wanted if link.kind is LinkKind.VRF]
    for link in vrfs:
        steps += attributed(link_steps(link, remaining), link.resource)
    # No VRF in the router has the name of one in the host: those are reserved.
    defaults = {link.name: tuple(attributed(_unreachable(link, remaining), link.resource)) for link in vrfs}
    unfinished = tuple(link.name for link in vrfs if link.namespace is Namespace.ROUTER and defaults[link.name])
    if unfinished:
        steps.append(AwaitZebra(unfinished))
    for missing in defaults.values():
        steps += missing
    for link in wanted:
        if link.kind is not LinkKind.VRF:
            steps += attributed(link_steps(link, remaining), link.resource)
    # Last: a plugin that hangs must not hold up anything else.
    made, unmade = attaching(model, observed)
    warnings = unfiltered(model, observed)
    return Plan(
        (*paced(steps, len(observed.router.links)), *made),
        (*nic_failures, *unmade, *failures.values()),
        model,
        warnings,
        moves,
        held,
        tuple(f"{namespace}: delete {name}" for namespace, name in sorted(remaining.in_use)),
    )


def paced(steps: Iterable[Step], devices: int) -> Iterator[Step]:
    """Yield steps with waits for zebra, each between two units, after many devices that came or went.

    ``devices`` are the router's. zebra answers nothing while there are notifications of devices to read, and asks the
    kernel about each device, which then has to wait for us as well. watchfrr restarts all of FRR when that lasts for 90
    seconds, as it did on a slow machine with 2,000 devices.
    """
    count, unit = 0, ""
    for step in steps:
        if count >= max(DEVICES, ZEBRA_WORK // max(devices, 1)) and (step.unit != unit or not unit):
            count = 0
            if not isinstance(step, AwaitZebra):
                yield AwaitZebra(())
        if isinstance(step, AwaitZebra):
            count = 0
        elif isinstance(step, CreateLink):
            count, devices = count + 1, devices + 1
        elif isinstance(step, DeleteLinks):
            count, devices = count + len(step.names), devices - len(step.names)
        unit = step.unit
        yield step


def _moves(desired: DesiredState, model: KernelModel, observed: Observed) -> frozenset[int]:
    """Return the L3VNIs of which a bridge or VXLAN device of ours is in another VRF or bridge, or cannot be kept."""
    numbers = {vni.resource: vni.vni for vni in desired.l3vnis}
    return frozenset(
        numbers[wanted.resource]
        for wanted in model.links
        if wanted.kind in (LinkKind.BRIDGE, LinkKind.VXLAN)
        and wanted.resource in numbers
        and (found := observed.router.links.get(wanted.name)) is not None
        and found.ours
        and (found.master not in ("", wanted.master) or not fits(wanted, found))
    )


def _impossible(desired: DesiredState, model: KernelModel, observed: Observed) -> Failures:
    """Find what cannot be done before anything is."""
    failures = Failures(model)
    for wanted in model.links:
        found = observed.view(wanted.namespace).links.get(wanted.name)
        if found is not None and not found.ours:
            failures.add(wanted.resource, Reason.OVERLAY_ATTACHMENT_FAILED, _foreign(wanted, found.kind))
    for resource, bridge in model.external_bridges.items():
        found = observed.host.links.get(bridge)
        if found is None or found.kind != LinkKind.BRIDGE:
            what = "does not exist" if found is None else f"is not a bridge but {found.kind or 'a plain device'}"
            message = f"host bridge {bridge} {what}: create it, or let hostMaster create one (type Managed)"
            failures.add(resource, Reason.OVERLAY_ATTACHMENT_FAILED, message)
    for resource, message in conflicts(desired, model, observed):
        failures.add(resource, Reason.OVERLAY_ATTACHMENT_FAILED, message)
    for resource, vrf in model.orphans.items():
        failures.add(resource, Reason.DEPENDENCY_FAILED, f"no active L3VNI creates its VRF {vrf}")
    failures.spread()
    return failures


def _foreign(wanted: WantedLink, kind: str) -> str:
    where = "the host" if wanted.namespace is Namespace.HOST else "the router's namespace"
    return (
        f"device {wanted.name} ({kind or 'hardware'}) in {where} was not created by openperouter and is left alone: "
        "rename or delete it"
    )


def _sysctls(model: KernelModel, observed: Observed) -> Iterator[Step]:
    """Yield the sysctls of reference 4.3 that differ. An optional one that this kernel lacks is not a difference."""
    if model.underlay is None:
        return
    for key, value, optional in ROUTER_SYSCTLS:
        found = observed.sysctls.get(key)
        if found != value and not (optional and found is None):
            yield SetSysctl(Namespace.ROUTER, key, value, resource=model.underlay, unit=f"sysctl {key}")


def _stale_tables(remaining: Survivors) -> Iterator[Step]:
    """Yield the removal of unreachable defaults whose VRF is gone or goes: the kernel keeps routes without a device.

    Before the VRF: a zebra that starts in between must not find routes of a table that has no VRF (see AwaitZebra).
    After the devices in it: what is left of them needs the default.
    """
    vrfs = {key: link.table for key, link in remaining.links.items() if link.kind == LinkKind.VRF}
    needs = tuple(step.unit for step in remaining.deletions)
    for namespace in Namespace:
        staying = {table for (where, _), table in vrfs.items() if where is namespace}
        for family, table in sorted(remaining.observed.unreachable_in(namespace)):
            if table not in staying:
                yield RemoveUnreachable(family, table, namespace, unit=f"table {table} in {namespace}", needs=needs)


def _unreachable(vrf: WantedLink, remaining: Survivors) -> Iterator[Step]:
    fresh = (vrf.namespace, vrf.name) not in remaining.links
    for family in Family:
        found = remaining.observed.unreachable_in(vrf.namespace)
        if vrf.table is not None and (fresh or (family, vrf.table) not in found):
            yield AddUnreachable(family, vrf.table, vrf.namespace)


def _loopback(model: KernelModel, observed: Observed) -> Iterator[Step]:
    """Yield the router's VTEP addresses: ours that are no longer wanted go, missing ones come."""
    present = observed.router.addresses.get("lo", ())
    wanted = set(model.loopback)
    for address in present:
        if address.ours and address.interface not in wanted:
            yield RemoveAddress(Namespace.ROUTER, "lo", address.interface)
    existing = {address.interface for address in present}
    for interface in model.loopback:
        if interface not in existing:
            yield AddAddress(Namespace.ROUTER, "lo", owned_address(interface))
