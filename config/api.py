"""What the API server contributes: how it can be reached, and what it has for this node.

    ApiAccess (api_wait) -> ApiSnapshot (crd_watch) -> desired, mirror, status_writer

Not knowing is not "none": a snapshot is complete, or it is not published. When the server becomes unreachable the last
one stays, with ``live`` False. Objects are kept as the server sent them, and are validated where they are merged with
the files (:mod:`config.sources.api_objects`), so that one definition of a rule serves both, and a saved snapshot is
validated by whatever version of the program runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from config.desired import RouterAddresses, Secret
from config.problems import Kind, Origin, ResourceId

GROUP: Final = "network.openperouter.io"
#: The name of the group in early versions of upstream.
RETIRED_GROUP: Final = "openpe.openperouter.github.io"
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
#: The kinds with sessions that may name a Secret; underlays first.
WITH_PASSWORDS: Final = (Kind.UNDERLAY, Kind.L3VNI, Kind.L3PASSTHROUGH)
#: That of the objects with the passwords.
SECRETS: Final = "secrets"
NODE_STATUS_KIND: Final = "RouterNodeConfigurationStatus"
NODE_STATUS_PLURAL: Final = "routernodeconfigurationstatuses"
#: Labels of the objects that mirror files (reference 8.5), and the label by which they select their node.
SOURCE_LABEL: Final = "openperouter.github.io/source"
STATIC_SOURCE: Final = "static"
STATIC_NODE_LABEL: Final = "openperouter.github.io/static-node"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
#: Shows that this node wrote a mirrored object; a label alone does not.
PROOF_ANNOTATION: Final = "openperouter.github.io/mirror-proof"
#: The field manager of a node's own writes of its status, its Events and its index.
NODE_MANAGER: Final = "openperouter"
#: The node's index, on the Node (reference ARCH-14).
INDEX_ANNOTATION: Final = "openpe.io/nodeindex"
#: The index of the router that is in force or waits to be, on the node's status object: nodes select by it.
INDEX_LABEL: Final = "openperouter.github.io/node-index"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class ApiReach(StrEnum):
    """How far a connection to the API server gets: no credentials, no answer, credentials refused, or an answer."""

    UNCONFIGURED = "unconfigured"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    REACHABLE = "reachable"


@dataclass(frozen=True, slots=True)
class ApiCredentials:
    """How to connect to one server. Certificates are PEM texts; ``source`` is the file that a user would edit.

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
    """How the API server can be reached now. ``credentials`` stay set once a server answered to them.

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
    """One custom resource as the server sent it; ``spec`` is JSON data that is not validated.

    ``created`` is the server's text (RFC 3339).
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
    # Not in the repr: a password may be in it.
    spec: Any = field(default_factory=lambda: _NOTHING, repr=False)

    @property
    def id(self) -> ResourceId:
        """Return the resource's identity."""
        return ResourceId(self.kind, self.namespace, self.name)

    @property
    def origin(self) -> Origin:
        """Return where a user finds it."""
        version = self.resource_version
        return Origin(namespace=self.namespace, name=self.name, resource_version=version, generation=self.generation)


@dataclass(frozen=True, slots=True)
class OtherRouter:
    """Another node's router, by that node's status object.

    ``created`` is the object's, as the server's text (RFC 3339, UTC); ``in_force`` False: it waits for its addresses.
    """

    node: str
    created: str
    addresses: RouterAddresses
    in_force: bool


class WatchFailure(StrEnum):
    """Why a server that answers does not serve a collection: forbidden, no such kind, or an error of its own."""

    REFUSED = "refused"
    MISSING = "not installed"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class NotFollowed:
    """Objects that the server has not served since ``since`` (Unix seconds) although it answers.

    ``resource`` is their plural. ``listed``: a snapshot has them as they were last known; without it they were never
    listed, so a snapshot has none of them, which does not mean that there are none.
    """

    resource: str
    why: WatchFailure
    since: float
    listed: bool = True


@dataclass(frozen=True, slots=True)
class ApiSnapshot:
    """Everything the API server has for this node, except for what it does not serve (``not_followed``).

    ``objects``: those whose node selector selects this node, or cannot be read; ``mirrored``: what this node itself
    wrote (signed), whatever its labels say now; ``secrets``: the passwords that ``objects`` refer to, by (namespace,
    name of the Secret, key), None where there is none. ``node_status``: this node's
    RouterNodeConfigurationStatus object as it is, None when there is none. ``synced_at`` (Unix seconds) is when all of
    this was last known to be true; ``live`` False: the server is unreachable since then. ``chosen_by``: the labels
    that selected the objects, those last known where there is no Node, None where none were ever known. ``others`` are
    the routers with about the index ``others_of``, None where that was not asked for.
    """

    node: ApiNode | None = None
    objects: tuple[ApiObject, ...] = ()
    mirrored: tuple[ApiObject, ...] = ()
    secrets: Mapping[tuple[str, str, str], Secret | None] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    node_status: Mapping[str, Any] | None = None
    synced_at: float = 0.0
    live: bool = False
    not_followed: tuple[NotFollowed, ...] = ()
    chosen_by: Mapping[str, str] | None = None
    others: tuple[OtherRouter, ...] = ()
    others_of: int | None = None

    @property
    def doubts(self) -> tuple[NotFollowed, ...]:
        """Return what may differ on the server: all that is not followed, except for missing kinds without objects."""
        there = {PLURALS[one.kind] for one in (*self.objects, *self.mirrored)}
        return tuple(one for one in self.not_followed if one.why is not WatchFailure.MISSING or one.resource in there)

    @property
    def unlisted(self) -> frozenset[Kind]:
        """Return the kinds that were never listed."""
        never = {one.resource for one in self.not_followed if not one.listed}
        return frozenset(kind for kind, plural in PLURALS.items() if plural in never)

    @property
    def lacks_secrets(self) -> bool:
        """Whether there are Secrets that were never read."""
        return any(one.resource == SECRETS and not one.listed for one in self.not_followed)

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the node's labels, none without a Node."""
        return self.node.labels if self.node else _NOTHING
