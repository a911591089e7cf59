"""An API server in memory that does what mirroring relies on; ``contract.py`` holds it to what the real one does."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import trio

from actors.lib.kube.client import Json, KubeClient, Params
from actors.lib.kube.errors import ApiError, error_for
from config.api import API_VERSION, PLURALS, ApiCredentials, ApiNode, ApiObject, ApiSnapshot
from config.problems import Kind

KINDS = {plural: kind for kind, plural in PLURALS.items()}
NODE = ApiNode("node", "node-uid", {"kubernetes.io/hostname": "node"})
#: The fault that a test injects: gets verb, plural and name of a request, returns its error.
Fault = Callable[[str, str, str], ApiError | None]


@dataclass
class FakeServer:
    """The stored objects by path. ``requests`` are those answered so far, as ``(verb, plural/name)``."""

    objects: dict[str, Json] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    fault: Fault = lambda verb, plural, name: None
    #: Fields that this server's schema sets where they are absent, by plural.
    defaults: dict[str, Json] = field(default_factory=lambda: {"l3vnis": {"vxlanPort": 4789}})
    changed: Callable[[], None] = lambda: None
    #: How many nodes there are.
    nodes: int = 1
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def connect(self, credentials: ApiCredentials) -> KubeClient:
        """Return a client."""
        return FakeClient(credentials, self)

    def of(self, kind: Kind) -> list[Json]:
        """Return the stored objects of a kind."""
        return [one for path, one in self.objects.items() if f"/{PLURALS[kind]}/" in path]

    def writes(self) -> list[tuple[str, str]]:
        """Return the requests that were no reads and no dry runs."""
        return [request for request in self.requests if request[0] in ("create", "patch", "delete")]

    def edit(self, name: str, change: Callable[[Json], None]) -> None:
        """Change an object as a user with kubectl would."""
        [path] = [path for path in self.objects if path.endswith(f"/{name}")]
        self.store(path, change)

    def remove(self, name: str) -> None:
        """Delete an object as a user would."""
        [path] = [path for path in self.objects if path.endswith(f"/{name}")]
        del self.objects[path]
        self.changed()

    def put(self, one: Json) -> None:
        """Store an object as it is."""
        plural = PLURALS[Kind(one["kind"])]
        path = f"/apis/{API_VERSION}/namespaces/{one['metadata']['namespace']}/{plural}/{one['metadata']['name']}"
        self.objects[path] = copy.deepcopy(one)
        self.objects[path]["metadata"]["uid"] = f"uid-{next(self._versions)}"
        self.store(path, lambda _: None, force=True)

    def store(self, path: str, change: Callable[[Json], None], *, force: bool = False) -> Json:
        """Apply a change to a stored object; one that changes nothing makes no new version."""
        old = self.objects[path]
        new = copy.deepcopy(old)
        change(new)
        defaults = self.defaults.get(path.split("/")[-2], {})
        new["spec"] = {**defaults, **(new.get("spec") or {})}
        if new != old or force:
            new["metadata"]["resourceVersion"] = str(next(self._versions))
            self.objects[path] = new
            self.changed()
        return copy.deepcopy(self.objects[path])

    def snapshot(self, is_ours: Callable[[ApiObject], bool], *, node: ApiNode | None = NODE) -> ApiSnapshot:
        """Return what a watch would have made of it."""
        found = [_parsed(one) for one in self.objects.values()]
        selected = [one for one in found if not is_ours(one) and _selects(one.spec, node or NODE)]
        return ApiSnapshot(node, tuple(selected), tuple(one for one in found if is_ours(one)), live=True)


class FakeClient(KubeClient):
    """A client of the server in memory."""

    def __init__(self, credentials: ApiCredentials, server: FakeServer) -> None:
        super().__init__(credentials)
        self.server = server

    async def __aenter__(self) -> KubeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def get(self, path: str, params: Params | None = None) -> Json:
        if params and "limit" in params:
            await self._requested("list", path)
            return {"items": [{}], "metadata": {"remainingItemCount": self.server.nodes - 1}}
        await self._requested("get", path)
        return copy.deepcopy(self._there(path))

    async def create(self, path: str, body: Json, params: Params | None = None) -> Json:
        dry = (params or {}).get("dryRun") == "All"
        place = f"{path}/{body['metadata']['name']}"
        await self._requested("dry-run" if dry else "create", place)
        _check(body["spec"])
        if place in self.server.objects:
            raise error_for(409, "AlreadyExists", f"{body['metadata']['name']} already exists")
        if dry:
            return copy.deepcopy(body)
        self.server.put(body)
        return copy.deepcopy(self.server.objects[place])

    async def merge_patch(self, path: str, body: Json, *, manager: str) -> Json:
        await self._requested("patch", path)
        there = self._there(path)
        for key, value in body.get("metadata", {}).items():
            if key in ("uid", "resourceVersion") and there["metadata"][key] != value:
                raise error_for(409, "Conflict", f"{key} differs")
        after = merged(there, body)
        _check(after["spec"])
        _check_step(there["spec"], after["spec"])
        return self.server.store(path, lambda one: one.update(after))

    async def delete(self, path: str, *, uid: str = "", resource_version: str = "") -> None:
        await self._requested("delete", path)
        metadata = self._there(path)["metadata"]
        if uid not in ("", metadata["uid"]) or resource_version not in ("", metadata["resourceVersion"]):
            raise error_for(409, "Conflict", "the precondition does not hold")
        del self.server.objects[path]
        self.server.changed()

    async def _requested(self, verb: str, path: str) -> None:
        await trio.lowlevel.checkpoint()
        plural, name = path.split("/")[-2:]
        self.server.requests.append((verb, f"{plural}/{name}"))
        error = self.server.fault(verb, plural, name)
        if error is not None:
            raise error

    def _there(self, path: str) -> Json:
        if path not in self.server.objects:
            raise error_for(404, "NotFound", f"{path} not found")
        return self.server.objects[path]


def merged(there: Any, patch: Any) -> Any:
    """Return the patched value (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(there) if isinstance(there, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _check(spec: Json) -> None:
    if spec.get("vni", 1) > 16777215:
        raise error_for(422, "Invalid", "spec.vni: too large")


def _check_step(old: Json, new: Json) -> None:
    for session in (old.get("hostSession"), new.get("hostSession")):
        if session is None:
            return
    if old["hostSession"]["localCIDR"] != new["hostSession"]["localCIDR"]:
        raise error_for(422, "Invalid", "spec.hostSession.localCIDR: is immutable")


def _selects(spec: Json, node: ApiNode) -> bool:
    labels = (spec.get("nodeSelector") or {}).get("matchLabels", {})
    return all(node.labels.get(key) == value for key, value in labels.items())


def _parsed(one: Json) -> ApiObject:
    metadata = one["metadata"]
    return ApiObject(
        kind=Kind(one["kind"]),
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        labels=metadata.get("labels", {}),
        annotations=metadata.get("annotations", {}),
        owners=tuple(metadata.get("ownerReferences", ())),
        spec=one["spec"],
    )
