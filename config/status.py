"""What the router says of itself: the value behind systemd's STATUS=, the state file, the control socket and the CLI.

The model is plain text and numbers on purpose: it is built from the actors' values, never the other way round, it holds
no field that could carry a secret, and reading it needs nothing but this module, so that ``openperouter status`` starts
quickly on a slow node. Its JSON form is versioned; a reader ignores fields it does not know and fills in those it
misses, so that a newer command line understands an older daemon and the reverse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, Final, Literal, TypeVar

#: Grows only when a field changes its meaning; additions keep it.
SCHEMA_VERSION: Final = 1

Phase = Literal["starting", "running", "degraded", "reloading", "stopping"]
Scalar = str | int | float | bool | None

S = TypeVar("S")


class StatusFormatError(ValueError):
    """The text is not a status document that this version can read."""


#: Marks a field that changes by itself (an age, a counter) and therefore is no news.
VOLATILE: Final = {"volatile": True}
#: Marks a tuple of strings.
TEXTS: Final = {"texts": True}


@dataclass(frozen=True, slots=True)
class ActorStatus:
    """One child of the supervisor.

    ``state`` is the tree's word (``running``, ``starting``, ``backoff`` ...); ``activity`` names a declared
    long call; ``progress_age_seconds`` is the time since the last unit of work.
    """

    name: str = ""
    state: str = ""
    restarts: int = 0
    last_error: str = ""
    critical: bool = False
    incarnation: int = 1
    mode: str = field(default="", metadata=VOLATILE)
    activity: str = field(default="", metadata=VOLATILE)
    progress_age_seconds: float = field(default=0.0, metadata=VOLATILE)
    facts: dict[str, Scalar] = field(default_factory=dict, metadata=VOLATILE)


@dataclass(frozen=True, slots=True)
class Generations:
    """The newest generation that each stage has reached; 0 is none yet. ``verified`` trails the others."""

    desired: int = 0
    frr: int = 0
    kernel: int = 0
    verified: int = 0


@dataclass(frozen=True, slots=True)
class ReloadStatus:
    """Where the newest reload requests are: each number is a reload id, 0 is none.

    ``failed`` is the newest request whose configuration FRR or the kernel refused, and ``reason`` says why in one line.
    """

    requested: int = 0
    taken_in: int = 0
    verified: int = 0
    failed: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ApiStatus:
    """The way to the API server, and what the router has from it.

    ``reach`` is ``unconfigured``, ``unreachable``, ``refused`` or ``reachable`` since the Unix second ``since``, empty
    while nobody has looked; ``detail`` says why it is not reachable. ``objects`` count on this node, ``mirrored`` are
    those that it wrote itself; ``source`` is where they are known from: ``server``, ``memory`` (of an earlier life) or
    ``none``. ``live``: they are what the server says now; else they were last known to be true
    ``snapshot_age_seconds`` ago. ``not_followed`` says of which objects nothing new is heard although the server
    answers, why, and since when.
    """

    reach: str = ""
    server: str = ""
    detail: str = ""
    since: float = 0.0
    source: str = "none"
    live: bool = False
    objects: int = 0
    mirrored: int = 0
    not_followed: tuple[str, ...] = field(default=(), metadata=TEXTS)
    snapshot_age_seconds: float = field(default=0.0, metadata=VOLATILE)


@dataclass(frozen=True, slots=True)
class InterfaceStatus:
    """One interface to the fabric, inside the router's namespace."""

    name: str = ""
    present: bool = False
    up: bool = False
    mtu: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class UnderlayStatus:
    """The fabric side as configured, with its interfaces as they are. Addresses in text, VTEPs ``address/length``."""

    name: str = ""
    origin: str = ""
    asn: int = 0
    router_id: str = ""
    vteps: tuple[str, ...] = field(default=(), metadata=TEXTS)
    interfaces: tuple[InterfaceStatus, ...] = field(default=(), metadata={"items": InterfaceStatus})
    mtu: int = 0


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """One BGP session: ``role`` is ``fabric`` or ``host``, ``state`` FRR's word, ``bfd`` empty where it is not used."""

    peer: str = ""
    vrf: str = ""
    remote_as: int = 0
    state: str = ""
    up: bool = False
    role: str = ""
    bfd: str = ""
    uptime_seconds: int = field(default=0, metadata=VOLATILE)
    prefixes_received: dict[str, int] = field(default_factory=dict, metadata=VOLATILE)


@dataclass(frozen=True, slots=True)
class VniStatus:
    """One VNI: ``type`` is ``L2`` or ``L3``; ``detail`` says why ``ok`` is False; ``origin`` is where it is written."""

    kind: str = ""
    name: str = ""
    vni: int = 0
    type: str = ""
    vrf: str = ""
    ok: bool = False
    detail: str = ""
    origin: str = ""
    remote_vteps: int = field(default=0, metadata=VOLATILE)
    routes: int = field(default=0, metadata=VOLATILE)


@dataclass(frozen=True, slots=True)
class ProblemStatus:
    """One thing for the user to mend, and what stays in force meanwhile."""

    origin: str = ""
    field: str = ""
    message: str = ""
    severity: str = "error"
    reason: str = ""
    kind: str = ""
    name: str = ""
    in_force: str = ""

    def __str__(self) -> str:
        subject = f"{self.kind} {self.name}: " if self.kind else ""
        place = f"{self.field}: " if self.field else ""
        tail = f" ({self.in_force})" if self.in_force else ""
        return f"{self.origin}: {self.severity}: {subject}{place}{self.message}{tail}"


