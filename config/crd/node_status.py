"""A node's report in the API: the status of its RouterNodeConfigurationStatus object.

The shape is upstream's (reference 2.9) with three more lists: the observed generation of each object, the BGP sessions,
the VNIs. Nothing in it changes by itself (no ages, no counters), so the status of a converged node is not written
again.

The API server refuses a whole status for one text that is too long, empty, or not in its enum. So build these values
with :func:`failed_resource`, :func:`observed_resource`, :func:`session_state`, :func:`vni_state` and
:func:`node_status`: whatever text goes in, a legal value comes out. Sessions and VNIs come from
:mod:`config.outcomes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import Field

from config.desired import RouterAddresses
from config.models.base import Model
from config.outcomes import SessionHealth, VniHealth
from config.problems import Kind, Reason

from .conditions import Condition, Conditions, legal_text

#: Upstream's kinds, and those that it forgot: raw snippets, and a file that cannot be read at all.
FailedKind = Literal["Underlay", "L2VNI", "L3VNI", "FrrConfiguration", "L3Passthrough", "RawFRRConfig", "File"]
#: Upstream's reasons.
FailedReason = Literal["ValidationFailed", "DependencyFailed", "OverlayAttachmentFailed", "FrrConfigurationFailed"]
ConfigKind = Literal["Underlay", "L3VNI", "L2VNI", "L3Passthrough", "RawFRRConfig"]
VniKind = Literal["L3VNI", "L2VNI"]
Role = Literal["fabric", "host"]

#: The states that are written, with their meanings. For an unreachable peer FRR cycles through its other states (Idle,
#: Connect, Active, OpenSent ...), and each would be a write: all of them are ``SESSION_DOWN``.
SESSION_STATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Established": "routes are exchanged",
        "Listening": "a listen range that accepts sessions, each of which has its own entry",
        "Idle (Admin)": "shut down by configuration",
        "Idle (PfxCt)": "shut down after too many prefixes",
        "Missing": "configured, but not in bgpd",
        "Unknown": "bgpd does not answer",
        "Down": "any other state",
    }
)
SESSION_DOWN: Final = "Down"
#: The same for BFD; the way up (``init``) is ``BFD_DOWN``.
BFD_STATES: Final = ("up", "shutdown", "down")
BFD_DOWN: Final = "down"

#: The whole object must stay well below etcd's 1.5 MiB with the longest names and messages that occur.
MAX_FAILED: Final = 128
MAX_RESOURCES: Final = 2048
MAX_SESSIONS: Final = 1024
MAX_VNIS: Final = 1024
MAX_MESSAGE: Final = 500
MAX_NAME: Final = 253
_MAX_NAMESPACE: Final = 63
_MAX_WORD: Final = 64
_UNNAMED: Final = "unknown"
_REASONS: Final[Mapping[Reason, FailedReason]] = MappingProxyType(
    {
        Reason.VALIDATION_FAILED: "ValidationFailed",
        Reason.DEPENDENCY_FAILED: "DependencyFailed",
        Reason.OVERLAY_ATTACHMENT_FAILED: "OverlayAttachmentFailed",
        Reason.FRR_CONFIGURATION_FAILED: "FrrConfigurationFailed",
        Reason.FILE_INVALID: "ValidationFailed",
        Reason.UNDERLAY_FAILED: "DependencyFailed",
        Reason.DUPLICATE_INDEX: "ValidationFailed",
        Reason.PROBE_FAILED: "OverlayAttachmentFailed",
    }
)


_Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
_Namespace = Annotated[str, Field(max_length=_MAX_NAMESPACE)]
_Word = Annotated[str, Field(max_length=_MAX_WORD)]
T = TypeVar("T")


class FailedResource(Model):
    """One resource that is not, or only partly, in force on the node."""

    kind: FailedKind = Field(description="Kind of the resource; File: a configuration file as a whole.")
    name: _Name = Field(description="Name of the resource or file.")
    namespace: _Namespace | None = Field(default=None, description="Namespace of the resource.")
    reason: FailedReason = Field(description="Reason of the failure.")
    message: str = Field(min_length=1, max_length=MAX_MESSAGE, description="What is wrong and how to fix it.")


class ObservedResource(Model):
    """One object of the API that selects the node."""

    kind: ConfigKind = Field(description="Kind of the object.")
    namespace: _Namespace | None = Field(default=None, description="Namespace of the object.")
    name: _Name = Field(description="Name of the object.")
    observed_generation: int = Field(
        strict=True, ge=0, description="The object's metadata.generation that this status is about."
    )
    in_force: bool = Field(
        strict=True,
        description="Whether that generation is in force on this node; if not, failedResources has the reason.",
    )


class SessionState(Model):
    """One BGP session of the node."""

    peer: _Name = Field(description="The peer's address, or the interface of an unnumbered session.")
    vrf: _Word = Field(description="VRF of the session; default: the underlay's.")
    remote_asn: int | None = Field(
        default=None, alias="remoteASN", strict=True, ge=0, le=4294967295, description="The peer's AS number."
    )
    role: Role = Field(description="fabric: a peer in the underlay; host: the host's own BGP speaker.")
    state: _Word = Field(description="; ".join(f"{word}: {meaning}" for word, meaning in SESSION_STATES.items()) + ".")
    up: bool = Field(strict=True, description="Whether the session is established.")
    bfd: _Word | None = Field(
        default=None, description=f"BFD: {', '.join(BFD_STATES)}; absent if the session does not use it."
    )


class VniState(Model):
    """One VNI of the node."""

    kind: VniKind = Field(description="Kind of the resource that configures the VNI.")
    namespace: _Namespace | None = Field(default=None, description="Namespace of that resource.")
    name: _Name = Field(description="Name of that resource.")
    vni: int = Field(strict=True, ge=1, le=16777215, description="VXLAN network identifier.")
    vrf: _Word | None = Field(default=None, description="VRF that the VNI belongs to, if any.")
    ok: bool = Field(strict=True, description="Whether both the kernel and FRR have the VNI as configured.")
    detail: str | None = Field(
        default=None, min_length=1, max_length=MAX_MESSAGE, description="What is missing if ok is false."
    )


class RouterState(Model):
    """The addresses of the node's router, which no other router may have."""

    node_index: int = Field(strict=True, ge=0, description="The node's index, from which the addresses follow.")
    router_id: _Word = Field(alias="routerID", description="The BGP router ID.")
    tunnel_endpoints: tuple[_Word, ...] = Field(default=(), max_length=2, description="The tunnel endpoints.")
    in_force: bool = Field(
        strict=True, description="Whether the router has them. false: it waits, because another node has them."
    )


