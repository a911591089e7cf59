"""The last API snapshot that made a usable router, with the resources that were in force with it.

A restarted node has the networks of the API's objects although no server answers yet, perhaps because the server is
only reachable through them. Objects are stored as the server sent them, so that whatever version of the program runs
validates them again. They and the Secrets beside them hold passwords. A checksum covers the whole; the node's name is
in it, so that a copied disk image does not configure another node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import PlainSerializer

from config.api import ApiObject, ApiSnapshot
from config.desired import Secret
from config.models.sessions import DEFAULT_KEY
from config.precedence import NOTHING_IN_FORCE, Held, Standing
from config.problems import Kind, ResourceId

from .json_store import JsonStore, StoreError

#: Its name in the state directory.
FILE: Final = "api-snapshot.json"
_OBJECT_FIELDS: Final = ("kind", "namespace", "name", "uid", "resource_version", "generation", "created")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SavedSnapshot:
    """``snapshot`` is None as long as no server has answered; ``standing`` is what was in force on ``node_name``."""

    node_name: str
    snapshot: ApiSnapshot | None = None
    standing: Standing = field(default_factory=lambda: NOTHING_IN_FORCE)

    def same_as(self, other: SavedSnapshot | None) -> bool:
        """Whether both mean the same router: the time of the snapshot and mere status updates do not count."""
        return other is not None and _meaning(self) == _meaning(other)


def essence(snapshot: ApiSnapshot) -> ApiSnapshot:
    """Return the part worth saving: not live, and without what is only about the server."""
    objects = tuple(replace(one, labels=_NOTHING, annotations=_NOTHING, owners=()) for one in snapshot.objects)
    return ApiSnapshot(
        objects=objects, secrets=snapshot.secrets, synced_at=snapshot.synced_at, chosen_by=snapshot.chosen_by
    )


def _meaning(saved: SavedSnapshot) -> SavedSnapshot:
    if saved.snapshot is None:
        return saved
    kept = essence(saved.snapshot)
    objects = tuple(replace(one, resource_version="") for one in kept.objects)
    return replace(saved, snapshot=replace(kept, objects=objects, synced_at=0.0))


def _as_sent(one: ApiObject) -> dict[str, Any]:
    """Return the members that are stored; the others report on the object, and default when it is read."""
    spec = dict(one.spec) if isinstance(one.spec, Mapping) else one.spec
    return {name: getattr(one, name) for name in _OBJECT_FIELDS} | {"spec": spec}


@dataclass(frozen=True, slots=True)
class _Password:
    """The support bundle recognises the value by its key, and leaves it out. None: there is no password."""

    namespace: str
    name: str
    password: str | None
    key: str = DEFAULT_KEY


def _as_known(one: _Password) -> dict[str, str | None]:
    """Return the members that are stored: earlier versions, to which a node may return, know no other key."""
    members = {"namespace": one.namespace, "name": one.name, "password": one.password}
    return members if one.key == DEFAULT_KEY else members | {"key": one.key}


#: Kind, namespace and name.
_Id = tuple[Kind, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """``objects`` None: no server has answered yet. Files of early versions have no ``labels``.

    ``in_force`` has each resource's identity, its digest, and for a segment its routing domain.
    """

    node: str
    synced_at: float | None
    labels: dict[str, str] | None = None
    objects: tuple[Annotated[ApiObject, PlainSerializer(_as_sent)], ...] | None
    secrets: tuple[Annotated[_Password, PlainSerializer(_as_known)], ...]
    in_force: tuple[tuple[Kind, str, str, str, _Id | None], ...]


_STORE: Final = JsonStore(_Content, "snapshot of the API", version=1, checksum=True)


def to_json(saved: SavedSnapshot) -> str:
    """Return the snapshot as text, the same for equal snapshots. It holds passwords."""
    return _STORE.encode(_content(saved))


def from_json(text: str | bytes) -> SavedSnapshot:
    """Return what :func:`to_json` wrote. Raises :class:`~.json_store.StoreError`."""
    return _saved(_STORE.decode(text))


def read_saved(directories: Iterable[Path], node_name: str) -> SavedSnapshot | None:
    """Return this node's saved snapshot from the first directory that has it, None when there is none.

    Raises :class:`~.json_store.StoreError`, with the path, when there are only files that are damaged or of another
    node.
    """
    unusable = ""
    for path in (directory / FILE for directory in directories):
        try:
            content = _STORE.read(path)
        except StoreError as error:
            unusable = unusable or f"{path}: {error}"
            continue
        if content is not None and content.node == node_name:
            return _saved(content)
        if content is not None:
            unusable = unusable or f"{path}: it belongs to another node, {content.node}"
    if unusable:
        raise StoreError(unusable)
    return None


def _content(saved: SavedSnapshot) -> _Content:
    snapshot = saved.snapshot or ApiSnapshot()
    return _Content(
        node=saved.node_name,
        synced_at=snapshot.synced_at if saved.snapshot else None,
        objects=snapshot.objects if saved.snapshot else None,
        secrets=tuple(
            _Password(namespace, name, secret.reveal() if secret else None, key)
            for (namespace, name, key), secret in sorted(snapshot.secrets.items())
        ),
        in_force=tuple(
            (*_parts(one), held.digest, _parts(held.domain) if held.domain else None)
            for one, held in sorted(saved.standing.items(), key=lambda item: _parts(item[0]))
        ),
        labels=None if snapshot.chosen_by is None else dict(snapshot.chosen_by),
    )


def _parts(one: ResourceId) -> _Id:
    return one.kind, one.namespace, one.name


def _saved(content: _Content) -> SavedSnapshot:
    snapshot = None
    if content.objects is not None:
        secrets = {
            (one.namespace, one.name, one.key): None if one.password is None else Secret(one.password)
            for one in content.secrets
        }
        snapshot = ApiSnapshot(
            objects=content.objects,
            secrets=MappingProxyType(secrets),
            synced_at=content.synced_at or 0.0,
            chosen_by=None if content.labels is None else MappingProxyType(content.labels),
        )
    standing = {
        ResourceId(kind, namespace, name): Held(digest, ResourceId(*domain) if domain else None)
        for kind, namespace, name, digest, domain in content.in_force
    }
    return SavedSnapshot(content.node, snapshot, MappingProxyType(standing))
