"""What is remembered of the API: the last snapshot that made a usable router, and who was in force with it.

With it a restarted node has the networks of the API's objects although no server answers yet, perhaps because it can
only be reached through them. Objects are kept as the server sent them and are read again by whatever version of the
program runs. They and the Secrets beside them hold passwords, so whoever stores the text does so with mode 0600.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from config.api import ApiObject, ApiSnapshot
from config.desired import Secret
from config.problems import Kind, ResourceId
from config.resolve.precedence import NOTHING_IN_FORCE, Held, Standing

#: Its name in the state directory.
FILE: Final = "api-snapshot.json"
#: Grows when the stored form changes its meaning; another version counts as nothing stored. Additions keep it: older
#: programs leave out what they do not know, and what an older one left out counts as not known.
_VERSION: Final = 1
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_OBJECT_FIELDS: Final = ("namespace", "name", "uid", "resource_version", "generation", "created", "spec")


class ApiMemoryError(ValueError):
    """Stored text is not what :func:`to_json` wrote. It is safe to go on without a memory."""


@dataclass(frozen=True, slots=True)
class ApiMemory:
    """``snapshot`` is None as long as no server was ever heard; ``node_name`` is whose memory this is."""

    node_name: str
    snapshot: ApiSnapshot | None = None
    standing: Standing = field(default_factory=lambda: NOTHING_IN_FORCE)

    def same_as(self, other: ApiMemory | None) -> bool:
        """Whether both mean the same router: when it was true, and what reports on objects say, do not count."""
        return other is not None and _substance(self) == _substance(other)


def essence(snapshot: ApiSnapshot) -> ApiSnapshot:
    """Return what is worth remembering: not live, and without what only says something of the server."""
    objects = tuple(
        replace(one, labels=_NOTHING, annotations=_NOTHING, owners=(), conditions=()) for one in snapshot.objects
    )
    return ApiSnapshot(
        objects=objects, secrets=snapshot.secrets, synced_at=snapshot.synced_at, chosen_by=snapshot.chosen_by
    )


def to_json(memory: ApiMemory) -> str:
    """Return the memory as text, the same for equal memories. It holds passwords."""
    content = _content(memory)
    return json.dumps({"version": _VERSION, "sha256": _checksum(content), "content": content}) + "\n"


def from_json(text: str | bytes) -> ApiMemory:
    """Return what :func:`to_json` wrote. Raises :class:`ApiMemoryError`, which never quotes the text."""
    try:
        stored: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise ApiMemoryError("not JSON") from None
    if not isinstance(stored, dict) or stored.get("version") != _VERSION:
        raise ApiMemoryError(f"not a version {_VERSION} memory of the API")
    content: Any = stored.get("content")
    if stored.get("sha256") != _checksum(content):
        raise ApiMemoryError("damaged: the checksum does not fit")
    try:
        return _memory(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ApiMemoryError("the checksum fits, but the content cannot be understood") from None


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _content(memory: ApiMemory) -> dict[str, Any]:
    snapshot = memory.snapshot
    return {
        "node": memory.node_name,
        "synced_at": snapshot.synced_at if snapshot else None,
        "labels": dict(snapshot.chosen_by) if snapshot and snapshot.chosen_by is not None else None,
        "objects": [_object(one) for one in snapshot.objects] if snapshot else None,
        # The key says to whoever collects texts that its value is a secret.
        "secrets": [
            {"namespace": namespace, "name": name, "password": secret.reveal() if secret else None}
            for (namespace, name), secret in sorted((snapshot.secrets if snapshot else {}).items())
        ],
        "in_force": [
            [*_words(one), held.digest, _words(held.domain) if held.domain else None]
            for one, held in sorted(memory.standing.items(), key=lambda item: _words(item[0]))
        ],
    }


def _object(one: ApiObject) -> dict[str, Any]:
    spec = dict(one.spec) if isinstance(one.spec, Mapping) else one.spec
    return {"kind": one.kind.value, **{name: getattr(one, name) for name in _OBJECT_FIELDS}, "spec": spec}


def _substance(memory: ApiMemory) -> dict[str, Any]:
    content = _content(memory)
    content["synced_at"] = content["synced_at"] is not None
    for one in content["objects"] or ():
        del one["resource_version"]
    return content


def _words(one: ResourceId) -> list[str]:
    return [one.kind.value, one.namespace, one.name]


def _memory(content: Mapping[str, Any]) -> ApiMemory:
    snapshot = None
    if content["objects"] is not None:
        snapshot = ApiSnapshot(
            objects=tuple(_stored_object(one) for one in content["objects"]),
            secrets=MappingProxyType(dict(_stored_secrets(content["secrets"]))),
            synced_at=float(content["synced_at"]),
            chosen_by=_stored_labels(content.get("labels")),
        )
    standing = {_stored_id(words): _held(held, domain) for *words, held, domain in content["in_force"]}
    return ApiMemory(_text(content["node"]), snapshot, MappingProxyType(standing))


def _stored_object(stored: Mapping[str, Any]) -> ApiObject:
    return ApiObject(
        kind=Kind(stored["kind"]),
        namespace=_text(stored["namespace"]),
        name=_text(stored["name"]),
        uid=_text(stored["uid"]),
        resource_version=_text(stored["resource_version"]),
        generation=int(stored["generation"]),
        created=_text(stored["created"]),
        spec=stored["spec"],
    )


def _stored_labels(stored: Mapping[str, Any] | None) -> Mapping[str, str] | None:
    return None if stored is None else MappingProxyType({key: _text(value) for key, value in stored.items()})


def _stored_secrets(stored: list[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], Secret | None]]:
    for one in stored:
        password = None if one["password"] is None else Secret(_text(one["password"]))
        yield (_text(one["namespace"]), _text(one["name"])), password


def _held(held: Any, domain: Any) -> Held:
    return Held(_text(held), None if domain is None else _stored_id(domain))


def _stored_id(words: list[Any]) -> ResourceId:
    kind, namespace, name = words
    return ResourceId(Kind(kind), _text(namespace), _text(name))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
