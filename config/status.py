"""The router's status: what systemd's STATUS=, the state file, the control socket and ``openperouter status`` show.

The report actor builds a :class:`Status` from the other actors' newest values; sessions, VNIs, interfaces, problems and
failures are those values themselves. No member could carry a secret. Its JSON form is versioned: a reader ignores
members it does not know, and fills in defaults for later additions that it misses, so that a command line understands
an older or newer daemon. In JSON a resource is flat (``kind``, ``namespace``,
``name``; a file's has no namespace) and an origin is its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from config.desired import ResourceFailure
from config.outcomes import InterfaceHealth, ProbeHealth, SessionHealth, VniHealth
from config.problems import Origin, Problem

#: Grows only when a member changes its meaning; additions keep it.
SCHEMA_VERSION: Final = 1

Phase = Literal["starting", "running", "degraded", "reloading", "stopping"]
Scalar = str | int | float | bool | None


def what_remains(problems: int) -> str:
    """Return what a reload or the end of a trial has come to, in words, when so many problems are left."""
    remain = "1 problem remains" if problems == 1 else f"{problems} problems remain"
    return f"{remain}; everything else is in force"


class StatusFormatError(ValueError):
    """The text is not a status document that this version can read."""


@dataclass(frozen=True, slots=True)
class ActorStatus:
    """One child of the supervisor.

    ``state`` is the tree's (``running``, ``starting``, ``backoff`` ...); ``activity`` names a declared long call;
    ``progress_age_seconds`` is the time since the last unit of work; ``causes`` counts failures that
    led to a restart.
    """

    name: str = ""
    state: str = ""
    restarts: int = 0
    last_error: str = ""
    critical: bool = False
    incarnation: int = 1
    mode: str = ""
    activity: str = ""
    progress_age_seconds: float = 0.0
    facts: dict[str, Scalar] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Generations:
    """The newest generation that each stage has reached; 0 is none yet. ``verified`` trails the others."""

    desired: int = 0
    frr: int = 0
    kernel: int = 0
    verified: int = 0


@dataclass(frozen=True, slots=True)
class ReloadStatus:
    """How far the newest reload requests have come: each number is a reload id, 0 is none.

    ``failed`` is the newest request whose configuration FRR or the kernel refused, ``reason`` why, in one line.
    """

    requested: int = 0
    taken_in: int = 0
    verified: int = 0
    failed: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ApiStatus:
    """The connection to the API server, and what the router has from it.

    ``reach`` is ``unconfigured``, ``unreachable``, ``refused`` or ``reachable`` since the Unix second ``since``, empty
    before the first probe; ``detail`` says why the server is not reachable. ``objects`` select this node, ``mirrored``
    are those that it wrote itself; ``source`` is where they come from: ``server``, ``memory`` (the saved snapshot) or
    ``none``. ``live``: they are current; otherwise they were last known to be true ``snapshot_age_seconds`` ago.
    ``not_followed`` lists objects that are not updated although the server answers, why, and since when.
    ``expires_at`` is the Unix second at which the credentials expire, 0 if they state none.
    """

    reach: str = ""
    server: str = ""
    detail: str = ""
    since: float = 0.0
    source: str = "none"
    live: bool = False
    objects: int = 0
    mirrored: int = 0
    not_followed: tuple[str, ...] = ()
    snapshot_age_seconds: float = 0.0
    expires_at: float = 0.0


@dataclass(frozen=True, slots=True)
class UnderlayStatus:
    """The fabric side as configured, with its interfaces as they are. Addresses in text, VTEPs ``address/length``."""

    name: str = ""
    origin: str = ""
    asn: int = 0
    router_id: str = ""
    vteps: tuple[str, ...] = ()
    interfaces: tuple[InterfaceHealth, ...] = ()
    mtu: int = 0


_NOWHERE: Final = Origin()


def _flatten(value: VniHealth | ProbeHealth | Problem | ResourceFailure, flat: dict[str, Any]) -> dict[str, Any]:
    """Return a value's JSON data without its nested resource and origin."""
    resource = flat.pop("resource") or {"kind": "", "namespace": "", "name": "", "label": ""}
    # A file's resource has no namespace of its user's making: it goes by the name in the file.
    if label := resource.pop("label"):
        resource |= {"namespace": "", "name": label}
    return resource | flat | {"origin": "" if value.origin == _NOWHERE else str(value.origin)}


