"""The steps of a plan: immutable values, each attributed to the resource that it is for.

:mod:`.plan` puts them into order, :mod:`..converge` hands them to a kernel one by one, and :mod:`..kernel` (or the
fake of the tests) carries them out; a step does nothing by itself. ``str(step)`` is the line that ``openperouter plan``
prints and that error messages quote.

Steps that make no sense without one another share a ``unit``: when one of them fails, the rest of the unit is skipped,
unless the failed step was not ``vital``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from config.desired import CniAttachment, Family, IPInterface, ResourceFailure
from config.problems import ResourceId

from .observed import Address, Namespace, NicRecord, SavedRoute, VxlanAttributes
from .wanted import KernelModel, WantedLink

#: Devices that are deleted in one step, and that may always come or go between two waits for zebra: 200 took it up to
#: 52 s in the emulated guest when it had 2,000, and up to 79 s with other work beside it.
DEVICES: Final = 100
#: More may while there are few: their number times that of all devices, since zebra's time for one grows with those.
ZEBRA_WORK: Final = 160_000
#: A step is one line of a log or plan; so many VRFs are named in it.
_MOST_TABLES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What every step has: its resource (None: it removes what is no longer wanted) and its unit.

    After a step that is not ``vital`` was refused, the rest of its unit is still carried out, except for a step that
    ``completes`` it. A step ``needs`` all of the units of these names.
    """

    resource: ResourceId | None = None
    unit: str = ""
    vital: bool = True
    needs: tuple[str, ...] = ()

    #: Whether it writes to the kernel, rather than to our own state.
    writes_kernel = True
    #: Whether it records that its whole unit is done.
    completes = False


def attributed(steps: Iterable[Step], resource: ResourceId | None, unit: str = "") -> Iterator[Step]:
    """Yield steps as steps of a resource; without ``unit``, the resource is their unit."""
    for step in steps:
        yield replace(step, resource=resource, unit=unit or str(resource))


@dataclass(frozen=True, slots=True)
class CreateLink(Step):
    """Create a device, marked as ours, down. A veth gets both ends at once, each in its namespace (removes HAZ-1)."""

    wanted: WantedLink

    def __str__(self) -> str:
        wanted = self.wanted
        words = [f"{wanted.namespace}: create {wanted.kind} {wanted.name}"]
        if wanted.peer is not None:
            words.append(f"peer {wanted.peer} in {Namespace.ROUTER}")
        if wanted.table is not None:
            words.append(f"table {wanted.table}")
        if wanted.vxlan is not None:
            words.append(_vxlan_text(wanted.vxlan))
        if wanted.mtu is not None:
            words.append(f"mtu {wanted.mtu}")
        return " ".join(words)


def _vxlan_text(vxlan: VxlanAttributes) -> str:
    """Return a VXLAN's attributes in iproute2's syntax."""
    learning = "learning" if vxlan.learning else "nolearning"
    return f"id {vxlan.vni} dev {vxlan.lower} local {vxlan.local} dstport {vxlan.port} {learning}"


@dataclass(frozen=True, slots=True)
class ChangeLink(Step):
    """Change attributes of a device in one message. None leaves one alone; ``master`` empty releases the device."""

    namespace: Namespace
    name: str
    master: str | None = None
    mtu: int | None = None
    mac: str | None = None
    group: int | None = None
    neigh_suppress: bool | None = None
    alias: str | None = None
    up: bool | None = None

    def __str__(self) -> str:
        return " ".join((f"{self.namespace}: set {self.name}", *self._changes()))

    @property
    def empty(self) -> bool:
        """Whether nothing would change."""
        return not any(self._changes())

    def _changes(self) -> Iterator[str]:
        """Yield each change in iproute2's syntax."""
        if self.master is not None:
            yield f"master {self.master}" if self.master else "nomaster"
        for name, value in (("mtu", self.mtu), ("address", self.mac), ("group", self.group)):
            if value is not None:
                yield f"{name} {value}"
        if self.neigh_suppress is not None:
            yield f"neigh_suppress {'on' if self.neigh_suppress else 'off'}"
        if self.alias is not None:
            yield f"alias {self.alias!r}"
        if self.up is not None:
            yield "up" if self.up else "down"


