"""From everything known to the next state, as a pure function.

    files, API snapshot, what was accepted -> one list of resources -> resolve -> Decision

Three things are kept apart: what is known now, what was accepted (gave a usable router) last, and what is in force. An
underlay that cannot be used changes nothing. When nothing is in force yet, what was accepted earlier counts instead of
the API's newest, and in the end the files alone, so that a mistake in the API never costs a node the networks of its
files. Nor does another node with the same addresses (:mod:`.duplicates`): a process's first state waits for no one.

After a restart a server may refuse a kind (the roles are those of an older version) or not have it (its definition was
removed, or is not installed yet). That does not mean that its objects are gone: what was accepted of them stays in
force until the server lists the kind, even if the list is then empty. The same is true of the passwords in Secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from config.api import PLURALS, WITH_PASSWORDS, ApiSnapshot
from config.desired import DesiredState, RememberedApi, RouterAddresses
from config.outcomes import StaticSnapshot
from config.precedence import NOTHING_IN_FORCE, Standing
from config.problems import RUNNING_KEPT, Kind, Origin, Problem, Severity, errors
from config.resolve.grants import Grants, within_limits
from config.resolve.host_networks import ANYWHERE, HostNetwork, Surroundings, networks
from config.resolve.resolution import Resolution, resolve
from config.resources import Resource
from config.sources.api_objects import read_objects
from supervisor.runtime.faults import ConfigFault

from .duplicates import is_unknown, routers_to_wait_for, shared, waiting

#: The file that keeps them, in the state directory.
_SNAPSHOT: Final = Origin(path="api-snapshot.json")


@dataclass(frozen=True, slots=True)
class Known:
    """The inputs of a decision.

    ``api`` is the newest snapshot, None until this process has one; ``accepted`` the last one that gave a usable
    router, perhaps saved by an earlier process; ``standing`` says what is in force, ``networks`` what the machine uses.
    """

    static: StaticSnapshot
    api: ApiSnapshot | None
    accepted: ApiSnapshot | None
    standing: Standing
    networks: tuple[HostNetwork, ...] = ()

    def surroundings(self, in_force: DesiredState | None) -> Surroundings:
        """Return what tunnel endpoints must not take. What an earlier process had in force is not known by range."""
        if in_force is not None:
            return Surroundings(self.networks, networks(vtep_pools(in_force)))
        known = not any(one.kind is Kind.UNDERLAY for one in self.standing)
        return Surroundings(self.networks, frozenset() if known else None)


def vtep_pools(state: DesiredState) -> tuple[str, ...]:
    """Return the ranges of a state's tunnel endpoints."""
    return state.underlay.vtep_pools if state.underlay else ()


@dataclass(frozen=True, slots=True)
class Decision:
    """``state`` is what to publish, None without a change; the rest is the basis of the next decision, and to save."""

    state: DesiredState | None
    accepted: ApiSnapshot | None
    standing: Standing


def decide(known: Known, in_force: DesiredState | None, grants: Grants) -> Decision:
    """Return what follows from what is known; ``grants`` are the settings'.

    Raises :class:`ConfigFault` when nothing is in force and not even the files alone have a usable underlay: there is
    nothing to keep, and only a user can fix it.
    """
    newest = known.accepted if known.api is None else known.api
    found = merge_and_resolve(known.static, newest, known.standing, grants, known.surroundings(in_force))
    if found.desired is not None:
        if known.api is not None and not grants.duplicate_index:
            waits = _wait(known, known.api, replace(found.desired, problems=found.problems), in_force, grants)
            if waits is not None:
                return waits
        earlier = () if grants.duplicate_index else shared(found.desired, known.api)
        return _accepted(known, newest, found, in_force, earlier)
    problems = _kept(found.problems)
    return _first(known, problems, grants) if in_force is None else _unchanged(known, in_force, problems, grants)


def merge_and_resolve(
    static: StaticSnapshot,
    api: ApiSnapshot | None,
    standing: Standing,
    grants: Grants,
    surroundings: Surroundings = ANYWHERE,
) -> Resolution:
    """Return what files and API mean together, with all problems of both."""
    resources, problems = merge(static, api, grants, standing)
    resolution = resolve(resources, static.node, standing=standing, grants=grants, surroundings=surroundings)
    return replace(resolution, problems=_each_once((*problems, *resolution.problems)))


def merge(
    static: StaticSnapshot, api: ApiSnapshot | None, grants: Grants, standing: Standing = NOTHING_IN_FORCE
) -> tuple[tuple[Resource, ...], tuple[Problem, ...]]:
    """Return the resources of files and API as equals, and the problems from reading each.

    An object with the identity of a file's resource is that resource's mirror, whatever its labels say now: the mirror
    actor restores it, and here it would only conflict with its original.
    """
    if api is None:
        return static.resources, static.problems
    written = {resource.id for resource in static.resources}
    counted, surplus = within_limits(static.resources, api.objects, standing, grants)
    objects, found = read_objects(replace(api, objects=counted), grants.namespace, raw_snippets=grants.raw_snippets)
    others = tuple(resource for resource in objects if resource.id not in written)
    problems = tuple(problem for problem in found if problem.resource not in written)
    return (*static.resources, *others), (*static.problems, *problems, *surplus, *_kept_objects(api))