class NodeStatus(Model):
    """The result of applying the configuration on one node."""

    conditions: Conditions = Field(
        default=(), description="The conditions Ready and Degraded, and DuplicateIndex once that was true."
    )
    router: RouterState | None = Field(default=None, description="The router's addresses; absent without an underlay.")
    failed_resources: tuple[FailedResource, ...] = Field(
        default=(), max_length=MAX_FAILED, description="Resources that are not in force on this node."
    )
    resources: tuple[ObservedResource, ...] = Field(
        default=(), max_length=MAX_RESOURCES, description="Objects that select this node, each with its generation."
    )
    sessions: tuple[SessionState, ...] = Field(
        default=(), max_length=MAX_SESSIONS, description="BGP sessions with the fabric and with the host."
    )
    vnis: tuple[VniState, ...] = Field(default=(), max_length=MAX_VNIS, description="VNIs in force on this node.")
    omitted: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        description="Number of entries omitted because the size of an object is limited.",
    )

    def to_data(self) -> dict[str, Any]:
        """Return the JSON data to write as ``status``: camelCase keys, without what is not set."""
        data = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {key: value for key, value in data.items() if value != []}


def failed_resource(
    kind: Kind | None, name: str, reason: Reason, message: str, *, namespace: str = ""
) -> FailedResource:
    """Return a legal entry; ``kind`` None is a file as a whole."""
    return FailedResource.model_validate(
        {
            "kind": "File" if kind is None else kind.value,
            "name": legal_text(name, MAX_NAME, _UNNAMED),
            "namespace": _optional(namespace, _MAX_NAMESPACE),
            "reason": _REASONS[reason],
            "message": legal_text(message, MAX_MESSAGE, "no reason given"),
        }
    )


