"""An episode as plain data: what users write and what goes wrong, when, all drawn from one seed.

    seed -> draw() -> Episode(first configuration, history of timed edits and faults) -> its text, one line an event

Nothing here runs anything, so the text that a failure prints is all that happened to the daemon. One tenant (``red``,
the bystander) is there from the beginning and is never edited: whatever happens to others must not touch it.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Any, Final

from config.problems import Kind

NODE: Final = "node1"
NICS: Final = ("nic1", "nic2")
SYSTEM: Final = "openperouter-system"
TENANT: Final = "tenant-b"
#: Children of the tree that a crash or a hang can hit.
ACTORS: Final = (
    "control", "systemd", "report", "health", "netlink", "frr", "desired",
    "status_writer", "api_mirror", "crd_watch", "api_wait", "static_config",
)  # fmt: skip
SECTIONS: Final[Mapping[Kind, str]] = {
    Kind.UNDERLAY: "underlays",
    Kind.L3VNI: "l3vnis",
    Kind.L2VNI: "l2vnis",
    Kind.L3PASSTHROUGH: "bgppassthrough",
    Kind.RAW_FRR_CONFIG: "rawfrrconfigs",
}
#: VNIs of tenants other than the bystander.
TENANT_VNIS: Final = (101, 102, 103)
BRIDGES: Final[Sequence[Mapping[str, Any]]] = (
    {"type": "LinuxBridge", "linuxBridge": {"lifecycle": "Managed"}},
    {"type": "LinuxBridge", "linuxBridge": {"lifecycle": "External", "name": "br0"}},
)
#: Changes of a tenant that leave most of its devices in place.
AMENDMENTS: Final[Sequence[Mapping[str, Any]]] = ({"vxlanPort": 8472}, {"exportRTs": ["65000:9"]}, {"vrf": "other"})
#: The dry run of the simulated FRR does not know this word.
NONSENSE: Final = "nonsense"
#: A NIC that does not exist.
TYPO: Final = "typo"
#: They make an underlay unusable.
BAD_NEIGHBORS: Final = [{"asn": 0, "address": "nowhere"}]


@dataclass(frozen=True, slots=True)
class Item:
    """One resource. Without a ``namespace`` it is in a file of its own, else an object of the API."""

    kind: Kind
    name: str
    spec: Mapping[str, Any]
    namespace: str = ""

    @property
    def file(self) -> str:
        return f"openpe_{self.kind.value.lower()}-{self.name}.yaml"

    @property
    def text(self) -> str:
        """The content of its file; JSON is YAML."""
        spec = dict(self.spec)
        if self.kind in (Kind.L3VNI, Kind.L2VNI):
            spec["name"] = self.name
        return json.dumps({SECTIONS[self.kind]: spec if self.kind is Kind.L3PASSTHROUGH else [spec]})

    def __str__(self) -> str:
        return f"{self.namespace or 'file'} {self.kind} {self.name} {json.dumps(self.spec)}"


class What(StrEnum):
    """Kinds of events: edits first, then faults, all of which end by themselves or with the episode."""

    PUT = "put"
    DROP = "drop"
    HALF_WRITTEN = "half-written file"
    RELOAD = "reload"
    CRASH = "crash"
    HANG = "hang"
    KILL = "kill -9"
    STOP = "stop and start"
    LOST_NOTIFICATIONS = "lost notifications"
    KERNEL_REFUSES = "kernel refuses"
    SLOW_THREADS = "slow threads"
    NIC_GONE = "NIC gone"
    DRIFT = "drift"
    FULL_DISK = "full disk"
    TORN_FILE = "torn file"
    CLOCK = "clock jump"
    API_ERROR = "API error"
    API_GONE = "API history gone"
    API_SILENT = "API silent"
    FRR_RESTART = "FRR restart"
    FRR_HANGS = "FRR hangs"
    FRR_DRIFT = "FRR drift"


@dataclass(frozen=True, slots=True)
class Event:
    """One event ``at`` a second. ``target`` says where, ``number`` which or how much, ``seconds`` how long."""

    at: float
    what: What
    target: str = ""
    number: int = 0
    seconds: float = 0.0
    item: Item | None = None

    def __str__(self) -> str:
        words = [f"{self.at:6.2f} {self.what}"]
        words += [self.target] * bool(self.target) + [f"#{self.number}"] * bool(self.number)
        words += [f"for {self.seconds:g} s"] * bool(self.seconds) + [str(self.item)] * bool(self.item)
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Episode:
    """Everything that happens.

    ``bystander``: nothing in it has a right to touch the tenant ``red``. ``api``: the node has a server's credentials.
    """

    seed: int
    first: tuple[Item, ...]
    history: tuple[Event, ...]
    bystander: bool = True
    api: bool = True

    def __str__(self) -> str:
        lines = [f"seed {self.seed}", *(f"  first  {item}" for item in self.first)]
        return "\n".join([*lines, *(f"  {event}" for event in self.history)])


#: So many episodes in a row have the same configurations and other faults: what they must lead to is found out once.
FAMILY: Final = 8
_FAULTS: Final[Mapping[What, int]] = {
    What.RELOAD: 3, What.CRASH: 10, What.HANG: 5, What.KILL: 18, What.STOP: 4, What.LOST_NOTIFICATIONS: 4,
    What.KERNEL_REFUSES: 10, What.SLOW_THREADS: 3, What.NIC_GONE: 5, What.DRIFT: 8, What.FULL_DISK: 6,
    What.TORN_FILE: 3, What.CLOCK: 4, What.API_ERROR: 8, What.API_GONE: 4, What.API_SILENT: 3, What.FRR_RESTART: 6,
    What.FRR_HANGS: 3, What.FRR_DRIFT: 5, What.HALF_WRITTEN: 8,
}  # fmt: skip


def draw(seed: int) -> Episode:
    """Draw an episode; the same one for the same seed."""
    users = _Users(Random(seed // FAMILY))  # noqa: S311 - reproducible on purpose
    first, edits = users.write()
    random = Random(seed)  # noqa: S311
    faults = [_fault(random, first, users.api) for _ in range(random.randint(0 if edits else 1, 4))]
    order = sorted([True] * len(edits) + [False] * len(faults), key=lambda _: random.random())
    at, history = random.choice((0.01, 0.01, 6.0)), []
    for is_edit in order:
        at += random.choice((0.0, 0.1, 0.7, 2.0, 6.0)) * (0.5 + random.random())
        history.append(replace((edits if is_edit else faults).pop(0), at=round(at, 2)))
    return Episode(seed, first, tuple(history), users.bystander, users.api)


def _fault(random: Random, items: tuple[Item, ...], api: bool) -> Event:
    of_api = (What.API_ERROR, What.API_GONE, What.API_SILENT)
    choices = {what: weight for what, weight in _FAULTS.items() if api or what not in of_api}
    what = random.choices(list(choices), list(choices.values()))[0]
    event = Event(0, what, number=random.randint(1, 12), seconds=round(random.uniform(0.5, 12), 1))
    targets: Mapping[What, Sequence[str]] = {
        What.CRASH: ACTORS,
        What.HANG: ACTORS,
        What.KILL: ("kernel", "kernel", "frr", "disk", "now", *(("api",) * api)),
        What.KERNEL_REFUSES: ("vni101", "host-e-102", "br-pe-103", "green", "blue", "create", "set", "address"),
        What.NIC_GONE: NICS,
        What.DRIFT: ("vni101", "br-pe-102", "host-e-101", "green", "pt-host", "br-pe-111"),
        What.FULL_DISK: ("state", "run", "etc", "all"),
        What.API_ERROR: ("all", "reads", "writes"),
    }
    numbers: Mapping[What, Sequence[int]] = {
        What.KERNEL_REFUSES: (errno.EIO, errno.ENOMEM, errno.EBUSY, errno.EEXIST, errno.EOPNOTSUPP, errno.ENOBUFS),
        What.SLOW_THREADS: (1, 3, 8),
        What.CLOCK: (-86400, -30, 30, 86400),
        What.API_ERROR: (0, 401, 403, 410, 429, 500, 503),
    }
    event = replace(event, target=random.choice(targets.get(what, ("",))))
    event = replace(event, number=random.choice(numbers.get(what, (event.number,))))
    if what is What.HALF_WRITTEN:
        # The underlay's file is always there.
        event = replace(event, item=random.choice([item for item in items if not item.namespace]))
    return event


def interfaces(nics: Sequence[str]) -> list[dict[str, Any]]:
    """Return the NICs of an underlay as users write them."""
    return [{"type": "NetworkDevice", "networkDevice": {"interfaceName": nic}} for nic in nics]


def nics_of(underlay: Item) -> list[str]:
    """Return the NICs that an underlay names."""
    return [one["networkDevice"]["interfaceName"] for one in underlay.spec["interfaces"]]


@dataclass
class _Users:
    """What users write."""

    random: Random
    bystander: bool = True
    api: bool = True
    items: dict[tuple[Kind, str], Item] = field(default_factory=dict)

    def write(self) -> tuple[tuple[Item, ...], list[Event]]:
        """Return the first configuration, and edits of it."""
        self.api = self.random.random() < 0.6
        self.bystander = self.random.random() < 0.8
        for item in (self.put(self.red()), *self.red_segment()):
            self.put(item)
        for _ in range(self.random.randint(0, 2)):
            self.put(self.item())
        self.put(self.underlay(valid=True))
        first = tuple(self.items.values())
        edits = [self.edit() for _ in range(self.random.randint(0, 3))]
        if self.items[Kind.UNDERLAY, "underlay"].spec["neighbors"] == BAD_NEIGHBORS:
            edits.append(Event(0, What.PUT, item=self.put(self.underlay(valid=True))))
        edits += self.settle_nics([*first, *(edit.item for edit in edits if edit.item)])
        return first, [*edits, *self.settle_conflicts()]

    def put(self, item: Item) -> Item:
        self.items[item.kind, item.name] = item
        return item

    def edit(self) -> Event:
        fixed = {(Kind.L3VNI, "red"), (Kind.L2VNI, "redseg"), (Kind.UNDERLAY, "underlay")}
        droppable = [key for key in self.items if key not in fixed]
        if droppable and self.random.random() < 0.25:
            return Event(0, What.DROP, item=self.items.pop(self.random.choice(droppable)))
        amendable = [self.items[key] for key in (*droppable, (Kind.UNDERLAY, "underlay"))]
        if amendable and self.random.random() < 0.5:
            return Event(0, What.PUT, item=self.put(self.amended(self.random.choice(amendable))))
        return Event(0, What.PUT, item=self.put(self.item()))

    def amended(self, item: Item) -> Item:
        """Return a resource with one thing changed, so that its devices stay and what is on them changes."""
        spec = dict(item.spec)
        if item.kind is Kind.UNDERLAY:
            # Every neighbour is reached through the first one.
            spec["interfaces"] = interfaces(NICS if nics_of(item) == [NICS[0]] else NICS[:1])
        elif item.kind is Kind.RAW_FRR_CONFIG:
            spec["priority"] = 5 - spec["priority"]
        elif item.kind is Kind.L3PASSTHROUGH:
            spec["hostSession"] = self.session(40)
        elif item.kind is Kind.L2VNI:
            if "gatewayIPs" in spec:
                spec["gatewayIPs"] = self.random.choice((["172.29.3.1/24"], ["172.29.1.1/24"], ["172.29.1.9/24"]))
            else:
                spec["hostMaster"] = self.random.choice(BRIDGES)
        elif spec["vni"] in TENANT_VNIS and self.random.random() < 0.7:
            spec["hostSession"] = self.session(spec["vni"])
        else:
            spec |= self.random.choice(AMENDMENTS)
        return replace(item, spec=spec)

    def settle_nics(self, history: Sequence[Item]) -> Iterator[Event]:
        """Correct a NIC's name if the underlay had other NICs before: the router keeps those until then."""
        *_, last = underlays = [nics_of(item) for item in history if item.kind is Kind.UNDERLAY]
        if TYPO in last and set().union(*underlays).difference(last):
            underlay = self.items[Kind.UNDERLAY, "underlay"]
            spec = {**underlay.spec, "interfaces": interfaces([nic for nic in last if nic != TYPO])}
            yield Event(0, What.PUT, item=self.put(replace(underlay, spec=spec)))

    def settle_conflicts(self) -> Iterator[Event]:
        """Drop what conflicts in the end: which of two is then in force depends on the history, and is meant to."""
        taken: set[str] = set()
        for key, item in list(self.items.items()):
            claims = {f"{name} {item.spec[name]}" for name in ("vni", "vrf", "gatewayIPs") if name in item.spec}
            if claims & taken:
                yield Event(0, What.DROP, item=self.items.pop(key))
            else:
                taken |= claims

    def item(self) -> Item:
        makers = (self.tenant, self.tenant, self.tenant, self.segment, self.segment, self.passthrough, self.raw)
        return self.random.choice((*makers, self.underlay))()

    def place(self) -> str:
        """Return a namespace of the API, empty for a file."""
        return self.random.choice(("", SYSTEM, TENANT)) if self.api else ""

    def at_home(self, kind: Kind, name: str) -> str:
        """Return where a resource is: it stays where it was first written."""
        known = self.items.get((kind, name))
        return known.namespace if known else self.place()

    def session(self, number: int) -> dict[str, Any]:
        pools = {"ipv4": f"192.{self.random.choice((170, 169))}.{number}.0/24", "ipv6": f"2001:db8:{number}::/64"}
        families = self.random.choice((("ipv4",), ("ipv6",), ("ipv4", "ipv6")))
        remote = self.random.choice(({"hostASN": 64515}, {"hostASN": 65000}, {"hostType": "External"}))
        return {"asn": 64514, "localCIDR": {family: pools[family] for family in families}, **remote}

    def red(self) -> Item:
        pools = {"ipv4": "172.27.10.0/24", "ipv6": "2001:db9:1::/64"}
        spec = {"vrf": "red", "vni": 100, "hostSession": {"asn": 64514, "hostASN": 64515, "localCIDR": pools}}
        return Item(Kind.L3VNI, "red", spec, self.place())

    def red_segment(self) -> tuple[Item, ...]:
        red = self.items[Kind.L3VNI, "red"]
        # A reference from a file is to a file's entry; one from the API to the same namespace.
        spec = {"vni": 110, "routingDomain": {"type": "L3VNI", "l3vni": {"name": "red"}},
                "gatewayIPs": ["172.28.1.1/24"],
                "hostMaster": {"type": "LinuxBridge", "linuxBridge": {"lifecycle": "Managed"}}}  # fmt: skip
        return (Item(Kind.L2VNI, "redseg", spec, red.namespace),) if self.random.random() < 0.5 else ()

    def tenant(self) -> Item:
        name = self.random.choice(("green", "blue", "amber"))
        vni = self.random.choice((*TENANT_VNIS, 103, *(() if self.bystander else (100,))))
        spec: dict[str, Any] = {"vrf": self.random.choice((name, name, name, "shared")), "vni": vni}
        if self.random.random() < 0.7:
            spec["hostSession"] = self.session(vni)
        if self.random.random() < 0.2:
            spec["exportRTs"] = [f"65000:{vni}"]
        if self.random.random() < 0.1:
            spec["vxlanPort"] = 8472
        if self.random.random() < 0.1:
            spec["vni"] = self.random.choice((0, "x", 1 << 24, -1))
        return Item(Kind.L3VNI, name, spec, self.at_home(Kind.L3VNI, name))

    def segment(self) -> Item:
        name = self.random.choice(("seg1", "seg2"))
        spec: dict[str, Any] = {"vni": self.random.choice((111, 112, 101, 103))}
        if self.random.random() < 0.7:
            domain = self.random.choice(("green", "blue", "amber", "missing"))
            spec["routingDomain"] = {"type": "L3VNI", "l3vni": {"name": domain}}
            if self.random.random() < 0.7:
                spec["gatewayIPs"] = self.random.choice((["172.29.1.1/24"], ["172.29.2.1/24", "2001:db8:2::1/64"]))
        if self.random.random() < 0.6:
            spec["hostMaster"] = self.random.choice(BRIDGES)
        return Item(Kind.L2VNI, name, spec, self.at_home(Kind.L2VNI, name))

    def passthrough(self) -> Item:
        spec = {"hostSession": self.session(40)}
        return Item(Kind.L3PASSTHROUGH, "pass", spec, self.at_home(Kind.L3PASSTHROUGH, "pass"))

    def raw(self) -> Item:
        texts = ("ip prefix-list mine seq 5 permit 10.0.0.0/8", "route-map other permit 10\n set metric 5\nexit",
                 "ip prefix-list a permit any\nexit\nexit", NONSENSE, "hostname \x00")  # fmt: skip
        name = self.random.choice(("one", "two"))
        spec = {"priority": self.random.choice((0, 5)), "rawConfig": self.random.choice(texts)}
        return Item(Kind.RAW_FRR_CONFIG, name, spec, self.at_home(Kind.RAW_FRR_CONFIG, name))

    def underlay(self, *, valid: bool = False) -> Item:
        """Return an underlay; where there is a bystander, one that changes nothing for it."""
        nics = self.random.choice((NICS[:1], NICS[:1], NICS, (NICS[0], TYPO)))
        peers = [{"asn": 64512, "address": "192.168.11.2"}, {"asn": 64513, "address": "192.168.12.2", "bfd": {}}]
        cidrs, asn = ["100.65.0.0/24"], 64514
        if not self.bystander:
            nics = self.random.choice((nics, NICS[1:]))
            cidrs = self.random.choice((cidrs, ["100.66.0.0/24"], ["100.65.0.0/24", "2001:db8:ffff::/64"]))
            asn = self.random.choice((64514, 64514, 64600))
        spec: dict[str, Any] = {
            "asn": asn,
            "interfaces": interfaces(nics),
            "neighbors": self.random.choice((peers[:1], peers, peers[1:])),
            "tunnelEndpoint": {"cidrs": cidrs},
        }
        if not valid and self.random.random() < 0.2:
            spec["neighbors"] = BAD_NEIGHBORS
        return Item(Kind.UNDERLAY, "underlay", spec, "")
