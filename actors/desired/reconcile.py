"""From everything known to the next state, as a pure function.

Three things are kept apart: what is known now, what was accepted (made a usable router) last, and what is in force. An
underlay that cannot be used leaves everything as it is. When nothing is in force yet there is nothing to leave: then
what was accepted earlier counts instead of the API's newest, and in the end the files alone, so that a mistake in the
API never costs a node the networks of its files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from config.api import ApiSnapshot
from config.desired import DesiredState, RememberedApi
from config.outcomes import StaticSnapshot
from config.problems import RUNNING_KEPT, Kind, Problem, Severity, errors
from config.resolve.precedence import Standing
from config.resolve.resolution import Resolution, resolve
from supervisor.runtime.faults import ConfigFault

from .merge import merge


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to decide from.

    ``api`` is the API's newest snapshot, None as long as no server was heard in this process life; ``accepted`` the
    last one that made a usable router, perhaps remembered from an earlier life; ``standing`` who is in force.
    """

    static: StaticSnapshot
    api: ApiSnapshot | None
    accepted: ApiSnapshot | None
    standing: Standing


@dataclass(frozen=True, slots=True)
class Decision:
    """``state`` is what to publish, None when there is no news; the rest is what to go on from and to remember."""

    state: DesiredState | None
    accepted: ApiSnapshot | None
    standing: Standing


def decide(known: Known, in_force: DesiredState | None, namespace: str) -> Decision:
    """Return what follows from what is known; ``namespace`` is the program's own.

    Raises :class:`ConfigFault` when nothing is in force and not even the files alone have a usable underlay: there is
    nothing that could be kept, and only a user can mend it.
    """
    newest = known.accepted if known.api is None else known.api
    found = merge_and_resolve(known.static, newest, known.standing, namespace)
    if found.desired is not None:
        return _taken(known, newest, found, in_force)
    problems = _kept(found.problems)
    if in_force is None:
        return _first(known, problems, namespace)
    state = _numbered(in_force, known.static, in_force, problems)
    return Decision(_news(state, in_force), known.accepted, known.standing)


def merge_and_resolve(
    static: StaticSnapshot, api: ApiSnapshot | None, standing: Standing, namespace: str
) -> Resolution:
    """Return what files and API mean together, with all problems of both."""
    merged = merge(static, api, namespace)
    resolution = resolve(merged.resources, static.node, standing=standing)
    return replace(resolution, problems=_each_once((*merged.problems, *resolution.problems)))


def _taken(
    known: Known,
    api: ApiSnapshot | None,
    found: Resolution,
    in_force: DesiredState | None,
    told: Iterable[Problem] = (),
) -> Decision:
    """Accept a usable resolution. A configuration on trial leaves what is remembered as it was before it."""
    if found.desired is None:
        raise ValueError("not usable")
    state = _numbered(found.desired, known.static, in_force, (*told, *found.problems))
    remembered = None
    if known.api is None and api is not None:
        remembered = RememberedApi(len(api.objects), api.synced_at)
    news = _news(replace(state, remembered=remembered), in_force)
    if known.static.on_trial:
        return Decision(news, known.accepted, known.standing)
    return Decision(news, known.accepted if api is None else api, found.standing)


def _first(known: Known, problems: tuple[Problem, ...], namespace: str) -> Decision:
    """Return the first state of a process life although the newest configuration has no usable underlay."""
    for api in (known.accepted, None):
        earlier = merge_and_resolve(known.static, api, known.standing, namespace)
        if earlier.desired is not None:
            return _taken(known, api, earlier, None, problems)
    raise ConfigFault("no usable configuration: " + "; ".join(str(problem) for problem in errors(problems)))


def _numbered(
    state: DesiredState, static: StaticSnapshot, in_force: DesiredState | None, problems: Iterable[Problem]
) -> DesiredState:
    generation = in_force.generation + 1 if in_force else 1
    return replace(state, generation=generation, reload_id=static.reload_id, problems=_each_once(problems))


def _each_once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(problems))


def _kept(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Say with each error of an underlay what it means."""
    return tuple(
        replace(problem, in_force=RUNNING_KEPT)
        if problem.kind is Kind.UNDERLAY and problem.severity is Severity.ERROR and not problem.in_force
        else problem
        for problem in problems
    )


def _news(state: DesiredState, in_force: DesiredState | None) -> DesiredState | None:
    return None if in_force is not None and same(state, in_force) else state


def same(new: DesiredState, old: DesiredState) -> bool:
    """Whether publishing ``new`` would tell readers nothing: same router, places and problems, no reload to answer."""
    told = ((state.content(), state.origins(), state.problems, state.reload_id) for state in (new, old))
    return next(told) == next(told)
