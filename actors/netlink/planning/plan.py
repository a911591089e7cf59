"""The difference between what is wanted and what is there, as an ordered list of steps. Pure.

Promises: a converged node gives an empty plan; any prefix of a plan, then planning again, comes to the same state;
nothing that lacks our mark is ever changed or removed, and a wanted name that is taken by such a device fails its
resource (and what depends on it) instead; nothing is taken down, and nothing is deleted because something else failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from config.desired import DesiredState, Family, ResourceFailure
from config.problems import Origin, Reason, ResourceId

from .observed import NIC_GROUP, LinkKind, Namespace, Observed, Wish
from .plan_links import Survivors, link_steps, survivors
from .plan_nics import handover, restoration
from .steps import (
    AddAddress,
    AddUnreachable,
    DeleteLinks,
    Plan,
    RemoveAddress,
    RemoveUnreachable,
    SaveTables,
    SetSysctl,
    Step,
)
from .vrf_tables import assign_tables, candidate_tables
from .wanted import ROUTER_SYSCTLS, KernelModel, WantedLink, kernel_model

FAMILIES = (Family.IPV4, Family.IPV6)


@dataclass
class _Verdicts:
    """Resources that cannot be carried out, by the first reason found."""

    model: KernelModel
    failures: dict[ResourceId, ResourceFailure] = field(default_factory=dict)

    def fail(self, resource: ResourceId, reason: Reason, message: str) -> None:
        origin = self.model.origins.get(resource, Origin())
        self.failures.setdefault(resource, ResourceFailure(resource, reason, message, origin))

    def spread(self) -> None:
        """Fail what depends on a failed resource."""
        for resource, parents in self.model.parents.items():
            for parent in parents:
                if parent in self.failures:
                    self.fail(resource, Reason.DEPENDENCY_FAILED, dependency_message(parent))


def dependency_message(parent: ResourceId) -> str:
    """Return what a resource is told whose parent failed."""
    return f"{parent} failed, and this is in its VRF"


def wish_for(desired: DesiredState | None, persisted: dict[str, int]) -> Wish:
    """Return what to observe for a desired state."""
    if desired is None or desired.underlay is None:
        return Wish()
    return Wish(nics=desired.underlay.interfaces, tables=candidate_tables(desired, persisted))


def underlay_mtu(desired: DesiredState, observed: Observed) -> int | None:
    """Return the smallest MTU of the underlay's NICs, wherever each is now; None when none is there."""
    if desired.underlay is None:
        return None
    found = (observed.router.links.get(name) or observed.host.links.get(name) for name in desired.underlay.interfaces)
    return min((link.mtu for link in found if link is not None), default=None)


def model_for(desired: DesiredState, observed: Observed) -> KernelModel:
    """Return what a desired state means on this kernel: its VRF tables and MTU filled in."""
    return kernel_model(desired, assign_tables(desired, observed), underlay_mtu(desired, observed))


def plan(desired: DesiredState, observed: Observed) -> Plan:
    """Return the steps from what is there to what is desired."""
    return plan_model(model_for(desired, observed), observed)


def plan_model(model: KernelModel, observed: Observed) -> Plan:
    """Return the steps from what is there to a model. Removals come first: they free names, VNIs and addresses."""
    verdicts = _judge(model, observed)
    wanted = tuple(link for link in model.links if link.resource not in verdicts.failures)
    remaining = survivors(model, wanted, observed)
    steps: list[Step] = [*_sysctls(model, observed), *_deletions(remaining), *_stale_tables(model, observed)]
    steps += restoration(model, observed)
    nic_steps, nic_failures = handover(model, observed)
    steps += nic_steps
    steps += _loopback(model, observed)
    if dict(model.tables) != dict(observed.tables):
        steps.append(SaveTables(model.tables))
    for link in wanted:
        steps += link_steps(link, remaining)
        if link.kind is LinkKind.VRF:
            steps += _unreachable(link, observed)
    return Plan(tuple(steps), (*nic_failures, *verdicts.failures.values()))


def _judge(model: KernelModel, observed: Observed) -> _Verdicts:
    """Find what cannot be done before anything is."""
    verdicts = _Verdicts(model)
    for wanted in model.links:
        found = observed.view(wanted.namespace).links.get(wanted.name)
        if found is not None and not found.ours:
            verdicts.fail(wanted.resource, Reason.OVERLAY_ATTACHMENT_FAILED, _foreign(wanted, found.kind))
    for resource, bridge in model.external_bridges.items():
        found = observed.host.links.get(bridge)
        if found is None or found.kind != LinkKind.BRIDGE:
            what = "is not there" if found is None else f"is not a bridge but {found.kind or 'a plain device'}"
            message = f"host bridge {bridge} {what}: make it, or let hostMaster make one (type Managed)"
            verdicts.fail(resource, Reason.OVERLAY_ATTACHMENT_FAILED, message)
    for resource, vrf in model.orphans.items():
        verdicts.fail(resource, Reason.DEPENDENCY_FAILED, f"no L3VNI in force makes its VRF {vrf}")
    verdicts.spread()
    return verdicts


def _foreign(wanted: WantedLink, kind: str) -> str:
    where = "the host" if wanted.namespace is Namespace.HOST else "the router's namespace"
    return (
        f"device {wanted.name} ({kind or 'hardware'}) in {where} was not made by openperouter and is left alone: "
        "rename or delete it"
    )


def _sysctls(model: KernelModel, observed: Observed) -> Iterator[Step]:
    """Yield reference 4.3: read first, write only what differs. A missing optional one is no news."""
    if model.underlay is None:
        return
    for key, value, optional in ROUTER_SYSCTLS:
        found = observed.sysctls.get(key)
        if found != value and not (optional and found is None):
            yield SetSysctl(key, value, resource=model.underlay, unit=f"sysctl {key}")


def _deletions(remaining: Survivors) -> Iterator[Step]:
    """Yield one deletion a namespace: the host's first, as a veth takes its other end along."""
    for namespace, victims, batch in remaining.victims:
        if victims:
            yield DeleteLinks(namespace, victims, batch, unit=f"delete in {namespace}")


def _stale_tables(model: KernelModel, observed: Observed) -> Iterator[Step]:
    """Yield the removal of unreachable defaults whose VRF is gone: the kernel keeps routes that have no device."""
    wanted = set(model.tables.values())
    for family, table in sorted(observed.unreachable):
        if table not in wanted:
            yield RemoveUnreachable(family, table, unit=f"table {table}")


def _unreachable(vrf: WantedLink, observed: Observed) -> Iterator[Step]:
    for family in FAMILIES:
        if vrf.table is not None and (family, vrf.table) not in observed.unreachable:
            yield AddUnreachable(family, vrf.table, resource=vrf.resource, unit=str(vrf.resource))


def _loopback(model: KernelModel, observed: Observed) -> Iterator[Step]:
    """Yield the router's VTEP addresses: stale ones (ours, no longer wanted) go, missing ones come."""
    present = observed.router.addresses.get("lo", ())
    wanted = set(model.loopback)
    for address in present:
        if address.ours and address.interface not in wanted:
            yield RemoveAddress(Namespace.ROUTER, "lo", address.interface, resource=model.underlay, unit="loopback")
    there = {address.interface for address in present}
    for interface in model.loopback:
        if interface not in there:
            yield AddAddress(Namespace.ROUTER, "lo", interface, resource=model.underlay, unit="loopback")


def marked_nics(observed: Observed) -> tuple[str, ...]:
    """Return the NICs that the router has, by their mark."""
    return tuple(name for name, link in observed.router.links.items() if link.group == NIC_GROUP)
