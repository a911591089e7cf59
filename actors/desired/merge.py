"""Files and API objects as equals: one list of resources for one resolution."""

from __future__ import annotations

from dataclasses import dataclass

from config.api import ApiSnapshot
from config.outcomes import StaticSnapshot
from config.problems import Problem
from config.resources import Resource
from config.sources.api_objects import read_objects

from .unlisted_kinds import kept_problems


@dataclass(frozen=True, slots=True)
class Merged:
    """All resources for this node and what was wrong with them before they met."""

    resources: tuple[Resource, ...]
    problems: tuple[Problem, ...]


def merge(static: StaticSnapshot, api: ApiSnapshot | None, namespace: str) -> Merged:
    """Return what files and API contribute; ``namespace`` is the program's own.

    An object with the identity of a file's resource is that resource's mirror, whatever its labels say now: the mirror
    actor restores it, and here it would only clash with what it shows.
    """
    if api is None:
        return Merged(static.resources, static.problems)
    written = {resource.id for resource in static.resources}
    objects, problems = read_objects(api, namespace)
    mirrors = {resource.origin for resource in objects if resource.id in written}
    others = tuple(resource for resource in objects if resource.id not in written)
    told = tuple(problem for problem in problems if problem.origin not in mirrors)
    return Merged((*static.resources, *others), (*static.problems, *told, *kept_problems(api)))
