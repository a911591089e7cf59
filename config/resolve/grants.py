"""What the settings grant to objects of the API: which namespaces may decide what, and how many objects count.

Administrators of the node write its files and settings, and the program's own namespace holds what administrators of
the cluster write. Objects of any other namespace are their users': by themselves they decide about their own networks
only. A refusal names the setting that would grant it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from config.api import PLURALS, ApiObject
from config.models.types import ALL_NAMESPACES
from config.precedence import Precedence, Rank, Standing
from config.problems import Kind, Problem, Reason, ResourceId
from config.resources import Resource
from config.settings import Settings

from .findings import Findings, RefusedError

#: How many of the surplus objects of a kind have a problem of their own; one more problem counts the others.
NAMED: Final = 20
_STAYS: Final = "; it stays in force until it is changed"


@dataclass(frozen=True, slots=True)
class Grants:
    """``namespace`` is the program's own; ``most`` has the maximum of each kind, a kind without one is unlimited.

    ``raw_snippets``: whether objects of the API may be raw FRR snippets. ``duplicate_index``: whether the router may
    have addresses that another node has.
    """

    namespace: str = "openperouter-system"
    underlay_namespaces: frozenset[str] = frozenset()
    external_bridges: tuple[str, ...] = ()
    raw_snippets: bool = True
    most: Mapping[Kind, int] = field(default_factory=lambda: MappingProxyType({}))
    duplicate_index: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Grants:
        """Return what the settings say."""
        limits = settings.max_resources.model_dump(by_alias=True)
        return cls(
            settings.namespace,
            frozenset(settings.underlay_namespaces),
            settings.external_bridges,
            settings.raw_snippets_from_api,
            MappingProxyType({kind: limits[plural] for kind, plural in PLURALS.items()}),
            settings.allow_duplicate_index,
        )

    def is_own(self, resource: Resource) -> bool:
        """Whether a resource is an administrator's: from a file, or from the program's own namespace."""
        return resource.is_from_file or resource.namespace == self.namespace

    def may_decide(self, resource: Resource) -> bool:
        """Whether a resource may decide about the fabric's sessions, as an Underlay and an L3Passthrough do."""
        namespaces = (resource.namespace, ALL_NAMESPACES)
        return self.is_own(resource) or not self.underlay_namespaces.isdisjoint(namespaces)

    def passthrough_counts(self, passthrough: Resource, precedence: Precedence) -> bool:
        """Whether an L3Passthrough may be this node's: it joins the host to the underlay, and each session with it.

        One that was in force when the rule was introduced, or the setting narrowed, stays until it is edited.
        """
        stays = passthrough.id in precedence.standing and precedence.rank(passthrough) is Rank.UNCHANGED
        return stays or self.may_decide(passthrough)

    def check_passthrough(self, passthrough: Resource, precedence: Precedence, findings: Findings) -> None:
        """Raise :class:`RefusedError` unless an L3Passthrough may be this node's."""
        if self.may_decide(passthrough):
            return
        message = _does_not_count("L3Passthroughs", passthrough, self.namespace)
        if not self.passthrough_counts(passthrough, precedence):
            raise RefusedError(message)
        findings.warn(passthrough, f"{message}{_STAYS}")

    def underlay_counts(self, underlay: Resource, precedence: Precedence, findings: Findings) -> bool:
        """Whether an Underlay may be this node's. Raises :class:`RefusedError` if nothing may change because of it.

        One that was in force when the setting was introduced, or narrowed, stays until it is edited: without it the
        node would be cut off.
        """
        if self.may_decide(underlay):
            return True
        message = _does_not_count("Underlays", underlay, self.namespace)
        if underlay.id not in precedence.standing:
            if underlay.is_usable:
                findings.refuse(underlay, RefusedError(message, reason=Reason.UNDERLAY_FAILED))
            return False
        if precedence.rank(underlay) is not Rank.UNCHANGED:
            raise RefusedError(message, reason=Reason.UNDERLAY_FAILED)
        findings.warn(underlay, f"{message}{_STAYS}")
        return True

    def check_bridge(self, segment: Resource, bridge: str, field_name: str) -> None:
        """Raise :class:`RefusedError` unless a segment may be attached to an existing bridge of the host."""
        if self.is_own(segment) or any(fnmatchcase(bridge, pattern) for pattern in self.external_bridges):
            return
        message = (
            f"the host's bridge {bridge} is not open to namespace {segment.namespace}: add it to externalBridges in "
            f"the node's settings"
        )
        raise RefusedError(message, field_name)


def _does_not_count(plural: str, resource: Resource, own: str) -> str:
    return (
        f"{plural} of namespace {resource.namespace} do not count on this node: create it in {own}, "
        f"or add the namespace to underlayNamespaces in the node's settings"
    )


def within_limits(
    files: Iterable[Resource], objects: Sequence[ApiObject], standing: Standing, grants: Grants
) -> tuple[tuple[ApiObject, ...], tuple[Problem, ...]]:
    """Return the objects that count, in their order, and problems that name the others.

    Resources of files come first, then the objects in force, then those of the program's own namespace, then one of
    each other namespace in turn, so that no namespace takes the places of all others.
    """
    written = {resource.id for resource in files}
    used = Counter(one.kind for one in written)
    groups: defaultdict[Kind, list[ApiObject]] = defaultdict(list)
    for one in objects:
        if one.id not in written:
            groups[one.kind].append(one)
    surplus: set[ResourceId] = set()
    problems: list[Problem] = []
    for kind, group in groups.items():
        most = grants.most.get(kind)
        if most is not None and used[kind] + len(group) > most:
            left_out = _by_turns(group, standing, grants.namespace)[max(0, most - used[kind]) :]
            surplus.update(one.id for one in left_out)
            problems += _named(left_out, most)
    return tuple(one for one in objects if one.id not in surplus), tuple(problems)


def _by_turns(group: Iterable[ApiObject], standing: Collection[ResourceId], own: str) -> list[ApiObject]:
    places: Counter[tuple[bool, str]] = Counter()
    keyed = []
    for one in sorted(group, key=lambda one: (one.namespace, one.name)):
        new = one.id not in standing
        keyed.append(((new, one.namespace != own, places[new, one.namespace], one.namespace), one))
        places[new, one.namespace] += 1
    return [one for _, one in sorted(keyed, key=lambda pair: pair[0])]


def _named(left_out: Sequence[ApiObject], most: int) -> Iterable[Problem]:
    plural = PLURALS[left_out[0].kind]
    message = (
        f"not in force: this node takes at most {most} {plural}; raise maxResources.{plural} in the node's settings, "
        "or select the node with fewer objects"
    )
    for one in left_out[:NAMED]:
        yield Problem(message, one.origin, resource=one.id)
    rest = left_out[NAMED:]
    if rest:
        yield Problem(f"{message}; the same is true of {len(rest)} more", rest[0].origin, resource=rest[0].id)
