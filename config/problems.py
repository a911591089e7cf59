"""Which resource, where it was written, and what is wrong with it.

Every resource keeps its :class:`ResourceId` and :class:`Origin` from the file or object that a user wrote through to
logs, status and ``openperouter show``, so that a message names the resource as its user does and the place to fix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A place that a user can open: ``path:line:column``, or ``namespace/name@resourceVersion`` for an API object.

    An object's ``generation`` grows with each change of its spec. The resource version grows with its status as well,
    so it is shown but does not make another origin: else reporting on an object would look like a change of it.
    """

    path: str = ""
    line: int = 0
    column: int = 0
    namespace: str = ""
    name: str = ""
    resource_version: str = field(default="", compare=False)
    generation: int = 0

    def __str__(self) -> str:
        if self.path:
            position = ":".join(str(number) for number in (self.line, self.column) if number)
            return f"{self.path}:{position}" if position else self.path
        version = f"@{self.resource_version}" if self.resource_version else ""
        return f"{self.namespace}/{self.name}{version}"


class Severity(StrEnum):
    """How bad a problem is: an error takes something out of force, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Reason(StrEnum):
    """Machine-readable causes; the first four equal upstream's ``failedResources[].reason`` (reference 2.9)."""

    VALIDATION_FAILED = "ValidationFailed"
    DEPENDENCY_FAILED = "DependencyFailed"
    OVERLAY_ATTACHMENT_FAILED = "OverlayAttachmentFailed"
    FRR_CONFIGURATION_FAILED = "FrrConfigurationFailed"
    FILE_INVALID = "FileInvalid"
    UNDERLAY_FAILED = "UnderlayFailed"
    DUPLICATE_INDEX = "DuplicateIndex"
    PROBE_FAILED = "ProbeFailed"


class Kind(StrEnum):
    """Resource kinds, spelled as in the API."""

    UNDERLAY = "Underlay"
    L3VNI = "L3VNI"
    L2VNI = "L2VNI"
    L3PASSTHROUGH = "L3Passthrough"
    RAW_FRR_CONFIG = "RawFRRConfig"


@dataclass(frozen=True, slots=True)
class ResourceId:
    """Which resource: kind, namespace and name, which are unique on a node and are those of its object in the API.

    A resource from a file has a derived name there (``static-<node>-red``). ``label`` is what its file calls it
    (``red``), empty for an object of the API; it is for messages and no part of the identity.
    """

    kind: Kind
    namespace: str
    name: str
    label: str = field(default="", compare=False)

    @property
    def display_name(self) -> str:
        """Return the name that its user knows, unique within its kind: the file's, or an object's namespace/name."""
        return self.label or f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.display_name}"


#: What an unusable underlay means for the node.
RUNNING_KEPT: Final = "the running configuration is kept"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing for a user to fix.

    ``field`` is the dotted path inside the resource or file (``l3vnis[0].hostSession.asn``); ``message`` says what is
    wrong and what was expected; ``in_force`` says what stays in force meanwhile; ``resource`` is None when it concerns
    a file as a whole. No secret ever enters a problem.
    """

    message: str
    origin: Origin
    field: str = ""
    severity: Severity = Severity.ERROR
    reason: Reason = Reason.VALIDATION_FAILED
    resource: ResourceId | None = None
    in_force: str = ""

    @property
    def kind(self) -> Kind | None:
        """Return the resource's kind, None when the problem concerns a file as a whole."""
        return self.resource.kind if self.resource else None

    @property
    def name(self) -> str:
        """Return the resource's name as its user knows it, empty when the problem concerns a file as a whole."""
        return self.resource.display_name if self.resource else ""

    def __str__(self) -> str:
        subject = f"{self.resource}: " if self.resource else ""
        field = f"{self.field}: " if self.field else ""
        tail = f" ({self.in_force})" if self.in_force else ""
        return f"{self.origin}: {self.severity}: {subject}{field}{self.message}{tail}"


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Return those that take something out of force."""
    return [problem for problem in problems if problem.severity is Severity.ERROR]