@dataclass(frozen=True, slots=True)
class DeleteLinks(Step):
    """Delete devices of ours. A device that is already gone is not an error; ``batch`` deletes by link group."""

    namespace: Namespace
    names: tuple[str, ...]
    batch: bool = True

    def __str__(self) -> str:
        return f"{self.namespace}: delete {' '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class SetSysctl(Step):
    """Write one sysctl. The key has dots, so no device in it may have one in its name."""

    namespace: Namespace
    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.namespace}: sysctl {self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class ReplaceFilter(Step):
    """Replace our table of the packet filter by rules for these VXLAN ports; remove it for none."""

    ports: tuple[int, ...]

    def __str__(self) -> str:
        if not self.ports:
            return f"{Namespace.ROUTER}: remove table openperouter of the packet filter"
        return f"{Namespace.ROUTER}: filter VXLAN ports {' '.join(map(str, self.ports))} from the passthrough"


@dataclass(frozen=True, slots=True)
class AwaitZebra(Step):
    """Wait until zebra answers, and knows new VRFs: what comes next makes routes in their tables.

    zebra reads devices and routes from two sockets, in two threads. A route whose VRF it does not know yet makes the
    table one of its default VRF as well. The VRF's end frees the table, the default VRF keeps using it, and zebra dies
    upon the next route with that table's number (FRR #16614).
    """

    vrfs: tuple[str, ...]
    writes_kernel = False

    def __str__(self) -> str:
        return f"zebra: wait until it knows {' '.join(self.vrfs)}" if self.vrfs else "zebra: wait until it answers"


@dataclass(frozen=True, slots=True)
class AddAddress(Step):
    """Add an address to a device, with our mark if it is ours. An address that is already there is not an error."""

    namespace: Namespace
    link: str
    address: Address

    def __str__(self) -> str:
        peer = f" peer {self.address.peer}" if self.address.peer else ""
        return f"{self.namespace}: add address {self.address.interface}{peer} to {self.link}"


@dataclass(frozen=True, slots=True)
class RemoveAddress(Step):
    """Remove an address from a device. An address that is already gone is not an error."""

    namespace: Namespace
    link: str
    interface: IPInterface

    def __str__(self) -> str:
        return f"{self.namespace}: remove address {self.interface} from {self.link}"


@dataclass(frozen=True, slots=True)
class AddUnreachable(Step):
    """Add an unreachable default to a VRF's table, so that a lookup never falls through to other tables (HAZ-2)."""

    family: Family
    table: int
    namespace: Namespace = Namespace.ROUTER

    def __str__(self) -> str:
        return f"{self.namespace}: add {self.family} unreachable default to table {self.table}"


@dataclass(frozen=True, slots=True)
class RemoveUnreachable(Step):
    """Remove our unreachable default from a table whose VRF is gone."""

    family: Family
    table: int
    namespace: Namespace = Namespace.ROUTER

    def __str__(self) -> str:
        return f"{self.namespace}: remove {self.family} unreachable default from table {self.table}"


@dataclass(frozen=True, slots=True)
class MoveLink(Step):
    """Move a NIC to the other namespace. The kernel drops its addresses and routes: the journal has them."""

    name: str
    source: Namespace
    target: Namespace

    def __str__(self) -> str:
        return f"{self.source}: move {self.name} to {self.target}"


@dataclass(frozen=True, slots=True)
class SetNicSysctls(Step):
    """Restore a NIC's own sysctls in the host. Each one is written, even if others are refused."""

    link: str
    sysctls: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{Namespace.HOST}: sysctls of {self.link}: {' '.join(f'{key}={value}' for key, value in self.sysctls)}"


@dataclass(frozen=True, slots=True)
class AddRoute(Step):
    """Restore a journalled route of a NIC in the host. A route that is already there is not an error."""

    link: str
    route: SavedRoute

    def __str__(self) -> str:
        via = f" via {self.route.gateway}" if self.route.gateway else ""
        return f"{Namespace.HOST}: add route {self.route.destination}{via} dev {self.link} table {self.route.table}"


@dataclass(frozen=True, slots=True)
class AddAltname(Step):
    """Restore an alternative name of a NIC in the host."""

    link: str
    altname: str

    def __str__(self) -> str:
        return f"{Namespace.HOST}: add altname {self.altname} to {self.link}"


@dataclass(frozen=True, slots=True)
class SaveNic(Step):
    """Write a NIC's record into the journal, durably, before the step that needs it."""

    record: NicRecord
    writes_kernel = False

    def __str__(self) -> str:
        record = self.record
        return f"journal: {record.name} {record.phase}, {len(record.addresses)} addresses, {len(record.routes)} routes"


@dataclass(frozen=True, slots=True)
class ForgetNic(Step):
    """Drop a NIC's record: everything in it is restored."""

    name: str
    writes_kernel = False
    completes = True

    def __str__(self) -> str:
        return f"journal: forget {self.name}"


@dataclass(frozen=True, slots=True)
class AttachCni(Step):
    """Have CNI plugins make an interface in the router; it is recorded before and after.

    Not after a refused removal of the same interface: plugins may do harm to what they find half removed.
    """

    attachment: CniAttachment
    completes = True

    def __str__(self) -> str:
        return f"{Namespace.ROUTER}: make interface {self.attachment.name} with CNI plugins"


@dataclass(frozen=True, slots=True)
class DetachCni(Step):
    """Have CNI plugins remove an interface that they made, then drop its record. ``reason`` is why, empty: unwanted."""

    name: str
    reason: str = ""

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{Namespace.ROUTER}: remove interface {self.name} with CNI plugins{reason}"


@dataclass(frozen=True, slots=True)
class SaveTables(Step):
    """Persist which VRF has which table, where it was ``before`` that."""

    tables: Mapping[str, int]
    before: Mapping[str, int] = field(default_factory=dict)
    writes_kernel = False

    def __str__(self) -> str:
        new = [f"+{vrf}={table}" for vrf, table in sorted(self.tables.items()) if self.before.get(vrf) != table]
        changes = new + [f"-{vrf}" for vrf in sorted(self.before.keys() - self.tables.keys())]
        more = f" and {len(changes) - _MOST_TABLES} more" if changes[_MOST_TABLES:] else ""
        return f"state: VRF tables {', '.join(changes[:_MOST_TABLES])}{more}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in order; what cannot be done, and why; and the model that both come from.

    ``warnings`` are about what is in force, but not as it should be. ``moves`` are the L3VNIs whose devices have to be
    moved or made again; of them, those of ``held`` are left as they are, because FRR has them. ``later`` is what the
    next plan does, when the ports of a VRF or bridge have left it.
    """

    steps: tuple[Step, ...] = ()
    failures: tuple[ResourceFailure, ...] = ()
    model: KernelModel = field(default_factory=KernelModel)
    warnings: tuple[ResourceFailure, ...] = ()
    moves: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    later: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return all steps and failures, one a line."""
        lines = [str(step) if step.resource is None else f"{step}  # {step.resource}" for step in self.steps]
        lines += [f"cannot: {failure.resource}: {failure.message}" for failure in self.failures]
        lines += [f"warning: {warning.resource}: {warning.message}" for warning in self.warnings]
        lines += [f"wait: FRR has to remove VNI {vni} before its devices change" for vni in sorted(self.held)]
        lines += [f"then {step}, when nothing of ours is in it any more" for step in self.later]
        return "\n".join(lines) if lines else "nothing to do"
