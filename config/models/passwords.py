"""Where a resource has passwords of BGP sessions, and how references to them are replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from config.desired import Secret

from .base import Model
from .neighbors import Neighbor
from .overlays import L3Passthrough, L3Vni
from .sessions import HostSession
from .underlay import Underlay

#: The keys that lead to a session, as users write them.
Place = tuple[str | int, ...]


def sessions_of(spec: Model) -> Iterator[tuple[Place, Neighbor | HostSession]]:
    """Yield the BGP sessions of a resource with their places."""
    if isinstance(spec, Underlay):
        for index, neighbor in enumerate(spec.neighbors):
            yield ("neighbors", index), neighbor
    if isinstance(spec, L3Vni | L3Passthrough) and spec.host_session is not None:
        yield ("hostSession",), spec.host_session


def with_passwords(spec: Model, passwords: Mapping[Place, Secret]) -> Model:
    """Return a copy in which the sessions at these places have a password instead of a reference to one."""
    if not passwords:
        return spec
    filled = {
        place: session.model_copy(update={"password": passwords[place], "password_secret": None})
        if place in passwords
        else session
        for place, session in sessions_of(spec)
    }
    if isinstance(spec, Underlay):
        return spec.model_copy(update={"neighbors": tuple(filled.values())})
    return spec.model_copy(update={"host_session": filled["hostSession",]})