@dataclass(frozen=True, slots=True)
class FailureStatus:
    """One resource that is not, or not wholly, in force, found while carrying the configuration out or checking it."""

    kind: str = ""
    name: str = ""
    reason: str = ""
    message: str = ""
    origin: str = ""

    def __str__(self) -> str:
        place = f"{self.origin}: " if self.origin else ""
        return f"{place}{self.kind} {self.name}: {self.message}"


@dataclass(frozen=True, slots=True)
class Status:
    """The whole node at one moment.

    Times are Unix seconds; ``ready`` means that the newest configuration is applied and verified.
    ``degraded`` as the phase means: something that a user configured is not in force, or does not work as configured.
    ``notes`` are what else is wrong, ``remarks`` what is worth knowing although the router works as it should.
    """

    schema_version: int = SCHEMA_VERSION
    pid: int = 0
    boot_id: str = ""
    started_at: float = 0.0
    updated_at: float = field(default=0.0, metadata=VOLATILE)
    version: str = ""
    node: str = ""
    node_index: int | None = None
    phase: Phase = "starting"
    ready: bool = False
    summary: str = ""
    generations: Generations = field(default_factory=Generations, metadata={"one": Generations})
    reload: ReloadStatus = field(default_factory=ReloadStatus, metadata={"one": ReloadStatus})
    actors: tuple[ActorStatus, ...] = field(default=(), metadata={"items": ActorStatus})
    daemons: dict[str, bool] = field(default_factory=dict)
    underlay: UnderlayStatus | None = field(default=None, metadata={"one": UnderlayStatus})
    sessions: tuple[SessionStatus, ...] = field(default=(), metadata={"items": SessionStatus})
    vnis: tuple[VniStatus, ...] = field(default=(), metadata={"items": VniStatus})
    problems: tuple[ProblemStatus, ...] = field(default=(), metadata={"items": ProblemStatus})
    failures: tuple[FailureStatus, ...] = field(default=(), metadata={"items": FailureStatus})
    notes: tuple[str, ...] = field(default=(), metadata=TEXTS)
    remarks: tuple[str, ...] = field(default=(), metadata=TEXTS)
    api: ApiStatus = field(default_factory=ApiStatus, metadata={"one": ApiStatus})

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the JSON document, on one line unless ``indent`` is given."""
        return json.dumps(_encode(self), indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Status:
        """Read a document written by any version of the same schema; raise :class:`StatusFormatError` otherwise."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise StatusFormatError(f"not JSON: {error}") from error
        return cls.from_data(document)

    @classmethod
    def from_data(cls, document: object) -> Status:
        """Read an already decoded document; errors as :meth:`from_json`."""
        if not isinstance(document, Mapping):
            raise StatusFormatError("not a JSON object")
        version = document.get("schema_version")
        if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
            raise StatusFormatError(f"schema version {version!r} is not known here (1 to {SCHEMA_VERSION} are)")
        return _decode(cls, document, "status")

    def essence(self) -> object:
        """Return what makes news: everything but ages, counters and the time of writing. Comparable with ``==``."""
        return _encode(self, volatile=False)


def _encode(value: object, *, volatile: bool = True) -> object:
    if is_dataclass(value):
        kept = [item for item in fields(value) if volatile or not item.metadata.get("volatile")]
        return {item.name: _encode(getattr(value, item.name), volatile=volatile) for item in kept}
    if isinstance(value, tuple):
        return [_encode(item, volatile=volatile) for item in value]
    if isinstance(value, dict):
        return dict(value)
    return value


def _decode(record: type[S], data: object, place: str) -> S:
    """Build a record from a mapping: unknown keys are ignored, missing ones take their defaults."""
    if not isinstance(data, Mapping):
        raise StatusFormatError(f"{place}: expected an object")
    values = {
        item.name: _decode_field(item, data[item.name], f"{place}.{item.name}")
        for item in fields(record)  # type: ignore[arg-type]  # every record here is a dataclass
        if item.name in data
    }
    return record(**values)


def _decode_field(item: Field[Any], value: object, place: str) -> object:
    metadata = item.metadata
    if "items" in metadata:
        return tuple(_decode(metadata["items"], one, f"{place}[{n}]") for n, one in enumerate(_listed(value, place)))
    if "texts" in metadata:
        return tuple(str(one) for one in _listed(value, place))
    if "one" in metadata:
        return None if value is None else _decode(metadata["one"], value, place)
    return _scalar(item, value, place)


def _scalar(item: Field[Any], value: object, place: str) -> object:
    expected = dict if item.default is MISSING else type(item.default)
    if expected is float and isinstance(value, int):
        return float(value)
    if item.default is not None and not isinstance(value, expected):
        raise StatusFormatError(f"{place}: expected {expected.__name__}, not {type(value).__name__}")
    return value


def _listed(value: object, place: str) -> list[object]:
    if not isinstance(value, list):
        raise StatusFormatError(f"{place}: expected a list")
    return value
