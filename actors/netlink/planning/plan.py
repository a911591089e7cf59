"""The difference between what is wanted and what exists, as an ordered list of steps. Pure.

In come the desired state and an observation of the kernel. :mod:`.wanted` says what the desired state means for the
kernel; resources that cannot be carried out fail here, together with what depends on them; then the steps follow, in
an order that works: sysctls; deletions, which free names, VNIs and addresses; NICs back to the host,
once all wanted ones are inside (:mod:`.plan_nics`); NICs into the router; VTEP addresses; VRF tables; devices with
their addresses (:mod:`.plan_links`), each VRF with its unreachable defaults. Out comes a :class:`.steps.Plan`.

Promises: a converged node gives an empty plan; applying any prefix of a plan and planning again leads to the same
state; nothing without our mark is ever changed or removed, and a wanted name that such a device has fails its resource
(and what depends on it) instead; no device is taken down, and none is deleted because something else failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from config.desired import DesiredState, Family, ResourceFailure
from config.problems import Reason, ResourceId

from .observed import LinkKind, Namespace, Observed, owned_address
from .plan_links import link_steps, survivors
from .plan_nics import handover, kept_nics, restoration
from .steps import (
    AddAddress,
    AddUnreachable,
    Plan,
    RemoveAddress,
    RemoveUnreachable,
    SaveTables,
    SetSysctl,
    Step,
    attributed,
)
from .vrf_tables import assign_tables
from .wanted import ROUTER_SYSCTLS, KernelModel, WantedLink, kernel_model


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


def underlay_mtu(nics: Iterable[str], observed: Observed) -> int | None:
    """Return the smallest MTU of some NICs, wherever each is now; None when none exists."""
    found = (observed.router.links.get(name) or observed.host.links.get(name) for name in nics)
    return min((link.mtu for link in found if link is not None), default=None)


def plan(desired: DesiredState, observed: Observed) -> Plan:
    """Return the steps from what exists to what is desired."""
    nics = () if desired.underlay is None else desired.underlay.interfaces
    kept = kept_nics(nics, observed)
    model = kernel_model(desired, assign_tables(desired, observed), underlay_mtu((*nics, *kept), observed), kept)
    failures = _impossible(model, observed)
    wanted = tuple(link for link in model.links if link.resource not in failures)
    remaining = survivors(model, wanted, observed)
    steps: list[Step] = [*_sysctls(model, observed), *remaining.deletions, *_stale_tables(model, observed)]
    nic_steps, nic_failures = handover(model, observed)
    steps += [*restoration(model, observed), *nic_steps]
    steps += attributed(_loopback(model, observed), model.underlay, "loopback")
    if dict(model.tables) != dict(observed.tables):
        steps.append(SaveTables(model.tables))
    for link in wanted:
        steps += attributed(link_steps(link, remaining), link.resource)
        if link.kind is LinkKind.VRF:
            steps += attributed(_unreachable(link, observed), link.resource)
    return Plan(tuple(steps), (*nic_failures, *failures.values()), model)


def _impossible(model: KernelModel, observed: Observed) -> Failures:
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
    """Yield the sysctls of reference 4.3 that differ. An optional one that this kernel lacks is no difference."""
    if model.underlay is None:
        return
    for key, value, optional in ROUTER_SYSCTLS:
        found = observed.sysctls.get(key)
        if found != value and not (optional and found is None):
            yield SetSysctl(key, value, resource=model.underlay, unit=f"sysctl {key}")


def _stale_tables(model: KernelModel, observed: Observed) -> Iterator[Step]:
    """Yield the removal of unreachable defaults whose VRF is gone: the kernel keeps routes that have no device."""
    wanted = set(model.tables.values())
    for family, table in sorted(observed.unreachable):
        if table not in wanted:
            yield RemoveUnreachable(family, table, unit=f"table {table}")


def _unreachable(vrf: WantedLink, observed: Observed) -> Iterator[Step]:
    for family in Family:
        if vrf.table is not None and (family, vrf.table) not in observed.unreachable:
            yield AddUnreachable(family, vrf.table)


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
