"""From everything that users wrote to the one value that this node should be.

    resources -> underlay -> precedence -> overlays, one by one -> DesiredState, problems, standing

A pure function of its arguments, independent of the order of the resources and of where they come from. Resources fail
alone: one that breaks a rule takes itself and its dependents out, named in the problems, and everything else proceeds.
Of two that conflict, the one in force stays (:mod:`config.precedence`). Only the underlay is different: while it is not
usable nothing may change: then ``desired`` is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from config.desired import DesiredRawFRR, DesiredState
from config.outcomes import NodeIdentity
from config.precedence import NOTHING_IN_FORCE, Held, Precedence, Standing
from config.problems import Kind, Problem
from config.resources import Resource
from config.syntax.frr_snippets import SnippetError, canonical

from .findings import Findings, RefusedError
from .grants import Grants
from .host_networks import ANYWHERE, Surroundings
from .ipam import forget_unused
from .overlays import accept_overlays
from .underlay import UnderlayUnusableError, resolve_underlay

_STRICT: Final = Grants()
#: Snippets conflict with nothing: that they are in force counts (``maxResources``), and their texts hold passwords.
_SNIPPET: Final = Held("")


@dataclass(frozen=True, slots=True)
class Resolution:
    """``desired`` None: the underlay is not usable and the running configuration is kept; ``problems`` say why.

    ``standing`` is what is in force now, for the next resolution. The state's generation is 0: who publishes it counts.
    """

    desired: DesiredState | None
    problems: tuple[Problem, ...] = ()
    standing: Standing = field(default_factory=lambda: NOTHING_IN_FORCE)


def resolve(
    resources: Iterable[Resource],
    node: NodeIdentity,
    *,
    standing: Standing = NOTHING_IN_FORCE,
    grants: Grants = _STRICT,
    surroundings: Surroundings = ANYWHERE,
) -> Resolution:
    """Return what the node should be, and every problem found on the way.

    ``resources`` are those that select this node, from files and API alike, unusable ones included. ``standing`` is
    what was in force until now, ``grants`` are the settings', ``surroundings`` what the machine uses. Raises nothing
    for anything that users can write.
    """
    ordered = sorted(resources, key=lambda resource: (resource.namespace, resource.name))
    precedence = Precedence(ordered, standing)
    findings = Findings()
    try:
        underlay = resolve_underlay(ordered, node, precedence, findings, grants, surroundings=surroundings)
    except UnderlayUnusableError:
        return Resolution(None, findings.sorted(), standing)
    snippets = _raw_snippets(ordered, findings)
    state = DesiredState(0, node.name, node.index, log_level=node.log_level, underlay=underlay, raw_frr=snippets)
    if underlay is None:
        _warn_of_idle(ordered, findings)
        known = {resource.id for resource in ordered}
        now = {one: held for one, held in standing.items() if one in known and one.kind is not Kind.RAW_FRR_CONFIG}
    else:
        overlays = accept_overlays(ordered, node, underlay, precedence, findings, grants=grants)
        l3vnis, l2vnis = overlays.listed_l3vnis(), overlays.listed_l2vnis()
        state = replace(state, l3vnis=l3vnis, l2vnis=l2vnis, passthrough=overlays.passthrough)
        now = {underlay.resource: precedence.hold(underlay.resource), **overlays.standing}
    now |= {one.resource: _SNIPPET for one in snippets}
    problems = findings.sorted()
    forget_unused(len(ordered))
    return Resolution(replace(state, problems=problems), problems, MappingProxyType(now))


def _warn_of_idle(resources: Iterable[Resource], findings: Findings) -> None:
    """No underlay is a legal state that means: nothing but raw snippets."""
    for resource in resources:
        if resource.is_usable and resource.kind not in (Kind.UNDERLAY, Kind.RAW_FRR_CONFIG):
            findings.warn(resource, "not in force: no underlay is configured for this node")


def _raw_snippets(resources: Iterable[Resource], findings: Findings) -> tuple[DesiredRawFRR, ...]:
    """Return the snippets by priority; equal ones in the order of their files, then by name."""
    snippets: list[DesiredRawFRR] = []
    for one in resources:
        if one.kind is not Kind.RAW_FRR_CONFIG or not one.is_usable:
            continue
        try:
            canonical(one.spec.raw_config)
        except SnippetError as error:
            findings.refuse(one, RefusedError(str(error), "rawConfig"))
            continue
        snippets.append(DesiredRawFRR(one.id, one.origin, one.spec.priority, one.spec.raw_config))
    return tuple(sorted(snippets, key=lambda one: (one.priority, one.origin.path, one.origin.line, one.origin.column)))
