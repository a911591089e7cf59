"""The steps of a plan: typed, each one line of text, each attributed to the resource that it is for.

Nothing here acts. A plan is a list of these; ``kernel`` carries them out for real and the tests' fake carries them out
in memory, and both must refuse the same things. ``unit`` groups steps that make no sense without one another: when one
of a unit fails, the rest of that unit is skipped, unless the step says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from config.desired import Family, IPInterface, ResourceFailure
from config.problems import ResourceId

from .observed import LinkKind, Namespace, NicRecord, SavedRoute, Vxlan
from .wanted import WantedLink


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What every operation has: whom it is for (None: a removal of what nobody wants any more) and its unit.

    When a step that is not ``vital`` is refused, the rest of its unit goes on, but for a step that ``completes`` it.
    """

    resource: ResourceId | None = None
    unit: str = ""
    vital: bool = True

    #: Whether it writes to the kernel, rather than to our own state.
    writes_kernel = True
    #: Whether it says that all of its unit was done.
    completes = False

    @property
    def text(self) -> str:
        """Return the step in one line."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CreateLink(Step):
    """Make a device, marked as ours, down. Of a veth, both ends at once, each in its own namespace (removes HAZ-1)."""

    wanted: WantedLink

    @property
    def text(self) -> str:
        """Return the step in one line."""
        wanted = self.wanted
        words = [f"{wanted.namespace}: create {wanted.kind} {wanted.name}"]
        if wanted.peer is not None:
            words.append(f"peer {wanted.peer} in {Namespace.ROUTER}")
        if wanted.table is not None:
            words.append(f"table {wanted.table}")
        if wanted.vxlan is not None:
            words.append(vxlan_text(wanted.vxlan))
        if wanted.mtu is not None:
            words.append(f"mtu {wanted.mtu}")
        return " ".join(words)


def vxlan_text(vxlan: Vxlan) -> str:
    """Return a VXLAN's attributes in iproute2's words."""
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

    @property
    def text(self) -> str:
        """Return the step in one line."""
        words = [f"{self.namespace}: set {self.name}"]
        if self.master is not None:
            words.append(f"master {self.master}" if self.master else "nomaster")
        if self.mtu is not None:
            words.append(f"mtu {self.mtu}")
        if self.mac is not None:
            words.append(f"address {self.mac}")
        if self.group is not None:
            words.append(f"group {self.group}")
        if self.neigh_suppress is not None:
            words.append(f"neigh_suppress {'on' if self.neigh_suppress else 'off'}")
        if self.alias is not None:
            words.append(f"alias {self.alias!r}")
        if self.up is not None:
            words.append("up" if self.up else "down")
        return " ".join(words)

    @property
    def empty(self) -> bool:
        """Whether nothing would change."""
        values = (self.master, self.mtu, self.mac, self.group, self.neigh_suppress, self.alias, self.up)
        return all(value is None for value in values)


@dataclass(frozen=True, slots=True)
class DeleteLinks(Step):
    """Delete devices of ours. Those that are already gone do not count as an error; ``batch`` deletes by link group."""

    namespace: Namespace
    names: tuple[str, ...]
    batch: bool = True

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"{self.namespace}: delete {' '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class DisableAddressGeneration(Step):
    """Set addr_gen_mode none (1) on a device in the router, so that it makes no IPv6 link-local address."""

    name: str

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"{Namespace.ROUTER}: sysctl net.ipv6.conf.{self.name}.addr_gen_mode=1"


@dataclass(frozen=True, slots=True)
class SetSysctl(Step):
    """Write one sysctl in the router's namespace; the key has dots."""

    key: str
    value: str

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"{Namespace.ROUTER}: sysctl {self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class AddAddress(Step):
    """Put an address on a device; one that is there already is fine. ``marked`` says that we own it.

    The others are those of :class:`Address`: no broadcast means the usual one, no label the device's name.
    """

    namespace: Namespace
    link: str
    interface: IPInterface
    marked: bool = True
    flags: int = 0
    scope: int = 0
    peer: str = ""
    broadcast: str | None = None
    label: str = ""

    @property
    def text(self) -> str:
        """Return the step in one line."""
        peer = f" peer {self.peer}" if self.peer else ""
        return f"{self.namespace}: add address {self.interface}{peer} to {self.link}"