def with_kept(api: ApiSnapshot, accepted: ApiSnapshot | None) -> ApiSnapshot:
    """Return a snapshot with what was accepted of kinds, and of passwords, that its server has never listed."""
    if accepted is None:
        return api
    objects, secrets = api.objects, api.secrets
    kept = any(one.kind in api.unlisted for one in accepted.objects)
    if kept:
        objects = tuple(
            one for kind in PLURALS for one in (accepted if kind in api.unlisted else api).objects if one.kind is kind
        )
    if api.lacks_secrets or (kept and api.unlisted.intersection(WITH_PASSWORDS)):
        secrets = MappingProxyType({**accepted.secrets, **api.secrets})
    if not kept and secrets == api.secrets:
        return api
    return replace(api, objects=objects, secrets=secrets, synced_at=min(api.synced_at, accepted.synced_at))


def _kept_objects(api: ApiSnapshot) -> Iterator[Problem]:
    """Yield a warning for each kind of which objects are kept; of an unlisted kind there are no others."""
    for one in api.not_followed:
        count = sum(PLURALS[found.kind] == one.resource for found in api.objects)
        if count and not one.listed:
            kept = f"{count} last known {'object stays' if count == 1 else 'objects stay'} in force"
            message = f"{one.resource} are {one.why} on the API server: {kept} until the server lists them"
            yield Problem(message, _SNAPSHOT, severity=Severity.WARNING)


def _accepted(
    known: Known,
    api: ApiSnapshot | None,
    found: Resolution,
    in_force: DesiredState | None,
    earlier: Iterable[Problem] = (),
) -> Decision:
    """Accept a usable resolution. A configuration on trial does not change what is saved."""
    if found.desired is None:
        raise ValueError("not usable")
    state = _numbered(found.desired, known.static, in_force, (*earlier, *found.problems))
    remembered = None
    if known.api is None and api is not None:
        remembered = RememberedApi(len(api.objects), api.synced_at)
    changed = _changed(replace(state, remembered=remembered), in_force)
    if known.static.on_trial:
        return Decision(changed, known.accepted, known.standing)
    return Decision(changed, known.accepted if api is None else api, found.standing)


def _first(known: Known, problems: tuple[Problem, ...], grants: Grants) -> Decision:
    """Return a process's first state although the newest configuration has no usable underlay."""
    for api in (known.accepted, None):
        earlier = merge_and_resolve(known.static, api, known.standing, grants, known.surroundings(None))
        if earlier.desired is not None:
            return _accepted(known, api, earlier, None, problems)
    raise ConfigFault("no usable configuration: " + "; ".join(str(problem) for problem in errors(problems)))


def _wait(
    known: Known,
    api: ApiSnapshot,
    wanted: DesiredState,
    in_force: DesiredState | None,
    grants: Grants,
) -> Decision | None:
    """Return the decision where ``wanted`` has to wait for other nodes' routers, None where it need not."""
    if in_force is None:
        if not shared(wanted, api):
            return None
        # In each process the files and what was saved come first, also where the API has answered by then.
        first = decide(replace(known, api=None), None, grants)
        second = decide(replace(known, accepted=first.accepted, standing=first.standing), first.state, grants)
        return second if second.state is not None else first
    if is_unknown(wanted, in_force, api):
        return Decision(None, known.accepted, known.standing)
    others = routers_to_wait_for(wanted, in_force, api)
    if not others:
        return None
    found = (*wanted.problems, *waiting(wanted, in_force, others))
    return _unchanged(known, in_force, found, grants, awaited=wanted.addresses)


def _unchanged(
    known: Known,
    in_force: DesiredState,
    problems: tuple[Problem, ...],
    grants: Grants,
    awaited: RouterAddresses | None = None,
) -> Decision:
    """Keep what is in force, with the problems of what cannot replace it."""
    warnings = () if grants.duplicate_index else shared(in_force, known.api)
    state = replace(_numbered(in_force, known.static, in_force, (*problems, *warnings)), awaited=awaited)
    return Decision(_changed(state, in_force), known.accepted, known.standing)


def _numbered(
    state: DesiredState, static: StaticSnapshot, in_force: DesiredState | None, problems: Iterable[Problem]
) -> DesiredState:
    generation = in_force.generation + 1 if in_force else 1
    return replace(state, generation=generation, reload_id=static.reload_id, problems=_each_once(problems))


def _each_once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(problems))


def _kept(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems, each error of an underlay with what it means."""
    return tuple(
        replace(problem, in_force=RUNNING_KEPT)
        if problem.kind is Kind.UNDERLAY and problem.severity is Severity.ERROR and not problem.in_force
        else problem
        for problem in problems
    )


def _changed(state: DesiredState, in_force: DesiredState | None) -> DesiredState | None:
    return None if in_force is not None and same(state, in_force) else state


def same(new: DesiredState, old: DesiredState) -> bool:
    """Whether ``new`` has nothing for readers: same router, places and problems, and no reload to answer."""
    first, second = ((one.content(), one.origins(), one.problems, one.reload_id, one.awaited) for one in (new, old))
    return first == second
