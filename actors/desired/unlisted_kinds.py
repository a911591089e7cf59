"""What was accepted of kinds of which the server does not say what there is.

After a restart a server may refuse a kind (the roles are those of an older version) or not have it (its definition was
removed, or is not there yet). That does not say that its objects are gone. What was accepted of them stays until the
server lists the kind again, be it without any object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from config.api import PLURALS, ApiSnapshot
from config.problems import Kind, Origin, Problem, Severity

#: Where it is kept, in the state directory.
_PLACE: Final = Origin(path="api-snapshot.json")


def with_kept(api: ApiSnapshot, accepted: ApiSnapshot | None) -> ApiSnapshot:
    """Return a snapshot with what was accepted of kinds that its server has not listed once."""
    if accepted is None or not any(one.kind in api.unlisted for one in accepted.objects):
        return api
    objects = tuple(
        one for kind in PLURALS for one in (accepted if kind in api.unlisted else api).objects if one.kind is kind
    )
    secrets = api.secrets
    if Kind.UNDERLAY in api.unlisted:
        secrets = MappingProxyType({**accepted.secrets, **api.secrets})
    return replace(api, objects=objects, secrets=secrets, synced_at=min(api.synced_at, accepted.synced_at))


def kept_problems(api: ApiSnapshot) -> Iterator[Problem]:
    """Yield what somebody should know of kept objects, once for each kind; of an unlisted kind there are no others."""
    for one in api.not_followed:
        count = sum(PLURALS[found.kind] == one.resource for found in api.objects)
        if count and not one.listed:
            kept = f"{count} object{'' if count == 1 else 's'}"
            message = (
                f"{one.resource} are {one.why} on the API server: {kept} as last known, until they are listed again"
            )
            yield Problem(message, _PLACE, severity=Severity.WARNING)