@dataclass(frozen=True, slots=True)
class RemoveAddress(Step):
    """Take an address off a device; one that is gone already is fine."""

    namespace: Namespace
    link: str
    interface: IPInterface

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"{self.namespace}: remove address {self.interface} from {self.link}"


@dataclass(frozen=True, slots=True)
class AddUnreachable(Step):
    """Give a VRF's table its last word, so that a lookup never falls through to the underlay (HAZ-2)."""

    family: Family
    table: int

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"{Namespace.ROUTER}: add {self.family} unreachable default to table {self.table}"


@dataclass(frozen=True, slots=True)
class RemoveUnreachable(Step):
    """Take our unreachable default out of a table whose VRF is gone."""

    family: Family
    table: int

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"{Namespace.ROUTER}: remove {self.family} unreachable default from table {self.table}"


@dataclass(frozen=True, slots=True)
class MoveLink(Step):
    """Move a NIC to the other namespace. The kernel takes its addresses and routes away: the journal has them."""

    name: str
    source: Namespace
    target: Namespace

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"{self.source}: move {self.name} to {self.target}"


@dataclass(frozen=True, slots=True)
class SetNicSysctls(Step):
    """Give a NIC in the host its own sysctls back; each that can be is written, whatever becomes of the others."""

    link: str
    sysctls: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"{Namespace.HOST}: sysctls of {self.link}: {' '.join(f'{key}={value}' for key, value in self.sysctls)}"


@dataclass(frozen=True, slots=True)
class AddRoute(Step):
    """Put a journalled route of a NIC back into the host; one that is there already is fine."""

    link: str
    route: SavedRoute

    @property
    def text(self) -> str:
        """Return the step in one line."""
        via = f" via {self.route.gateway}" if self.route.gateway else ""
        return f"{Namespace.HOST}: add route {self.route.destination}{via} dev {self.link} table {self.route.table}"


@dataclass(frozen=True, slots=True)
class AddAltname(Step):
    """Give a NIC in the host an alternative name back."""

    link: str
    altname: str

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"{Namespace.HOST}: add altname {self.altname} to {self.link}"


@dataclass(frozen=True, slots=True)
class SaveNic(Step):
    """Write a NIC's record into the journal, durably, before the step that needs it."""

    record: NicRecord
    writes_kernel = False

    @property
    def text(self) -> str:
        """Return the step in one line."""
        record = self.record
        return f"journal: {record.name} {record.phase}, {len(record.addresses)} addresses, {len(record.routes)} routes"


@dataclass(frozen=True, slots=True)
class ForgetNic(Step):
    """Drop a NIC's record: the host has it back whole."""

    name: str
    writes_kernel = False
    completes = True

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return f"journal: forget {self.name}"


@dataclass(frozen=True, slots=True)
class SaveTables(Step):
    """Persist which VRF has which table."""

    tables: Mapping[str, int]
    writes_kernel = False

    @property
    def text(self) -> str:
        """Return the step in one line."""
        return (
            f"state: VRF tables {', '.join(f'{vrf}={table}' for vrf, table in sorted(self.tables.items())) or 'none'}"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in order, and what cannot be done and why."""

    steps: tuple[Step, ...] = ()
    failures: tuple[ResourceFailure, ...] = field(default=())

    @property
    def text(self) -> str:
        """Return all steps and failures, one a line."""
        lines = [step.text if step.resource is None else f"{step.text}  # {step.resource}" for step in self.steps]
        lines += [f"cannot: {failure.resource}: {failure.message}" for failure in self.failures]
        return "\n".join(lines) if lines else "nothing to do"


def veth_ends(wanted: WantedLink) -> tuple[str, str] | None:
    """Return a veth's host and router end, or None for anything else or for the router's own entry."""
    if wanted.kind is not LinkKind.VETH or wanted.peer is None:
        return None
    return wanted.name, wanted.peer
