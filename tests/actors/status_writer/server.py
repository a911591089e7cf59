"""An API server in memory that does what this actor relies on; tests/cluster has the same tests with a real one.

Server-side apply here replaces whole fields at the second level, which is what it comes to for one manager.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import trio

from actors.lib.kube.client import Json, KubeClient, Params
from actors.lib.kube.errors import ApiError, error_for
from config.api import ApiCredentials

#: The fault that a test injects: gets verb and path of a request, returns its error.
Fault = Callable[[str, str], ApiError | None]


def forbidden(verb: str, path: str) -> ApiError:
    """Return the error for a request that RBAC does not allow."""
    return error_for(403, "Forbidden", f"{verb} {path} is forbidden")


@dataclass
class FakeServer:
    """The stored objects by path. ``requests`` are those that were made, as ``(verb, path)``."""

    objects: dict[str, Json] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    connections: int = 0
    fault: Fault = lambda verb, path: None
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1000))

    def connect(self, credentials: ApiCredentials) -> KubeClient:
        """Return a client."""
        return FakeClient(credentials, self)

    def writes(self, part: str = "") -> list[tuple[str, str]]:
        """Return the requests that change something whose path has this in it."""
        return [request for request in self.requests if request[0] not in ("get", "list") and part in request[1]]

    def find(self, part: str) -> list[Json]:
        """Return the objects whose path has this in it."""
        return [one for path, one in self.objects.items() if part in path]

    async def answer(self, verb: str, path: str, act: Callable[[], Json]) -> Json:
        """Serve a request as the real one would: after a moment, or with an error."""
        await trio.lowlevel.checkpoint()
        self.requests.append((verb, path))
        if error := self.fault(verb, path):
            raise error
        return copy.deepcopy(act())

    def stored(self, path: str) -> Json:
        """Return an object. Raises the server's error where there is none."""
        if path not in self.objects:
            raise error_for(404, "NotFound", f"{path} is not there")
        return self.objects[path]

    def store(self, path: str, one: Json) -> Json:
        """Store an object under a new version, unless it is the same."""
        if one != self.objects.get(path):
            one["metadata"]["resourceVersion"] = str(next(self._versions))
            self.objects[path] = one
        return one


class FakeClient(KubeClient):
    """Talks to a :class:`FakeServer`."""

    def __init__(self, credentials: ApiCredentials, server: FakeServer) -> None:
        super().__init__(credentials)
        self._server = server

    async def __aenter__(self) -> KubeClient:
        self._server.connections += 1
        return self

    async def get(self, path: str, params: Params | None = None) -> Json:
        if params and "limit" in params:
            there = [one for known, one in self._server.objects.items() if known.startswith(f"{path}/")]
            page = {"items": there[:1], "metadata": {"remainingItemCount": max(0, len(there) - 1)}}
            return await self._server.answer("list", path, lambda: page)
        return await self._server.answer("get", path, lambda: self._server.stored(path))

    async def create(self, path: str, body: Json, params: Params | None = None) -> Json:
        full = f"{path}/{body['metadata']['name']}"

        def act() -> Json:
            if full in self._server.objects:
                raise error_for(409, "AlreadyExists", f"{full} is there")
            return self._server.store(full, copy.deepcopy(body))

        return await self._server.answer("create", path, act)

    async def apply(self, path: str, body: Json, *, manager: str, force: bool = True) -> Json:
        status = path.endswith("/status")
        full = path.removesuffix("/status")

        def act() -> Json:
            before = self._server.stored(full) if status else self._server.objects.get(full, {"metadata": {}})
            _guard(before, body)
            after = copy.deepcopy(before)
            changed = {"status": {**before.get("status", {}), **body["status"]}} if status else body
            after |= {key: value for key, value in copy.deepcopy(changed).items() if key != "metadata"}
            after["metadata"] |= {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
            return self._server.store(full, after)

        return await self._server.answer("apply", path, act)

    async def merge_patch(self, path: str, body: Json, *, manager: str) -> Json:
        full = path.removesuffix("/status")

        def act() -> Json:
            before = self._server.stored(full)
            return self._server.store(full, _merged(before, body))

        return await self._server.answer("patch", path, act)


def _guard(before: Json, body: Json) -> None:
    wanted = body["metadata"].get("resourceVersion")
    if wanted not in (None, before["metadata"].get("resourceVersion")):
        raise error_for(409, "Conflict", "the object has been modified")


def _merged(value: Any, patch: Any) -> Any:
    """Return a JSON merge patch applied (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), change)
    return merged
