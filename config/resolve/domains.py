"""Which L3VNI the name in a segment's routing domain refers to, across files and API.

An entry of a file refers to the L3VNI of the files with that short name, else the API's in the files' namespace, else
the only one of that name in any other namespace. An object of the API refers to the L3VNI of its own namespace, else
that of the files, by its short name or by the long one of its mirror. Either may name another namespace. The L3VNI
decides which objects of other namespaces it routes (``allowedNamespaces``). What is configured counts, valid or not: a
segment must not change its network because a file is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from config.models.types import ALL_NAMESPACES
from config.precedence import Standing
from config.problems import Kind, Reason, ResourceId
from config.resources import Resource
from config.sources.naming import resource_name

from .findings import Findings, RefusedError

#: Where a segment names its routing domain.
DOMAIN_FIELD = "routingDomain.l3vni.name"


class Domains:
    """The L3VNIs that are configured for a node."""

    def __init__(self, l3vnis: Iterable[Resource], node_name: str, standing: Standing) -> None:
        self._l3vnis = {resource.id: resource for resource in l3vnis}
        self._of_files = {one.name: one for one in self._l3vnis.values() if one.is_from_file}
        self._node_name = node_name
        self._standing = standing

    def find(self, segment: Resource, findings: Findings) -> Resource | None:
        """Return the routing domain of a valid L2VNI, None without one. Raises :class:`RefusedError`."""
        written = segment.spec.routing_domain
        if written is None or written.l3vni is None:
            return None
        name: str = written.l3vni.name
        if written.l3vni.namespace is not None:
            found = self._l3vnis.get(ResourceId(Kind.L3VNI, written.l3vni.namespace, name))
        else:
            found = next(self._by_order(segment, name), None)
            if found is None and segment.is_from_file:
                found = self._in_other_namespaces(segment, name, findings)
        if found is None:
            raise RefusedError(f'referenced L3VNI "{name}" not found', DOMAIN_FIELD, Reason.DEPENDENCY_FAILED)
        if not _admits(found, segment):
            message = (
                f"{found.id} does not route L2VNIs of namespace {segment.namespace}: add the namespace to its "
                "allowedNamespaces"
            )
            raise RefusedError(message, DOMAIN_FIELD, Reason.DEPENDENCY_FAILED)
        return found

    def _by_order(self, segment: Resource, name: str) -> Iterator[Resource]:
        own = self._l3vnis.get(ResourceId(Kind.L3VNI, segment.namespace, name))
        of_files = [self._of_files.get(word) for word in (resource_name(self._node_name, name), name)]
        ordered = (*of_files, own) if segment.is_from_file else (own, *of_files)
        return (one for one in ordered if one is not None)

    def _in_other_namespaces(self, segment: Resource, name: str, findings: Findings) -> Resource | None:
        """Return the only L3VNI of that name; of several the one that is in force for this segment."""
        found = sorted((one for one in self._l3vnis.values() if one.name == name), key=lambda one: one.namespace)
        if len(found) < 2:
            return next(iter(found), None)
        held = self._standing.get(segment.id)
        kept = next((one for one in found if held is not None and one.id == held.domain), None)
        several = f'"{name}" is ambiguous: {", ".join(str(one.id) for one in found)}'
        if kept is None:
            raise RefusedError(f"{several}; use a unique name", DOMAIN_FIELD, Reason.DEPENDENCY_FAILED)
        findings.warn(segment, f"{several}; it stays in {kept.id} as before", DOMAIN_FIELD)
        return kept


def _admits(l3vni: Resource, segment: Resource) -> bool:
    """Whether an L3VNI may route a segment. What an invalid one says is unknown, and it routes nothing anyway."""
    if segment.is_from_file or segment.namespace == l3vni.namespace or not l3vni.is_usable:
        return True
    allowed: tuple[str, ...] = l3vni.spec.allowed_namespaces
    return not {segment.namespace, ALL_NAMESPACES}.isdisjoint(allowed)
