"""What the API server contributes: how it can be reached, and what it says about this node.

    ApiAccess (api_wait) -> ApiSnapshot (crd_watch) -> desired, mirror, announce

Not knowing is not "none": a snapshot is complete, or it is not published. When the server goes away the last one stays,
with ``live`` False. Objects are kept as the server sent them, and are validated where they are merged with the files
(:mod:`config.sources.api_objects`), so that one definition of a rule serves both and a remembered snapshot is read
again by whatever version of the program runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from config.desired import ResourceId, Secret
from config.problems import Kind, Origin

GROUP: Final = "network.openperouter.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
#: The resource names in the API's paths.
PLURALS: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        Kind.UNDERLAY: "underlays",
        Kind.L3VNI: "l3vnis",
        Kind.L2VNI: "l2vnis",
        Kind.L3PASSTHROUGH: "l3passthroughs",
        Kind.RAW_FRR_CONFIG: "rawfrrconfigs",
    }
)
NODE_STATUS_KIND: Final = "RouterNodeConfigurationStatus"
NODE_STATUS_PLURAL: Final = "routernodeconfigurationstatuses"
#: Labels of the objects that mirror files (reference 8.5), and the label by which they select their node.
SOURCE_LABEL: Final = "openperouter.github.io/source"
STATIC_SOURCE: Final = "static"
STATIC_NODE_LABEL: Final = "openperouter.github.io/static-node"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
#: Proves that this node wrote a mirrored object; a label alone proves nothing.
PROOF_ANNOTATION: Final = "openperouter.github.io/mirror-proof"
#: The node's index, on the Node (reference ARCH-14).
INDEX_ANNOTATION: Final = "openpe.io/nodeindex"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class ApiReach(StrEnum):
    """Where the way to the API server ends: no credentials, no answer, a refusal of the credentials, or an answer."""

    UNCONFIGURED = "unconfigured"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    REACHABLE = "reachable"


@dataclass(frozen=True, slots=True)
class ApiCredentials:
    """How to talk to one server. Certificates are PEM texts; ``source`` is the file that a user would mend.

    ``expires_at`` (Unix seconds) is when they have to be loaded again; None: when the files change.
    """

    server: str
    source: str = ""
    ca: str = ""
    token: Secret | None = None
    client_certificate: str = ""
    client_key: Secret | None = None
    server_name: str = ""
    verify: bool = True
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The way to the API server now. ``credentials`` stay set once the server answered to them, reachable or not.

    ``since`` is when ``reach`` began, in Unix seconds; ``detail`` says why it is not reachable, in one line.
    """

    reach: ApiReach
    credentials: ApiCredentials | None = None
    detail: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class ApiNode:
    """This node's own Node object."""

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class ApiObject:
    """One custom resource as the server sent it; ``spec`` is JSON data, nothing of it is checked.

    ``conditions`` are those of its status. ``created`` is the server's text (RFC 3339).
    """

    kind: Kind
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    owners: tuple[Mapping[str, Any], ...] = ()
    # Not shown: a password may be in it.
    spec: Any = field(default_factory=lambda: _NOTHING, repr=False)
    conditions: tuple[Mapping[str, Any], ...] = ()

    @property
    def id(self) -> ResourceId:
        """Return the resource's identity."""
        return ResourceId(self.kind, self.namespace, self.name)

    @property
    def origin(self) -> Origin:
        """Return the place that a user can open."""
        version = self.resource_version
        return Origin(namespace=self.namespace, name=self.name, resource_version=version, generation=self.generation)


class WatchFailure(StrEnum):
    """Why a server that answers does not say what there is: no right, no such kind, or it cannot read it itself."""

    REFUSED = "refused"
    MISSING = "not installed"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class NotFollowed:
    """Objects of which nothing new is heard since ``since`` (Unix seconds) although the server answers.

    ``resource`` is their plural. ``listed``: what a snapshot has of them is what the server said last; without it the
    server has not said once what there is, so a snapshot has none of them, which does not mean that there are none.
    """

    resource: str
    why: WatchFailure
    since: float
    listed: bool = True


@dataclass(frozen=True, slots=True)
class ApiSnapshot:
    """Everything the API server says about this node, complete but for what it does not say (``not_followed``).

    ``objects``: those whose node selector selects this node, or cannot be read; ``mirrored``: what this node itself
    wrote there (proven), whatever its labels say now; ``secrets``: the passwords that ``objects`` refer to, by
    (namespace, name of the Secret), None for one that is not there. ``node_status``: this node's
    RouterNodeConfigurationStatus object as it is, None when there is none. ``synced_at`` (Unix seconds) is when all of
    this was last known to be true; ``live`` False: the server is away since. ``chosen_by``: the labels that chose among
    the objects, those last known where there is no Node, None where none were ever known.
    """

    node: ApiNode | None = None
    objects: tuple[ApiObject, ...] = ()
    mirrored: tuple[ApiObject, ...] = ()
    secrets: Mapping[tuple[str, str], Secret | None] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    node_status: Mapping[str, Any] | None = None
    synced_at: float = 0.0
    live: bool = False
    not_followed: tuple[NotFollowed, ...] = ()
    chosen_by: Mapping[str, str] | None = None

    @property
    def doubts(self) -> tuple[NotFollowed, ...]:
        """Return what may be otherwise on the server: all that is not followed but kinds of which there was nothing."""
        there = {PLURALS[one.kind] for one in (*self.objects, *self.mirrored)}
        return tuple(one for one in self.not_followed if one.why is not WatchFailure.MISSING or one.resource in there)

    @property
    def unlisted(self) -> frozenset[Kind]:
        """Return the kinds of which the server has not said once what there is."""
        never = {one.resource for one in self.not_followed if not one.listed}
        return frozenset(kind for kind, plural in PLURALS.items() if plural in never)

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the node's labels, none when the Node is not there."""
        return self.node.labels if self.node else _NOTHING