def _nest(stored: Any) -> Any:
    """Undo :func:`_flatten`; an origin stays the text that it was, which is all that is ever shown of it."""
    if not isinstance(stored, Mapping):
        return stored
    resource = {key: stored.get(key, "") for key in ("kind", "namespace", "name")}
    resource["label"] = "" if resource["namespace"] else resource["name"]
    origin = {"path": stored.get("origin", "")}
    return {**stored, "resource": resource if resource["kind"] else None, "origin": origin}


_NESTED: Final = BeforeValidator(_nest)


@dataclass(frozen=True, slots=True)
class Status:
    """The whole node at one moment.

    Times are Unix seconds; ``ready`` means that the newest configuration is applied and verified. The phase is
    ``degraded`` when something that a user configured is not in force, or does not work as configured. ``notes`` are
    further faults, ``remarks`` are worth knowing although the router works as it should.
    """

    schema_version: int = SCHEMA_VERSION
    pid: int = 0
    boot_id: str = ""
    started_at: float = 0.0
    updated_at: float = 0.0
    version: str = ""
    node: str = ""
    node_index: int | None = None
    phase: Phase = "starting"
    ready: bool = False
    summary: str = ""
    generations: Generations = field(default_factory=Generations)
    reload: ReloadStatus = field(default_factory=ReloadStatus)
    actors: tuple[ActorStatus, ...] = ()
    daemons: dict[str, bool] = field(default_factory=dict)
    underlay: UnderlayStatus | None = None
    sessions: tuple[SessionHealth, ...] = ()
    vnis: tuple[Annotated[VniHealth, _NESTED], ...] = ()
    probes: tuple[Annotated[ProbeHealth, _NESTED], ...] = ()
    problems: tuple[Annotated[Problem, _NESTED], ...] = ()
    failures: tuple[Annotated[ResourceFailure, _NESTED], ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    api: ApiStatus = field(default_factory=ApiStatus)

    def to_json(self) -> str:
        """Return the JSON document on one line.

        It can always be encoded: a file's name, for instance, need not be UTF-8, and shows with question marks then.
        No schema is needed for it, which a daemon's start would have to compile.
        """
        data = to_jsonable_python(self)
        for session, found in zip(self.sessions, data["sessions"], strict=True):
            found["up"] = session.up
        for name in ("vnis", "probes", "problems", "failures"):
            data[name] = [_flatten(*pair) for pair in zip(getattr(self, name), data[name], strict=True)]
        text = json.dumps(data, ensure_ascii=False)
        return text.encode("utf-8", "replace").decode("utf-8")

    @classmethod
    def from_json(cls, text: str | bytes) -> Status:
        """Read a document written by any version of the same schema; raise :class:`StatusFormatError` otherwise."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise StatusFormatError(f"not JSON: {error}") from error
        return cls.from_data(document)

    @classmethod
    def from_data(cls, document: object) -> Status:
        """Read an already decoded document; errors as :meth:`from_json`."""
        if not isinstance(document, Mapping):
            raise StatusFormatError("not a JSON object")
        version = document.get("schema_version")
        if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
            raise StatusFormatError(f"schema version {version!r} is not supported (1 to {SCHEMA_VERSION} are)")
        try:
            return _adapter().validate_python(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in ("status", *first["loc"]))
            raise StatusFormatError(f"{place}: {first['msg']}") from error

    def essence(self) -> tuple[object, ...]:
        """Return all values but what changes by itself: ages, counters and the time of writing. Only to be compared."""
        return (
            *_STATUS(self),
            list(map(_ACTOR, self.actors)),
            list(map(_SESSION, self.sessions)),
            list(map(_VNI, self.vnis)),
            list(map(_PROBE, self.probes)),
            _API(self.api),
        )


def _all_but(model: type[Any], *names: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that takes the values of a dataclass without those of some members.

    A node with hundreds of VNIs compares its status at each change, and copies without them would cost ten times more.
    """
    return attrgetter(*(member.name for member in fields(model) if member.name not in names))


_STATUS: Final = _all_but(Status, "updated_at", "actors", "sessions", "vnis", "probes", "api")
_ACTOR: Final = _all_but(ActorStatus, "mode", "activity", "progress_age_seconds", "facts")
_SESSION: Final = _all_but(SessionHealth, "uptime_seconds", "prefixes_received", "flaps")
_VNI: Final = _all_but(VniHealth, "remote_vteps", "routes", "evpn_received", "evpn_advertised")
_PROBE: Final = _all_but(ProbeHealth, "rtt_seconds", "sent", "lost")
_API: Final = _all_but(ApiStatus, "snapshot_age_seconds")


@cache
def _adapter() -> TypeAdapter[Status]:
    """Return the compiled schema; a program that reads no status does not pay for it."""
    return TypeAdapter(Status)
