"""An API server in memory, as far as lists and watches go, that can do everything wrong that a real one can.

What it does right is what tests/cluster sees of the real one: consistent lists in pages, watches from a version on with
the history in between, 410 for a version that is forgotten, watches that break with their server.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from actors.lib.kube.client import Json, KubeClient, Params
from actors.lib.kube.errors import ApiError, UnreachableError, error_for
from config.api import NODE_STATUS_PLURAL, PLURALS, ApiCredentials
from config.problems import Kind

#: The source of credentials of which no client can be made.
UNUSABLE = "unusable"
#: What a test may make go wrong: gets the verb (list, watch, get) and the resource, returns the error of that request.
Trouble = Callable[[str, str], ApiError | None]


@dataclass(frozen=True)
class Change:
    """One entry of the history."""

    version: int
    resource: str
    what: str
    raw: Json


@dataclass
class FakeServer:
    """``requests`` are those made so far, as ``(verb, resource)``. ``page`` is the largest page, whatever is asked for.

    A watch for a version below ``oldest`` gets 410. ``watch_seconds``: the server ends a watch after so long.
    """

    url: str = "https://192.0.2.1:6443"
    version: int = 100
    oldest: int = 0
    #: The verb that gets no answer; a client times out after half a minute.
    hanging: str = ""
    page: int = 500
    watch_seconds: float = 300
    trouble: Trouble = lambda verb, resource: None
    objects: dict[str, dict[tuple[str, str], Json]] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    #: When each of them came.
    times: list[float] = field(default_factory=list)
    clients: list[FakeClient] = field(default_factory=list)
    #: Sent in all watches of a resource: ``(resource, event)``.
    said: list[tuple[str, Json]] = field(default_factory=list)
    watches: int = 0
    #: How many watches were opened so far, and how many of them are dead.
    opened: int = 0
    dead: int = 0
    #: How watches break: raised in all of them at once.
    _breaks: int = 0
    _breaking: ApiError | None = None
    _stirred: trio.Event = field(default_factory=trio.Event)

    def connect(self, credentials: ApiCredentials) -> KubeClient:
        """Return a client."""
        self.clients.append(FakeClient(credentials, self))
        return self.clients[-1]

    def credentials(self, token_of: str = "node") -> ApiCredentials:  # noqa: S107 - a name for tests
        """Return credentials for this server."""
        return ApiCredentials(self.url, source=token_of)

    def put(
        self, resource: str, name: str, spec: Any = None, *, namespace: str = "", labels: Any = None, **more: Any
    ) -> Json:
        """Make or change an object as a user would; ``more`` are further keys of its metadata or of the object."""
        before = self.objects.setdefault(resource, {}).get((namespace, name))
        self.version += 1
        old = before["metadata"] if before else {}
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": old.get("uid", f"uid-{self.version}"),
            "generation": old.get("generation", 0) + 1,
            "resourceVersion": str(self.version),
            "creationTimestamp": old.get("creationTimestamp", "2026-11-21T00:00:00Z"),
            "labels": labels or {},
            **more.pop("metadata", {}),
        }
        raw: Json = {"metadata": {key: value for key, value in metadata.items() if value != ""}, **more}
        if spec is not None:
            raw["spec"] = spec
        self.objects[resource][namespace, name] = raw
        self._remember(resource, "MODIFIED" if before else "ADDED", raw)
        return raw

    def put_kind(self, kind: Kind, name: str, spec: Any = None, *, namespace: str = "default", **more: Any) -> Json:
        """Make or change a custom resource."""
        return self.put(PLURALS[kind], name, {} if spec is None else spec, namespace=namespace, **more)

    def put_node(self, name: str = "node", **labels: str) -> Json:
        """Make the Node, or give it exactly these labels beside its hostname."""
        return self.put("nodes", name, labels={"kubernetes.io/hostname": name, **labels})

    def put_secret(self, name: str, password: str, *, namespace: str = "openperouter-system") -> Json:
        """Make or change a Secret with a password."""
        return self.put(
            "secrets", name, namespace=namespace, data={"password": base64.b64encode(password.encode()).decode()}
        )

    def delete(self, resource: str, name: str, *, namespace: str = "") -> None:
        """Delete an object."""
        self.version += 1
        raw = copy.deepcopy(self.objects[resource].pop((namespace, name)))
        raw["metadata"]["resourceVersion"] = str(self.version)
        self._remember(resource, "DELETED", raw)

    def delete_kind(self, kind: Kind, name: str, *, namespace: str = "default") -> None:
        """Delete a custom resource."""
        self.delete(PLURALS[kind], name, namespace=namespace)

    def compact(self) -> None:
        """Forget the history: versions from before are gone."""
        self.version += 1
        self.oldest = self.version
        self.history.clear()

    def break_watches(self, error: ApiError | None = None) -> None:
        """End all watches, with an error or as the server does it in good order."""
        self._breaks += 1
        self._breaking = error
        self._stir()

    def let_connections_die(self) -> None:
        """Let the watches that are open stay silent indefinitely, without an error."""
        self.dead = self.opened

    def stop(self) -> None:
        """Break everything and refuse everything until :meth:`start`."""
        self.trouble = lambda verb, resource: UnreachableError("connection refused")
        self.break_watches(UnreachableError("connection reset"))

    def start(self, *, forget: bool = False) -> None:
        """Be there again; with ``forget`` as one that begins its history now."""
        self.trouble = lambda verb, resource: None
        if forget:
            self.compact()

    def requests_of(self, verb: str) -> list[str]:
        """Return the resources that were asked for with a verb."""
        return [resource for asked, resource in self.requests if asked == verb]

    def select(self, path: str, params: Params) -> Iterator[Json]:
        """Yield what a list of a path gives."""
        resource, namespace = _place(path)
        for (where, name), raw in sorted(self.objects.get(resource, {}).items()):
            if namespace in ("", where) and _name(params) in ("", name):
                yield copy.deepcopy(raw)

    async def events(self, path: str, params: Params) -> AsyncGenerator[Json, None]:
        """Yield what a watch gives."""
        resource, namespace = _place(path)
        position, breaks, sent = int(params["resourceVersion"]), self._breaks, len(self.said)
        ends_at = trio.current_time() + self.watch_seconds
        self.opened += 1
        serial = self.opened
        if position < self.oldest:
            yield {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
            return
        while trio.current_time() < ends_at:
            if serial <= self.dead:
                await trio.sleep(self.watch_seconds + 30)
                raise UnreachableError("silence")
            if self._breaks > breaks:
                if self._breaking is not None:
                    raise self._breaking
                return
            for change in [one for one in self.history if one.version > position]:
                position = change.version
                meta = change.raw["metadata"]
                here = change.resource == resource and namespace in ("", meta.get("namespace", ""))
                if here and _name(params) in ("", meta["name"]):
                    yield {"type": change.what, "object": copy.deepcopy(change.raw)}
            while sent < len(self.said):
                sent += 1
                if self.said[sent - 1][0] == resource:
                    yield self.said[sent - 1][1]
            with trio.move_on_at(ends_at):
                await self._stirred.wait()

    def say(self, resource: str, event: Json) -> None:
        """Send an event to the watches of a resource that are open."""
        self.said.append((resource, event))
        self._stir()

    def bookmark(self, resource: str) -> None:
        """Send the server's version to the watches of a resource."""
        self.say(resource, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    def _remember(self, resource: str, what: str, raw: Json) -> None:
        self.history.append(Change(self.version, resource, what, copy.deepcopy(raw)))
        self._stir()

    def _stir(self) -> None:
        stirred, self._stirred = self._stirred, trio.Event()
        stirred.set()


class FakeClient(KubeClient):
    """A client of the server in memory."""

    def __init__(self, credentials: ApiCredentials, server: FakeServer) -> None:
        super().__init__(credentials)
        self.server = server
        self.open = False

    async def __aenter__(self) -> KubeClient:
        if self.credentials.source == UNUSABLE:
            raise UnreachableError("the certificates are not usable")
        self.open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.open = False

    async def get(self, path: str, params: Params | None = None) -> Json:
        await self._ask("get", _place(path)[0])
        size, found = int((params or {})["limit"]), list(self.server.select(path, {}))
        more = {"remainingItemCount": len(found) - size} if len(found) > size else {}
        return {"kind": "SomeList", "metadata": more, "items": found[:size]}

    async def text(self, path: str) -> str:
        await self._ask("get", _place(path)[0])
        return "ok"

    async def pages(self, path: str, params: Params | None = None, *, limit: int = 500) -> AsyncGenerator[Json, None]:
        assert "resourceVersion" not in (params or {}), "a list that may be older than what was seen"
        version, found = str(self.server.version), list(self.server.select(path, params or {}))
        size = min(limit, self.server.page)
        for begin in range(0, max(len(found), 1), size):
            await self._ask("list", _place(path)[0])
            yield {"kind": "SomeList", "metadata": {"resourceVersion": version}, "items": found[begin : begin + size]}

    @asynccontextmanager
    async def watch(self, path: str, params: Params) -> AsyncIterator[AsyncIterator[Json]]:
        await self._ask("watch", _place(path)[0])
        assert params["allowWatchBookmarks"] == "true"
        self.server.watches += 1
        try:
            async with aclosing(self.server.events(path, params)) as events:
                yield events
        finally:
            self.server.watches -= 1

    async def _ask(self, verb: str, resource: str) -> None:
        assert self.open
        await trio.lowlevel.checkpoint()
        self.server.requests.append((verb, resource))
        self.server.times.append(trio.current_time())
        if verb == self.server.hanging:
            await trio.sleep(30)
            raise UnreachableError("no complete answer within 30 s")
        error = self.server.trouble(verb, resource)
        if error is not None:
            raise error


def _place(path: str) -> tuple[str, str]:
    """Return the resource and the namespace, "" for all, of a path."""
    parts = path.split("/")
    return parts[-1], parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""


def _name(params: Params) -> str:
    return str(params.get("fieldSelector", "")).removeprefix("metadata.name=")


def not_found() -> ApiError:
    """Return the error for a kind that is not installed."""
    return error_for(404, "", "404 page not found")


def every_kind() -> list[str]:
    """Return the resources whose CRDs are ours."""
    return [*PLURALS.values(), NODE_STATUS_PLURAL]
