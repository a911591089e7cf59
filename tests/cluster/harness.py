"""The API server as the tests see it: the program's own credentials for it, and what they want to do to it.

    server.url, server.ca               where it is, and the PEM that vouches for it
    server.admin                        ApiCredentials of an administrator (a token)
    server.credentials(user, groups)    ApiCredentials of anybody (a client certificate)
    server.stop(), .start()             connections break and new ones are refused; same address and data afterwards
    server.pause(), .resume()           silence: connections stay and nothing is answered
    server.compact()                    history is forgotten: list pages and watches from before are gone (410)
    server.requests(user)               what that user has asked so far, as the server's audit log says

    async with kube(server.admin) as client: ...
    token = await service_account(client, namespace, name)    a ServiceAccount and a token for it

``start``, ``stop`` and the like block for up to a few seconds: in a test where other tasks must keep running meanwhile,
``await trio.to_thread.run_sync(server.start)``.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import yaml

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import ConflictError, NotFoundError, ThrottledError
from config.api import ApiCredentials
from config.desired import Secret
from kubeserver.build import NEWEST, RELEASES, Release
from kubeserver.server import ApiServer

ROOT: Final = Path(__file__).resolve().parents[2]
CRDS: Final = ROOT / "packaging" / "crds"
CRD_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MANAGER: Final = "openperouter-tests"
_POLL_SECONDS: Final = 0.05
#: Most seconds that a test waits for something: enough for a machine that is busy with something else.
PATIENCE: Final = 90.0

Json = dict[str, Any]

#: A mark: run the test with the oldest version that is tested, too.
both_versions = pytest.mark.parametrize("server", [release.minor for release in RELEASES], indirect=True)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the audit log has it; ``resource`` is ``nodes`` or, of a subresource, ``underlays/status``."""

    verb: str
    resource: str
    namespace: str
    name: str
    code: int


class ClusterServer(ApiServer):
    """An API server whose credentials are the program's."""

    def __init__(self, release: Release = NEWEST, *, logs: Path | None = None) -> None:
        super().__init__(release, logs=logs)
        self._audited: list[tuple[str, Request]] = []
        self._audited_until = 0

    @cached_property
    def admin(self) -> ApiCredentials:
        """An administrator, by token."""
        return ApiCredentials(server=self.url, source="admin", ca=self.ca, token=Secret(self.admin_token))

    def credentials(self, user: str, groups: Iterable[str] = ()) -> ApiCredentials:
        """Return a user's credentials, a client certificate; no user object is needed.

        A node is ``credentials("system:node:NAME", ["system:nodes"])``.
        """
        pair = self.client_certificate(user, groups)
        key = Secret(pair.key.read_text())
        return replace(
            self.admin, source=user, token=None, client_certificate=pair.certificate.read_text(), client_key=key
        )

    def requests(self, user: str | None = None) -> list[Request]:
        """Return the requests that have been answered (a watch: that has begun) so far, oldest first."""
        events, self._audited_until = self.audit_from(self._audited_until)
        self._audited += [
            (event["user"].get("username", ""), _request(event))
            for event in events
            if event["stage"] == ("ResponseStarted" if event["verb"] == "watch" else "ResponseComplete")
        ]
        return [request for name, request in self._audited if user in (None, name)]


def _request(event: Mapping[str, Any]) -> Request:
    about = event.get("objectRef", {})
    resource = "/".join(filter(None, [about.get("resource"), about.get("subresource")]))
    code = event.get("responseStatus", {}).get("code", 0)
    return Request(event["verb"], resource, about.get("namespace", ""), about.get("name", ""), code)


@asynccontextmanager
async def kube(credentials: ApiCredentials) -> AsyncIterator[KubeClient]:
    """Open the program's own client."""
    async with KubeClient(credentials) as client:
        yield client


async def eventually(what: str, check: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until a condition of the outside world holds; these have no event to wait for."""
    with trio.move_on_after(seconds):
        while not check():  # noqa: ASYNC110
            await trio.sleep(_POLL_SECONDS)
        return
    raise AssertionError(f"not within {seconds:g} s: {what}")


async def make(client: KubeClient, path: str, body: Json) -> Json:
    """Create an object in the collection ``path``, or return the one that is there."""
    try:
        return await client.create(path, body)
    except ConflictError:
        return await client.get(f"{path}/{body['metadata']['name']}")


async def make_namespace(client: KubeClient, name: str) -> None:
    """Make a namespace where there is none."""
    await make(client, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def make_node(client: KubeClient, name: str, labels: Mapping[str, str] | None = None) -> Json:
    """Make a Node, as kubelet would, and return it; an older one of that name is replaced."""
    labels = {"kubernetes.io/hostname": name, **(labels or {})}
    path = "/api/v1/nodes"
    with suppress(NotFoundError):
        await client.delete(f"{path}/{name}")
    return await client.create(path, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})


async def delete_nodes(client: KubeClient) -> None:
    """Delete the Nodes that tests before have left, also those that a finalizer holds: a server serves many modules."""
    for one in (await client.get("/api/v1/nodes"))["items"]:
        path = f"/api/v1/nodes/{one['metadata']['name']}"
        if one["metadata"].get("finalizers"):
            await client.merge_patch(path, {"metadata": {"finalizers": None}}, manager=MANAGER)
        with suppress(NotFoundError):
            await client.delete(path)


async def service_account(
    client: KubeClient, namespace: str, name: str, *, seconds: int = 3600, bound: Mapping[str, str] | None = None
) -> ApiCredentials:
    """Make a ServiceAccount where there is none, and return credentials with a token that it asks for.

    ``seconds`` is how long the token is valid; Kubernetes takes no less than 600. ``bound`` is the Pod or Node to
    which it is bound, as in ``boundObjectRef``.
    """
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await make(client, accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    wanted = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "audiences": [], **({"boundObjectRef": dict(bound)} if bound else {})},
    }
    answer = await client.create(f"{accounts}/{name}/token", wanted)
    return replace(client.credentials, source=name, token=Secret(answer["status"]["token"]))


def of_node(name: str) -> Mapping[str, str]:
    """Return what binds a token to a Node."""
    return {"apiVersion": "v1", "kind": "Node", "name": name}


async def install_crds(client: KubeClient, directory: Path = CRDS) -> list[str]:
    """Install the CRDs in a directory, wait until each is served, and return their names."""
    definitions = {one["metadata"]["name"]: one for one in _definitions(directory)}
    for name, definition in definitions.items():
        await client.apply(f"{CRD_PATH}/{name}", definition, manager=MANAGER)
    for name, definition in definitions.items():
        for version in definition["spec"]["versions"]:
            await _served(client, name, version["name"])
    return list(definitions)


def _definitions(directory: Path) -> Iterator[Json]:
    for file in sorted(directory.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                yield document


async def _served(client: KubeClient, name: str, version: str) -> None:
    """Wait until the objects can be listed: a definition is Established a moment before."""
    plural, _, group = name.partition(".")
    with trio.fail_after(PATIENCE):
        while True:
            with suppress(NotFoundError, ThrottledError):
                await client.get(f"/apis/{group}/{version}/{plural}", {"limit": 1})
                return
            await trio.sleep(_POLL_SECONDS)


def namespace_name(test: str) -> str:
    """Return a name for a test's namespace."""
    words = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_")).strip("-")
    return f"test-{words[:40].strip('-')}"