def frr_failure(message: str) -> FailedResource:
    """Return a legal entry about FRR's configuration as a whole, which no single resource broke."""
    return FailedResource.model_validate(
        {
            "kind": "FrrConfiguration",
            "name": "frr",
            "reason": "FrrConfigurationFailed",
            "message": legal_text(message, MAX_MESSAGE, "no reason given"),
        }
    )


def observed_resource(
    kind: Kind, name: str, generation: int, *, in_force: bool, namespace: str = ""
) -> ObservedResource:
    """Return a legal entry."""
    return ObservedResource.model_validate(
        {
            "kind": kind.value,
            "name": legal_text(name, MAX_NAME, _UNNAMED),
            "namespace": _optional(namespace, _MAX_NAMESPACE),
            "observedGeneration": max(generation, 0),
            "inForce": in_force,
        }
    )


def session_state(session: SessionHealth) -> SessionState:
    """Return a legal entry; the AS number is absent as long as FRR does not know it."""
    return SessionState.model_validate(
        {
            "peer": legal_text(session.peer, MAX_NAME, _UNNAMED),
            "vrf": legal_text(session.vrf, _MAX_WORD, "default"),
            "remoteASN": session.remote_as if 0 < session.remote_as <= 4294967295 else None,
            "role": session.role if session.role in get_args(Role) else "fabric",
            "state": session.state if session.state in SESSION_STATES else SESSION_DOWN,
            "up": session.up,
            "bfd": (session.bfd if session.bfd in BFD_STATES else BFD_DOWN) if session.bfd else None,
        }
    )


def router_state(addresses: RouterAddresses, *, in_force: bool) -> RouterState:
    """Return a legal entry."""
    return RouterState.model_validate(
        {
            "nodeIndex": addresses.index,
            "routerID": addresses.router_id,
            "tunnelEndpoints": addresses.tunnel_endpoints,
            "inForce": in_force,
        }
    )


def vni_state(vni: VniHealth) -> VniState:
    """Return a legal entry for a configured VNI."""
    return VniState.model_validate(
        {
            "kind": vni.resource.kind.value,
            "name": legal_text(vni.resource.name, MAX_NAME, _UNNAMED),
            "namespace": _optional(vni.resource.namespace, _MAX_NAMESPACE),
            "vni": vni.vni,
            "vrf": _optional(vni.vrf, _MAX_WORD),
            "ok": vni.ok,
            "detail": None if vni.ok else _optional(vni.detail, MAX_MESSAGE),
        }
    )


def node_status(
    conditions: Sequence[Condition],
    *,
    failed: Iterable[FailedResource] = (),
    resources: Iterable[ObservedResource] = (),
    sessions: Iterable[SessionState] = (),
    vnis: Iterable[VniState] = (),
    router: RouterState | None = None,
) -> NodeStatus:
    """Return a legal status: each entry once, long lists cut with ``omitted`` counting what is missing.

    ``failed`` keeps its order (that in which failures were found); the others are sorted, so that the same state is
    always the same status.
    """
    kept: dict[str, tuple[Any, ...]] = {
        "failedResources": tuple(dict.fromkeys(failed)),
        "resources": _sorted(resources, "kind", "namespace", "name"),
        "sessions": _sorted(sessions, "role", "vrf", "peer"),
        "vnis": _sorted(vnis, "kind", "namespace", "name"),
    }
    limits = {"failedResources": MAX_FAILED, "resources": MAX_RESOURCES, "sessions": MAX_SESSIONS, "vnis": MAX_VNIS}
    omitted = sum(max(0, len(entries) - limits[key]) for key, entries in kept.items())
    cut = {key: entries[: limits[key]] for key, entries in kept.items()}
    whole = {"conditions": tuple(conditions), "router": router, **cut, "omitted": omitted or None}
    return NodeStatus.model_validate(whole)


def _sorted(entries: Iterable[T], *keys: str) -> tuple[T, ...]:
    return tuple(sorted(dict.fromkeys(entries), key=lambda entry: [getattr(entry, key) or "" for key in keys]))


def _optional(text: str, limit: int) -> str | None:
    return legal_text(text, limit, "") or None
