"""Decode the server's objects, and keep only what a reader needs.

An object comes with kilobytes about its field managers, and its annotations may hold a quarter of a megabyte: kubectl
leaves a copy of the whole manifest there, passwords included. Everything here raises
:class:`~actors.lib.kube.errors.UnreachableError` for what is no Kubernetes object, because what sends that is not an
API server.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from config.api import ApiNode, ApiObject, OtherRouter
from config.crd.node_status import RouterState
from config.desired import RouterAddresses, Secret
from config.models.base import cut
from config.models.sessions import DEFAULT_KEY
from config.models.types import check_password
from config.problems import Kind

from .client import Json
from .errors import UnreachableError

#: The labels and annotations that are kept (of the Node, all labels are). Others may be many and large, or hold
#: timestamps and the like, each of which would be a change.
_OUR_DOMAINS: Final = ("openpe.io/", "openperouter.github.io/")
#: More owners than one are foreign: they are read to find other nodes among them.
_MOST_OWNERS: Final = 16


def api_object(kind: Kind, raw: Any) -> ApiObject:
    """Return a custom resource; of its labels and annotations only ours are kept.

    Its ``spec`` is kept as it is, except for what is nested so deeply that it is refused.
    """
    meta = metadata(raw)
    return ApiObject(
        kind=kind,
        namespace=str(meta.get("namespace") or ""),
        name=meta["name"],
        uid=str(meta.get("uid") or ""),
        resource_version=str(meta.get("resourceVersion") or ""),
        generation=_number(meta.get("generation")),
        created=str(meta.get("creationTimestamp") or ""),
        labels=_ours(meta.get("labels")),
        annotations=_ours(meta.get("annotations")),
        owners=_mappings(meta.get("ownerReferences"))[:_MOST_OWNERS],
        spec=cut(raw.get("spec", {})),
    )


def api_node(raw: Any) -> ApiNode:
    """Return a Node."""
    meta = metadata(raw)
    return ApiNode(meta["name"], str(meta.get("uid") or ""), _texts(meta.get("labels")), _ours(meta.get("annotations")))


def other_router(raw: Any, *, own: str) -> OtherRouter | None:
    """Return the router of another node's status object; None for the ``own`` one, and where it has none."""
    meta = metadata(raw)
    try:
        found = RouterState.model_validate(_mapping(raw.get("status")).get("router"))
    except ValidationError:
        return None
    if meta["name"] == own:
        return None
    addresses = RouterAddresses(found.node_index, found.router_id, found.tunnel_endpoints)
    return OtherRouter(meta["name"], str(meta.get("creationTimestamp") or ""), addresses, found.in_force)


def whole(raw: Any) -> Json:
    """Return an object that is kept as it is."""
    metadata(raw)
    return dict(raw)


def password(raw: Any, key: str = DEFAULT_KEY) -> Secret | None:
    """Return the password under a key of a Secret, None where there is none that could be used.

    One trailing line end is removed, as with passwords in files.
    """
    metadata(raw)
    encoded = _mapping(raw.get("data")).get(key)
    try:
        text = base64.b64decode(str(encoded or ""), validate=True).decode("ascii")
        return Secret(check_password(text.removesuffix("\n").removesuffix("\r")))
    except (binascii.Error, ValueError):
        return None


def metadata(raw: Any) -> Mapping[str, Any]:
    """Return an object's metadata, in which there is a name."""
    meta = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        raise UnreachableError("the server sends objects without names: not an API server")
    return meta


def version_of(raw: Any) -> str:
    """Return the resource version of an object, a bookmark or a list. All of them have one."""
    version = _mapping(_mapping(raw).get("metadata")).get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise UnreachableError("the server sends no resource versions: not an API server")
    return version


def items(page: Json) -> list[Any]:
    """Return the objects of a list's page. A page without a list is not an answer."""
    found = page.get("items")
    if found is None and str(page.get("kind", "")).endswith("List"):
        # Go writes a nil slice as null.
        return []
    if not isinstance(found, list):
        raise UnreachableError("the server sends something else than the requested list: not an API server")
    return found


def is_behind(version: str, known: str | None) -> bool:
    """Whether a resource version is older than a known one of the same server.

    They are comparable by specification since Kubernetes 1.35 (KEP-5504), and were in practice before. False where
    they are not numbers.
    """
    return known is not None and version.isdecimal() and known.isdecimal() and int(version) < int(known)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> tuple[Mapping[str, Any], ...]:
    found: Iterable[Any] = value if isinstance(value, list) else ()
    return tuple(item for item in found if isinstance(item, dict))


def _texts(value: Any) -> dict[str, str]:
    return {key: text for key, text in _mapping(value).items() if isinstance(text, str)}


def _ours(value: Any) -> dict[str, str]:
    return {key: text for key, text in _texts(value).items() if key.startswith(_OUR_DOMAINS)}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def micro_time(seconds: float) -> str:
    """Return Unix seconds in the form of metav1.MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def unix_time(text: Any) -> float:
    """Return a time of the API in Unix seconds; 0 if it is missing or cannot be read."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0
